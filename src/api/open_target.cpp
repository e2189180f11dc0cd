#include "api/open_target.h"

#include <algorithm>
#include <string_view>

#include "api/socket_address.h"
#include "flashmob/error.h"
#include "initiator/nvme_tcp/nvme_tcp_device.h"
#include "initiator/vfio_pci/vfio_pci_device.h"
#include "initiator/vfio_user/vfio_user_device.h"

namespace flashmob::api {
namespace {

constexpr std::string_view kVfioUser = "vfio-user:";
constexpr std::string_view kPci = "pci:";
constexpr std::string_view kNvmeTcp = "nvme-tcp:";
constexpr int kAnswerMs = 10'000;  // of a vfio-user server

[[noreturn]] void reject(const std::string& target) {
  throw ConfigError(
      "target \"" + target +
      "\" is not possible: write vfio-user:PATH or nvme-tcp:ADDRESS:PORT/NQN, as flashmob serve prints it, or "
      "pci:ADDRESS, as flashmob pci list does");
}

std::uint32_t milliseconds(std::uint64_t ns) {
  constexpr std::uint64_t kHourMs = 3'600'000;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(ns / 1'000'000, 1, kHourMs));
}

initiator::NvmeTcpOptions tcp_options(const Target& target) {
  const std::string rest = target.address.substr(kNvmeTcp.size());
  const std::size_t slash = rest.find('/');
  if (slash == std::string::npos || slash + 1 == rest.size()) reject(target.address);
  const SocketAddress address = parse_socket_address(rest.substr(0, slash));
  initiator::NvmeTcpOptions options;
  options.address = address.host;
  options.port = address.port;
  options.subsystem_nqn = rest.substr(slash + 1);
  options.host_nqn = target.host_nqn;
  options.header_digest = target.header_digest;
  options.data_digest = target.data_digest;
  options.dhchap_secret = target.host_key;
  options.dhchap_controller_secret = target.controller_key;
  options.tls_key = target.tls_key;
  options.secure_channel = target.secure_channel;
  options.pump_threads = std::max(1u, target.threads);
  if (target.timeout_ns != 0) options.timeout_ms = milliseconds(target.timeout_ns);
  options.is_hurried = target.is_hurried;
  return options;
}

}  // namespace

Target target_of(const BenchOptions& options) {
  return {.address = options.target,
          .host_nqn = options.host_nqn,
          .host_key = options.host_key,
          .controller_key = options.controller_key,
          .tls_key = options.tls_key,
          .secure_channel = options.secure_channel,
          .header_digest = options.header_digest,
          .data_digest = options.data_digest,
          .threads = options.threads};
}

bool is_pci(std::string_view address) { return address.starts_with(kPci); }

void check_target(const Target& target) {
  if (target.address.starts_with(kNvmeTcp)) {
    static_cast<void>(tcp_options(target));
  } else if (is_pci(target.address)) {
    if (!initiator::is_pci_address(target.address.substr(kPci.size()))) reject(target.address);
  } else if (!target.address.starts_with(kVfioUser) || target.address.size() == kVfioUser.size()) {
    reject(target.address);
  }
}

std::unique_ptr<driver::PciDevice> open_target(const Target& target) {
  check_target(target);
  if (target.address.starts_with(kNvmeTcp)) return std::make_unique<initiator::NvmeTcpDevice>(tcp_options(target));
  if (is_pci(target.address)) return std::make_unique<initiator::VfioPciDevice>(target.address.substr(kPci.size()));
  const int answer_ms = target.timeout_ns != 0 ? static_cast<int>(milliseconds(target.timeout_ns)) : kAnswerMs;
  return std::make_unique<initiator::VfioUserDevice>(target.address.substr(kVfioUser.size()), answer_ms,
                                                     target.is_hurried);
}

}  // namespace flashmob::api
