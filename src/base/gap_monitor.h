// Times in which a thread that polls all the time did not: two consecutive looks at the clock further apart than a
// threshold. Two kinds, told apart by the thread's CPU time: a *gap* is time that the operating system or the
// hypervisor took (another thread, an interrupt, a stolen virtual core); *long work* is our own (an fsync, a discard, a
// page fault, a pass over thousands of doorbells) and no excuse for anything.
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

// CPU time of the calling thread; what a hypervisor stole is not in it where the kernel is told of that.
std::uint64_t thread_cpu_time_ns();

class GapMonitor {
 public:
  using CpuTime = std::uint64_t (*)();

  // `cpu_time` is for tests.
  explicit GapMonitor(std::uint64_t threshold_ns, CpuTime cpu_time = thread_cpu_time_ns)
      : threshold_ns_(threshold_ns), cpu_time_(cpu_time) {}

  // Call with every reading of the clock. True if a gap or long work just ended.
  bool tick(std::uint64_t now_ns) {
    const std::uint64_t span_ns = now_ns - last_ns_;
    if (span_ns <= threshold_ns_ || last_ns_ == 0) [[likely]] {
      last_ns_ = now_ns;
      return false;
    }
    ended(now_ns, span_ns);
    return true;
  }
  // A pause that the thread made itself (it slept, or stood parked) ends now. On the thread.
  void restart(std::uint64_t now_ns) {
    last_ns_ = now_ns;
    seen_ns_ = now_ns;
    seen_cpu_ns_ = cpu_time_();
  }

  std::uint64_t gap_end_ns() const { return gap_end_ns_; }
  std::uint64_t last_ns() const { return last_ns_; }
  const SpanSums& gaps() const { return gaps_; }
  const SpanSums& long_work() const { return long_work_; }
  void clear() { gaps_ = long_work_ = {}; }

 private:
  // Since CPU time was read last, short spans have passed too, in which nothing that matters was taken; what is missing
  // of this one at most is.
  [[gnu::cold, gnu::noinline]] void ended(std::uint64_t now_ns, std::uint64_t span_ns) {
    const std::uint64_t cpu_ns = cpu_time_();
    const std::uint64_t wall_ns = now_ns - seen_ns_;
    const std::uint64_t ran_ns = cpu_ns - seen_cpu_ns_;
    // Without an earlier reading nothing is known of what was taken, and the blame is ours.
    const std::uint64_t missing_ns = seen_ns_ != 0 && wall_ns > ran_ns ? wall_ns - ran_ns : 0;
    const std::uint64_t taken_ns = std::min(missing_ns, span_ns);
    if (taken_ns > threshold_ns_) {
      gaps_.add(taken_ns);
      gap_end_ns_ = now_ns;
    }
    if (span_ns - taken_ns > threshold_ns_) long_work_.add(span_ns - taken_ns);
    last_ns_ = seen_ns_ = now_ns;
    seen_cpu_ns_ = cpu_ns;
  }

  std::uint64_t threshold_ns_;
  CpuTime cpu_time_;
  std::uint64_t last_ns_ = 0;
  std::uint64_t gap_end_ns_ = 0;
  std::uint64_t seen_ns_ = 0;  // when CPU time was read last
  std::uint64_t seen_cpu_ns_ = 0;
  SpanSums gaps_;
  SpanSums long_work_;
};

}  // namespace flashmob
