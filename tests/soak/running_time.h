// Time that this process has had, for judging stalls: a look at the clock adds at most 100 ms, so that a process that
// was stopped, with everything else, does not blame the device for it. Look often. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace flashmob::soak {

class RunningTime {
 public:
  std::uint64_t now_ns() {
    const auto now = std::chrono::steady_clock::now();
    passed_ += std::min<std::chrono::nanoseconds>(now - last_, std::chrono::milliseconds(100));
    longest_gap_ = std::max<std::chrono::nanoseconds>(longest_gap_, now - last_);
    last_ = now;
    return static_cast<std::uint64_t>(passed_.count());
  }
  // The longest time between two looks: how long this process was kept from running, if it was.
  double longest_gap_s() const { return std::chrono::duration<double>(longest_gap_).count(); }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::chrono::nanoseconds longest_gap_{0};
  std::chrono::nanoseconds passed_{1};  // 0 would be no time
};

}  // namespace flashmob::soak
