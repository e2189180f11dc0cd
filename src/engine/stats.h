// What one worker and its dispatcher record about their own truthfulness (architecture idea 2).
//
// Each worker has one FidelityStats per phase of a run (warm-up, measured, afterwards); the engine moves all of them to
// the next phase at once and readers look only at phases that are over.
#pragma once

#include <array>
#include <cstdint>

#include "base/gap_monitor.h"
#include "base/histogram.h"
#include "base/platform.h"
#include "memory/address_space.h"

namespace flashmob::engine {

struct FidelityStats {
  // Distributions. In rounds of many completions every kSampleEvery-th is entered, with that weight.
  Histogram target_ns;  // the model's latency: target - fetch
  Histogram write_target_ns;  // of those of target_ns that are Writes
  Histogram processing_ns;  // fetch to completion
  Histogram lateness_ns;  // completion visible after target, requests that no gap hit
  Histogram lateness_gap_ns;  // ditto, requests that a gap hit
  Histogram wait_ns;  // upper bound of doorbell to fetch (base/doorbell_watch.h), of every request
  Histogram door_ns;  // what a door's thread added, of every request that passed through it (engine/door_delays.h)
  // Exact, of every request.
  std::uint64_t completions = 0;
  std::uint64_t target_sum_ns = 0;
  std::uint64_t lateness_sum_ns = 0;
  std::uint64_t lateness_max_ns = 0;
  std::uint64_t late_by_copy = 0;  // due before their data had been moved
  // What the dispatcher's thread counts, apart from the lines that a worker's own thread writes.
  alignas(kCacheLineBytes) std::uint64_t wait_sum_ns = 0;  // of wait_ns
  // Requests that may have come while the dispatcher slept for want of work, and what of wait_sum_ns is that sleep's.
  std::uint64_t woken = 0;
  std::uint64_t asleep_sum_ns = 0;
  std::uint64_t fetches = 0;  // batches of I/O commands
  std::uint64_t left_behind = 0;  // those that did not take all that was there
  std::uint64_t max_poll_gap_ns = 0;  // longest time between two polls of one doorbell
  std::uint64_t busy_polls = 0;  // dispatcher passes that fetched something
  std::uint64_t idle_polls = 0;  // passes that found every doorbell unmoved
  std::uint64_t span_ns = 0;  // how long the statistics were kept: what gaps and long work are a share of
  // Of each unit's dispatcher: the time in which it polled, and what part of it went to rounds with work. The busiest
  // may be the limit, whatever the others do.
  struct UnitTime {
    std::uint64_t polled_ns = 0;
    std::uint64_t worked_ns = 0;
  };
  std::array<UnitTime, memory::AddressSpace::kMaxReaders> units{};
  double busy_share() const;
  SpanSums gaps;  // time that the machine took
  SpanSums long_work;  // our own work, too long without a look at the clock

  // Adds what other threads recorded in the same time.
  void join(const FidelityStats& beside);
  // Adds what the same threads recorded in another time.
  void append(const FidelityStats& later);

 private:
  void add(const FidelityStats& other);
};

// I/O commands that were fetched and have no answer yet.
struct Unanswered {
  std::uint64_t count = 0;  // that are being served
  std::uint64_t lost = 0;  // that a fault has swallowed: they never will
  std::uint64_t oldest_ns = 0;  // since the first of them all was fetched
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
