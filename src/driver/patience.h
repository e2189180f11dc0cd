// How long a host waits for an answer of a device behind a socket: so long, or but a moment more once somebody wants it
// to go (Ctrl-C). Whoever waits looks again every now and then.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

namespace flashmob::driver {

class Patience {
 public:
  // `is_hurried` may be nullptr.
  Patience(std::chrono::milliseconds time, const std::atomic<bool>* is_hurried)
      : until_(std::chrono::steady_clock::now() + time), is_hurried_(is_hurried) {}

  // 0: the time is up.
  int left_ms() {
    const auto now = std::chrono::steady_clock::now();
    if (!is_short_ && is_hurried_ != nullptr && is_hurried_->load(std::memory_order_relaxed)) {
      is_short_ = true;
      until_ = std::min(until_, now + kHurriedTime);
    }
    if (now >= until_) return 0;
    return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(until_ - now).count());
  }
  // The same, until the next look.
  int next_ms() { return std::min(left_ms(), kLookMs); }

 private:
  static constexpr std::chrono::milliseconds kHurriedTime{500};
  static constexpr int kLookMs = 50;

  std::chrono::steady_clock::time_point until_;
  const std::atomic<bool>* is_hurried_;
  bool is_short_ = false;
};

}  // namespace flashmob::driver
