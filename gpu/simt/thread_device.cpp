#include <atomic>
#include <chrono>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "flashmob/gpu/simt/threads.h"

namespace flashmob::gpu::simt {
namespace detail {

struct ThreadWarp {
  std::mutex mutex;
  std::condition_variable released;
  Rendezvous rendezvous;
  std::uint32_t done = 0;  // lanes whose meeting is over
};

struct ThreadBlock {
  std::mutex mutex;
  std::condition_variable released;
  std::uint32_t living = 0;
  std::uint32_t arrived = 0;
  std::uint64_t rounds = 0;
  std::vector<std::byte> shared;
};

struct ThreadKernel {
  Clock clock = Clock::real();
  ThreadOptions options;
  std::function<void(ThreadLane&)> body;
  std::deque<ThreadWarp> warps;
  std::deque<ThreadBlock> blocks;
  std::vector<std::thread> threads;
  std::atomic<std::uint32_t> living{0};
  std::mutex error_mutex;
  std::exception_ptr error;

  void run(const Place& place, ThreadBlock& block, ThreadWarp& warp) {
    try {
      ThreadLane lane(place, *this, block, warp);
      body(lane);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
    {
      const std::lock_guard lock(block.mutex);
      --block.living;
      if (block.living != 0 && block.arrived == block.living) release(block);
    }
    living.fetch_sub(1, std::memory_order_release);
  }

  static void release(ThreadBlock& block) {
    block.arrived = 0;
    ++block.rounds;
    block.released.notify_all();
  }

  [[noreturn]] void stuck(const char* where, Here here) const {
    throw StuckError(std::string("a thread waits too long ") + where + " at " + here.file + ":" +
                     std::to_string(here.line));
  }
};

}  // namespace detail

void ThreadLane::sync_block(Here here) {
  std::unique_lock lock(block_.mutex);
  const std::uint64_t round = block_.rounds;
  if (++block_.arrived == block_.living) {
    detail::ThreadKernel::release(block_);
    return;
  }
  const std::chrono::nanoseconds patience(kernel_.options.patience_ns);
  if (!block_.released.wait_for(lock, patience, [&] { return block_.rounds != round; }))
    kernel_.stuck("at its block's barrier", here);
}

std::byte* ThreadLane::shared() { return block_.shared.data(); }
std::uint64_t ThreadLane::now_ns() { return kernel_.clock.now_ns(); }

void ThreadLane::pause(std::uint32_t, Here) {
  // There are more lanes than cores: who waits must let others run.
  std::this_thread::yield();
}

void ThreadLane::busy(std::uint64_t ns, Here) {
  for (const std::uint64_t end = now_ns() + ns; now_ns() < end;) cpu_pause();
}

std::uint64_t ThreadLane::meet(std::uint32_t mask, Rendezvous::Kind kind, std::uint64_t value, std::uint32_t source,
                               Here here) {
  std::unique_lock lock(warp_.mutex);
  const std::uint32_t self = 1u << lane();
  warp_.done &= ~self;
  if (warp_.rendezvous.arrive(lane(), mask, kind, value, source)) {
    warp_.done |= mask;
    warp_.released.notify_all();
  } else {
    const std::chrono::nanoseconds patience(kernel_.options.patience_ns);
    if (!warp_.released.wait_for(lock, patience, [&] { return (warp_.done & self) != 0; }))
      kernel_.stuck("in a collective", here);
  }
  return warp_.rendezvous.result(lane());
}

ThreadDevice::ThreadDevice(const Clock& clock, const ThreadOptions& options) : clock_(clock), options_(options) {}

ThreadDevice::~ThreadDevice() {
  for (auto& [id, kernel] : kernels_) {
    for (std::thread& thread : kernel->threads) thread.join();
  }
}

ThreadDevice::Kernel ThreadDevice::start(const Shape& shape, std::function<void(ThreadLane&)> body) {
  FLASHMOB_CHECK(shape.blocks >= 1 && shape.block_threads >= 1 && shape.block_threads <= 1024);
  auto kernel = std::make_unique<detail::ThreadKernel>();
  kernel->clock = clock_;
  kernel->options = options_;
  kernel->body = std::move(body);
  kernel->living = shape.blocks * shape.block_threads;
  for (std::uint32_t b = 0; b < shape.blocks; ++b) {
    detail::ThreadBlock& block = kernel->blocks.emplace_back();
    block.living = shape.block_threads;
    block.shared.resize(shape.shared_bytes);
  }
  for (std::uint32_t b = 0; b < shape.blocks; ++b) {
    for (std::uint32_t thread = 0; thread < shape.block_threads; ++thread) {
      if (thread % kWarpLanes == 0) kernel->warps.emplace_back();
      kernel->threads.emplace_back([kernel = kernel.get(), place = Place{thread, b, shape}, &block = kernel->blocks[b],
                                    &warp = kernel->warps.back()] { kernel->run(place, block, warp); });
    }
  }
  const std::lock_guard lock(mutex_);
  const Kernel id = next_kernel_++;
  kernels_.emplace(id, std::move(kernel));
  return id;
}

void ThreadDevice::wait(Kernel id) {
  std::unique_ptr<detail::ThreadKernel> kernel;
  {
    const std::lock_guard lock(mutex_);
    const auto found = kernels_.find(id);
    if (found == kernels_.end()) return;
    kernel = std::move(found->second);
    kernels_.erase(found);
  }
  for (std::thread& thread : kernel->threads) thread.join();
  if (kernel->error) std::rethrow_exception(kernel->error);
}

void ThreadDevice::pass(std::uint64_t duration_ns) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(duration_ns));
}

bool ThreadDevice::finished(Kernel id) const {
  const std::lock_guard lock(mutex_);
  const auto found = kernels_.find(id);
  return found == kernels_.end() || found->second->living.load(std::memory_order_acquire) == 0;
}

}  // namespace flashmob::gpu::simt
