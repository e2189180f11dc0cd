// An SSD whose engine runs on the GPU (or on fibres, where there is none), served to other processes over a UNIX
// socket: each brings its own queues and memory (docs/guide/gpu-resident-ssd.md). The other end is
// gpu::attach_remote().
//
//   const auto server = flashmob::gpu::serve(flashmob::on_gpu_engine(config, 16), "ssd.sock");
//
// Real time, on a thread of the server's own. stats() may be called by any thread; the rest belongs to one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "flashmob/config.h"

namespace flashmob::gpu {

struct GpuServerClient {
  std::uint64_t client = 0;  // counts from 1
  std::int64_t pid = 0;      // of the process that connected
  std::uint32_t queues = 0;
  std::uint64_t mapped_bytes = 0;  // of its memory, that the engine reaches
  std::uint64_t read_commands = 0;
  std::uint64_t write_commands = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
};

// As of at most a quarter of a second ago.
struct GpuServerStats {
  double uptime_s = 0;
  std::vector<GpuServerClient> clients;
  std::uint64_t clients_seen = 0;
  std::uint64_t clients_refused = 0;
  std::uint64_t completions = 0;
  double mean_lateness_ns = 0;  // of completions after their targets
  std::string last_event;  // the last client that went, and why
  bool lost = false;       // the kernel has gone down; everybody was disconnected
};

class GpuServer {
 public:
  // Most clients at once.
  static constexpr std::uint32_t kMaxClients = 16;

  virtual ~GpuServer() = default;  // stops
  // Disconnects every client, ends the kernel and removes the socket.
  virtual void stop() = 0;
  virtual GpuServerStats stats() const = 0;
  virtual const std::string& engine() const = 0;   // what runs it, and why, as a sentence
  virtual std::string address() const = 0;         // gpu-socket:PATH
};

// Listens at `path` and serves from then on. `backend`: auto, cuda or fibres. Throws ConfigError.
std::unique_ptr<GpuServer> serve(const DeviceConfig& config, const std::string& path,
                                 const std::string& backend = "auto");

}  // namespace flashmob::gpu
