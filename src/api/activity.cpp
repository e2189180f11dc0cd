#include "api/activity.h"

#include <algorithm>
#include <utility>

#include "api/device_report.h"
#include "base/text.h"
#include "controller/controller.h"

namespace flashmob::api {
namespace {

// What `now` holds beyond `before`, an earlier state of the same histogram.
void subtract(const Histogram& now, const Histogram& before, Histogram& difference) {
  for (std::size_t bucket = 0; bucket < Histogram::kBuckets; ++bucket) {
    const std::uint64_t count = now.bucket_count(bucket) - before.bucket_count(bucket);
    if (count != 0) difference.record(Histogram::bucket_low(bucket) + Histogram::bucket_width(bucket) / 2, count);
  }
}

// The longest one is not known of the interval alone.
void subtract(const SpanSums& now, const SpanSums& before, SpanSums& out) {
  out.count = now.count - before.count;
  out.total_ns = now.total_ns - before.total_ns;
}

void subtract(const engine::FidelityStats& now, const engine::FidelityStats& before, engine::FidelityStats& out) {
  subtract(now.target_ns, before.target_ns, out.target_ns);
  subtract(now.processing_ns, before.processing_ns, out.processing_ns);
  subtract(now.lateness_ns, before.lateness_ns, out.lateness_ns);
  subtract(now.lateness_gap_ns, before.lateness_gap_ns, out.lateness_gap_ns);
  subtract(now.wait_ns, before.wait_ns, out.wait_ns);
  out.completions = now.completions - before.completions;
  out.target_sum_ns = now.target_sum_ns - before.target_sum_ns;
  out.lateness_sum_ns = now.lateness_sum_ns - before.lateness_sum_ns;
  out.late_by_copy = now.late_by_copy - before.late_by_copy;
  out.busy_polls = now.busy_polls - before.busy_polls;
  out.idle_polls = now.idle_polls - before.idle_polls;
  out.wait_sum_ns = now.wait_sum_ns - before.wait_sum_ns;
  out.woken = now.woken - before.woken;
  out.asleep_sum_ns = now.asleep_sum_ns - before.asleep_sum_ns;
  out.fetches = now.fetches - before.fetches;
  out.left_behind = now.left_behind - before.left_behind;
  out.span_ns = now.span_ns - before.span_ns;
  for (std::size_t unit = 0; unit < out.units.size(); ++unit) {
    out.units[unit].polled_ns = now.units[unit].polled_ns - before.units[unit].polled_ns;
    out.units[unit].worked_ns = now.units[unit].worked_ns - before.units[unit].worked_ns;
  }
  subtract(now.gaps, before.gaps, out.gaps);
  subtract(now.long_work, before.long_work, out.long_work);
}

TimeFigures figures(const Histogram& histogram, double mean_ns) {
  return {mean_ns, histogram.quantile(0.5), histogram.quantile(0.99), histogram.quantile(0.999)};
}

double per(std::uint64_t sum, std::uint64_t count) {
  return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count);
}

// Both kinds of lateness, with and without a gap: what hosts felt.
TimeFigures all_lateness(const engine::FidelityStats& stats) {
  auto all = std::make_unique<Histogram>(stats.lateness_ns);
  all->merge(stats.lateness_gap_ns);
  return figures(*all, per(stats.lateness_sum_ns, stats.completions));
}

TimeFigures bound_figures(const engine::FidelityStats& stats) {
  const engine::ErrorBound bound = engine::error_bound(stats);
  return {bound.mean_ns, bound.p50_ns, bound.p99_ns, bound.p999_ns};
}

const char* state_name(controller::ControllerState state) {
  using State = controller::ControllerState;
  switch (state) {
    case State::disabled:
      return "disabled";
    case State::enabling:
      return "enabling";
    case State::ready:
      return "ready";
    case State::disabling:
      return "disabling";
    case State::shutting_down:
      return "shutting down";
    case State::shut_down:
      return "shut down";
    case State::fatal:
      return "fatal";
  }
  return "unknown";
}

// What `now` holds beyond `before`, what has been told of the same sums. Commands count when they are fetched, but such
// as Zone Append are writes only when they have been carried out: those are commands of that interval, too, and
// `told_ahead` of later ones.
controller::IoCounters grown(const controller::IoCounters& now, const controller::IoCounters& before,
                             std::uint64_t& told_ahead) {
  const auto beyond = [](std::uint64_t to, std::uint64_t from) { return to > from ? to - from : 0; };
  controller::IoCounters done = {.read_commands = beyond(now.read_commands, before.read_commands),
                                 .write_commands = beyond(now.write_commands, before.write_commands),
                                 .read_bytes = beyond(now.read_bytes, before.read_bytes),
                                 .written_bytes = beyond(now.written_bytes, before.written_bytes)};
  const std::uint64_t fetched = beyond(now.commands, before.commands);
  done.commands = std::max(beyond(fetched, told_ahead), done.read_commands + done.write_commands);
  told_ahead = beyond(told_ahead + done.commands, fetched);
  return done;
}

void set_rates(const controller::IoCounters& done, double seconds, IoRates& rates) {
  if (seconds <= 0) return;
  const auto rate = [seconds](std::uint64_t count) { return static_cast<double>(count) / seconds; };
  rates.iops = rate(done.commands);
  rates.read_iops = rate(done.read_commands);
  rates.write_iops = rate(done.write_commands);
  rates.read_bytes_per_s = rate(done.read_bytes);
  rates.written_bytes_per_s = rate(done.written_bytes);
}

HostStats host_stats(const controller::Controller& one, const controller::IoCounters& io) {
  const controller::ControllerActivity activity = one.activity();
  HostStats host;
  host.door = activity.door;
  host.host = printable(activity.host);
  host.controller_id = one.cntlid();
  host.state = state_name(one.state());
  host.queues = one.io_queue_count();
  host.read_commands = io.read_commands;
  host.write_commands = io.write_commands;
  host.read_bytes = io.read_bytes;
  host.written_bytes = io.written_bytes;
  return host;
}

}  // namespace

