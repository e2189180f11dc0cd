// The result of a run as one JSON document: the only place that decides its fields (docs/reference/result.md).
//
// Everything that depends on wall time or on the machine lies in `provenance` and `wall_seconds`, so that two virtual
// runs with equal seeds are equal once those are left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/histogram.h"
#include "flashmob/bench.h"
#include "flashmob/config.h"
#include "flashmob/faults.h"
#include "load/job.h"
#include "load/trace_summary.h"
#include "load/yardstick.h"
#include "timing/model.h"

namespace flashmob::load {

inline constexpr std::uint32_t kResultSchemaVersion = 2;

// What the device says about itself; filled in from the engine's statistics by whoever joins the two. Of a device in
// another process nothing of that is known: `own` is false, and the result says null.
struct DeviceReport {
  bool own = true;
  const Histogram* target_ns = nullptr;
  const Histogram* processing_ns = nullptr;
  const Histogram* lateness_ns = nullptr;          // every request
  const Histogram* lateness_no_gaps_ns = nullptr;  // without requests that a host gap hit
  const Histogram* fetch_wait_ns = nullptr;        // upper bound of doorbell to fetch
  const Yardstick* model = nullptr;                // nullptr: no model
  const TraceSummary* trace = nullptr;
  // Exact, where the distributions above are sampled at high rates.
  double target_mean_ns = 0;
  double lateness_mean_ns = 0;
  std::uint64_t lateness_max_ns = 0;
  struct Bound {
    double mean_ns = 0;
    std::uint64_t p50_ns = 0, p99_ns = 0, p999_ns = 0, max_ns = 0;
  };
  Bound error_bound;  // upper bound of what the emulator added to a request
  struct Tolerance {
    double iops_share = 0, mean_ns = 0, p99_ns = 0;
    std::optional<double> read_mean_ns, read_p99_ns, write_mean_ns, write_p99_ns;  // none: not judged apart
    double latency_share = 0;
  };
  Tolerance tolerance;  // all that the verdict allowed
  std::uint64_t span_ns = 0;  // of the engine's measuring, which these are a share of; 0: the run's
  SpanSums gaps;       // of the engine's threads: time that the machine took
  SpanSums long_work;  // ... and their own work, too long without a look at the clock
  std::uint64_t poll_gap_max_ns = 0;
  double late_by_copy_share = 0;
  double backlog_share = 0;  // fetches that left entries behind
  double busy_share = 0;     // of the units' time
  std::uint64_t path_ns = 0;  // the path's constant cost, subtracted from the minimum latency
  std::string verdict;
  std::string verdict_cause;
  bool cancelled = false;
  bool device_failed = false;
  std::optional<timing::FlashCounters> flash;  // of models with a medium that ages
  std::vector<FaultCount> faults;  // rules that were in force, and what became of them
  std::string not_verified;  // why no read was verified although it was asked for; empty: some were, or it was not
};

// Of the driver's threads from their first request to their last answer; counts of all of them.
struct DriverWaits {
  double cpu_ns_per_io = 0;
  std::uint64_t sleeps = 0, woken = 0;  // of these, by an interrupt before their time
};

struct Provenance {
  double wall_seconds = 0;
  double fill_seconds = 0;
  // The measured time by CLOCK_MONOTONIC, and how far CLOCK_REALTIME is ahead of it; of virtual time there is none.
  struct Window {
    std::uint64_t begin_ns = 0, end_ns = 0, realtime_ahead_ns = 0;
  };
  std::optional<Window> window;
  std::vector<std::pair<std::string, double>> cpu_share;  // of each thread, of one core
  std::optional<DriverWaits> waits;  // in real time
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
