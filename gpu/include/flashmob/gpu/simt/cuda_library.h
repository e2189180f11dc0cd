// The GPU as host code sees it that no CUDA compiler has seen: libflashmob_cuda.so loaded at run time, and a device
// with the same face as the CPU backends'. Kernels are those that were compiled into the library (gpu/cuda).
//
// Thread rule: a CudaBackend belongs to one host thread at a time; finished(), now_ns() and copy() may be called from
// any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>

#include "flashmob/gpu/simt/cuda_abi.h"
#include "flashmob/gpu/simt/cuda_error.h"
#include "flashmob/gpu/simt/host_lane.h"
#include "flashmob/gpu/simt/kernel.h"

namespace flashmob::gpu::simt {

// Why there is no GPU to use, in one sentence; empty if there is one.
std::string why_no_cuda();
// The library: $FLASHMOB_CUDA_LIBRARY, or libflashmob_cuda.so beside this code, or wherever the loader finds it. It
// stays loaded. Throws CudaError that says what is missing.
const CudaAbi& cuda_library();

class CudaBackend {
 public:
  using Kernel = std::uint64_t;

  explicit CudaBackend(std::int32_t ordinal = 0);
  ~CudaBackend();
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  template <class Functor, class... Args>
  Kernel launch(const Shape& shape, Functor functor, Args... args) {
    return launch_in(nullptr, shape, functor, args...);
  }
  // Behind what is in a stream of the caller's, if one is given, which what comes next there waits for; wait() and
  // finished() then go by the whole stream.
  template <class Functor, class... Args>
  Kernel launch_in(const CudaStream* stream, const Shape& shape, Functor functor, Args... args) {
    static_assert(kIsCopiedBytewise<Functor, HostLane>, "what a kernel is given is copied to the GPU byte by byte");
    KernelParameters<Functor, HostLane> parameters(args...);
    return std::apply(
        [&](auto&... each) {
          void* pointers[] = {&functor, &each...};
          return launch_by_name(typeid(Functor).name(), shape, pointers, stream);
        },
        parameters);
  }
  // Throws CudaError if the kernel, or the GPU, has failed.
  void wait(Kernel kernel);
  template <class Functor, class... Args>
  void run(const Shape& shape, Functor functor, Args... args) {
    wait(launch(shape, functor, args...));
  }
  void pass(std::uint64_t duration_ns);
  bool finished(Kernel kernel) const;
  std::uint64_t now_ns() const;

  // How many blocks of a kernel are on the GPU at once when nothing else is: all blocks of a resident one must be.
  template <class Functor>
  std::uint32_t resident_blocks(const Shape& shape) const {
    return resident_blocks_by_name(typeid(Functor).name(), shape);
  }
  std::uint32_t multiprocessors() const;
  std::uint32_t most_shared_bytes() const;  // that one block may have
  std::string describe() const;

  // Zeroed memory, freed by release() or with the device. release() and unshare_host_memory() are for any thread.
  void* allocate(CudaPlace place, std::size_t bytes);
  void release(void* data);
  void copy(void* to, const void* from, std::size_t bytes);
  void share_host_memory(void* data, std::size_t bytes);
  void unshare_host_memory(void* data, std::size_t bytes);

  // How the lanes' clock compares with the host's by now; now_ns() goes by it from then on.
  ClockReport check_clock();

  // Memory of the GPU's own between processes: what export_memory() gives, import_memory() of another process takes,
  // which sees the memory at an address of its own until close_import(). The exporter keeps it alive.
  CudaMemoryHandle export_memory(void* data);
  void* import_memory(const CudaMemoryHandle& handle);
  void close_import(void* data);

 private:
  Kernel launch_by_name(const char* name, const Shape& shape, void** arguments, const CudaStream* stream);
  std::uint32_t resident_blocks_by_name(const char* name, const Shape& shape) const;

  const CudaAbi& abi_;
  void* device_;
};

}  // namespace flashmob::gpu::simt