ActivityMonitor::ActivityMonitor(engine::Engine& engine, controller::Subsystem& subsystem, const FidelityConfig& rule,
                                 bool has_model, const Clock& clock)
    : engine_(engine),
      subsystem_(subsystem),
      rule_(rule),
      has_model_(has_model),
      clock_(clock),
      started_ns_(clock.now_ns()),
      last_look_ns_(started_ns_),
      held_{std::make_unique<engine::FidelityStats>(), std::make_unique<engine::FidelityStats>()} {}

ServerStats ActivityMonitor::look() {
  ServerStats stats;
  look_at_hosts(stats);
  look_at_engine(stats);
  return stats;
}

void ActivityMonitor::look_at_engine(ServerStats& stats) {
  const unsigned over = phase_;
  phase_ = over == engine::kWarmUp ? engine::kMeasured : engine::kWarmUp;
  engine_.set_phase(static_cast<engine::Phase>(phase_));
  auto late = std::make_unique<engine::FidelityStats>();
  const engine::Unanswered unanswered = engine_.unanswered(clock_.now_ns(), *late);
  auto now = std::make_unique<engine::FidelityStats>(engine_.stats(static_cast<engine::Phase>(over)));
  auto interval = std::make_unique<engine::FidelityStats>();
  subtract(*now, *held_[over], *interval);
  held_[over] = std::move(now);
  auto door_ns = std::make_unique<Histogram>(engine_.door_delays().look());
  subtract(*door_ns, *door_delays_ns_, interval->door_ns);
  door_delays_ns_ = std::move(door_ns);

  const std::uint64_t completions = interval->completions;
  const std::uint64_t in_device_ns = interval->target_sum_ns + interval->lateness_sum_ns;
  // Idle time is left out of what follows further down, and so the interval's length is known here alone.
  double judged_s = static_cast<double>(std::exchange(interval->span_ns, 0)) / 1e9;
  if (judged_s > 0) stats.queue_depth = static_cast<double>(in_device_ns) / 1e9 / judged_s;
  stats.latency = figures(interval->processing_ns, per(in_device_ns, completions));
  stats.target = figures(interval->target_ns, per(interval->target_sum_ns, completions));
  stats.lateness = all_lateness(*interval);
  stats.error_bound = bound_figures(*interval);
  stats.door_delay = figures(interval->door_ns, interval->door_ns.mean());
  stats.backlog_share = per(interval->left_behind, interval->fetches);
  stats.busy_share = interval->busy_share();
  const std::uint64_t door_worked_ns = engine_.door_worked_ns();
  const std::uint64_t worked_ns = door_worked_ns - std::exchange(door_worked_ns_, door_worked_ns);
  // What a round took is told at its end, and it may have begun before the interval.
  if (judged_s > 0) stats.door_busy_share = std::min(1.0, static_cast<double>(worked_ns) / 1e9 / judged_s);
  if (active_.add(*interval, judged_s, unanswered.count != 0)) active_door_ns_ += worked_ns;
  // What is late already is judged as if it came now.
  interval->join(*late);
  const Judged now_judged = judge(*interval, judged_s, stats.door_busy_share, unanswered);
  stats.verdict = now_judged.verdict.verdict;
  stats.verdict_cause = now_judged.verdict.cause;
  stats.tolerance_share = now_judged.tolerance_share;

  auto total = std::make_unique<engine::FidelityStats>(*held_[0]);
  total->append(*held_[1]);
  stats.gap_count = total->gaps.count;
  stats.gap_longest_ns = total->gaps.longest_ns;
  total->door_ns = *door_delays_ns_;
  total->span_ns = 0;
  total->gaps = active_.gaps;
  total->long_work = active_.long_work;
  stats.completions = total->completions;
  stats.total_latency =
      figures(total->processing_ns, per(total->target_sum_ns + total->lateness_sum_ns, total->completions));
  stats.total_lateness = all_lateness(*total);
  stats.total_error_bound = bound_figures(*total);
  stats.total_door_delay = figures(total->door_ns, total->door_ns.mean());
  stats.lateness_max_ns = total->lateness_max_ns;
  total->join(*late);
  const double door_share =
      active_.seconds > 0 ? std::min(1.0, static_cast<double>(active_door_ns_) / 1e9 / active_.seconds) : 0;
  const Judged so_far = judge(*total, active_.seconds, door_share, unanswered);
  stats.verdict_so_far = so_far.verdict.verdict;
  stats.verdict_so_far_cause = so_far.verdict.cause;
  stats.tolerance_share_so_far = so_far.tolerance_share;
}

