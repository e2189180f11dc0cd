// What the model gives for a load: the same timing model, driven by an ideal host and an ideal device that take no
// time of their own. The yardstick that a run's achieved IOPS are held against.
#pragma once

#include <cstdint>
#include <functional>

#include "flashmob/config.h"
#include "load/pattern.h"

namespace flashmob::load {

struct ExpectedLoad {
  std::uint64_t concurrency = 1;   // commands in flight at the device
  std::uint64_t think_time_ns = 0;
  std::uint64_t requesters = 1;    // at least concurrency where there is think time
  double rate_iops = 0;            // open loop: never more than this arrives; 0: closed loop
  unsigned lba_shift = 9;
};

// IOPS of the closed loop in steady state, capped by the open loop's rate. `next` draws the workload's requests.
double expected_iops(const TimingConfig& timing, const ExpectedLoad& load, const std::function<Io()>& next);

}  // namespace flashmob::load
