#include "api/activity.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "api/device_report.h"
#include "base/text.h"
#include "controller/controller.h"

namespace flashmob::api {
namespace {

// How long a look waits for the hosts' counters: an engine with work publishes within a round.
constexpr std::uint64_t kAnswerNs = 3'000'000;

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

// An identifier that comes round again is another controller's, whose counters start from zero.
std::uint64_t grown(std::uint64_t now, std::uint64_t before) { return now > before ? now - before : 0; }

controller::IoCounters grown(const controller::IoCounters& now, const controller::IoCounters& before) {
  return {.read_commands = grown(now.read_commands, before.read_commands),
          .write_commands = grown(now.write_commands, before.write_commands),
          .read_bytes = grown(now.read_bytes, before.read_bytes),
          .written_bytes = grown(now.written_bytes, before.written_bytes),
          .busy_ns = grown(now.busy_ns, before.busy_ns)};
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
  ask_hosts();
  const std::uint64_t now_ns = clock_.now_ns();
  stats.uptime_s = static_cast<double>(now_ns - started_ns_) / 1e9;
  stats.interval_s = static_cast<double>(now_ns - last_look_ns_) / 1e9;
  last_look_ns_ = now_ns;
  look_at_engine(stats);
  look_at_hosts(stats);
  return stats;
}

void ActivityMonitor::ask_hosts() {
  const std::uint64_t asked_ns = clock_.now_ns();
  {
    const std::lock_guard lock(subsystem_.mutex());
    for (controller::Controller* const one : subsystem_.controllers()) one->request_activity();
  }
  const auto answered = [&] {
    const std::lock_guard lock(subsystem_.mutex());
    return std::ranges::all_of(subsystem_.controllers(), [&](const controller::Controller* one) {
      return one->activity().published_ns >= asked_ns;
    });
  };
  while (!answered() && clock_.now_ns() - asked_ns < kAnswerNs)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
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
  if (stats.interval_s > 0) {
    stats.iops = static_cast<double>(completions) / stats.interval_s;
    stats.queue_depth = static_cast<double>(in_device_ns) / 1e9 / stats.interval_s;
  }
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
  if (stats.interval_s > 0)
    stats.door_busy_share = std::min(1.0, static_cast<double>(worked_ns) / 1e9 / stats.interval_s);
  // Idle time is left out of what follows, and so its length is known here alone.
  double judged_s = static_cast<double>(std::exchange(interval->span_ns, 0)) / 1e9;
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

void ActivityMonitor::look_at_hosts(ServerStats& stats) {
  std::map<std::uint16_t, Seen> present;
  controller::IoCounters total;
  {
    const std::lock_guard lock(subsystem_.mutex());
    total = subsystem_.removed_counters();
    stats.hosts_seen = subsystem_.controllers_added();
    for (const controller::Controller* const one : subsystem_.controllers()) {
      const controller::ControllerActivity activity = one->activity();
      const auto known = seen_.find(one->cntlid());
      const Seen before = known == seen_.end() ? Seen{{}, started_ns_} : known->second;
      HostStats host;
      host.door = activity.door;
      host.host = printable(activity.host);
      host.controller_id = one->cntlid();
      host.state = state_name(one->state());
      host.queues = one->io_queue_count();
      host.read_commands = activity.io.read_commands;
      host.write_commands = activity.io.write_commands;
      host.read_bytes = activity.io.read_bytes;
      host.written_bytes = activity.io.written_bytes;
      const controller::IoCounters delta = grown(activity.io, before.io);
      total.read_commands += activity.io.read_commands;
      total.write_commands += activity.io.write_commands;
      total.read_bytes += activity.io.read_bytes;
      total.written_bytes += activity.io.written_bytes;
      // A new host's first interval began with the monitor's previous look, or later.
      const std::uint64_t span_ns = activity.published_ns - std::min(before.at_ns, activity.published_ns);
      const double span_s = known == seen_.end() ? stats.interval_s : static_cast<double>(span_ns) / 1e9;
      if (span_s > 0) {
        host.read_iops = static_cast<double>(delta.read_commands) / span_s;
        host.write_iops = static_cast<double>(delta.write_commands) / span_s;
        host.read_bytes_per_s = static_cast<double>(delta.read_bytes) / span_s;
        host.written_bytes_per_s = static_cast<double>(delta.written_bytes) / span_s;
      }
      stats.read_bytes_per_s += host.read_bytes_per_s;
      stats.written_bytes_per_s += host.written_bytes_per_s;
      present[one->cntlid()] = {activity.io, std::max(activity.published_ns, before.at_ns)};
      stats.hosts.push_back(std::move(host));
    }
  }
  seen_ = std::move(present);
  stats.read_commands = total.read_commands;
  stats.write_commands = total.write_commands;
  stats.read_bytes = total.read_bytes;
  stats.written_bytes = total.written_bytes;
}

}  // namespace flashmob::api
