// The CPU backend in which every lane is a thread of the operating system: real concurrency, for ThreadSanitizer and
// for small runs beside an SSD that works in real time. Some hundreds of lanes at most.
//
// Thread rule: launch(), wait() and run() may be called from any thread. A lane that waits in a collective or at its
// block's barrier for longer than ThreadOptions::patience_ns throws StuckError; wait() rethrows what lanes have thrown.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "flashmob/gpu/simt/cpu_lane.h"
#include "flashmob/gpu/simt/stuck.h"

namespace flashmob::gpu::simt {

struct ThreadOptions {
  std::uint64_t patience_ns = 60'000'000'000;
};

namespace detail {
struct ThreadWarp;
struct ThreadBlock;
struct ThreadKernel;
}  // namespace detail

class ThreadLane : public CpuLane<ThreadLane> {
 public:
  static constexpr bool kSeesProgress = false;
  static constexpr bool kSharesInstructions = false;

  ThreadLane(const Place& place, detail::ThreadKernel& kernel, detail::ThreadBlock& block, detail::ThreadWarp& warp)
      : CpuLane(place), kernel_(kernel), block_(block), warp_(warp) {}

  void sync_block(Here here = Here::current());
  std::byte* shared();
  std::uint64_t now_ns();
  void pause(std::uint32_t ns = 0, Here here = Here::current());
  void busy(std::uint64_t ns, Here here = Here::current());
  void before_atomic(Here) {}
  void after_atomic(bool, Here) {}
  std::uint64_t meet(std::uint32_t mask, Rendezvous::Kind kind, std::uint64_t value, std::uint32_t source, Here here);

 private:
  detail::ThreadKernel& kernel_;
  detail::ThreadBlock& block_;
  detail::ThreadWarp& warp_;
};

class ThreadDevice {
 public:
  using Lane = ThreadLane;
  using Kernel = std::uint64_t;

  explicit ThreadDevice(const Clock& clock, const ThreadOptions& options = {});
  // Waits for all kernels.
  ~ThreadDevice();
  ThreadDevice(const ThreadDevice&) = delete;
  ThreadDevice& operator=(const ThreadDevice&) = delete;

  // Starts the kernel's threads. The arguments are copied.
  template <class Functor, class... Args>
  Kernel launch(const Shape& shape, Functor functor, Args... args) {
    return start(shape, [functor, args...](ThreadLane& t) { functor(t, args...); });
  }
  void wait(Kernel kernel);
  template <class Functor, class... Args>
  void run(const Shape& shape, Functor functor, Args... args) {
    wait(launch(shape, functor, args...));
  }
  // Sleeps for so long.
  void pass(std::uint64_t duration_ns);
  bool finished(Kernel kernel) const;
  std::uint64_t now_ns() const { return clock_.now_ns(); }

 private:
  Kernel start(const Shape& shape, std::function<void(ThreadLane&)> body);

  const Clock clock_;
  ThreadOptions options_;
  mutable std::mutex mutex_;
  std::map<Kernel, std::unique_ptr<detail::ThreadKernel>> kernels_;
  Kernel next_kernel_ = 1;
};

}  // namespace flashmob::gpu::simt
