#include "initiator/nvme_tcp/nvme_tcp_options.h"

#include <cstdio>
#include <random>

#include "base/check.h"
#include "fabrics/tls_psk.h"
#include "nvme/fabrics.h"

namespace flashmob::initiator {
namespace {

constexpr unsigned kMaxPumps = 32;

std::array<std::uint8_t, 16> random_uuid() {
  std::array<std::uint8_t, 16> uuid{};
  std::random_device random;
  for (auto& byte : uuid) byte = static_cast<std::uint8_t>(random());
  uuid[6] = static_cast<std::uint8_t>((uuid[6] & 0x0F) | 0x40);  // version 4, RFC 4122
  uuid[8] = static_cast<std::uint8_t>((uuid[8] & 0x3F) | 0x80);
  return uuid;
}

std::string nqn_of(const std::array<std::uint8_t, 16>& uuid) {
  std::string text = "nqn.2014-08.org.nvmexpress:uuid:";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", uuid[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

void check_nqn(const char* key, const std::string& nqn) {
  if (nqn.empty() || nqn.size() > nvme::kNqnMaxLength)
    throw ConfigError(std::string(key) + " = \"" + nqn + "\": an NQN has 1 to 223 characters");
}

}  // namespace

NvmeTcpOptions completed(NvmeTcpOptions options) {
  if (options.host_id == std::array<std::uint8_t, 16>{}) {
    // One for the process: a host is the same host on all its connections.
    static const std::array<std::uint8_t, 16> uuid = random_uuid();
    options.host_id = uuid;
  }
  if (options.host_nqn.empty()) options.host_nqn = nqn_of(options.host_id);
  check_nqn("subsystem_nqn", options.subsystem_nqn);
  check_nqn("host_nqn", options.host_nqn);
  if (options.pump_threads == 0 || options.pump_threads > kMaxPumps)
    throw ConfigError("pump_threads = " + std::to_string(options.pump_threads) + ": give 1 to 32");
  // The pumps, and at least one thread that drives the queues.
  options.idle_spin_ns = fabrics::idle_spin_ns(options.idle_spin_ns, options.pump_threads + 1);
  if (!options.tls_key.empty()) fabrics::TlsKey{options.tls_key};  // says what is wrong with it
  if (options.secure_channel && !options.tls_key.empty())
    throw ConfigError("secure_channel makes a key of TLS of its own, so it cannot go with tls_key; leave one out");
  if (options.secure_channel && options.dhchap_secret.empty())
    throw ConfigError("secure_channel makes its key while this host proves who it is; give dhchap_secret too");
  if (options.timeout_ms == 0) throw ConfigError("timeout_ms = 0: give the milliseconds to wait for the controller");
  return options;
}

}  // namespace flashmob::initiator
