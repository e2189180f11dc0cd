#include "driver/dma_memory.h"

namespace flashmob::driver {

using Kind = memory::HostMemory::Kind;

DmaMemory::DmaMemory(PciDevice& device, std::size_t bytes)
    : device_(device),
      memory_(bytes, device.needs_shared_memory() ? Kind::shared_memfd : Kind::anonymous),
      iova_(device.choose_iova(memory_.data(), memory_.size())) {
  device_.dma_map_file(iova_, memory_.data(), memory_.size(), memory_.fd());
  memory_.close_fd();
}

DmaMemory::~DmaMemory() { device_.dma_unmap(iova_, memory_.size()); }

}  // namespace flashmob::driver