bool ActiveTime::add(engine::FidelityStats& interval, double& interval_s, bool waits) {
  const bool counts = interval.completions != 0;
  if (counts) {
    interval.gaps.append(kept_gaps_);
    interval.long_work.append(kept_long_work_);
    interval_s += kept_s_;
    seconds += interval_s;
    gaps.append(interval.gaps);
    long_work.append(interval.long_work);
  }
  // Whoever came in an idle interval came towards its end: of several, the last one matters.
  if (counts || !waits) {
    kept_gaps_ = kept_long_work_ = {};
    kept_s_ = 0;
  }
  if (counts) return true;
  kept_gaps_.append(interval.gaps);
  kept_long_work_.append(interval.long_work);
  kept_s_ += interval_s;
  return false;
}

ActivityMonitor::Judged ActivityMonitor::judge(const engine::FidelityStats& stats, double active_s,
                                               double door_busy_share, const engine::Unanswered& unanswered) const {
  if (stats.completions == 0) return {{"NONE", "nothing was served yet" + engine::waits(unanswered)}};
  // What hosts would have asked for, and what they saw, only they know.
  engine::FidelityEvidence evidence = device_evidence(stats, active_s, has_model_);
  // Whatever they did is part of all that follows; how much of it, nobody has counted.
  evidence.faulted_share = engine_.faults().hit_ios() != 0 ? 1 : 0;
  evidence.unanswered = unanswered;
  evidence.door_busy_share = door_busy_share;
  return {engine::judge(rule_, evidence), has_model_ ? engine::tolerance_of(rule_, evidence).latency_share : 0};
}

// All counters are of one moment, with which the interval ends, and each command is in one of them: that of its host,
// or that of the hosts that have left.
void ActivityMonitor::look_at_hosts(ServerStats& stats) {
  std::map<std::uint64_t, controller::IoCounters> present;
  const std::lock_guard lock(subsystem_.mutex());
  for (const controller::Controller* const one : subsystem_.served()) present[one->arrival()] = one->counters();
  const std::uint64_t now_ns = clock_.now_ns();
  stats.uptime_s = static_cast<double>(now_ns - started_ns_) / 1e9;
  stats.interval_s = static_cast<double>(now_ns - std::exchange(last_look_ns_, now_ns)) / 1e9;

  controller::IoCounters total = subsystem_.removed_counters(), all_done;
  for (const controller::Controller* const one : subsystem_.served()) {
    const controller::IoCounters& io = present[one->arrival()];
    const auto known = seen_.find(one->arrival());
    const controller::IoCounters done =
        grown(io, known == seen_.end() ? controller::IoCounters{} : known->second, told_ahead_[one->arrival()]);
    HostStats host = host_stats(*one, io);
    set_rates(done, stats.interval_s, host);
    total.add(io);
    all_done.add(done);
    stats.hosts.push_back(std::move(host));
  }
  // What those who left had done before the last look was told then.
  controller::IoCounters told = removed_;
  for (const auto& [arrival, io] : seen_)
    if (!present.contains(arrival)) told.add(io);
  std::uint64_t told_ahead = 0;
  std::erase_if(told_ahead_, [&](const auto& of) {
    if (present.contains(of.first)) return false;
    told_ahead += of.second;
    return true;
  });
  const controller::IoCounters left = grown(subsystem_.removed_counters(), told, told_ahead);
  all_done.add(left);
  set_rates(left, stats.interval_s, stats.left);
  set_rates(all_done, stats.interval_s, stats);
  stats.hosts_seen = subsystem_.controllers_added();
  stats.left.count = stats.hosts_seen - hosts_seen_ + seen_.size() - present.size();
  hosts_seen_ = stats.hosts_seen;
  removed_ = subsystem_.removed_counters();
  seen_ = std::move(present);
  stats.read_commands = total.read_commands;
  stats.write_commands = total.write_commands;
  stats.read_bytes = total.read_bytes;
  stats.written_bytes = total.written_bytes;
}

}  // namespace flashmob::api
