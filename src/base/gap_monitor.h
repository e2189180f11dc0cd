// Times in which a thread that polls all the time did not: two consecutive looks at the clock further apart than a
// threshold. Two kinds. A *gap* is time that the operating system or the hypervisor took: another thread, an interrupt,
// a stolen virtual core. *Long work* is our own: what note_work() was told of (an fsync, a discard, a Copy) and page
// faults; of such a span the thread's CPU time tells what was taken all the same. Work whose length is known well
// enough (a slice of copies) is told by expect(), which costs no system call. A short loop with nothing to explain why
// it was long did not run.
//
// For the thread that it watches; close() also while that thread is parked. The operating system is asked only when a
// span was long.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace flashmob {

// How often, how long altogether, and how long at most.
struct SpanSums {
  std::uint64_t count = 0;
  std::uint64_t total_ns = 0;
  std::uint64_t longest_ns = 0;

  void add(std::uint64_t span_ns) {
    ++count;
    total_ns += span_ns;
    longest_ns = std::max(longest_ns, span_ns);
  }
  // Spans of the same threads, at another time.
  void append(const SpanSums& later) {
    count += later.count;
    total_ns += later.total_ns;
    longest_ns = std::max(longest_ns, later.longest_ns);
  }
  // Spans of other threads in the same time: threads lose time at the same moments and at different ones, and the
  // larger share is what a verdict needs.
  void join(const SpanSums& beside) {
    count += beside.count;
    total_ns = std::max(total_ns, beside.total_ns);
    longest_ns = std::max(longest_ns, beside.longest_ns);
  }
};

// What the calling thread has used so far. What a hypervisor stole is not in its CPU time where the kernel is told of
// that; interrupts that it served for others often are.
struct ThreadUse {
  std::uint64_t cpu_ns = 0;
  std::uint64_t page_faults = 0;
};
ThreadUse thread_use();

class GapMonitor {
 public:
  // `use` is for tests.
  explicit GapMonitor(std::uint64_t threshold_ns, ThreadUse (*use)() = thread_use)
      : threshold_ns_(threshold_ns), use_(use) {}

  // Something that takes long by itself has been done since the last look at the clock.
  void note_work() { worked_ = true; }
  // Work that may have taken so long has been done since then.
  void expect(std::uint64_t ns) { expected_ns_ += ns; }

  // Call with every reading of the clock. True if a gap or long work just ended.
  bool tick(std::uint64_t now_ns) {
    const std::uint64_t span_ns = now_ns - last_ns_;
    const std::uint64_t expected_ns = expected_ns_;
    expected_ns_ = 0;
    if (span_ns <= threshold_ns_ || span_ns - threshold_ns_ <= expected_ns || last_ns_ == 0) [[likely]] {
      last_ns_ = now_ns;
      worked_ = false;
      return false;
    }
    ended(now_ns, span_ns, expected_ns);
    return true;
  }
  // A pause that the thread made itself (it slept, or stood parked) ends now. On the thread.
  void restart(std::uint64_t now_ns) {
    last_ns_ = now_ns;
    seen_ns_ = now_ns;
    seen_ = use_();
    worked_ = false;
    expected_ns_ = 0;
  }

  // Virtual time, which no look at the clock takes: the machine takes so much.
  void take(std::uint64_t from_ns, std::uint64_t to_ns) {
    gaps_.add(to_ns - from_ns);
    gap_end_ns_ = to_ns;
  }

  std::uint64_t gap_end_ns() const { return gap_end_ns_; }
  std::uint64_t last_ns() const { return last_ns_; }
  const SpanSums& gaps() const { return gaps_; }
  const SpanSums& long_work() const { return long_work_; }
  void clear() { gaps_ = long_work_ = {}; }

 private:
  // Since the thread's use was read last, short spans have passed too, in which nothing that matters was taken; what is
  // missing of this one at most is.
  [[gnu::cold, gnu::noinline]] void ended(std::uint64_t now_ns, std::uint64_t span_ns, std::uint64_t expected_ns) {
    const ThreadUse use = use_();
    const bool worked = worked_ || (seen_ns_ != 0 && use.page_faults != seen_.page_faults);
    const std::uint64_t wall_ns = now_ns - seen_ns_;
    const std::uint64_t ran_ns = use.cpu_ns - seen_.cpu_ns;
    const std::uint64_t missing_ns = wall_ns > ran_ns ? wall_ns - ran_ns : 0;
    const std::uint64_t taken_ns = worked ? std::min(missing_ns, span_ns) : span_ns - expected_ns;
    if (taken_ns > threshold_ns_) {
      gaps_.add(taken_ns);
      gap_end_ns_ = now_ns;
    }
    if (span_ns - taken_ns > threshold_ns_) long_work_.add(span_ns - taken_ns);
    last_ns_ = seen_ns_ = now_ns;
    seen_ = use;
    worked_ = false;
  }

  std::uint64_t threshold_ns_;
  ThreadUse (*use_)();
  std::uint64_t last_ns_ = 0;
  std::uint64_t gap_end_ns_ = 0;
  std::uint64_t seen_ns_ = 0;  // when the thread's use was read last
  ThreadUse seen_;
  std::uint64_t expected_ns_ = 0;
  bool worked_ = false;
  SpanSums gaps_;
  SpanSums long_work_;
};

}  // namespace flashmob
