// CudaDevice's host side: opening, streams, events, the clock. Included by cuda.h.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

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
    const std::uint64_t give_up_ns = t.now_ns() + 1'000'000'000;
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

inline CudaMemory::CudaMemory(CudaPlace place, std::size_t bytes) : place_(place) {
  if (place == CudaPlace::device)
    detail::check_cuda(cudaMalloc(&data_, bytes), "cudaMalloc");
  else
    detail::check_cuda(cudaHostAlloc(&data_, bytes, cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
  const cudaError_t zeroed = cudaMemset(data_, 0, bytes);
  if (zeroed != cudaSuccess) place == CudaPlace::device ? cudaFree(data_) : cudaFreeHost(data_);
  detail::check_cuda(zeroed, "cudaMemset");
}

inline CudaMemory::~CudaMemory() { place_ == CudaPlace::device ? cudaFree(data_) : cudaFreeHost(data_); }

// How many GPUs the driver offers; 0 with the reason.
inline int cuda_devices(std::string& reason) {
  // Read by the driver when it starts: a kernel that is loaded at its first launch would wait for resident ones.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found == cudaSuccess && count > 0) return count;
  static_cast<void>(cudaGetLastError());
  reason = std::string("no NVIDIA GPU can be used on this machine (cudaGetDeviceCount: ") +
           (found == cudaSuccess ? "no device" : cudaGetErrorString(found)) + ")";
  return 0;
}

inline CudaDevice::CudaDevice(int ordinal) {
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
  clock_memory_ = std::make_unique<CudaMemory>(CudaPlace::pinned_host, sizeof(detail::ClockTable));
  first_fit_ = fit_clock();
}

inline CudaDevice::~CudaDevice() {
  for (auto& [kernel, running] : running_) {
    cudaEventSynchronize(running.done);
    idle_.push_back(running);
  }
  for (const Running& idle : idle_) {
    cudaEventDestroy(idle.done);
    cudaStreamDestroy(idle.stream);
  }
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

inline CudaDevice::Running CudaDevice::take_stream() {
  Running running;
  if (!idle_.empty()) {
    running = idle_.back();
    idle_.pop_back();
    return running;
  }
  detail::check_cuda(cudaStreamCreateWithFlags(&running.stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  detail::check_cuda(cudaEventCreateWithFlags(&running.done, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return running;
}

inline CudaDevice::Kernel CudaDevice::launch_entry(const void* entry, const Shape& shape, void** arguments) {
  prepare(entry, shape);
  const Running running = take_stream();
  const cudaError_t launched = cudaLaunchKernel(entry, dim3(shape.blocks), dim3(shape.block_threads), arguments,
                                                shape.shared_bytes, running.stream);
  if (launched != cudaSuccess) idle_.push_back(running);
  detail::check_cuda(launched, "cudaLaunchKernel");
  running_[next_kernel_] = running;
  detail::check_cuda(cudaEventRecord(running.done, running.stream), "cudaEventRecord");
  return next_kernel_++;
}

inline std::uint32_t CudaDevice::resident_blocks_of(const void* entry, const Shape& shape) const {
  prepare(entry, shape);
  int per_multiprocessor = 0;
  detail::check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                         &per_multiprocessor, entry, static_cast<int>(shape.block_threads), shape.shared_bytes),
                     "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return static_cast<std::uint32_t>(per_multiprocessor) * multiprocessors();
}

inline void CudaDevice::wait(Kernel kernel) {
  const auto found = running_.find(kernel);
  if (found == running_.end()) return;
  const Running running = found->second;
  running_.erase(found);
  idle_.push_back(running);
  detail::check_cuda(cudaEventSynchronize(running.done), "a kernel");
}

inline void CudaDevice::pass(std::uint64_t duration_ns) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(duration_ns));
}

inline bool CudaDevice::finished(Kernel kernel) const {
  const auto found = running_.find(kernel);
  return found == running_.end() || cudaEventQuery(found->second.done) != cudaErrorNotReady;
}

inline std::uint64_t CudaDevice::now_ns() const {
  return detail::host_clock_ns() + static_cast<std::uint64_t>(clock_offset_ns_.load(std::memory_order_relaxed));
}

inline ClockFit CudaDevice::fit_clock() {
  auto* const table = reinterpret_cast<detail::ClockTable*>(clock_memory_->data());
  *table = detail::ClockTable{};
  const Kernel kernel = launch({.blocks = 1, .block_threads = 1}, detail::ClockAnswers{}, table);
  ClockFit fit;
  for (std::uint32_t i = 0; i < detail::kClockRounds; ++i) {
    std::atomic_ref answer(table->answers[i].value);
    ClockTrip trip{detail::host_clock_ns(), 0, 0};
    std::atomic_ref(table->round.value).store(i + 1, std::memory_order_release);
    while ((trip.device_ns = answer.load(std::memory_order_acquire)) == 0) {
      if (finished(kernel) && answer.load() == 0)
        throw CudaError("the GPU did not answer within a second while its clock was compared with the host's");
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
  const auto* const table = reinterpret_cast<const detail::ClockTable*>(clock_memory_->data());
  return compare_clocks(first_fit_, last, table->resolution_ns.value);
}

inline std::string CudaDevice::describe() const {
  return std::string(properties_.name) + ", " + std::to_string(properties_.multiProcessorCount) + " multiprocessors";
}

inline void CudaDevice::share_host_memory(void* data, std::size_t bytes) {
  detail::check_cuda(cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
                     "cudaHostRegister");
}
inline void CudaDevice::unshare_host_memory(void* data) {
  detail::check_cuda(cudaHostUnregister(data), "cudaHostUnregister");
}

}  // namespace flashmob::gpu::simt
