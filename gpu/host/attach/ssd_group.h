// The SSDs that one Gpu uses: emulated devices in virtual or in real time, the memory that all of them reach, and the
// host's own reads and writes. For the host thread that owns the Gpu; memory may be freed on any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "driver/nvme_driver.h"
#include "flashmob/config.h"
#include "host/attach/host_io.h"
#include "host/attach/real_ssd.h"
#include "host/attach/virtual_ssd.h"

namespace flashmob::gpu {

class SsdGroup {
 public:
  // Throws ConfigError.
  SsdGroup(const std::vector<DeviceConfig>& configs, bool virtual_time);
  ~SsdGroup();
  SsdGroup(const SsdGroup&) = delete;
  SsdGroup& operator=(const SsdGroup&) = delete;

  std::uint32_t size() const { return static_cast<std::uint32_t>(members_.size()); }
  driver::NvmeDriver& driver(std::uint32_t ssd) { return *members_[ssd].driver; }
  // For kernels: one pair is the host's own.
  std::uint32_t free_queue_pairs(std::uint32_t ssd) const { return members_[ssd].queue_pairs - 1; }
  HostIo& io(std::uint32_t ssd) { return *members_[ssd].io; }
  const std::vector<driver::PciDevice*>& devices() const { return devices_; }

  const Clock& clock() const { return world_ ? world_->clock() : clock_; }
  // nullptr in real time.
  VirtualWorld* world() { return world_.get(); }

  // What the SSDs reach, besides the driver's own memory. Any thread.
  void note(const std::byte* data, std::size_t bytes);
  void forget(const std::byte* data);
  bool reaches(const void* data, std::size_t bytes) const;

  // Alive, of those that allocate() of the Gpu has made.
  std::atomic<std::uint64_t> allocated_bytes{0};

 private:
  struct Member {
    std::unique_ptr<RealSsd> real;  // empty in virtual time: the world owns the SSDs
    driver::NvmeDriver* driver = nullptr;
    std::uint32_t queue_pairs = 0;  // that the SSD grants, the host's own included
    std::unique_ptr<HostIo> io;
  };
  const Clock clock_ = Clock::real();
  std::unique_ptr<VirtualWorld> world_;
  std::vector<Member> members_;
  std::vector<driver::PciDevice*> devices_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::size_t> reached_;  // address -> bytes
};

}  // namespace flashmob::gpu
