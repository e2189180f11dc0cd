#include "api/device_report.h"

#include <algorithm>
#include <cmath>

#include "engine/fidelity.h"
#include "timing/registry.h"

namespace flashmob::api {

namespace {

double share_of(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Of a run's time; a span may reach beyond it at either end.
double time_share(std::uint64_t part_ns, std::uint64_t whole_ns) { return std::min(1.0, share_of(part_ns, whole_ns)); }

engine::Seen seen(double iops, const Histogram& latency_ns) {
  return {iops, latency_ns.mean(), static_cast<double>(latency_ns.quantile(0.99)),
          static_cast<double>(latency_ns.quantile(0.999))};
}

// The tail of what requests take once they have a slot: one that is late makes those late that wait for its slot, so of
// the slowest hundredth that a host sees it is a part.
double tail_of(double rounds) { return 0.01 / rounds; }

// So much of the tail may be others than the host's: those that were answered when it began to measure and that it had
// not seen; and of large batches the histogram has a sample.
constexpr double kOthersShare = 0.2;

engine::Targets targets_of(const Histogram& target_ns, double mean_ns, double tail) {
  const auto at = [&](double q) { return static_cast<double>(target_ns.quantile(q)); };
  const double others = kOthersShare * tail;
  return {mean_ns, at(0.99), at(1 - tail - others), at(1 - tail + others), static_cast<double>(target_ns.max())};
}

// What is in `all` and not in `part`, which is a part of it; to the width of a bucket.
std::unique_ptr<Histogram> without(const Histogram& all, const Histogram& part) {
  auto rest = std::make_unique<Histogram>();
  for (std::size_t bucket = 0; bucket < Histogram::kBuckets; ++bucket) {
    const std::uint64_t count = all.bucket_count(bucket) - part.bucket_count(bucket);
    if (count != 0) rest->record(Histogram::bucket_low(bucket) + (Histogram::bucket_width(bucket) - 1) / 2, count);
  }
  return rest;
}

// Where no request waits for a slot, it is not told.
engine::Seen served(const Histogram& served_ns, const Histogram& latency_ns, double tail) {
  const Histogram& found_ns = served_ns.count() != 0 ? served_ns : latency_ns;
  engine::Seen found = seen(0, found_ns);
  found.p99_ns = static_cast<double>(found_ns.quantile(1 - tail));
  return found;
}

engine::SeenDirection seen_of(load::IoKind kind, const load::JobStats& stats, const load::Yardstick& model,
                              const Histogram& target_ns, double tail) {
  const auto index = static_cast<std::size_t>(kind);
  const load::Allowance& allowance = model.direction_allowance[index];
  const Histogram& found_ns = stats.of(kind).latency_ns;
  return {found_ns.count(),
          seen(0, found_ns),
          seen(0, model.direction_ns[index]),
          {0, allowance.mean_ns, allowance.p99_ns, 0},
          served(stats.of(kind).served_ns, found_ns, tail),
          targets_of(target_ns, target_ns.mean(), tail)};
}

// Of the requests.
double faulted_share(const InjectedFaults& faults, const load::JobStats& stats) {
  return share_of(faults.count, std::max(faults.count, stats.failed + stats.ios));
}

// Fewer requests than this, of all, are not those that a 99th percentile is about.
constexpr double kFewMet = 0.005;

// Of more requesters than slots, those of a queue share what slots it has left while one is held, and wait longer by
// its part of them: at most for as long as it is held, and until the turn of those who came then has come round. Who is
// answered together waits for whole turns: some as long as before, some for one more. 0 where so few met it that it is
// nothing to a 99th percentile. Faults that lie apart do not add up: as many slots are held at once as a delay meets
// others on its queue, itself included.
double longer_wait_ns(const Measure& measure, std::uint64_t run_ns, std::uint64_t ios) {
  const InjectedFaults& faults = measure.faults;
  if (measure.rounds <= 1 || measure.cycle_ns == 0 || faults.delayed_ns == 0 || run_ns == 0) return 0;
  const auto delayed_ns = static_cast<double>(faults.delayed_ns);
  const auto count = static_cast<double>(faults.delayed);
  const double ran_ns = static_cast<double>(run_ns) * static_cast<double>(faults.queues);
  if (delayed_ns + count * measure.cycle_ns <= kFewMet * ran_ns) return 0;
  const double delay_ns = delayed_ns / count;
  const double held = std::min(count, 1 + delayed_ns / ran_ns);
  const double slots = share_of(faults.slots, faults.queues);
  if (held >= slots) return delay_ns;
  const double mean_ns = measure.yardstick->latency_ns.mean();
  const double for_all_ns = std::min(delay_ns, mean_ns) * held / (slots - held);
  const double turn_ns = mean_ns / measure.rounds;
  const double whole_turns = std::ceil(measure.rounds * slots / (slots - held)) - std::ceil(measure.rounds);
  const bool many_wait = delayed_ns / turn_ns * measure.rounds * held > kFewMet * static_cast<double>(ios);
  return std::min(delay_ns, many_wait ? std::max(for_all_ns, whole_turns * turn_ns) : for_all_ns);
}

// What the few requests that were hit may have done to a distribution: their delay to its mean, also that of those who
// waited for their slots in turn, and their number to which request is the slowest in a hundred.
void allow_for_faults(const Measure& measure, double share, double longer_ns, const Histogram& model_ns,
                      std::uint64_t ios, load::Allowance& allowance) {
  allowance.mean_ns += measure.rounds * share_of(measure.faults.delayed_ns, ios);
  const double shift = std::min(share, 0.0099);
  const auto spread_ns = model_ns.quantile(0.99 + shift) - model_ns.quantile(0.99 - shift);
  allowance.p99_ns += static_cast<double>(spread_ns) + longer_ns;
}

void allow_for_faults(const load::JobStats& stats, Measure& measure) {
  // A slot that is gone would have had its share of the requests.
  const double share = faulted_share(measure.faults, stats) + share_of(measure.faults.lost, measure.faults.slots);
  if (measure.yardstick == nullptr || share == 0) return;
  load::Yardstick& model = *measure.yardstick;
  const load::Allowance chance = model.allowance;
  const double longer_ns = longer_wait_ns(measure, stats.ended_ns - stats.started_ns, stats.latency_ns.count());
  allow_for_faults(measure, share, longer_ns, model.latency_ns, stats.latency_ns.count(), model.allowance);
  model.allowance.iops_share += share;
  if (measure.cycle_ns != 0)
    model.allowance.iops_share +=
        measure.rounds * share_of(measure.faults.delayed_ns, stats.latency_ns.count()) / measure.cycle_ns;
  measure.of_faults = {model.allowance.iops_share - chance.iops_share, 0, model.allowance.mean_ns - chance.mean_ns,
                       model.allowance.p99_ns - chance.p99_ns};
  for (const load::IoKind kind : {load::IoKind::read, load::IoKind::write}) {
    const auto index = static_cast<std::size_t>(kind);
    if (model.direction_ns[index].count() == 0) continue;
    allow_for_faults(measure, share, longer_ns, model.direction_ns[index], stats.of(kind).latency_ns.count(),
                     model.direction_allowance[index]);
  }
}

// What injected faults can have done at most to what the host saw.
engine::FaultEffects effects_of(const load::JobStats& stats, double seconds, const Measure& measure) {
  const InjectedFaults& faults = measure.faults;
  const std::uint64_t ios = stats.latency_ns.count();
  if (ios == 0 || seconds <= 0) return {};
  const auto run_ns = static_cast<std::uint64_t>(seconds * 1e9);
  const double delay_ns = share_of(faults.delayed_ns, faults.delayed);
  const double lost = share_of(faults.lost, faults.slots);
  engine::FaultEffects can;
  can.mean_ns = measure.rounds * share_of(faults.delayed_ns, ios) + lost * stats.latency_ns.mean();
  can.iops_share = faulted_share(faults, stats) + lost;
  if (share_of(faults.count, ios) > kFewMet) can.p99_ns = delay_ns;
  if (measure.cycle_ns != 0) {
    can.iops_share += measure.rounds * share_of(faults.delayed_ns, ios) / measure.cycle_ns;
    // Not divided among the slots that were left: those who come together wait for the same one. Where one is gone for
    // good, whose turn it was waits for another's.
    if (longer_wait_ns(measure, run_ns, ios) > 0)
      can.p99_ns = std::max(can.p99_ns, std::min(delay_ns, stats.latency_ns.mean()));
    if (measure.rounds > 1 && lost > 0) can.p99_ns += stats.latency_ns.mean() / measure.rounds;
    return can;
  }
  // Arrivals do not wait for answers: where none is left of a queue's slots, whoever comes waits until one is given
  // back, and where that never ends, all who come later do.
  const double waited_ns = stats.served_ns.count() == 0 ? 0 : stats.latency_ns.mean() - stats.served_ns.mean();
  const double came = static_cast<double>(ios) / static_cast<double>(faults.queues) * delay_ns / (seconds * 1e9);
  const std::uint64_t delayed_ns = faults.delayed_ns + faults.earlier_delayed_ns;
  const double for_all_ns = share_of(delayed_ns, faults.slots) + lost * static_cast<double>(run_ns);
  can.waits_ns = std::min(waited_ns, share_of(delayed_ns, ios) * came + for_all_ns);
  can.iops_share += (delay_ns + for_all_ns) / (seconds * 1e9);
  if (waited_ns > 0 && static_cast<double>(faults.delayed) * came > kFewMet * static_cast<double>(ios))
    can.p99_ns = std::max(can.p99_ns, delay_ns);
  if (waited_ns > 0) can.p99_ns += for_all_ns;
  return can;
}

void add_host(const load::JobStats& stats, double seconds, const Measure& measure,
              const engine::FidelityStats& measured, engine::FidelityEvidence& evidence) {
  evidence.was_stopped = measure.was_stopped;
  evidence.ios = stats.ios;
  evidence.failed_share = share_of(stats.failed, stats.failed + stats.ios);
  if (measure.yardstick == nullptr) return;
  const load::Yardstick& model = *measure.yardstick;
  evidence.has_host = true;
  evidence.host = seen(seconds > 0 ? static_cast<double>(stats.ios) / seconds : 0, stats.latency_ns);
  evidence.model = seen(model.iops, model.latency_ns);
  evidence.allowance = {model.allowance.iops_share, model.allowance.mean_ns, model.allowance.p99_ns, 0};
  evidence.edge_share = model.allowance.edge_share;
  const double tail = tail_of(measure.rounds);
  evidence.served = served(stats.served_ns, stats.latency_ns, tail);
  // All that the host saw, which is a little more than was completed in the measured time.
  const auto all = std::make_unique<engine::FidelityStats>(measured);
  if (measure.drained) all->append(*measure.drained);
  evidence.target = targets_of(all->target_ns, share_of(all->target_sum_ns, all->completions), tail);
  // A closed loop has nothing but reads and writes.
  const auto read_target_ns = without(all->target_ns, all->write_target_ns);
  // An engine on a GPU does not tell them apart.
  const bool tells = all->write_target_ns.count() != 0 || stats.of(load::IoKind::write).ios == 0;
  evidence.reads = seen_of(load::IoKind::read, stats, model, tells ? *read_target_ns : all->target_ns, tail);
  evidence.writes = seen_of(load::IoKind::write, stats, model, tells ? all->write_target_ns : all->target_ns, tail);
  evidence.rounds = measure.rounds;
  evidence.service_ns = measure.service_ns;
  evidence.path_ns = measure.path_ns;
  evidence.host_sleeps = measure.host_sleeps;
  evidence.slots_held_share =
      evidence.host.iops * evidence.target.mean_ns / 1e9 / static_cast<double>(measure.faults.slots);
  evidence.slot_turns = std::max(1.0, share_of(stats.ios, measure.faults.slots));
  evidence.cycle_ns = measure.cycle_ns;
  evidence.sequential = measure.sequential;
  evidence.ages = measure.ages;
  evidence.places_matter = measure.places_matter;
  evidence.in_turns = measure.in_turns;
  evidence.earlier_gap_ns = static_cast<double>(measure.earlier_gap_ns);
  evidence.moved_share = share_of(stats.moved, stats.failed + stats.ios);
  evidence.faulted_share = faulted_share(measure.faults, stats);
  evidence.lost_slots_share = share_of(measure.faults.lost, measure.faults.slots);
  evidence.faults_can = effects_of(stats, seconds, measure);
  evidence.of_faults = {measure.of_faults.iops_share, measure.of_faults.mean_ns, measure.of_faults.p99_ns, 0};
  const auto run_ns = static_cast<std::uint64_t>(seconds * 1e9);
  evidence.host_gap_share = time_share(stats.gaps.total_ns, run_ns);
  evidence.host_long_work_share = time_share(stats.long_work.total_ns, run_ns);
}

}  // namespace

engine::FidelityEvidence device_evidence(const engine::FidelityStats& measured, double seconds, bool has_model) {
  const engine::ErrorBound bound = engine::error_bound(measured);
  // The engine measures a little longer than its host: it begins before, and ends after.
  const auto run_ns = measured.span_ns != 0 ? measured.span_ns : static_cast<std::uint64_t>(seconds * 1e9);
  engine::FidelityEvidence evidence;
  evidence.has_model = has_model;
  evidence.bound_mean_ns = bound.mean_ns;
  evidence.bound_p99_ns = static_cast<double>(bound.p99_ns);
  evidence.door_mean_ns = measured.door_ns.mean();
  // As it is in the bound, which is joined of three parts.
  evidence.door_p99_ns = static_cast<double>(measured.door_ns.quantile(1 - 0.01 / 3));
  evidence.target = targets_of(measured.target_ns, share_of(measured.target_sum_ns, measured.completions), tail_of(1));
  evidence.bound_p999_ns = static_cast<double>(bound.p999_ns);
  evidence.bound_max_ns = static_cast<double>(bound.max_ns);
  evidence.engine_gap_share = time_share(measured.gaps.total_ns, run_ns);
  evidence.long_work_share = time_share(measured.long_work.total_ns, run_ns);
  evidence.woken_share = share_of(measured.woken, measured.wait_ns.count());
  evidence.asleep_mean_ns = share_of(measured.asleep_sum_ns, measured.wait_ns.count());
  evidence.late_by_copy_share = share_of(measured.late_by_copy, measured.completions);
  evidence.backlog_share = share_of(measured.left_behind, measured.fetches);
  evidence.busy_share = measured.busy_share();
  return evidence;
}

JudgedRun judge_run(std::unique_ptr<engine::FidelityStats> stats_of_engine, const DeviceConfig& config,
                    const load::JobStats& stats, Measure measure) {
  JudgedRun run;
  run.measured = std::move(stats_of_engine);
  const engine::FidelityStats& measured = *run.measured;
  run.all_lateness = std::make_unique<Histogram>(measured.lateness_ns);
  run.all_lateness->merge(measured.lateness_gap_ns);
  const double seconds = static_cast<double>(stats.ended_ns - stats.started_ns) / 1e9;
  engine::FidelityEvidence evidence = device_evidence(measured, seconds, timing::model_of(config.timing).is_timed);
  allow_for_faults(stats, measure);
  add_host(stats, seconds, measure, measured, evidence);
  run.yardstick = std::move(measure.yardstick);

  load::DeviceReport& report = run.report;
  report.target_ns = &measured.target_ns;
  report.processing_ns = &measured.processing_ns;
  report.lateness_ns = run.all_lateness.get();
  report.lateness_no_gaps_ns = &measured.lateness_ns;
  report.fetch_wait_ns = &measured.wait_ns;
  report.model = run.yardstick.get();
  report.target_mean_ns = share_of(measured.target_sum_ns, measured.completions);
  report.lateness_mean_ns = share_of(measured.lateness_sum_ns, measured.completions);
  report.lateness_max_ns = measured.lateness_max_ns;
  const engine::ErrorBound bound = engine::error_bound(measured);
  report.error_bound = {bound.mean_ns, bound.p50_ns, bound.p99_ns, bound.p999_ns, bound.max_ns};
  report.span_ns = measured.span_ns;
  report.gaps = measured.gaps;
  report.long_work = measured.long_work;
  report.poll_gap_max_ns = measured.max_poll_gap_ns;
  report.late_by_copy_share = evidence.late_by_copy_share;
  report.backlog_share = evidence.backlog_share;
  report.busy_share = evidence.busy_share;
  const engine::Tolerance limit = engine::tolerance_of(config.fidelity, evidence);
  report.tolerance = {limit.iops_share,   limit.mean_ns,        limit.p99_ns,        limit.reads.mean_ns,
                      limit.reads.p99_ns, limit.writes.mean_ns, limit.writes.p99_ns, limit.latency_share};
  const engine::Verdict verdict = engine::judge(config.fidelity, evidence);
  report.verdict = verdict.verdict;
  report.verdict_cause = verdict.cause;
  return run;
}

void note_failure(std::uint64_t ios, load::DeviceReport& report) {
  if (ios == 0) {
    report.verdict = "NONE";
    report.verdict_cause = "the device failed before anything was completed in the measured time";
    return;
  }
  if (!report.verdict.starts_with("VALID")) return;
  const bool injected = std::ranges::any_of(report.faults, [](const FaultCount& fault) {
    return fault.injected != 0 && (fault.rule.starts_with("fatal") || fault.rule.starts_with("drop"));
  });
  report.verdict = "INVALID";
  report.verdict_cause = std::string("the device failed before the end") + (injected ? ", by an injected fault" : "") +
                         "; the model does not";
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
