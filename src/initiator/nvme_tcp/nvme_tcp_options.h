// How to reach an NVMe/TCP controller, and what to agree upon with it. Plain data; no thread rule.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "fabrics/idle_spin.h"

namespace flashmob::initiator {

struct NvmeTcpOptions {
  std::string address = "127.0.0.1";  // or a host name, or an IPv6 address
  std::uint16_t port = 4420;
  std::string subsystem_nqn;
  std::string host_nqn;                     // empty: one made from host_id
  std::array<std::uint8_t, 16> host_id{};   // all zero: one drawn at random for this process
  bool header_digest = false;
  bool data_digest = false;
  // How long the controller waits for a sign of life before it gives the connections up; 0: for ever.
  std::uint32_t keep_alive_ms = 15'000;
  // For setting a connection up and for every register access.
  std::uint32_t timeout_ms = 5'000;
  // Once it is true, a controller that does not answer a register access is gone in a moment; it outlives the device.
  const std::atomic<bool>* is_hurried = nullptr;
  // In-band authentication, as DHHC-1 secrets; the second makes the controller prove itself, too.
  std::string dhchap_secret;
  std::string dhchap_controller_secret;
  // A key of TLS, "NVMeTLSkey-1:...": every connection is one of TLS. Empty: none is.
  std::string tls_key;
  // Every connection is one of TLS, with a key that authentication makes: the host proves itself on a first connection,
  // and comes again by TLS.
  bool secure_channel = false;
  // Threads that move the queues' bytes; queues are dealt out to them in turn.
  unsigned pump_threads = 1;
  // A thread that has found nothing to do for this long sleeps until the network or a doorbell wakes it. Unless told
  // otherwise 50 us, or 0 where cores are few.
  std::uint64_t idle_spin_ns = fabrics::kIdleSpinAuto;
};

// Fills in what was left empty. Throws ConfigError where something cannot be used.
NvmeTcpOptions completed(NvmeTcpOptions options);

}  // namespace flashmob::initiator
