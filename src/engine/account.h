// What a worker enters into its FidelityStats, and shows of it while it runs. For the worker's thread, but where it
// says otherwise.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/platform.h"
#include "engine/slab.h"
#include "engine/stats.h"
#include "engine/thread_clock.h"

namespace flashmob::engine {

class Account {
 public:
  struct Times {
    std::uint64_t target_ns, fetched_ns;
    bool is_write;

    static Times of(const HotRequest& hot) { return {hot.target_ns, hot.fetched_ns, (hot.status & kIsWrite) != 0}; }
  };
  // What the requests of a batch add up to.
  struct Sums {
    std::uint64_t completions = 0;
    std::uint64_t target_sum_ns = 0;
    std::uint64_t fetched_sum_ns = 0;
    std::uint64_t target_min_ns = UINT64_MAX;

    void take(const HotRequest& hot) {
      ++completions;
      target_sum_ns += hot.target_ns;
      fetched_sum_ns += hot.fetched_ns;
      target_min_ns = std::min(target_min_ns, hot.target_ns);
    }
  };

  // `phase` is the engine's current statistics phase.
  Account(const ThreadClock& time, const std::atomic<unsigned>& phase) : time_(time), phase_(phase) {
    for (auto& stats : stats_) stats = std::make_unique<FidelityStats>();
    begin_round();
  }

  // Of a phase that is over, or while the worker is paused.
  FidelityStats& stats(unsigned phase) { return *stats_[phase]; }
  // The dispatcher's thread keeps its own counters beside the worker's.
  FidelityStats& stats_now() { return *stats_[phase_.load(std::memory_order_relaxed)]; }
  // Any thread, while it runs.
  LiveFigures live() const {
    return {live_completions_.load(std::memory_order_relaxed), live_lateness_ns_.load(std::memory_order_relaxed)};
  }

  void begin_round() { current_ = &stats_now(); }
  void publish() {
    live_completions_.store(total_.completions, std::memory_order_relaxed);
    live_lateness_ns_.store(total_.lateness_sum_ns, std::memory_order_relaxed);
  }

  void late_by_copy(std::uint64_t requests) { current_->late_by_copy += requests; }
  // A batch that was completed at `now_ns`. No request is released before its target, so sums over the batch give the
  // mean lateness, and the earliest target the largest.
  void add(const Sums& sums, std::uint64_t now_ns) {
    if (sums.completions == 0) return;
    add(sums.completions, sums.target_sum_ns - sums.fetched_sum_ns, sums.completions * now_ns - sums.target_sum_ns,
        now_ns - sums.target_min_ns);
  }
  // A request that was completed by itself, as of the time last read.
  void record(const Times& times) {
    const std::uint64_t lateness_ns = time_.now_ns > times.target_ns ? time_.now_ns - times.target_ns : 0;
    enter(times, lateness_ns, 1);
    add(1, times.target_ns - times.fetched_ns, lateness_ns, lateness_ns);
  }
  // Into the histograms, as of the time last read.
  void enter(const Times& times, std::uint64_t lateness_ns, std::uint32_t weight) {
    const std::uint64_t target_ns = times.target_ns - times.fetched_ns;
    current_->target_ns.record(target_ns, weight);
    if (times.is_write) current_->write_target_ns.record(target_ns, weight);
    current_->processing_ns.record(time_.now_ns - times.fetched_ns, weight);
    lateness_since(times.target_ns).record(lateness_ns, weight);
  }
  // Of a completion that is counted already: until its host made room it waited for its host, then for a look of ours.
  // A sample of its own, so the many that are next to nothing stay out of the distribution.
  void record_wait_for_room(std::uint64_t full_ns) {
    constexpr std::uint64_t kWorthASampleNs = 1'000;
    const std::uint64_t late_ns = time_.now_ns - std::min(time_.now_ns, full_ns);
    if (late_ns >= kWorthASampleNs) lateness_since(full_ns).record(late_ns);
    add(0, 0, late_ns, late_ns);
  }
  // A request that never completes, or completes now, counts in `late` by what it is late so far.
  static void add_late(const HotRequest& hot, std::uint64_t now_ns, FidelityStats& late) {
    const std::uint64_t late_ns = now_ns - hot.target_ns;
    ++late.completions;
    late.lateness_ns.record(late_ns);
    late.lateness_sum_ns += late_ns;
    late.lateness_max_ns = std::max(late.lateness_max_ns, late_ns);
    late.target_ns.record(hot.target_ns - hot.fetched_ns);
    late.processing_ns.record(now_ns - hot.fetched_ns);
    late.target_sum_ns += hot.target_ns - hot.fetched_ns;
  }
  void add_late(const HotRequest& hot, std::uint64_t now_ns) { add_late(hot, now_ns, *current_); }

 private:
  // A gap that ended after that time held the request back.
  Histogram& lateness_since(std::uint64_t due_ns) {
    return due_ns < time_.gaps.gap_end_ns() ? current_->lateness_gap_ns : current_->lateness_ns;
  }
  void add(std::uint64_t completions, std::uint64_t target_sum_ns, std::uint64_t lateness_sum_ns,
           std::uint64_t lateness_max_ns) {
    current_->completions += completions;
    current_->target_sum_ns += target_sum_ns;
    current_->lateness_sum_ns += lateness_sum_ns;
    current_->lateness_max_ns = std::max(current_->lateness_max_ns, lateness_max_ns);
    total_.completions += completions;
    total_.lateness_sum_ns += lateness_sum_ns;
  }

  const ThreadClock& time_;
  const std::atomic<unsigned>& phase_;
  FidelityStats* current_ = nullptr;
  LiveFigures total_;
  std::array<std::unique_ptr<FidelityStats>, kPhases> stats_;
  // What live() shows, once a round; the totals themselves are the worker's.
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> live_completions_{0};
  std::atomic<std::uint64_t> live_lateness_ns_{0};
};

}  // namespace flashmob::engine
