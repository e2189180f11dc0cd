// The CUDA backend: device code as kernels on an NVIDIA GPU of compute capability 8.0 or newer (CUDA C++ Programming
// Guide 13: warp functions, memory model). For sources that nvcc compiles.
//
// A kernel that waits for another (a service that others depend on) needs all of its blocks on the GPU at once:
// resident_blocks() says how many fit; launch it first. Nothing may be loaded while it runs, so kernels are loaded when
// the device is opened.
//
// Thread rule: a CudaDevice belongs to one host thread at a time; finished(), now_ns() and copy() may be called from
// any.
#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "flashmob/gpu/simt/clock_fit.h"
#include "flashmob/gpu/simt/cuda_abi.h"
#include "flashmob/gpu/simt/cuda_error.h"
#include "flashmob/gpu/simt/kernel.h"
#include "flashmob/gpu/simt/vocabulary.h"
#include "flashmob/gpu/simt/word.h"

// Tests have a cuda_runtime.h of their own, which has CUDA's rules and runs kernels as fibres (gpu/tests/stand_in).
#if defined(FLASHMOB_CUDA_STAND_IN)
#include "stand_in/kernels.h"
#else
#include "flashmob/gpu/simt/detail/cuda_lane.h"
#endif

namespace flashmob::gpu::simt {
namespace detail {

inline void check_cuda(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // the next call shall not see it again
  throw CudaError(std::string(call) + " failed: " + cudaGetErrorString(result));
}

}  // namespace detail

class CudaDevice {
 public:
  using Lane = CudaLane;
  using Kernel = std::uint64_t;

  // Loads `kernels`, all that will ever be launched: what is loaded later waits for kernels that run. Throws CudaError:
  // one sentence that says what is missing.
  explicit CudaDevice(int ordinal = 0, std::span<const void* const> kernels = {});
  // Waits for all kernels.
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  // Starts a kernel beside all others that run. The arguments are copied.
  template <class Functor, class... Args>
  Kernel launch(const Shape& shape, Functor functor, Args... args) {
    KernelParameters<Functor, CudaLane> parameters(args...);
    return std::apply(
        [&](auto&... each) {
          void* pointers[] = {&functor, &each...};
          return launch_entry(detail::cuda_entry<Functor>(), shape, pointers, kStaysResident<Functor>);
        },
        parameters);
  }
  // `arguments` point to the functor and to what it is given. A kernel that stays is refused where not all of its
  // blocks fit beside those of the process's other ones, with a multiprocessor left to the application, and in a stream
  // of the caller's, where nothing would come after it.
  Kernel launch_entry(const void* entry, const Shape& shape, void** arguments, bool stays,
                      const CudaStream* stream = nullptr);
  // Throws CudaError if the kernel, or the GPU, has failed.
  void wait(Kernel kernel);
  template <class Functor, class... Args>
  void run(const Shape& shape, Functor functor, Args... args) {
    wait(launch(shape, functor, args...));
  }
  // Sleeps for so long.
  void pass(std::uint64_t duration_ns);
  bool finished(Kernel kernel) const;
  // The lanes' clock, as the last comparison with the host's gives it.
  std::uint64_t now_ns() const;
  // Compares them once more; needs nothing that would wait for kernels which run.
  ClockReport check_clock();

  // How many blocks of a kernel are on the GPU at the same time when nothing else is.
  template <class Functor>
  std::uint32_t resident_blocks(const Shape& shape) const {
    return resident_blocks_of(detail::cuda_entry<Functor>(), shape);
  }
  std::uint32_t resident_blocks_of(const void* entry, const Shape& shape) const;
  std::uint32_t multiprocessors() const { return static_cast<std::uint32_t>(properties_.multiProcessorCount); }
  std::uint32_t most_shared_bytes() const { return static_cast<std::uint32_t>(properties_.sharedMemPerBlockOptin); }
  // For results and messages, like "NVIDIA H100 80GB HBM3, 132 multiprocessors".
  std::string describe() const;

  // Zeroed memory. It may be released beside kernels that run, and by any thread.
  void* allocate(CudaPlace place, std::size_t bytes);
  void release(void* data);
  // Any kind of memory to any other, finished when it returns.
  void copy(void* to, const void* from, std::size_t bytes);
  // Makes host memory that exists already usable by kernels, at its own address; what is pinned or the GPU's own stays
  // as it is. It may be given back beside kernels that run, and by any thread.
  void share_host_memory(void* data, std::size_t bytes);
  void unshare_host_memory(void* data, std::size_t bytes);

 private:
  ClockFit fit_clock();
  static void prepare(const void* entry, const Shape& shape);
  static void load(std::span<const void* const> kernels);
  cudaStream_t take_stream();
  std::uint32_t blocks_each(const void* entry, const Shape& shape) const;

  struct Running {
    cudaStream_t stream;
    bool is_ours;
  };

  cudaDeviceProp properties_{};
  // A stream for each kernel that runs, which nothing else is put into: that it is idle says that the kernel has ended.
  // An event would stand in the hardware's queue until then, and other streams behind it. In streams of callers there
  // may be more, which waits go by, too.
  mutable std::mutex mutex_;  // of running_ and held_
  std::map<Kernel, Running> running_;
  std::vector<cudaStream_t> idle_;
  // For copies and zeroes: the default stream is not ordered with those of kernels.
  cudaStream_t copies_ = nullptr;
  Kernel next_kernel_ = 1;
  std::set<void*> held_;  // what allocate() gave
  void* clock_memory_ = nullptr;
  ClockFit first_fit_;
  std::atomic<std::int64_t> clock_offset_ns_{0};
};

}  // namespace flashmob::gpu::simt

#include "flashmob/gpu/simt/detail/cuda_device.inl"
