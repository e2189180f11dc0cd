// What a benchmark's own device says about a run: its engine's figures, and the verdict on them.
#pragma once

#include <memory>

#include "engine/engine.h"
#include "engine/fidelity.h"
#include "flashmob/config.h"
#include "load/job.h"
#include "load/result.h"
#include "load/yardstick.h"

namespace flashmob::api {

struct JudgedRun {
  load::DeviceReport report;  // points into the others
  std::unique_ptr<engine::FidelityStats> measured;
  std::unique_ptr<Histogram> all_lateness;
  std::unique_ptr<load::Yardstick> yardstick;
};

// What the engine's own account says; the host's side is not in it. `seconds`: how long it was kept.
engine::FidelityEvidence device_evidence(const engine::FidelityStats& measured, double seconds, bool has_model);

// Of which the yardstick knows nothing.
struct InjectedFaults {
  // I/O commands of the measured time that met one.
  std::uint64_t count = 0;
  std::uint64_t delayed = 0;
  std::uint64_t delayed_ns = 0;  // all together
  std::uint64_t earlier_delayed_ns = 0;  // what was over before
  std::uint64_t lost = 0;  // commands that keep their slots for good, from before the measured time, too
  std::uint64_t slots = 1;  // of all queues
  std::uint64_t queues = 1;
};

// What a run is held against.
struct Measure {
  std::unique_ptr<load::Yardstick> yardstick;  // nullptr: no timing model, or it was not to be waited for
  bool was_stopped = false;  // which of these
  double path_ns = 0;  // what the device's targets leave out
  bool host_sleeps = false;  // while it waits, and so looks when it has woken
  // Of what was in flight at the end of the measured time: its host counts it, too. nullptr: nobody kept it.
  std::unique_ptr<engine::FidelityStats> drained;
  double cycle_ns = 0;  // closed loop: a requester's time between two requests, by the model; else 0
  double rounds = 1;  // closed loop: requesters for each slot, at least 1
  double service_ns = 0;  // how long the largest request occupies what serves it
  bool sequential = false;
  bool ages = false;  // the model has a state that lasts
  bool places_matter = false;  // which address a request has may change how long it takes
  bool in_turns = false;  // more requesters than slots, of queues that wait for each other
  std::uint64_t earlier_gap_ns = 0;  // the longest of the engine's before the measured time
  InjectedFaults faults;
  load::Allowance of_faults;  // their part of the yardstick's
};

// Of any engine that has kept such an account; its measured phase is over.
JudgedRun judge_run(std::unique_ptr<engine::FidelityStats> measured, const DeviceConfig& config,
                    const load::JobStats& stats, Measure measure);

// After judge_run(), with the report's faults, of a device that failed before the run's end, when its host had
// completed so many requests. No model fails: the run is not what its yardstick's would have been, be what came before
// on time.
void note_failure(std::uint64_t ios, load::DeviceReport& report);

// Notes what moved the data, and the counts of a copy engine beside the cores.
void add_copies(const engine::CopyReport& copies, load::Provenance& provenance);

}  // namespace flashmob::api
