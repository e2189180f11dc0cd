// The client's end of a gpu-socket (gpu_socket.h): tells the server about memory and queues, and notices when it goes.
//
// Calls may come from any thread and wait for each other. Mistakes that the server names throw ConfigError, a server
// that is gone or does not answer std::runtime_error.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "host/socket/gpu_socket.h"
#include "vfio/message_socket.h"
#include "vfio/unique_fd.h"

namespace flashmob::gpu {

class GpuSocketClient {
 public:
  // Connects. Throws ConfigError.
  explicit GpuSocketClient(const std::string& path);
  // Closes the connection, which ends everything, at the latest.
  ~GpuSocketClient();
  GpuSocketClient(const GpuSocketClient&) = delete;
  GpuSocketClient& operator=(const GpuSocketClient&) = delete;

  const wire::Described& described() const { return described_; }
  const std::string& address() const { return address_; }

  // [data, data + bytes) of this process is what the file has from its first byte on, whole pages.
  void map_file(const void* data, std::uint64_t bytes, int fd);
  // Likewise what an exporting process calls by `handle`: a GPU's memory (CudaBackend::export_memory()).
  void map_cuda(const void* data, std::uint64_t bytes, const simt::CudaMemoryHandle& handle);
  void unmap(const void* data, std::uint64_t bytes);
  // All queues at once; rings and doorbells are zeroed and lie in what was mapped.
  void attach(std::span<const wire::QueuePair> pairs);
  // Returns when the server uses none of the memory any more, or is gone. Nothing may be called after it.
  void leave();

  // Calls `on_gone`, once and on a thread of its own, when the server goes before leave().
  void watch(std::function<void()> on_gone);
  bool gone() const { return gone_.load(std::memory_order_relaxed); }

 private:
  vfio::Message call(wire::Command command, std::span<const std::byte> payload, std::span<const int> fds = {});
  void map(const wire::MapRequest& request, std::span<const int> fds);
  void stop_watch();
  [[noreturn]] void lost(const std::string& why);

  const std::string address_;
  std::mutex mutex_;
  vfio::MessageSocket socket_;
  vfio::UniqueFd stop_event_;
  wire::Described described_;
  std::uint16_t next_id_ = 0;
  std::atomic<bool> gone_{false};
  std::thread watch_;
};

}  // namespace flashmob::gpu
