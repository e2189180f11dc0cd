// CudaDevice's host side: opening, streams, events, the clock. Included by cuda.h.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "flashmob/gpu/simt/detail/cuda_process.inl"

namespace flashmob::gpu::simt {
namespace detail {

inline std::uint64_t host_clock_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

inline constexpr std::uint32_t kClockRounds = 64;
inline constexpr std::uint32_t kClockReadings = 4096;

// What host and GPU write while they compare their clocks.
struct ClockTable {
  Word<std::uint32_t, Scope::system> round;
  Word<std::uint64_t, Scope::system> answers[kClockRounds];
  Word<std::uint64_t, Scope::system> resolution_ns;
};

// Answers each round that the host opens with the time on the GPU, then looks for the clock's smallest step.
struct ClockAnswers {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, ClockTable* table) const {
    const std::uint64_t give_up_ns = t.now_ns() + 10'000'000'000;
    for (std::uint32_t i = 0; i < kClockRounds; ++i) {
      while (table->round.load(t) <= i)
        if (t.now_ns() > give_up_ns) return;
      table->answers[i].store(t, t.now_ns());
    }
    std::uint64_t smallest_ns = UINT64_MAX;
    std::uint64_t last_ns = t.now_ns();
    for (std::uint32_t i = 0; i < kClockReadings; ++i) {
      const std::uint64_t now_ns = t.now_ns();
      if (now_ns != last_ns && now_ns - last_ns < smallest_ns) smallest_ns = now_ns - last_ns;
      last_ns = now_ns;
    }
    table->resolution_ns.store(t, smallest_ns);
  }
};

}  // namespace detail

// How many GPUs the driver offers; 0 with the reason.
inline int cuda_devices(std::string& reason) {
  // Read by the driver when it starts: a kernel that is loaded at its first launch would wait for resident ones.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  // Streams that share one of the hardware's queues wait for each other.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found == cudaSuccess && count > 0) return count;
  static_cast<void>(cudaGetLastError());
  reason = std::string("no NVIDIA GPU can be used on this machine (cudaGetDeviceCount: ") +
           (found == cudaSuccess ? "no device" : cudaGetErrorString(found)) + ")";
  return 0;
}

inline CudaDevice::CudaDevice(int ordinal, std::span<const void* const> kernels) {
  std::string reason;
  const int count = cuda_devices(reason);
  if (count == 0) throw CudaError(reason);
  if (ordinal < 0 || ordinal >= count)
    throw CudaError("there is no GPU " + std::to_string(ordinal) + "; this machine has " + std::to_string(count));
  detail::check_cuda(cudaSetDevice(ordinal), "cudaSetDevice");
  detail::check_cuda(cudaGetDeviceProperties(&properties_, ordinal), "cudaGetDeviceProperties");
  if (properties_.major < 8)
    throw CudaError(std::string(properties_.name) + " has compute capability " + std::to_string(properties_.major) +
                    "." + std::to_string(properties_.minor) + "; 8.0 or newer is needed");
  detail::check_cuda(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  load(kernels);
  clock_memory_ = allocate(CudaPlace::pinned_host, sizeof(detail::ClockTable));
  first_fit_ = fit_clock();
}

// Somebody else may have started the driver, which then loads at first use; and a kernel that needs more local memory
// than all before it has the GPU make room. Both wait for kernels that run, so both are done while there are none.
inline void CudaDevice::load(std::span<const void* const> kernels) {
  detail::check_cuda(cudaSetDeviceFlags(cudaDeviceLmemResizeToMax), "cudaSetDeviceFlags");
  std::size_t most = 0;
  detail::check_cuda(cudaDeviceGetLimit(&most, cudaLimitStackSize), "cudaDeviceGetLimit");
  for (const void* const entry : kernels) {
    cudaFuncAttributes attributes{};
    detail::check_cuda(cudaFuncGetAttributes(&attributes, entry), "cudaFuncGetAttributes");
    most = std::max(most, attributes.localSizeBytes);
  }
  detail::check_cuda(cudaDeviceSetLimit(cudaLimitStackSize, most), "cudaDeviceSetLimit");
}

inline CudaDevice::~CudaDevice() {
  while (!running_.empty()) {
    try {
      wait(running_.begin()->first);
    } catch (const CudaError&) {
      // The GPU has failed, and whoever waited for a kernel knows.
    }
  }
  for (const cudaStream_t idle : idle_) cudaStreamDestroy(idle);
  cudaStreamDestroy(copies_);
  for (void* const data : held_) detail::CudaProcess::get().release(data);
  detail::CudaProcess::get().unshare_all(this);
}

// Loads the kernel's code, if it is not yet, and allows it the shared memory it wants.
inline void CudaDevice::prepare(const void* entry, const Shape& shape) {
  cudaFuncAttributes attributes{};
  detail::check_cuda(cudaFuncGetAttributes(&attributes, entry), "cudaFuncGetAttributes");
  constexpr std::uint32_t kWithoutAsking = 48 << 10;
  if (shape.shared_bytes > kWithoutAsking)
    detail::check_cuda(
        cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes)),
        "cudaFuncSetAttribute (shared memory)");
}

inline cudaStream_t CudaDevice::take_stream() {
  cudaStream_t stream = nullptr;
  if (!idle_.empty()) {
    stream = idle_.back();
    idle_.pop_back();
    return stream;
  }
  detail::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return stream;
}

