// Memory of a GPU engine, and of what uses it, on a GPU: device memory that the host reaches by copies, and pinned host
// memory at the same address on both sides. All of it is freed with this object, which kernels must not outlive.
// Allocating may wait for kernels that run, resident ones too: allocate before they are launched.
// Thread rule: one host thread at a time.
#pragma once

#include <vector>

#include "flashmob/gpu/simt/cuda_library.h"
#include "host/engine/device_engine.h"

namespace flashmob::gpu {

class CudaEngineMemory final : public EngineMemory {
 public:
  explicit CudaEngineMemory(simt::CudaBackend& cuda) : cuda_(cuda) {}
  ~CudaEngineMemory() override;
  CudaEngineMemory(const CudaEngineMemory&) = delete;
  CudaEngineMemory& operator=(const CudaEngineMemory&) = delete;

  void* allocate_device(std::size_t bytes) override { return allocate(simt::CudaPlace::device, bytes); }
  void* allocate_shared(std::size_t bytes) override { return allocate(simt::CudaPlace::pinned_host, bytes); }
  // Works beside kernels that run.
  void copy(void* to, const void* from, std::size_t bytes) override { cuda_.copy(to, from, bytes); }
  std::uint32_t load_word(std::uint32_t* from) override;
  void store_word(std::uint32_t* to, std::uint32_t value) override { copy(to, &value, sizeof(value)); }
  void store_long(std::uint64_t* to, std::uint64_t value) override { copy(to, &value, sizeof(value)); }

 private:
  void* allocate(simt::CudaPlace place, std::size_t bytes);

  simt::CudaBackend& cuda_;
  std::vector<void*> held_;
};

}  // namespace flashmob::gpu
