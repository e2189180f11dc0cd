// What a run's host would have seen of the model: the same timing model, asked by an ideal host and answered by an
// ideal device that take no time of their own, on the same arrivals. The yardstick that rates and latencies are held
// against.
//
// Open loops and traces are replayed request by request, because their arrivals do not depend on the device. A closed
// loop's do: there the same requesters ask for the same mix, for as long as it takes to know the model's steady state
// and how much a run of the given length may differ from it by chance.
//
// Pure; for any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/histogram.h"
#include "flashmob/config.h"
#include "load/arrivals.h"
#include "load/job.h"
#include "load/pattern.h"
#include "load/trace.h"
#include "timing/model.h"

namespace flashmob::load {

// One I/O queue of the run. All queues' times count from one moment, at or before the first of them began to ask.
struct YardstickQueue {
  Pattern pattern;
  std::uint64_t requesters = 0;       // closed loop
  double rate_iops = 0;               // open loop
  std::uint64_t arrivals_seed = 0;    // its job's seed and its number there: the arguments of Arrivals
  std::uint64_t arrivals_stream = 0;
  // Open loop: requests that went elsewhere than the pattern says. Outlives the call.
  const MovedList* moved = nullptr;
  std::vector<TraceIo> trace = {};    // trace loops
  std::uint32_t job = 0;              // whose it is: a job ends when its own commands are answered
  std::uint64_t begun_ns = 0;         // when its job began to ask; a trace's times count from here
  std::uint64_t measured_from_ns = 0;
  std::uint64_t measured_until_ns = 0;
};

struct YardstickLoad {
  LoopKind loop = LoopKind::closed;
  bool poisson = true;
  std::uint64_t think_time_ns = 0;
  std::uint32_t queue_depth = 1;
  unsigned lba_shift = 9;
  std::uint32_t units = 1;  // that fetch
  // Closed loop: requests that the run measured, and those of the ramp before.
  std::uint64_t ios = 0;
  std::uint64_t ramp_ios = 0;
  bool changes = false;     // some are writes
  bool sequential = false;  // streams that walk: where they are depends on all that was before
  // By placement handle, which of the model's streams its writes belong to; empty: it keeps none apart.
  std::vector<std::uint16_t> streams{};
  // Open loops and traces: how long the run took, on average, from an answer's time to the next use of its slot.
  std::uint64_t reaction_ns = 0;
  std::vector<YardstickQueue> queues;
};

// How far a run as long as the judged one may be from the model by chance (four standard deviations). Next to nothing
// where the very arrivals were replayed, unless they waited for slots: then what reaction_ns adds up to.
struct Allowance {
  double iops_share = 0;
  // Of a closed loop's rate, beyond that: a burst of all that are in flight falls inside or outside at each end of the
  // measured time.
  double edge_share = 0;
  double mean_ns = 0;
  double p99_ns = 0;
};

inline constexpr std::size_t kDirections = 2;  // IoKind::read and IoKind::write

struct Yardstick {
  double iops = 0;
  Histogram latency_ns;
  Allowance allowance;
  // Of reads and of writes by themselves; without rates.
  Histogram direction_ns[kDirections];
  Allowance direction_allowance[kDirections];

  void record(IoKind kind, std::uint64_t ns) {
    latency_ns.record(ns);
    if (kind != IoKind::other) direction_ns[static_cast<std::size_t>(kind)].record(ns);
  }
};

// nullptr for a model that has no times, and once `cancelled` is set. `begun_with` is the device's own model as it was
// when the run began to ask, if the model has a state that lasts; it outlives the call.
std::unique_ptr<Yardstick> measure_model(const TimingConfig& timing, YardstickLoad load,
                                         const std::atomic<bool>* cancelled = nullptr,
                                         const timing::TimingModel* begun_with = nullptr);

}  // namespace flashmob::load
