// What a benchmark's own device says about a run: its engine's figures, and the verdict on them.
#pragma once

#include <memory>

#include "engine/engine.h"
#include "flashmob/config.h"
#include "load/job.h"
#include "load/result.h"

namespace flashmob::api {

struct JudgedRun {
  load::DeviceReport report;  // points into the other two
  std::unique_ptr<engine::FidelityStats> measured;
  std::unique_ptr<Histogram> all_lateness;
};

// Of any engine that has kept such an account.
JudgedRun judge_run(std::unique_ptr<engine::FidelityStats> measured, const DeviceConfig& config,
                    const load::JobStats& stats, double model_iops);
// The engine's measured phase is over. `model_iops` is 0 where the load has no steady rate of its own (a replayed
// trace); it is then held to its lateness alone.
JudgedRun judge_run(engine::Engine& engine, const DeviceConfig& config, const load::JobStats& stats, double model_iops);

// Notes what moved the data, and the counts of a copy engine beside the cores.
void add_copies(const engine::CopyReport& copies, load::Provenance& provenance);

}  // namespace flashmob::api
