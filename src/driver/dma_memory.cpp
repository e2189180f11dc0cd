#include "driver/dma_memory.h"

namespace flashmob::driver {

DmaMemory::DmaMemory(PciDevice& device, std::size_t bytes) : device_(device), memory_(bytes) {
  device_.dma_map(iova(), memory_.data(), memory_.size());
}

DmaMemory::~DmaMemory() { device_.dma_unmap(iova(), memory_.size()); }

}  // namespace flashmob::driver
