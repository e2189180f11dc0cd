#include "host/attach/shared_memory.h"

namespace flashmob::gpu {

SharedMemory::SharedMemory(std::span<driver::PciDevice* const> devices, std::size_t bytes)
    : own_(bytes), data_(own_.data()), bytes_(own_.size()) {
  map(devices);
}

SharedMemory::SharedMemory(std::span<driver::PciDevice* const> devices, void* data, std::size_t bytes)
    : data_(static_cast<std::byte*>(data)), bytes_(bytes) {
  map(devices);
}

SharedMemory::~SharedMemory() { unmap(); }

void SharedMemory::map(std::span<driver::PciDevice* const> devices) {
  try {
    for (driver::PciDevice* device : devices) {
      device->dma_map(reinterpret_cast<std::uint64_t>(data_), data_, bytes_);
      mapped_.push_back(device);
    }
  } catch (...) {
    unmap();
    throw;
  }
}

void SharedMemory::unmap() {
  for (driver::PciDevice* device : mapped_) device->dma_unmap(reinterpret_cast<std::uint64_t>(data_), bytes_);
  mapped_.clear();
}

}  // namespace flashmob::gpu
