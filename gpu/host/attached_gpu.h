// The one implementation of Gpu: SSDs, their queues, a device that runs kernels, and the service between them.
// For one host thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flashmob/gpu.h"
#include "host/attach/shared_memory.h"
#include "host/attach/ssd_group.h"
#include "host/attach/ssd_queues.h"
#include "host/engine/cuda_engine_memory.h"
#include "host/service/gpu_service.h"

namespace flashmob::gpu {

// Memory that the SSDs and, where there is one, the GPU reach. Keeps both alive.
class GpuMemory {
 public:
  using Parts = std::pair<std::shared_ptr<SsdGroup>, std::shared_ptr<simt::CudaBackend>>;

  GpuMemory(Parts parts, std::size_t bytes);
  GpuMemory(Parts parts, void* data, std::size_t bytes);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  std::byte* data() const { return memory_->data(); }
  std::size_t size() const { return memory_->size(); }

 private:
  Parts parts_;
  void* pinned_ = nullptr;  // the GPU's, if it is not the caller's
  std::optional<SharedMemory> memory_;
};

// A GPU's own memory, at the address that kernels use: for these alone, or also for SSDs whose engines run on that GPU.
// Host code does not see it.
class NearMemory {
 public:
  // Whole pages, as the SSDs map them.
  NearMemory(GpuMemory::Parts parts, std::size_t bytes, bool for_ssds);
  ~NearMemory();
  NearMemory(const NearMemory&) = delete;
  NearMemory& operator=(const NearMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  GpuMemory::Parts parts_;
  std::byte* data_;
  std::optional<SharedMemory> reached_;
};

class GpuQueueMemory final : public QueueMemory {
 public:
  // Where there is a GPU, what only kernels update lies in its own memory, and so do rings of Placement::device.
  GpuQueueMemory(GpuMemory::Parts parts, Placement rings);
  std::byte* allocate(std::size_t bytes) override;
  std::byte* allocate_ring(std::size_t bytes) override;
  std::byte* allocate_lists(std::size_t bytes) override { return allocate_ring(bytes); }
  bool rings_are_seen_by_host() const override { return !on_gpu(); }
  std::byte* allocate_near(std::size_t bytes) override;
  bool near_is_seen_by_host() const override { return !near_; }
  void copy(void* to, const void* from, std::size_t bytes) override;

 private:
  // What is still to be had of the latest piece; each is twice as large as the one before. An SSD looks through all
  // that it reaches whenever there is more of it.
  struct Piece {
    std::byte* next = nullptr;
    std::size_t left = 0;
    std::size_t bytes = std::size_t{32} << 10;
  };

  bool on_gpu() const { return parts_.second && rings_ == Placement::device; }
  template <class Make>
  static std::byte* cut(Piece& piece, std::size_t bytes, Make make);

  GpuMemory::Parts parts_;
  Placement rings_;
  Piece host_piece_, ring_piece_;
  std::optional<CudaEngineMemory> near_;
  std::vector<std::unique_ptr<GpuMemory>> made_;
  std::vector<std::unique_ptr<NearMemory>> made_rings_;
};

// Throws ConfigError unless queues in a GPU's own memory can be worked with: by SSDs whose engines run there and by a
// service that does.
void check_device_queues(const std::vector<DeviceConfig>& ssds, const std::string& service);

class AttachedGpu final : public Gpu {
 public:
  AttachedGpu(const std::vector<DeviceConfig>& ssds, const GpuOptions& options);
  ~AttachedGpu() override;

  const BackendInfo& backend() const override { return backend_; }
  const GpuOptions& options() const override { return options_; }
  std::uint32_t ssds() const override { return group_->size(); }
  const SsdInfo& ssd_info(std::uint32_t ssd) const override;
  SsdRef ssd(std::uint32_t ssd) override;
  Memory allocate(std::size_t bytes, Placement placement) override;
  Memory allocate_near(std::size_t bytes, bool for_ssds) override;
  Memory share(void* data, std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void start_service() override;
  void stop_service() override;
  bool service_running() const override { return service_->running(); }
  bool drain(std::uint64_t timeout_ns) override;
  void write(std::uint32_t ssd, std::uint32_t ns_index, std::uint64_t lba, const void* data,
             std::uint64_t bytes) override;
  void read(std::uint32_t ssd, std::uint32_t ns_index, std::uint64_t lba, void* data, std::uint64_t bytes) override;
  std::uint64_t load_file(std::uint32_t ssd, std::uint32_t ns_index, std::uint64_t lba,
                          const std::string& path) override;
  std::uint64_t now_ns() const override { return group_->clock().now_ns(); }
  void pass(std::uint64_t duration_ns) override;
  GpuStats stats() override;
  bool engine_stays() const override;
  void* device() override;

 private:
  void check_ssd(std::uint32_t ssd) const;
  const NamespaceInfo& find_namespace(std::uint32_t ssd, std::uint32_t index) const;
  void share_doorbells();
  void create_queues(const std::vector<DeviceConfig>& ssds);
  // The lane that host code is; waiting lets time and kernels go on.
  simt::HostLane host_lane();
  GpuMemory::Parts parts() const { return {group_, cuda_}; }
  Placement kept(Placement asked) const;
  // Throws ConfigError if the SSDs cannot reach queues where they are wanted.
  Placement queue_placement(const std::vector<DeviceConfig>& ssds) const;
  // Memory that keeps its owner, of whatever kind, and is counted while it lives.
  template <class Owner>
  Memory hold(std::shared_ptr<Owner> owner, std::size_t bytes, Placement placement) const;

  const GpuOptions options_;
  const BackendInfo backend_;
  const bool engines_on_gpu_;  // those of all SSDs
  std::shared_ptr<SsdGroup> group_;
  std::shared_ptr<simt::CudaBackend> cuda_;
  GpuQueueMemory queue_memory_;
  std::vector<std::unique_ptr<SsdQueues>> queues_;
  std::vector<SsdInfo> infos_;
  std::unique_ptr<simt::FibreDevice> fibres_;
  std::unique_ptr<simt::ThreadDevice> threads_;
  std::unique_ptr<GpuService> service_;
};

}  // namespace flashmob::gpu
