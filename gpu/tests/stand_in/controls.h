// What tests tell the emulated GPU, and what it has to say about the program that used it. The library that stands in
// for libflashmob_cuda.so exports it under kControlsSymbol, beside the table that flashmob loads. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace flashmob::gpu::stand_in {

inline constexpr const char* kControlsSymbol = "flashmob_cuda_stand_in";

// The hardware. All times are of the machine's own, which passes as it works.
struct Model {
  std::uint32_t multiprocessors = 16;
  std::uint32_t threads_each = 2048;  // of a multiprocessor
  std::uint32_t registers_each = 65536;
  std::uint32_t shared_bytes_each = 228 << 10;
  std::uint32_t connections = 8;  // queues of the hardware that streams share
  std::size_t most_registered_bytes = SIZE_MAX;  // of the host's memory, that may be pinned
  // Host code that touches the GPU's own memory while nothing runs there crashes.
  bool hides_device_memory = false;
  bool uses_host_pointers = true;  // cudaDevAttrCanUseHostPointerForRegisteredMem
  // Kernels are loaded when they are first used, whatever CUDA_MODULE_LOADING says: somebody else, PyTorch say, has
  // started the driver before.
  bool loads_lazily = true;
  // Copies and memsets that need not be finished when their call returns are finished so much later.
  std::uint64_t late_ns = 3'000;
  // They are not finished before somebody waits for their stream: the latest that can be, whatever threads do.
  bool late_until_awaited = false;
  // A wait for kernels that do not end within so much time can never end: it is given up, and a finding.
  std::uint64_t patience_ns = 20'000'000;
};

class Controls {
 public:
  virtual ~Controls() = default;
  // Everything as if the process had just begun. While nobody has a device open.
  virtual void reset(const Model& model) = 0;
  // What went wrong, one sentence a line, since the last call or reset().
  virtual std::string take_findings() = 0;
  // What the program has not given back: registered ranges and allocations.
  virtual std::size_t ranges_held() = 0;
  virtual std::size_t allocations_held() = 0;
  // True for the GPU's own memory.
  virtual bool is_device_memory(const void* data) = 0;
  // Every call fails with this from now on, as after a kernel's illegal access, until reset().
  virtual void break_device() = 0;
  // What a broken device has left; the process would have ended.
  virtual void forget_memory() = 0;
};

}  // namespace flashmob::gpu::stand_in
