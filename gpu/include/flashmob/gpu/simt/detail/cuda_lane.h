// The lane of a CUDA kernel, and the kernels themselves. Included by cuda.h; for nvcc alone.
#pragma once

#if !defined(__CUDACC__)
#error "flashmob/gpu/simt/cuda.h is for nvcc; host code reaches a GPU through flashmob/gpu/simt/cuda_library.h"
#endif

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "flashmob/gpu/simt/kernel.h"
#include "flashmob/gpu/simt/vocabulary.h"

namespace flashmob::gpu::simt {

// Every function is also declared for the host, where it is never called: device code is __host__ __device__, and nvcc
// looks at both sides of it.
#if defined(__CUDA_ARCH__)
#define FLASHMOB_ON_DEVICE(...) __VA_ARGS__
#else
#define FLASHMOB_ON_DEVICE(...) __builtin_trap()
#endif

class CudaLane {
 public:
  static constexpr bool kSeesProgress = false;
  static constexpr bool kSharesInstructions = true;

  FLASHMOB_HD std::uint32_t lane() const { FLASHMOB_ON_DEVICE(return threadIdx.x % kWarpLanes); }
  FLASHMOB_HD std::uint32_t lanes() const {
    FLASHMOB_ON_DEVICE(return mask_of(blockDim.x - threadIdx.x / kWarpLanes * kWarpLanes));
  }
  FLASHMOB_HD std::uint32_t warp() const {
    FLASHMOB_ON_DEVICE(return blockIdx.x * warps_per_block() + threadIdx.x / kWarpLanes);
  }
  FLASHMOB_HD std::uint32_t warps() const { FLASHMOB_ON_DEVICE(return gridDim.x * warps_per_block()); }
  FLASHMOB_HD std::uint32_t thread() const { FLASHMOB_ON_DEVICE(return blockIdx.x * blockDim.x + threadIdx.x); }
  FLASHMOB_HD std::uint32_t threads() const { FLASHMOB_ON_DEVICE(return gridDim.x * blockDim.x); }
  FLASHMOB_HD std::uint32_t block() const { FLASHMOB_ON_DEVICE(return blockIdx.x); }
  FLASHMOB_HD std::uint32_t blocks() const { FLASHMOB_ON_DEVICE(return gridDim.x); }
  FLASHMOB_HD std::uint32_t thread_in_block() const { FLASHMOB_ON_DEVICE(return threadIdx.x); }
  FLASHMOB_HD std::uint32_t block_threads() const { FLASHMOB_ON_DEVICE(return blockDim.x); }
  FLASHMOB_HD bool elect(std::uint32_t mask) const { return first_lane(mask) == lane(); }

  FLASHMOB_HD void sync([[maybe_unused]] std::uint32_t mask, Here = {}) { FLASHMOB_ON_DEVICE(__syncwarp(mask)); }
  FLASHMOB_HD void sync_block(Here = {}) { FLASHMOB_ON_DEVICE(__syncthreads()); }
  FLASHMOB_HD std::uint32_t ballot([[maybe_unused]] std::uint32_t mask, [[maybe_unused]] bool predicate, Here = {}) {
    FLASHMOB_ON_DEVICE(return __ballot_sync(mask, predicate));
  }
  template <class T>
  FLASHMOB_HD T shuffle([[maybe_unused]] std::uint32_t mask, [[maybe_unused]] T value,
                        [[maybe_unused]] std::uint32_t source_lane, Here = {}) {
    FLASHMOB_ON_DEVICE(return from_bits<T>(__shfl_sync(mask, to_bits(value), static_cast<int>(source_lane))));
  }
  template <class T>
  FLASHMOB_HD std::uint32_t match([[maybe_unused]] std::uint32_t mask, [[maybe_unused]] T value, Here = {}) {
    FLASHMOB_ON_DEVICE(return __match_any_sync(mask, to_bits(value)));
  }

  // Nanoseconds of the GPU's own clock; CudaDevice::now_ns() reads the same one from the host.
  FLASHMOB_HD std::uint64_t now_ns() {
#if defined(__CUDA_ARCH__)
    std::uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
#else
    __builtin_trap();
#endif
  }
  FLASHMOB_HD void pause([[maybe_unused]] std::uint32_t ns = 0, Here = {}) { FLASHMOB_ON_DEVICE(__nanosleep(ns)); }
  FLASHMOB_HD void busy(std::uint64_t ns, Here = {}) {
    for (const std::uint64_t end = now_ns() + ns; now_ns() < end;) {
    }
  }
  FLASHMOB_HD std::byte* shared() {
#if defined(__CUDA_ARCH__)
    extern __shared__ __align__(16) unsigned char flashmob_block_memory[];
    return reinterpret_cast<std::byte*>(flashmob_block_memory);
#else
    __builtin_trap();
#endif
  }
  FLASHMOB_HD void before_atomic(Here) {}
  FLASHMOB_HD void after_atomic(bool, Here) {}

 private:
  template <class T>
  using Bits = std::conditional_t<sizeof(T) <= 4, unsigned, unsigned long long>;
  template <class T>
  FLASHMOB_HD static Bits<T> to_bits(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
    Bits<T> bits = 0;
    memcpy(&bits, &value, sizeof(T));
    return bits;
  }
  template <class T>
  FLASHMOB_HD static T from_bits(Bits<T> bits) {
    T value;
    memcpy(&value, &bits, sizeof(T));
    return value;
  }
  FLASHMOB_HD std::uint32_t warps_per_block() const {
    FLASHMOB_ON_DEVICE(return (blockDim.x + kWarpLanes - 1) / kWarpLanes);
  }
};
#undef FLASHMOB_ON_DEVICE

namespace detail {

// How many threads a block may have tells the compiler how many registers each may take. The vocabulary promises 1024,
// which leaves 64 registers; a kernel that wants more of them says kMaxBlockThreads.
template <class Functor>
constexpr unsigned max_block_threads() {
  if constexpr (requires { Functor::kMaxBlockThreads; })
    return Functor::kMaxBlockThreads;
  else
    return 1024;
}

// Arguments stay where the launch has put them: a functor that takes a large one by reference has no copy of it in each
// thread's local memory.
//
// The one kernel there is, with its bound on registers: the block's threads, or a number that the functor names.
template <class Functor, class... Args>
__global__ void __launch_bounds__(max_block_threads<Functor>())
    run_functor(const __grid_constant__ Functor functor, const __grid_constant__ Args... args) {
  CudaLane t;
  functor(t, args...);
}

template <class Functor, class... Args>
__global__ void __maxnreg__(Functor::kMaxRegisters)
    run_lean_functor(const __grid_constant__ Functor functor, const __grid_constant__ Args... args) {
  CudaLane t;
  functor(t, args...);
}

template <class Functor, class Parameters>
struct CudaEntry;
template <class Functor, class... Args>
struct CudaEntry<Functor, std::tuple<Args...>> {
  static const void* pointer() {
    if constexpr (requires { Functor::kMaxRegisters; })
      return reinterpret_cast<const void*>(&run_lean_functor<Functor, Args...>);
    else
      return reinterpret_cast<const void*>(&run_functor<Functor, Args...>);
  }
};
template <class Functor>
const void* cuda_entry() {
  static_assert(kIsCopiedBytewise<Functor, CudaLane>, "what a kernel is given is copied to the GPU byte by byte");
  return CudaEntry<Functor, KernelParameters<Functor, CudaLane>>::pointer();
}

}  // namespace detail
}  // namespace flashmob::gpu::simt
