// Whether the device of a run is still there: jobs' threads do not touch the driver, so another thread asks it, from
// time to time and when one of them has a reason to.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

namespace flashmob::api {

class DeviceWatch {
 public:
  explicit DeviceWatch(std::size_t jobs) : jobs_(jobs) {}

  // Jobs' threads.
  bool is_gone() const { return gone_.load(std::memory_order_relaxed); }
  // Has the device looked at, and waits for that.
  void ask() {
    std::unique_lock lock(mutex_);
    ++asked_;
    changed_.notify_all();
    changed_.wait(lock, [this, wanted = asked_] { return answered_ >= wanted || is_gone(); });
  }
  // A job has ended.
  void leave() {
    const std::lock_guard lock(mutex_);
    --jobs_;
    changed_.notify_all();
  }

  // Until all jobs have ended. `is_fatal` is called without the lock, at least every `period`.
  void run(std::chrono::milliseconds period, const std::function<bool()>& is_fatal) {
    std::unique_lock lock(mutex_);
    while (jobs_ != 0) {
      changed_.wait_for(lock, period, [this] { return jobs_ == 0 || asked_ != answered_; });
      if (jobs_ == 0) return;
      const std::uint64_t asked = asked_;
      lock.unlock();
      const bool gone = is_gone() || is_fatal();
      lock.lock();
      gone_.store(gone, std::memory_order_relaxed);
      answered_ = asked;
      changed_.notify_all();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t jobs_;
  std::uint64_t asked_ = 0, answered_ = 0;
  std::atomic<bool> gone_{false};
};

}  // namespace flashmob::api
