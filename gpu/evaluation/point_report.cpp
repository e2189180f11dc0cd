#include "evaluation/point_report.h"

#include <algorithm>

#include "api/device_report.h"
#include "base/json.h"
#include "flashmob/bench.h"
#include "host/engine/device_histogram.h"
#include "load/result.h"
#include "load/yardstick.h"

namespace flashmob::gpu::evaluation {
namespace {

// Above these the GPU's clock is no measure for what is judged.
constexpr double kMostDriftPpm = 100;
constexpr double kMostResolutionShare = 0.5;  // of the lateness that the verdict allows

DeviceConfig device_of(const PointOptions& options, const PointPlace& place) {
  DeviceConfig device;
  device.profile = "gpu-resident";
  device.seed = options.seed;
  device.timing = timing_of(options);
  device.engine.units = options.units;
  device.engine.workers = options.movers;
  device.engine.fetch_limit = options.fetch_batch;
  device.engine.copy = place.backend == "cuda" ? "warps of the GPU" : "warps of " + place.backend;
  NamespaceConfig& ns = device.subsystem.namespaces.at(0);
  ns.size_bytes = options.media_bytes;
  ns.media = options.media == "host" ? "pinned host memory" : "GPU memory";
  return device;
}

BenchOptions load_of(const PointOptions& options, const PointPlace& place, const std::string& command) {
  BenchOptions load;
  load.block_sizes = {{options.bytes, 1.0}};
  load.queues = options.queues;
  load.queue_depth = options.entries - 1;
  load.queue_entries = options.entries;
  load.requesters = options.threads;
  load.threads = options.threads;
  load.ramp_ns = options.ramp_ns;
  load.runtime_ns = options.measure_ns;
  load.verify_percent = 100;
  load.clock = place.backend == "fibres" ? "virtual" : "real";
  load.command = command;
  return load;
}

load::JobStats stats_of(const PointOptions& options, const Measured& measured) {
  const ReadAccount& account = measured.account;
  load::JobStats stats;
  add_counts(stats.latency_ns, account.latency_ns);
  load::KindStats& reads = stats.kinds[static_cast<std::size_t>(load::IoKind::read)];
  reads.ios = stats.ios = account.reads.value;
  reads.bytes = stats.bytes = stats.ios * options.bytes;
  reads.latency_ns.merge(stats.latency_ns);
  stats.failed = account.failed.value;
  stats.started_ns = measured.from_ns;
  stats.ended_ns = measured.until_ns;
  stats.verified = account.checked.value;
  stats.verify_errors = account.wrong.value;
  const IoStatus last = IoStatus::from_bits(static_cast<std::uint32_t>(account.last_status.value));
  if (account.failed.value != 0) stats.errors[last.field] = account.failed.value;
  return stats;
}

// What else must hold for a run to be VALID.
void judge_run(const PointOptions& options, const Measured& measured, const PointPlace& place,
               const FidelityConfig& rule, load::DeviceReport& report) {
  const auto say = [&report](const char* verdict, const std::string& cause) {
    report.verdict = verdict;
    report.verdict_cause = cause;
  };
  if (!options.statistics) {
    report.own = false;
    say("NOT JUDGED", "the engine kept no account, for comparison");
  }
  const simt::ClockReport& clock = place.clock;
  const double most_ns = kMostResolutionShare * static_cast<double>(rule.max_error_ns);
  if (static_cast<double>(clock.resolution_ns) > most_ns)
    say("INVALID", "the GPU's clock goes in steps of " + std::to_string(clock.resolution_ns) + " ns");
  if (std::abs(clock.drift_ppm) - clock.drift_error_ppm > kMostDriftPpm)
    say("INVALID", "the GPU's clock and the host's differ by " + std::to_string(clock.drift_ppm) + " ppm");
  const ReadAccount& account = measured.account;
  if (account.failed.value != 0) say("INVALID", std::to_string(account.failed.value) + " commands failed");
  if (account.wrong.value != 0) say("INVALID", std::to_string(account.wrong.value) + " blocks were wrong");
}

std::string engine_json(const PointOptions& options, const Measured& measured, const PointPlace& place) {
  const double seconds = static_cast<double>(options.measure_ns) * 1e-9;
  const double reads = std::max(1.0, static_cast<double>(measured.account.reads.value));
  JsonWriter json;
  json.begin_object()
      .field("backend", place.backend)
      .field("device", place.device)
      .field("multiprocessors", place.multiprocessors)
      .field("units", options.units)
      .field("movers", options.movers)
      .field("fetch_batch", options.fetch_batch)
      .field("per_request_updates", options.per_request_updates)
      .field("statistics", options.statistics)
      .field("threads_at_once", measured.at_once)
      .field("service_warps", measured.service_warps)
      .field("media", options.media)
      // The histogram's mean is rounded to its buckets; this is exact.
      .field("latency_mean_ns", static_cast<double>(measured.account.latency_sum_ns.value) / reads)
      .field("latency_max_ns", measured.account.latency_max_ns.value)
      .field("completions", measured.fidelity.completions)
      .field("completions_per_s", static_cast<double>(measured.fidelity.completions) / seconds);
  if (place.multiprocessors != 0) {
    json.field("multiprocessor_share", static_cast<double>(options.units) / place.multiprocessors);
    json.begin_object("clock")
        .field("error_ns", place.clock.error_ns)
        .field("resolution_ns", place.clock.resolution_ns)
        .field("span_ns", place.clock.span_ns)
        .field("drift_ppm", place.clock.drift_ppm)
        .field("drift_error_ppm", place.clock.drift_error_ppm)
        .end_object();
  }
  return json.end_object().text();
}

// The threads as requesters of a closed loop, with as many slots as their queues have.
api::Measure measure_of(const PointOptions& options, const DeviceConfig& device, const Measured& measured) {
  load::PatternConfig pattern;
  pattern.block_sizes = {{options.bytes, 1.0}};
  pattern.namespace_blocks = options.media_bytes >> pattern.lba_shift;
  load::YardstickLoad load;
  load.queue_depth = options.queues * (options.entries - 1);
  load.ios = measured.account.reads.value;
  load.ramp_ios = 2 * measured.at_once;
  load.queues.push_back({.pattern = load::Pattern(pattern, Rng(options.seed)), .requesters = measured.at_once});
  api::Measure measure;
  measure.yardstick = load::measure_model(device.timing, std::move(load));
  if (measure.yardstick && measure.yardstick->iops > 0)
    measure.cycle_ns = static_cast<double>(measured.at_once) * 1e9 / measure.yardstick->iops;
  return measure;
}

}  // namespace

PointReport report_of(const PointOptions& options, const Measured& measured, const PointPlace& place,
                      const std::string& command) {
  const DeviceConfig device = device_of(options, place);
  const load::JobStats stats = stats_of(options, measured);
  api::JudgedRun run = api::judge_run(std::make_unique<flashmob::engine::FidelityStats>(measured.fidelity), device,
                                      stats, measure_of(options, device, measured));
  judge_run(options, measured, place, device.fidelity, run.report);
  return {load::result_json(device, load_of(options, place, command), stats, run.report, {}),
          engine_json(options, measured, place)};
}

}  // namespace flashmob::gpu::evaluation