inline CudaDevice::Kernel CudaDevice::launch_entry(const void* entry, const Shape& shape, void** arguments, bool stays,
                                                   const CudaStream* given) {
  if (stays && given != nullptr)
    throw CudaError("a kernel that stays cannot be put into a stream of the caller's: what is behind it would wait");
  prepare(entry, shape);
  double need = 0;
  if (stays) need = static_cast<double>(shape.blocks) / std::max(blocks_each(entry, shape), 1u);
  const cudaStream_t stream = given != nullptr ? static_cast<cudaStream_t>(given->handle) : take_stream();
  try {
    detail::CudaProcess::get().run(stream, need, multiprocessors(), [&] {
      detail::check_cuda(
          cudaLaunchKernel(entry, dim3(shape.blocks), dim3(shape.block_threads), arguments, shape.shared_bytes, stream),
          "cudaLaunchKernel");
    });
  } catch (...) {
    if (given == nullptr) idle_.push_back(stream);
    throw;
  }
  const std::lock_guard lock(mutex_);
  running_[next_kernel_] = {stream, given == nullptr};
  return next_kernel_++;
}

inline std::uint32_t CudaDevice::blocks_each(const void* entry, const Shape& shape) const {
  int blocks = 0;
  detail::check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                         &blocks, entry, static_cast<int>(shape.block_threads), shape.shared_bytes),
                     "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return static_cast<std::uint32_t>(blocks);
}

inline std::uint32_t CudaDevice::resident_blocks_of(const void* entry, const Shape& shape) const {
  prepare(entry, shape);
  return blocks_each(entry, shape) * multiprocessors();
}

inline void CudaDevice::wait(Kernel kernel) {
  const auto found = running_.find(kernel);
  if (found == running_.end()) return;
  const auto [stream, is_ours] = found->second;
  const cudaError_t result = cudaStreamSynchronize(stream);
  detail::CudaProcess::get().ended(stream);
  {
    const std::lock_guard lock(mutex_);
    running_.erase(found);
  }
  if (is_ours) idle_.push_back(stream);
  detail::check_cuda(result, "a kernel");
}

inline void CudaDevice::pass(std::uint64_t duration_ns) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(duration_ns));
}

inline bool CudaDevice::finished(Kernel kernel) const {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(kernel);
  return found == running_.end() || cudaStreamQuery(found->second.stream) != cudaErrorNotReady;
}

inline std::uint64_t CudaDevice::now_ns() const {
  return detail::host_clock_ns() + static_cast<std::uint64_t>(clock_offset_ns_.load(std::memory_order_relaxed));
}

inline ClockFit CudaDevice::fit_clock() {
  auto* const table = static_cast<detail::ClockTable*>(clock_memory_);
  *table = detail::ClockTable{};
  const Kernel kernel = launch({.blocks = 1, .block_threads = 1}, detail::ClockAnswers{}, table);
  ClockFit fit;
  for (std::uint32_t i = 0; i < detail::kClockRounds; ++i) {
    std::atomic_ref answer(table->answers[i].value);
    ClockTrip trip{detail::host_clock_ns(), 0, 0};
    std::atomic_ref(table->round.value).store(i + 1, std::memory_order_release);
    while ((trip.device_ns = answer.load(std::memory_order_acquire)) == 0) {
      if (finished(kernel) && answer.load() == 0)
        throw CudaError("the GPU did not answer within 10 s while its clock was compared with the host's");
    }
    trip.after_ns = detail::host_clock_ns();
    fit.take_in(trip);
  }
  wait(kernel);
  clock_offset_ns_.store(fit.offset_ns, std::memory_order_relaxed);
  return fit;
}

inline ClockReport CudaDevice::check_clock() {
  const ClockFit last = fit_clock();
  const auto* const table = static_cast<const detail::ClockTable*>(clock_memory_);
  return compare_clocks(first_fit_, last, table->resolution_ns.value);
}

inline std::string CudaDevice::describe() const {
  return std::string(properties_.name) + ", " + std::to_string(properties_.multiProcessorCount) + " multiprocessors";
}

inline void* CudaDevice::allocate(CudaPlace place, std::size_t bytes) {
  void* const data = detail::CudaProcess::get().allocate(place, bytes);
  try {
    if (place == CudaPlace::pinned_host) {
      std::memset(data, 0, bytes);
    } else {
      detail::check_cuda(cudaMemsetAsync(data, 0, bytes, copies_), "cudaMemsetAsync");
      detail::check_cuda(cudaStreamSynchronize(copies_), "cudaMemsetAsync");
    }
    const std::lock_guard lock(mutex_);
    held_.insert(data);
  } catch (...) {
    detail::CudaProcess::get().release(data);
    throw;
  }
  return data;
}

inline void CudaDevice::release(void* data) {
  {
    const std::lock_guard lock(mutex_);
    if (held_.erase(data) == 0) return;
  }
  detail::CudaProcess::get().release(data);
}

inline void CudaDevice::copy(void* to, const void* from, std::size_t bytes) {
  detail::check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, copies_), "cudaMemcpyAsync");
  detail::check_cuda(cudaStreamSynchronize(copies_), "cudaMemcpyAsync");
}

inline void CudaDevice::share_host_memory(void* data, std::size_t bytes) {
  detail::CudaProcess::get().share(this, data, bytes);
}
inline void CudaDevice::unshare_host_memory(void* data, std::size_t bytes) {
  detail::CudaProcess::get().unshare(this, data, bytes);
}

}  // namespace flashmob::gpu::simt
