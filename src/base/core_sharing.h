// Whether a thread that polls has to share its core with the very thread that is to give it work.
//
// Two threads that wait for each other by polling stand still on one core: each looks for work until its time slice
// ends, and all others of that core have theirs before the answer can be given. The scheduler levels the number of
// threads on a core, not what they wait for, and may leave it at that for seconds. What tells is when work is found: by
// a thread that had to wait for its core, at once, when it gets it back; never while it looks. Such a thread looks
// briefly and then sleeps briefly. It uses less than its share that way, so that the scheduler lets it run when it
// wakes, and the other thread meanwhile. Where the two turn out to run at the same time, it goes on looking as before.
//
// One thread's. Nothing here calls the kernel but take_short_turns().
#pragma once

#include <algorithm>
#include <cstdint>

namespace flashmob {

class CoreSharing {
 public:
  // While the core is shared: rounds without work for kSpinNs, then a sleep of kSleepNs.
  static constexpr std::uint64_t kSpinNs = 20'000;
  static constexpr std::uint64_t kSleepNs = 50'000;
  // A pause that another thread's turn makes; interrupts are shorter.
  static constexpr std::uint64_t kTurnNs = 500'000;
  // How long it is believed. Once may be chance; what is seen again and again is doubled.
  static constexpr std::uint64_t kFirstNs = 20'000'000;
  static constexpr std::uint64_t kLongestNs = 1'000'000'000;
  // Seen again so long after it was believed last, it may be chance again.
  static constexpr std::uint64_t kForgottenNs = 200'000'000;

  // Work was found by `now_ns`, the first since `last_work_ns`, by a round before which the clock was last read at
  // `before_ns`. `gap_end_ns` is when the thread last got its core back. True if that makes it likely for the first
  // time.
  bool found(std::uint64_t now_ns, std::uint64_t last_work_ns, std::uint64_t before_ns, std::uint64_t gap_end_ns) {
    if (now_ns - last_work_ns < kSpinNs) return false;
    std::uint64_t kept_ns = gap_end_ns > before_ns ? gap_end_ns - before_ns : 0;
    if (woke_ns_ > before_ns) kept_ns = std::max(kept_ns, overslept_ns_);
    if (kept_ns >= kTurnNs) {
      // One that had work until it lost its core would have lost it on any busy core.
      if (before_ns - last_work_ns < kSpinNs) return false;
      const bool is_first = until_ns_ == 0;
      if (now_ns > until_ns_ + kForgottenNs) span_ns_ = kFirstNs;
      until_ns_ = std::max(until_ns_, now_ns + span_ns_);
      span_ns_ = std::min(2 * span_ns_, kLongestNs);
      return is_first;
    }
    if (std::max(gap_end_ns, woke_ns_) <= last_work_ns) span_ns_ = kFirstNs;
    return false;
  }
  // The thread slept until `now_ns`, so much longer than it wanted.
  void woke(std::uint64_t now_ns, std::uint64_t overslept_ns) {
    woke_ns_ = now_ns;
    overslept_ns_ = overslept_ns;
  }
  bool is_likely(std::uint64_t now_ns) const { return now_ns < until_ns_; }

 private:
  std::uint64_t woke_ns_ = 0;
  std::uint64_t overslept_ns_ = 0;
  std::uint64_t until_ns_ = 0;
  std::uint64_t span_ns_ = kFirstNs;
};

// Asks the scheduler to give the calling thread the same share in shorter turns, where it can (Linux 6.12): one that
// wakes then need not wait for the end of another's longer turn.
void take_short_turns();

}  // namespace flashmob
