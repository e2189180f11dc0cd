// The NVMe/TCP door: hosts attach to a subsystem over the network (NVMe TCP transport 1.0c; NVMe Base 2.0c, chapters
// 2.2 and 6). Linux's nvme-tcp driver, SPDK and our own initiator speak to it.
//
// The target is itself a host of the engine. Each host association has a controller of its own; each connection is a
// queue, with a pair of rings and buffers of ours in that controller's address space. Command capsules become entries
// of the ring, the engine moves the bytes between media and buffer, and the socket sends from, or receives into, that
// buffer: in user space a payload is copied once. What arrives in the same segment as its header is the exception: it
// was received before anybody knew where it belongs, and is copied once more.
//
// start() runs the loop on a thread of its own; the other functions may be called from any thread. Without start() the
// caller drives it by poll(), and may then drive an engine that was not started, too.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/controller.h"
#include "controller/rights.h"
#include "controller/subsystem.h"
#include "engine/engine.h"
#include "fabrics/idle_spin.h"
#include "flashmob/config.h"

namespace flashmob::transport {

// A host that may attach.
struct NvmeTcpHost {
  std::string nqn;
  std::string dhchap_secret;             // "DHHC-1:...": the host must prove that it knows it; empty: no questions
  std::string dhchap_controller_secret;  // with which we answer hosts that ask the same of us
  std::string tls_key{};                 // "NVMeTLSkey-1:...": the host must come by TLS, with this key
  std::optional<controller::HostRights> rights = {};  // empty: those of the target
};

enum class TlsUse : std::uint8_t {
  off,       // but for keys that authentication makes, which hosts with a secret may ask for
  allowed,   // a connection may be one of TLS; that of a host with a key of its own must be
  required,  // of every host, but to ask the discovery controller
};

struct NvmeTcpTargetOptions {
  std::string address = "127.0.0.1";  // an IPv4 or IPv6 address
  std::uint16_t port = 4420;          // 0: any that is free
  std::vector<NvmeTcpHost> hosts;     // empty: everyone may attach
  controller::HostRights rights = {};  // of hosts that have none of their own
  TlsUse tls = TlsUse::off;
  std::string tls_key;  // of hosts that have none of their own; empty: those cannot come by TLS
  // An address may hold as many of each of the next three as would be left for others (base/fair_share.h).
  std::uint32_t max_connections = 2048;  // fewer where the process may not have so many descriptors
  std::uint64_t queue_memory_bytes = std::uint64_t{4} << 30;  // rings, and each command's own buffer
  std::uint32_t max_queue_entries = 1024;             // of an I/O queue, 2...4096; at most the controller's
  std::uint32_t in_capsule_bytes = 8192;              // data in a command capsule of an I/O queue, 0...65536
  std::uint32_t max_h2c_data_bytes = 256 * 1024;      // MAXH2CDATA: 4096...16 MiB
  std::uint64_t buffer_bytes = std::uint64_t{256} << 20;  // for transfers that do not fit their command's own buffer
  // A host that has begun a PDU, has been asked for data, or has answers to take, and moves nothing for so long, is
  // gone.
  std::uint32_t stall_timeout_ms = 30'000;
  // One that has to authenticate, and has not when it has had so long for it. What we take is no part of that.
  std::uint32_t authentication_timeout_ms = 30'000;
  // One that has had a key of TLS made for it without TLS is to come again with it; the connection is over after so
  // long.
  std::uint32_t key_timeout_ms = 10'000;
  // Where connections run out, one gives way that has said nothing for so long and has no keep alive timer to end it
  // (keep_alive.h).
  std::uint32_t idle_timeout_ms = 10'000;
  // Look for work this long before sleeping; unless told otherwise 50 us, or 0 where cores are few.
  std::uint64_t idle_spin_ns = fabrics::kIdleSpinAuto;

  // Throws ConfigError.
  void validate() const;
};

class Authenticator;

class NvmeTcpTarget {
 public:
  // Listens at once, serves after start(). Subsystem and engine outlive it. Throws ConfigError.
  NvmeTcpTarget(controller::Subsystem& subsystem, engine::Engine& engine, const ControllerConfig& config,
                const NvmeTcpTargetOptions& options);
  ~NvmeTcpTarget();
  NvmeTcpTarget(const NvmeTcpTarget&) = delete;
  NvmeTcpTarget& operator=(const NvmeTcpTarget&) = delete;

  std::uint16_t port() const;
  std::uint32_t connections() const;  // now

  void start();
  // Closes every connection and takes the controllers from the engine, which must still be there.
  void stop();

  // --- Without start() ---
  // One round without sleeping; true if there was something to do.
  bool poll();
  // Has steps of authentications made there instead of at once. It outlives its use; nullptr ends that.
  void authenticate_by(Authenticator* authenticator);
  // Serves a connected stream socket as if it had been accepted. Takes the descriptor.
  void adopt(int socket);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flashmob::transport
