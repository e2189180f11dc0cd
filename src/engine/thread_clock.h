// The time as one engine thread last read it, with the gap monitor that every reading feeds.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/gap_monitor.h"

namespace flashmob::engine {

struct ThreadClock {
  ThreadClock(const Clock& source, std::uint64_t gap_ns)
      : clock(source), gaps(source.is_virtual() ? UINT64_MAX : gap_ns), now_ns(source.now_ns()) {}

  // Reads the clock (8 ns in real time): once per batch, and often enough that our own work is no gap.
  std::uint64_t refresh() {
    now_ns = clock.now_ns();
    gaps.tick(now_ns);
    return now_ns;
  }

  const Clock& clock;
  GapMonitor gaps;
  std::uint64_t slept_until_ns = 0;  // when the last sleep for want of work ended
  std::uint64_t now_ns;
};

}  // namespace flashmob::engine
