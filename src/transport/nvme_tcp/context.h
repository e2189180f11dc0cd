// What the connections and associations of one target share. Owned by its loop; one thread, except `sleeping` and
// `wake_fd`, which engine threads use to wake it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "transport/nvme_tcp/buffer_pool.h"
#include "transport/nvme_tcp/nvme_tcp_target.h"

namespace flashmob::transport {

struct TargetContext {
  TargetContext(controller::Subsystem& s, engine::Engine& e, const ControllerConfig& c, const NvmeTcpTargetOptions& o)
      : subsystem(s), engine(e), controller_config(c), options(o), pool(o.buffer_bytes) {}

  controller::Subsystem& subsystem;
  engine::Engine& engine;
  ControllerConfig controller_config;
  const NvmeTcpTargetOptions options;
  BufferPool pool;
  std::uint16_t port = 0;  // that we listen on
  bool ipv6 = false;
  std::uint64_t now_ms = 0;              // of this round
  std::uint32_t waiting_for_buffers = 0;  // commands, in all connections
  bool gathers = false;  // lets the engine finish its batch before it takes completions
  std::atomic<bool> sleeping{false};
  int wake_fd = -1;

  // The host's entry in the access list; nullptr where it has none.
  const NvmeTcpHost* find_host(const std::string& nqn) const {
    for (const NvmeTcpHost& host : options.hosts)
      if (host.nqn == nqn) return &host;
    return nullptr;
  }
  bool admits(const std::string& nqn) const { return options.hosts.empty() || find_host(nqn) != nullptr; }
};

}  // namespace flashmob::transport
