#include "api/open_target.h"

#include <algorithm>
#include <string_view>

#include "api/socket_address.h"
#include "flashmob/error.h"
#include "initiator/nvme_tcp/nvme_tcp_device.h"
#include "initiator/vfio_user/vfio_user_device.h"

namespace flashmob::api {
namespace {

constexpr std::string_view kVfioUser = "vfio-user:";
constexpr std::string_view kNvmeTcp = "nvme-tcp:";

[[noreturn]] void reject(const std::string& target) {
  throw ConfigError(
      "target \"" + target +
      "\" is not possible: write vfio-user:PATH or nvme-tcp:ADDRESS:PORT/NQN, as flashmob serve prints it");
}

initiator::NvmeTcpOptions tcp_options(const BenchOptions& bench) {
  const std::string rest = bench.target.substr(kNvmeTcp.size());
  const std::size_t slash = rest.find('/');
  if (slash == std::string::npos || slash + 1 == rest.size()) reject(bench.target);
  const SocketAddress address = parse_socket_address(rest.substr(0, slash));
  initiator::NvmeTcpOptions options;
  options.address = address.host;
  options.port = address.port;
  options.subsystem_nqn = rest.substr(slash + 1);
  options.host_nqn = bench.host_nqn;
  options.header_digest = bench.header_digest;
  options.data_digest = bench.data_digest;
  options.dhchap_secret = bench.host_key;
  options.dhchap_controller_secret = bench.controller_key;
  options.tls_key = bench.tls_key;
  options.pump_threads = std::max(1u, bench.threads);
  return options;
}

}  // namespace

void check_target(const BenchOptions& options) {
  if (options.target.starts_with(kNvmeTcp)) {
    static_cast<void>(tcp_options(options));
  } else if (!options.target.starts_with(kVfioUser) || options.target.size() == kVfioUser.size()) {
    reject(options.target);
  }
}

std::unique_ptr<driver::PciDevice> open_target(const BenchOptions& options) {
  check_target(options);
  if (options.target.starts_with(kNvmeTcp)) return std::make_unique<initiator::NvmeTcpDevice>(tcp_options(options));
  return std::make_unique<initiator::VfioUserDevice>(options.target.substr(kVfioUser.size()));
}

}  // namespace flashmob::api
