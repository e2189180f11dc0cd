// How a driver's thread waits for completions: it polls, sleeps until an interrupt, or sleeps until just before the
// next completion is expected and polls then (hybrid), with interrupts armed all the while, so that it is never later
// than by interrupts alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/platform.h"
#include "load/completion_predictor.h"

namespace flashmob::load {

enum class Completion : std::uint8_t { poll, interrupt, hybrid };

// What a thread did while it waited.
struct WaitCounts {
  std::uint64_t sleeps = 0;  // until an interrupt or a time
  std::uint64_t woken = 0;   // of these, by an interrupt
};

class CompletionWaiter {
 public:
  explicit CompletionWaiter(Completion completion);
  ~CompletionWaiter();
  CompletionWaiter(const CompletionWaiter&) = delete;
  CompletionWaiter& operator=(const CompletionWaiter&) = delete;

  // Any thread: a queue has completions, as of `now_ns()`. Costs a look at the clock and a system call where the thread
  // sleeps, and nearly nothing else.
  template <class Now>
  void interrupt(const Now& now_ns) {
    // Either the thread sees the completion that this is about when it looks after arm(), or this sees that it is
    // armed.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!asleep_.load(std::memory_order_relaxed) || !asleep_.exchange(false, std::memory_order_relaxed)) return;
    interrupted_ns_.store(now_ns(), std::memory_order_relaxed);
    wake();
  }

  // --- The thread that waits ---
  // Until when to sleep, as things are at `now_ns` with nothing there: 0: not at all, look again. `predictor` is
  // that of a hybrid, `deadline_ns` when there is something else to do.
  std::uint64_t sleep_until_ns(std::uint64_t now_ns, const CompletionPredictor* predictor,
                               std::uint64_t deadline_ns) const;
  // Between arm() and sleep() the thread looks once more: what completed before arm() raised no interrupt. disarm()
  // instead of sleep() where there was something.
  void arm() {
    asleep_.store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void disarm();
  // Until interrupted or until then, on the clock that `now_ns` reads. Returns when it should have been awake: at the
  // interrupt or then. What is found now had completed by that time.
  template <class Now>
  std::uint64_t sleep(std::uint64_t until_ns, const Now& now_ns) {
    const std::uint64_t begun_ns = now_ns();
    const bool was_woken = until_ns > begun_ns && block(until_ns - begun_ns);
    const std::uint64_t woke_ns = now_ns();
    ++counts_.sleeps;
    counts_.woken += was_woken;
    if (was_woken) return std::min(interrupted_ns_.load(std::memory_order_relaxed), woke_ns);
    if (woke_ns > until_ns) oversleeps_.note(woke_ns - until_ns);
    return std::min(until_ns, woke_ns);
  }
  const WaitCounts& counts() const { return counts_; }

 private:
  // Whoever would sleep for less gains nothing: to go to sleep and wake up takes as much.
  static constexpr std::uint64_t kLeastSleepNs = 4'000;
  // A wait may be longer by one part of so many, so that less is polled.
  static constexpr std::uint64_t kMayLose = 32;
  // Of a wait that is so many times as long as waking up takes, an interrupt loses little, and it is cheaper than a
  // timer.
  static constexpr std::uint64_t kLongWait = 32;
  // Where completions follow each other faster than a timer wakes anybody, and none is worth polling for all the time,
  // an interrupt brings several at once.
  static constexpr std::uint64_t kShortWait = 4;
  // Whoever asks a run to end does not wait for longer.
  static constexpr std::uint64_t kMostSleepNs = 20'000'000;

  void wake();
  // True if an interrupt came.
  bool block(std::uint64_t for_ns);

  const Completion completion_;
  int event_ = -1;
  RunningQuantile oversleeps_{0.75};  // how late a timer wakes us
  WaitCounts counts_;
  alignas(kCacheLineBytes) std::atomic<bool> asleep_{false};
  std::atomic<std::uint64_t> interrupted_ns_{0};
};

}  // namespace flashmob::load
