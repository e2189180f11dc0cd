// A thread that runs rounds of a non-blocking state machine: spins while there is work, sleeps when there is none, and
// can be parked so that another thread may touch its state.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "base/core_sharing.h"
#include "base/platform.h"
#include "engine/thread_clock.h"

namespace flashmob::engine {

struct IdleRule {
  std::uint64_t spin_ns;   // rounds without work for this long, then sleep
  std::uint64_t sleep_ns;  // the longest sleep: the wake-up bound where no doorbell can wake us
};

class EngineThread {
 public:
  // `round` runs one round and returns whether it did anything; `deadline_ns` says when it next has something to do
  // by itself. `sleepers` counts sleeping threads of the device, for doors to know when a doorbell must wake them.
  EngineThread(std::string name, ThreadClock& time, IdleRule idle, std::atomic<std::uint32_t>& sleepers,
               std::function<bool()> round, std::function<std::uint64_t()> deadline_ns);
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // Starts it, pinned to `core` if that is >= 0.
  void start(int core);
  void stop();
  bool running() const { return thread_.joinable(); }
  bool is_current() const { return thread_.get_id() == std::this_thread::get_id(); }

  // Before start(): called on the thread after each sleep and each time it stood parked, with the time.
  void set_on_resumed(std::function<void(std::uint64_t now_ns)> on_resumed) { on_resumed_ = std::move(on_resumed); }

  // Any thread. wake() ends a sleep at once; does nothing to a running thread.
  void wake();
  bool asleep() const { return asleep_.load(std::memory_order_relaxed) != 0; }

  // Another thread's way in: park() returns when the thread stands between two rounds, or has ended, unpark() lets it
  // go on. Both do nothing when it is not running, or is the caller itself. One parker at a time. Whoever waits for the
  // other sleeps if that takes more than a few microseconds.
  void park();
  void unpark();

  // Any thread: another IdleRule::spin_ns from now on.
  void set_spin(std::uint64_t spin_ns) { spin_ns_.store(spin_ns, std::memory_order_relaxed); }

  // CPU time of the thread so far, for provenance; 0 when not running.
  std::uint64_t cpu_time_ns() const;

 private:
  void loop();
  void sleep_until_work(bool shares_core);
  void stand_parked();

  std::string name_;
  ThreadClock& time_;
  std::uint64_t sleep_ns_;
  std::atomic<std::uint64_t> spin_ns_;
  std::atomic<std::uint32_t>& sleepers_;
  std::function<bool()> round_;
  std::function<std::uint64_t()> deadline_ns_;
  std::function<void(std::uint64_t)> on_resumed_;
  CoreSharing sharing_;
  std::thread thread_;
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> asleep_{0};  // futex word
  // Of standing_, a futex word. The parker sets and takes away kWanted, the thread answers by kStands, which goes with
  // it: one that is wanted anew before it has gone on stands again by itself. Nothing of it changes once it has ended.
  static constexpr std::uint32_t kWanted = 1;
  static constexpr std::uint32_t kStands = 2;
  static constexpr std::uint32_t kStopped = 4;  // by stop(): it is to end
  static constexpr std::uint32_t kEnded = 8;
  std::atomic<std::uint32_t> standing_{0};
  std::atomic<bool> started_{false};  // thread_ has been assigned
};

// Pins the calling thread to a core; false if the core does not exist or may not be used.
bool pin_this_thread(unsigned core);

}  // namespace flashmob::engine
