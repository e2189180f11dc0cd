// The result of a run as one JSON document: the only place that decides its fields (docs/reference/result.md).
//
// Everything that depends on wall time or on the machine lies in `provenance` and `wall_seconds`, so that two virtual
// runs with equal seeds are equal once those are left out.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/histogram.h"
#include "flashmob/bench.h"
#include "flashmob/config.h"
#include "flashmob/faults.h"
#include "load/job.h"

namespace flashmob::load {

inline constexpr std::uint32_t kResultSchemaVersion = 1;

// What the device says about itself; filled in from the engine's statistics by whoever joins the two. Of a device in
// another process nothing of that is known: `own` is false, and the result says null.
struct DeviceReport {
  bool own = true;
  const Histogram* target_ns = nullptr;
  const Histogram* processing_ns = nullptr;
  const Histogram* lateness_ns = nullptr;          // every request
  const Histogram* lateness_no_gaps_ns = nullptr;  // without requests that a host gap hit
  // Exact, where the distributions above are sampled at high rates.
  double target_mean_ns = 0;
  double lateness_mean_ns = 0;
  std::uint64_t lateness_max_ns = 0;
  std::uint64_t gap_count = 0;
  std::uint64_t gap_longest_ns = 0;
  double gap_share = 0;
  std::uint64_t poll_gap_max_ns = 0;
  double late_by_copy_share = 0;
  std::string verdict;
  std::string verdict_cause;
  double model_iops = 0;  // 0: no model
  bool cancelled = false;
  std::vector<FaultCount> faults;  // rules that were in force, and what became of them
};

struct Provenance {
  double wall_seconds = 0;
  double fill_seconds = 0;
  std::vector<std::pair<std::string, double>> cpu_share;  // of each thread, of one core
  double tsc_ghz = 0;
  double clock_drift_ppm = 0;
  std::string copy_engine;  // what moved the data; empty: not known
  std::vector<std::pair<std::string, std::uint64_t>> copy_counts;  // of a copy engine beside the cores
};

std::string result_json(const DeviceConfig& device, const BenchOptions& options, const JobStats& stats,
                        const DeviceReport& report, const Provenance& provenance);

// CPU model and number of cores, kernel, for provenance and doctor.
std::string cpu_model();
std::string kernel_release();

}  // namespace flashmob::load
