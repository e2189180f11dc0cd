// Emulated SSDs in real time for the thread and CUDA backends: whole flashmob devices whose engines run on threads of
// their own, each with its driver. The twin of host/attach/virtual_ssd.h. For one host thread; the engine's threads are
// inside.
#pragma once

#include "api/device.h"
#include "base/clock.h"
#include "driver/nvme_driver.h"
#include "flashmob/config.h"

namespace flashmob::gpu {

class RealSsd {
 public:
  // Enabled and ready for queues. `clock` outlives the SSD. Throws ConfigError.
  RealSsd(const Clock& clock, const DeviceConfig& config);
  ~RealSsd();
  RealSsd(const RealSsd&) = delete;
  RealSsd& operator=(const RealSsd&) = delete;

  driver::NvmeDriver& driver() { return driver_; }

 private:
  api::Device device_;
  driver::NvmeDriver driver_;
};

}  // namespace flashmob::gpu
