#include "host/engine/cuda_engine_memory.h"

namespace flashmob::gpu {

CudaEngineMemory::~CudaEngineMemory() {
  for (void* const data : held_) cuda_.release(data);
}

std::uint32_t CudaEngineMemory::load_word(std::uint32_t* from) {
  std::uint32_t value = 0;
  copy(&value, from, sizeof(value));
  return value;
}

void* CudaEngineMemory::allocate(simt::CudaPlace place, std::size_t bytes) {
  void* const data = cuda_.allocate(place, bytes);
  held_.push_back(data);
  return data;
}

}  // namespace flashmob::gpu
