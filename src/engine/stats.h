// What one worker and its dispatcher record about their own truthfulness (architecture idea 2).
//
// Each worker has one FidelityStats per phase of a run (warm-up, measured, afterwards); the engine moves all of them to
// the next phase at once and readers look only at phases that are over.
#pragma once

#include <cstdint>

#include "base/histogram.h"

namespace flashmob::engine {

// Host gaps: two consecutive looks at the clock further apart than the threshold, although the code between them
// takes far less. A timer tick, a preemption, a stolen vCPU.
class GapMonitor {
 public:
  explicit GapMonitor(std::uint64_t threshold_ns) : threshold_ns_(threshold_ns) {}

  // Call with every reading of the clock. True if a gap just ended.
  bool tick(std::uint64_t now_ns) {
    const std::uint64_t span = now_ns - last_ns_;
    const bool gap = span > threshold_ns_ && last_ns_ != 0;
    last_ns_ = now_ns;
    if (!gap) [[likely]]
      return false;
    gap_end_ns_ = now_ns;
    ++count_;
    total_ns_ += span;
    if (span > longest_ns_) longest_ns_ = span;
    return true;
  }
  // A pause that the thread made itself (it slept): not a gap.
  void restart(std::uint64_t now_ns) { last_ns_ = now_ns; }

  std::uint64_t gap_end_ns() const { return gap_end_ns_; }
  std::uint64_t last_ns() const { return last_ns_; }
  std::uint64_t count() const { return count_; }
  std::uint64_t total_ns() const { return total_ns_; }
  std::uint64_t longest_ns() const { return longest_ns_; }
  void clear() { count_ = total_ns_ = longest_ns_ = 0; }

 private:
  std::uint64_t threshold_ns_;
  std::uint64_t last_ns_ = 0;
  std::uint64_t gap_end_ns_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t total_ns_ = 0;
  std::uint64_t longest_ns_ = 0;
};

struct FidelityStats {
  // Distributions. In rounds of many completions every kSampleEvery-th is entered, with that weight.
  Histogram target_ns;  // the model's latency: target - fetch
  Histogram processing_ns;  // fetch to completion
  Histogram lateness_ns;  // completion after target, requests that no gap hit
  Histogram lateness_gap_ns;  // ditto, requests that a gap hit
  // Exact, of every request.
  std::uint64_t completions = 0;
  std::uint64_t target_sum_ns = 0;
  std::uint64_t lateness_sum_ns = 0;
  std::uint64_t lateness_max_ns = 0;
  std::uint64_t late_by_copy = 0;  // due before their data had been moved
  std::uint64_t max_poll_gap_ns = 0;  // longest time between two polls of one doorbell
  std::uint64_t busy_polls = 0;  // dispatcher passes that fetched something
  std::uint64_t idle_polls = 0;  // passes that found every doorbell unmoved
  std::uint64_t gap_count = 0;
  std::uint64_t gap_total_ns = 0;
  std::uint64_t gap_longest_ns = 0;

  void merge(const FidelityStats& other);
};

// Of all phases together, for a look at a run that goes on.
struct LiveFigures {
  std::uint64_t completions = 0;
  std::uint64_t lateness_sum_ns = 0;
};

// Rounds with more completions than this are sampled: a histogram costs as much as posting the entry. The period is
// prime, so that it does not walk in step with the number of queues.
inline constexpr std::uint32_t kSampleAbove = 32;
inline constexpr std::uint32_t kSampleEvery = 29;

inline constexpr unsigned kPhases = 3;
enum Phase : unsigned { kWarmUp = 0, kMeasured = 1, kAfterwards = 2 };

}  // namespace flashmob::engine
