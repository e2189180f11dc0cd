// The Gpu of an SSD that another process serves: memory that both processes map, queues laid out in it by this one, and
// no driver, for there is no controller in between (gpu_socket.h). For one host thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "flashmob/gpu.h"
#include "flashmob/gpu/simt/host_lane.h"
#include "host/attach/ssd_queues.h"
#include "host/engine/machine_world.h"
#include "host/service/gpu_service.h"
#include "host/socket/remote_memory.h"

namespace flashmob::gpu {

class RemoteGpu final : public Gpu {
 public:
  RemoteGpu(const std::string& path, const GpuOptions& options);
  ~RemoteGpu() override;

  const BackendInfo& backend() const override { return backend_; }
  const GpuOptions& options() const override { return options_; }
  std::uint32_t ssds() const override { return 1; }
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
  std::uint64_t now_ns() const override { return clock_.now_ns(); }
  void pass(std::uint64_t duration_ns) override;
  GpuStats stats() override;
  bool engine_stays() const override { return false; }  // it is another process's
  void* device() override;

 private:
  void check_ssd(std::uint32_t ssd) const;
  const NamespaceInfo& find_namespace(std::uint32_t ssd, std::uint32_t index) const;
  QueueLayout layout() const;
  void make_device();
  void make_queues();
  void attach_queues();
  void end_waits();
  void transfer(std::uint32_t ssd, std::uint32_t ns_index, std::uint64_t lba, std::byte* data, std::uint64_t bytes,
                bool is_write);
  SsdRef host_ref();
  simt::HostLane host_lane();
  void fill_info();

  const GpuOptions options_;
  const Clock clock_ = Clock::real();
  std::shared_ptr<RemoteLink> link_;
  const BackendInfo backend_;
  RemoteQueueMemory queue_memory_;
  RemoteQueueMemory host_memory_;  // of the host's own queue
  std::vector<NamespaceInfo> namespaces_;
  Queue host_queue_;
  simt::Word<std::uint32_t, simt::Scope::system> host_abort_;  // of waits for it
  std::byte* bounce_ = nullptr;
  // Those of kernels: as they were laid out, and where they lie.
  std::vector<Queue> queues_;
  Queue* kernels_queues_ = nullptr;
  NamespaceInfo* kernels_namespaces_ = nullptr;
  simt::Word<std::uint32_t, simt::Scope::system>* kernels_abort_ = nullptr;
  SsdInfo info_;
  MachineWorld world_{clock_};
  std::unique_ptr<simt::FibreDevice> fibres_;
  std::unique_ptr<simt::ThreadDevice> threads_;
  std::unique_ptr<GpuService> service_;
};

}  // namespace flashmob::gpu
