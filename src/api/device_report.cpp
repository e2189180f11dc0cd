#include "api/device_report.h"

#include <algorithm>

#include "engine/fidelity.h"

namespace flashmob::api {

JudgedRun judge_run(engine::Engine& engine, const DeviceConfig& config, const load::JobStats& stats,
                    double model_iops) {
  return judge_run(std::make_unique<engine::FidelityStats>(engine.stats(engine::kMeasured)), config, stats, model_iops);
}

JudgedRun judge_run(std::unique_ptr<engine::FidelityStats> stats_of_engine, const DeviceConfig& config,
                    const load::JobStats& stats, double model_iops) {
  JudgedRun run;
  run.measured = std::move(stats_of_engine);
  const engine::FidelityStats& measured = *run.measured;
  run.all_lateness = std::make_unique<Histogram>(measured.lateness_ns);
  run.all_lateness->merge(measured.lateness_gap_ns);
  const double seconds = static_cast<double>(stats.ended_ns - stats.started_ns) / 1e9;
  const double completions = static_cast<double>(std::max<std::uint64_t>(1, measured.completions));

  load::DeviceReport& report = run.report;
  report.target_ns = &measured.target_ns;
  report.processing_ns = &measured.processing_ns;
  report.lateness_ns = run.all_lateness.get();
  report.lateness_no_gaps_ns = &measured.lateness_ns;
  report.target_mean_ns = static_cast<double>(measured.target_sum_ns) / completions;
  report.lateness_mean_ns = static_cast<double>(measured.lateness_sum_ns) / completions;
  report.lateness_max_ns = measured.lateness_max_ns;
  report.gap_count = measured.gap_count;
  report.gap_longest_ns = measured.gap_longest_ns;
  report.gap_share = seconds > 0 ? static_cast<double>(measured.gap_total_ns) / 1e9 / seconds : 0;
  report.poll_gap_max_ns = measured.max_poll_gap_ns;
  report.late_by_copy_share = static_cast<double>(measured.late_by_copy) / completions;
  report.model_iops = model_iops;

  engine::FidelityEvidence evidence;
  evidence.has_model = config.timing.model != "none";
  evidence.achieved_iops = seconds > 0 ? static_cast<double>(stats.ios) / seconds : 0;
  evidence.model_iops = model_iops > 0 ? model_iops : evidence.achieved_iops;
  evidence.mean_target_ns = report.target_mean_ns;
  evidence.lateness_p99_ns = measured.lateness_ns.quantile(0.99);
  const double host_gaps = seconds > 0 ? static_cast<double>(stats.gap_total_ns) / 1e9 / seconds : 0;
  evidence.gap_share = std::max(report.gap_share, host_gaps);
  evidence.late_by_copy_share = report.late_by_copy_share;
  evidence.idle_poll_share = static_cast<double>(measured.idle_polls) /
                             static_cast<double>(std::max<std::uint64_t>(1, measured.idle_polls + measured.busy_polls));
  const engine::Verdict verdict = engine::judge(config.fidelity, evidence);
  report.verdict = verdict.verdict;
  report.verdict_cause = verdict.cause;
  return run;
}

void add_copies(const engine::CopyReport& copies, load::Provenance& provenance) {
  provenance.copy_engine = copies.engine;
  if (copies.engine.find("dsa/") == std::string::npos) return;
  const engine::CopyCounters& counters = copies.counters;
  provenance.copy_counts = {{"offloaded", counters.offloaded},     {"fallbacks", counters.fallbacks},
                            {"page_faults", counters.page_faults}, {"errors", counters.errors},
                            {"refusals", counters.refusals},       {"lost", counters.lost}};
}

}  // namespace flashmob::api
