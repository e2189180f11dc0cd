// Between flashmob and its CUDA library, libflashmob_cuda.so, which is loaded at run time where there is a GPU: a table
// of plain C functions, so that neither side needs the other's compiler, and flashmob runs where CUDA is not installed.
//
// Functions that can fail write one sentence into `error` and return the value given for failure.
// Thread rule: a device belongs to one host thread at a time; finished() and now_ns() may be called from any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "flashmob/gpu/simt/clock_fit.h"
#include "flashmob/gpu/simt/vocabulary.h"

namespace flashmob::gpu::simt {

inline constexpr std::uint32_t kCudaAbiVersion = 4;
// The one symbol that the library exports: const CudaAbi* flashmob_cuda_abi().
inline constexpr const char* kCudaAbiSymbol = "flashmob_cuda_abi";

struct CudaText {
  char* data;
  std::size_t bytes;
};

enum class CudaPlace : std::int32_t {
  device,  // the GPU's own memory; the host does not see it
  pinned_host,  // the host's, at the same address on both sides
};

// Names memory of a GPU's own to other processes on this machine (CUDA IPC; a cudaIpcMemHandle_t).
struct CudaMemoryHandle {
  std::byte bytes[64];
};

// A stream of the caller's (a cudaStream_t), the default stream's nullptr among them.
struct CudaStream {
  void* handle;
};

struct CudaAbi {
  std::uint32_t version;  // kCudaAbiVersion
  // How many GPUs there are; 0 with the reason in `error`.
  std::int32_t (*devices)(CudaText error);
  void* (*open)(std::int32_t ordinal, CudaText error);  // nullptr
  void (*close)(void* device);  // waits for all kernels
  void (*describe)(void* device, CudaText text);
  std::uint32_t (*multiprocessors)(void* device);
  void* (*allocate)(void* device, CudaPlace place, std::size_t bytes, CudaText error);  // zeroed; nullptr
  // Beside kernels that run, too, and by any thread; likewise unshare().
  void (*release)(void* device, void* data);
  // Any kind of memory to any other, finished when it returns. False.
  bool (*copy)(void* device, void* to, const void* from, std::size_t bytes, CudaText error);
  // Makes host memory that exists already usable by kernels, at its own address, as often as it is wanted; what is so
  // already, and the GPU's own memory, stays as it is. False.
  bool (*share)(void* device, void* data, std::size_t bytes, CudaText error);
  // While a kernel of this process runs the memory stays with the GPU, and other memory at its address cannot be
  // shared.
  void (*unshare)(void* device, void* data, std::size_t bytes);
  // All blocks of a kernel that says kStaysResident must fit on the GPU beside those of all others in this process.
  // A kernel is named by typeid(Functor).name(); arguments[0] points to the functor, the others to its parameters.
  // `stream`: a kernel that does not stay is put behind what is there; nullptr: it has a stream of its own. 0.
  std::uint64_t (*launch)(void* device, const char* kernel, const Shape* shape, void** arguments,
                          const CudaStream* stream, CudaText error);
  std::uint32_t (*resident_blocks)(void* device, const char* kernel, const Shape* shape, CudaText error);  // 0
  // In a stream of the caller's, both go by all that is in it. False.
  bool (*wait)(void* device, std::uint64_t launched, CudaText error);
  bool (*finished)(void* device, std::uint64_t launched);
  std::uint64_t (*now_ns)(void* device);  // the lanes' clock
  // Compares the lanes' clock with the host's once more, beside kernels that run. False.
  bool (*check_clock)(void* device, ClockReport* report, CudaText error);
  std::uint32_t (*most_shared_bytes)(void* device);  // that one block may have
  // Memory that allocate() gave for CudaPlace::device, and the same in another process. False; nullptr.
  bool (*export_memory)(void* device, void* data, CudaMemoryHandle* handle, CudaText error);
  void* (*import_memory)(void* device, const CudaMemoryHandle* handle, CudaText error);
  void (*close_import)(void* device, void* data);
};

}  // namespace flashmob::gpu::simt
