// Attaching to the door of another process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "driver/pci_device.h"
#include "flashmob/bench.h"

namespace flashmob::api {

// Whose door it is, and who we are there. All but the address is for NVMe/TCP.
struct Target {
  std::string address = {};   // vfio-user:PATH, nvme-tcp:ADDRESS:PORT/NQN or pci:ADDRESS
  std::string host_nqn = {};  // empty: one of flashmob's own
  std::string host_key = {};  // DHHC-1 secrets and a TLS key, as BenchOptions has them; empty: none
  std::string controller_key = {};
  std::string tls_key = {};
  bool secure_channel = false;
  bool header_digest = false;
  bool data_digest = false;
  std::uint32_t threads = 1;  // that play the device's part
  std::uint64_t timeout_ns = 0;  // for an answer of the server itself, up to an hour; 0: as the door has it
  const std::atomic<bool>* is_hurried = nullptr;  // once it is true, a server that does not answer is gone in a moment
};

Target target_of(const BenchOptions& options);

// Whether it names a drive of this machine, whose data is nobody's to lose unasked.
bool is_pci(std::string_view address);

// Checks what a target names without attaching. Throws ConfigError.
void check_target(const Target& target);

// Attaches. Throws ConfigError where it is no target or nobody serves it.
std::unique_ptr<driver::PciDevice> open_target(const Target& target);

}  // namespace flashmob::api
