// Watches a running device: what its engine and its hosts did in each interval, and since the start.
//
// The engine's statistics may be read only in phases that are over, so the monitor lets two phases take turns: each
// look ends one and begins the other, and the difference to what that phase held before is the interval. The units are
// parked for some microseconds at each look. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "base/clock.h"
#include "base/histogram.h"
#include "controller/subsystem.h"
#include "engine/engine.h"
#include "engine/fidelity.h"
#include "engine/stats.h"
#include "flashmob/server.h"

namespace flashmob::api {

// The time in which anything was completed, and what it lost. Idle time must not thin that out. But what the machine
// took from an interval without completions, it took from the commands that were completed next.
class ActiveTime {
 public:
  // The next interval. `waits`: commands were in flight at its end. True if it counts, with what was kept before then
  // in `interval` and in interval_s.
  bool add(engine::FidelityStats& interval, double& interval_s, bool waits);

  double seconds = 0;
  SpanSums gaps, long_work;

 private:
  SpanSums kept_gaps_, kept_long_work_;
  double kept_s_ = 0;
};

class ActivityMonitor {
 public:
  // All outlive the monitor.
  ActivityMonitor(engine::Engine& engine, controller::Subsystem& subsystem, const FidelityConfig& rule, bool has_model,
                  const Clock& clock);

  ServerStats look();

 private:
  void look_at_hosts(ServerStats& stats);
  void look_at_engine(ServerStats& stats);
  struct Judged {
    engine::Verdict verdict;
    double tolerance_share = 0;
  };
  Judged judge(const engine::FidelityStats& stats, double active_s, double door_busy_share,
               const engine::Unanswered& unanswered) const;

  engine::Engine& engine_;
  controller::Subsystem& subsystem_;
  const FidelityConfig rule_;
  const bool has_model_;
  const Clock& clock_;
  const std::uint64_t started_ns_;
  std::uint64_t last_look_ns_;

  unsigned phase_ = engine::kWarmUp;  // the one that runs: kWarmUp or kMeasured
  std::array<std::unique_ptr<engine::FidelityStats>, 2> held_;  // of each phase, as of its last end
  ActiveTime active_;
  std::uint64_t door_worked_ns_ = 0;  // of the engine, as of the last look
  std::uint64_t active_door_ns_ = 0;
  std::unique_ptr<Histogram> door_delays_ns_ = std::make_unique<Histogram>();  // of the engine, as of the last look

  // As of the last look: of those that were attached, by arrival, and of those that had left.
  std::map<std::uint64_t, controller::IoCounters> seen_;
  std::map<std::uint64_t, std::uint64_t> told_ahead_;  // by arrival: commands that were told before they were counted
  controller::IoCounters removed_;
  std::uint64_t hosts_seen_ = 0;
};

}  // namespace flashmob::api
