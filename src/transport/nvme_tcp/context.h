// What the connections and associations of one target share. Owned by its loop; one thread, except `sleeping` and
// `wake_fd`, which engine threads use to wake it.
#pragma once

#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/fair_share.h"
#include "fabrics/tls_psk.h"
#include "nvme/fabrics.h"
#include "transport/nvme_tcp/authenticator.h"
#include "transport/nvme_tcp/buffer_pool.h"
#include "transport/nvme_tcp/delay_log.h"
#include "transport/nvme_tcp/generated_keys.h"
#include "transport/nvme_tcp/nvme_tcp_target.h"

namespace flashmob::transport {

// What all connections from one address hold together.
struct Peer {
  FairShare::Holder connections, queue_memory, blocks;
};

struct TargetContext {
  // A queue is kept for long: two hosts of one address must both get as many as Linux ever wants.
  static constexpr std::uint64_t kMostQueueMemory = 4;

  TargetContext(controller::Subsystem& s, engine::Engine& e, const ControllerConfig& c, const NvmeTcpTargetOptions& o)
      : subsystem(s),
        engine(e),
        controller_config(c),
        options(o),
        pool(o.buffer_bytes, c.max_transfer_bytes),
        queue_memory(o.queue_memory_bytes, kMostQueueMemory) {}

  controller::Subsystem& subsystem;
  engine::Engine& engine;
  ControllerConfig controller_config;
  const NvmeTcpTargetOptions options;
  BufferPool pool;
  FairShare queue_memory;  // bytes
  std::uint64_t hosts_seen = 0;
  std::uint16_t port = 0;  // that we listen on
  bool ipv6 = false;
  std::uint64_t now_ms = 0;              // of this round
  DoorLooks looks;
  std::uint32_t waiting_for_buffers = 0;  // commands, in all connections
  bool pool_exhausted = false;  // somebody who waits would have its share: of what is shared, others get none
  bool gathers = false;  // lets the engine finish its batch before it takes completions
  Authenticator* authenticator = nullptr;  // nullptr: steps of authentication are made at once
  GeneratedKeys generated_keys;
  std::atomic<bool> sleeping{false};
  int wake_fd = -1;

  std::uint64_t now_ns() const { return engine.clock().now_ns(); }

  // On another thread: has a target that sleeps look again. The first caller wakes it; it clears the word before it
  // looks the last time, so that no wake-up is lost.
  void wake() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (sleeping.load(std::memory_order_relaxed) && sleeping.exchange(false, std::memory_order_relaxed))
      eventfd_write(wake_fd, 1);
  }

  // The host's entry in the access list; nullptr where it has none.
  const NvmeTcpHost* find_host(const std::string& nqn) const {
    for (const NvmeTcpHost& host : options.hosts)
      if (host.nqn == nqn) return &host;
    return nullptr;
  }
  const controller::HostRights& rights_of(const std::string& nqn) const {
    const NvmeTcpHost* const host = find_host(nqn);
    return host != nullptr && host->rights ? *host->rights : options.rights;
  }
  // The PSK of TLS that a host says it has, if it has it from us.
  std::optional<fabrics::TlsPsk> find_psk(const fabrics::PskIdentity& identity) {
    if (identity.generated) return generated_keys.find(identity);
    const std::string& subsystem_nqn = identity.parties.subsystem_nqn;
    if (subsystem_nqn != subsystem.config().nqn && subsystem_nqn != nvme::kDiscoveryNqn) return std::nullopt;
    const NvmeTcpHost* const host = find_host(identity.parties.host_nqn);
    const std::string& key = host != nullptr && !host->tls_key.empty() ? host->tls_key : options.tls_key;
    return key.empty() ? std::nullopt : fabrics::TlsKey(key).find(identity);
  }
  // Whether anybody may come by TLS: with a key of the configuration, or with one that an authentication makes.
  bool takes_tls() const {
    const auto has_secret = [](const NvmeTcpHost& host) { return !host.dhchap_secret.empty(); };
    return options.tls != TlsUse::off || std::ranges::any_of(options.hosts, has_secret);
  }
  // Whether this host may attach by TLS only.
  bool must_be_secure(const std::string& nqn) const {
    const NvmeTcpHost* const host = find_host(nqn);
    return options.tls == TlsUse::required || (host != nullptr && !host->tls_key.empty());
  }
  bool admits(const std::string& nqn) const { return options.hosts.empty() || find_host(nqn) != nullptr; }
};

}  // namespace flashmob::transport
