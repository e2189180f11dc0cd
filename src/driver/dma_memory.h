// Memory that a device reaches: page-aligned host memory, mapped for the device at the I/O virtual address that the
// device chooses. Rings, list pages and bounce buffers of the driver, and the buffers of those who use it.
//
// Create and destroy on the thread that owns the device; the bytes may be used by any thread. Destruction waits for
// copies in flight (PciDevice::dma_unmap), so it must not happen inside a completion callback of the device's thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver/pci_device.h"
#include "memory/host_memory.h"

namespace flashmob::driver {

class DmaMemory {
 public:
  DmaMemory(PciDevice& device, std::size_t bytes);
  ~DmaMemory();
  DmaMemory(const DmaMemory&) = delete;
  DmaMemory& operator=(const DmaMemory&) = delete;
  std::byte* data() const { return memory_.data(); }
  std::uint64_t iova() const { return iova_; }
  std::size_t size() const { return memory_.size(); }

 private:
  PciDevice& device_;
  memory::HostMemory memory_;
  std::uint64_t iova_;
};

}  // namespace flashmob::driver
