// Memory that this process's kernels and an SSD in another process reach: a file that both map, or a GPU's own memory
// that CUDA IPC names. One host thread makes it; it may be freed on any.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "flashmob/gpu.h"
#include "host/attach/queue_memory.h"
#include "host/engine/cuda_engine_memory.h"
#include "host/socket/gpu_socket_client.h"
#include "memory/host_memory.h"

namespace flashmob::gpu {

// The connection and the GPU, which all memory needs as long as it is there. Memory may be freed on any thread.
struct RemoteLink {
  explicit RemoteLink(const std::string& path) : client(path) {}
  bool reaches(const void* data, std::size_t bytes);
  // Commands of a server that is gone will never be finished, but what it had answered is still taken in, and written
  // where the commands said: memory that is freed meanwhile stays until nothing of this process serves queues any more.
  // So does memory that is freed beside kernels on a GPU, where it stays pinned as long as one runs.
  // False: it is the caller's to free.
  bool keep(memory::HostMemory& freed);
  void end_service();

  GpuSocketClient client;
  std::shared_ptr<simt::CudaBackend> cuda;  // nullptr: kernels run on the CPU
  std::atomic<std::uint64_t> allocated_bytes{0};
  std::mutex mutex;
  std::map<const std::byte*, std::size_t> reached;  // address -> bytes
  bool service_ended = false;
  std::vector<memory::HostMemory> kept;
};

// Zeroed memory of a file that the server maps, too, and pinned where kernels run on a GPU.
class RemoteMemory {
 public:
  RemoteMemory(std::shared_ptr<RemoteLink> link, std::size_t bytes);
  ~RemoteMemory();
  RemoteMemory(const RemoteMemory&) = delete;
  RemoteMemory& operator=(const RemoteMemory&) = delete;
  std::byte* data() const { return memory_.data(); }

 private:
  std::shared_ptr<RemoteLink> link_;
  memory::HostMemory memory_;
};

// Queues' memory. With Placement::device on a GPU the rings and doorbells lie in the GPU's own, one piece for all of
// them, named by CUDA IPC; with `near` of Placement::device, what only kernels update does, which nobody else maps.
class RemoteQueueMemory final : public QueueMemory {
 public:
  RemoteQueueMemory(std::shared_ptr<RemoteLink> link, Placement rings, Placement near)
      : link_(std::move(link)), rings_(rings), near_(near) {}
  // After the server has let go of it.
  ~RemoteQueueMemory() override;
  std::byte* allocate(std::size_t bytes) override;
  std::byte* allocate_ring(std::size_t bytes) override;
  bool rings_are_seen_by_host() const override { return !on_gpu(); }
  std::byte* allocate_near(std::size_t bytes) override;
  bool near_is_seen_by_host() const override { return !(link_->cuda && near_ == Placement::device); }
  void copy(void* to, const void* from, std::size_t bytes) override;
  // Before the first ring, where they lie in a GPU's memory.
  void reserve_rings(std::size_t bytes);

 private:
  bool on_gpu() const { return link_->cuda && rings_ == Placement::device; }

  std::shared_ptr<RemoteLink> link_;
  Placement rings_, near_;
  std::optional<CudaEngineMemory> kernels_;
  std::vector<std::unique_ptr<RemoteMemory>> made_;
  std::byte* next_ = nullptr;  // of the latest piece
  std::size_t left_ = 0;
  std::byte* device_ = nullptr;  // the rings' piece of a GPU
  std::byte* device_next_ = nullptr;
  std::size_t device_left_ = 0;
};

}  // namespace flashmob::gpu
