#include "engine/fidelity.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

namespace flashmob::engine {
namespace {

// From which share of a run, or of its requests, on something counts as the cause of what went wrong.
constexpr double kNotable = 0.002;
constexpr double kNotableCopies = 0.01;
constexpr double kCrowded = 0.05;
// A run that chance alone may move by so much, or of so few requests, says nothing of what it was moved.
constexpr double kMostAllowance = 0.1;
constexpr std::uint64_t kFewestRequests = 100;
// Of so many reads, or writes, the slowest hundredth is more than a few.
constexpr std::uint64_t kFewestForTail = 1'000;
// A unit that has work nearly all the time, or often more than it takes at once, may be what holds its hosts back.
constexpr double kSaturated = 0.98;
constexpr double kOftenLeft = 0.01;

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %%", share * 100);
  return text;
}

std::string microseconds(double ns) {
  char text[32];
  std::snprintf(text, sizeof(text), std::fabs(ns) < 100'000 ? "%.2f us" : "%.0f us", ns / 1000);
  return text;
}

// Whoever waits for the slots of `rounds` others in turn waits for what may be added to each of them.
double allowed_ns(const FidelityConfig& rule, double latency_ns, double rounds = 1) {
  return std::max(rounds * static_cast<double>(rule.max_error_ns), rule.max_error_share * latency_ns);
}

// Why the device was late or slow to look.
std::string device_cause(const FidelityEvidence& e) {
  const bool is_crowded = e.engine_gap_share > kCrowded;  // then copies are late for want of a processor
  if (!is_crowded && e.late_by_copy_share > kNotableCopies && e.late_by_copy_share >= e.engine_gap_share)
    return "copy-bound";
  if (e.engine_gap_share > kNotable && e.engine_gap_share >= e.long_work_share)
    return "preempted: the machine took " + percent(e.engine_gap_share) + " of the engine's time";
  if (e.long_work_share > kNotable)
    return "long work of the engine's own took " + percent(e.long_work_share) + " of its time";
  if (e.late_by_copy_share > kNotableCopies) return "copy-bound";
  if (e.asleep_share > kNotable) return "asleep: idle units sleep (engine.idle_spin_ns)";
  return "frontend late";
}

// Why the host saw something else although the device did as the model says.
std::string host_cause(const FidelityEvidence& e) {
  if (e.failed_share > kNotable) return percent(e.failed_share) + " of the commands failed";
  if (e.host.iops > e.model.iops * (1 + kNotable) || e.host.mean_ns < e.model.mean_ns * (1 - kNotable))
    return "the load was another one than the model's";
  const double gaps = std::max(e.host_gap_share, e.engine_gap_share);
  const double work = std::max(e.host_long_work_share, e.long_work_share);
  if (gaps > kNotable && gaps >= work)
    return "preempted: the machine took " + percent(gaps) + " of the " +
           (e.host_gap_share >= e.engine_gap_share ? "driver's" : "engine's") + " time";
  if (work > kNotable) return "long work of the program's own took " + percent(work) + " of the time";
  if (e.busy_share < 0.5) return "host-bound";
  return e.late_by_copy_share > kNotableCopies ? "copy-bound" : "frontend late";
}

std::string lasts(std::uint64_t ns) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", static_cast<double>(ns) / 1e9);
  return ns < 1'000'000'000 ? microseconds(static_cast<double>(ns)) : text;
}

std::string differs(const char* what, double found_ns, double model_ns, double tolerance_ns) {
  return std::string(": ") + what + " latency " + microseconds(found_ns) + ", model " + microseconds(model_ns) +
         ", tolerance " + microseconds(tolerance_ns);
}

// Whether the host's tail is the model's for the very commands that were fetched, and nobody, down to one request in a
// thousand, was held up.
bool follows_its_targets(const FidelityConfig& rule, const FidelityEvidence& e) {
  const double allowed = allowed_ns(rule, e.target_p99_ns);
  // Whoever waits for a slot waits for others' requests, too; their means are judged by themselves.
  const double waits_ns = e.rounds > 1 ? e.host.mean_ns - e.target_mean_ns : 0;
  const auto most_ns = [&](double target_ns) {
    return e.target_mean_ns + waits_ns + e.rounds * (target_ns - e.target_mean_ns) + allowed;
  };
  return e.host.p99_ns >= e.target_p99_least_ns + waits_ns - e.rounds * allowed &&
         e.host.p99_ns <= most_ns(e.target_p99_most_ns) && e.host.p999_ns <= most_ns(e.target_max_ns) &&
         e.bound_p999_ns <= allowed;
}

// A closed loop chooses its own arrivals. Requesters that never meet in the ideal run do meet where a nanosecond is
// between them, and then stay as they are for long: the tail is one of many that the model has. It may be longer by the
// time that two who are met take, if it follows from the arrivals.
bool is_right_tail(const FidelityConfig& rule, const FidelityEvidence& e, const Tolerance& limit) {
  const double off_ns = std::fabs(e.host.p99_ns - e.model.p99_ns);
  if (off_ns <= limit.p99_ns) return true;
  if (e.cycle_ns == 0) return false;
  const bool is_near = off_ns <= e.rounds * (2 * e.service_ns + allowed_ns(rule, e.target_p99_ns));
  return is_near && follows_its_targets(rule, e);
}

// What the host saw of reads or of writes that it should not have, where there are enough of them and chance says
// little.
std::string direction_complaint(const FidelityConfig& rule, const FidelityEvidence& e, const SeenDirection& one,
                                const std::string& name) {
  const auto is_told = [](double allowance_ns, double model_ns) { return allowance_ns <= kMostAllowance * model_ns; };
  const double mean_ns = allowed_ns(rule, one.model.mean_ns, e.rounds) + one.allowance.mean_ns;
  if (one.ios >= kFewestRequests && is_told(one.allowance.mean_ns, one.model.mean_ns) &&
      std::fabs(one.host.mean_ns - one.model.mean_ns) > mean_ns)
    return differs((name + " mean").c_str(), one.host.mean_ns, one.model.mean_ns, mean_ns);
  // A closed loop's requesters may meet.
  const double met_ns = e.cycle_ns == 0 ? 0 : e.rounds * 2 * e.service_ns;
  const double p99_ns = allowed_ns(rule, one.model.p99_ns, e.rounds) + one.allowance.p99_ns + met_ns;
  if (one.ios >= kFewestForTail && is_told(one.allowance.p99_ns, one.model.p99_ns) &&
      std::fabs(one.host.p99_ns - one.model.p99_ns) > p99_ns)
    return differs((name + " p99").c_str(), one.host.p99_ns, one.model.p99_ns, p99_ns);
  return "";
}

// What the host saw that it should not have; empty if nothing.
std::string host_complaint(const FidelityConfig& rule, const FidelityEvidence& e, const Tolerance& limit) {
  const double error = e.model.iops > 0 ? e.host.iops / e.model.iops - 1 : -1;
  if (std::fabs(error) > limit.iops_share)
    return ": IOPS differ from the model's by " + percent(error) + ", tolerance " + percent(limit.iops_share);
  if (std::fabs(e.host.mean_ns - e.model.mean_ns) > limit.mean_ns)
    return differs("mean", e.host.mean_ns, e.model.mean_ns, limit.mean_ns);
  if (!is_right_tail(rule, e, limit)) return differs("p99", e.host.p99_ns, e.model.p99_ns, limit.p99_ns);
  // Where there is only one direction, all has been said.
  if (e.reads.ios == 0 || e.writes.ios == 0) return "";
  const std::string what = direction_complaint(rule, e, e.reads, "read");
  return !what.empty() ? what : direction_complaint(rule, e, e.writes, "write");
}

std::string bound_complaint(const FidelityEvidence& e, double mean_limit_ns, double p99_limit_ns) {
  if (e.bound_mean_ns > mean_limit_ns)
    return ": requests may have been held up by " + microseconds(e.bound_mean_ns) + " on average, tolerance " +
           microseconds(mean_limit_ns);
  if (e.bound_p99_ns > p99_limit_ns)
    return ": one request in 100 may have been held up by " + microseconds(e.bound_p99_ns) + " or more, tolerance " +
           microseconds(p99_limit_ns);
  return "";
}

// Sequential streams on several servers fall in step with each other or do not, by nanoseconds, and never forget it.
// Whether the host saw what the model gives for the commands as they came, their mean still tells.
bool walks_its_own_way(const FidelityConfig& rule, const FidelityEvidence& e) {
  return e.sequential && e.cycle_ns != 0 && e.failed_share <= kNotable &&
         std::fabs(e.host.mean_ns - e.rounds * e.target_mean_ns) <= e.rounds * allowed_ns(rule, e.target_mean_ns);
}

// What a run is too short to be judged for; empty if it is long enough.
std::string too_short(const FidelityConfig& rule, const FidelityEvidence& e) {
  if (e.ios < kFewestRequests) return "only " + std::to_string(e.ios) + " requests were completed";
  const auto says = [](const char* what, double share) {
    return std::string("the run is short: chance alone may move its ") + what + " by " + percent(share);
  };
  if (e.allowance.iops > kMostAllowance) return says("rate", e.allowance.iops);
  if (e.allowance.mean_ns > kMostAllowance * e.model.mean_ns)
    return says("mean", e.allowance.mean_ns / e.model.mean_ns);
  // What the yardstick leaves to chance, the run's own arrivals may still tell.
  if (e.allowance.p99_ns > kMostAllowance * e.model.p99_ns && !(e.cycle_ns != 0 && follows_its_targets(rule, e)))
    return says("p99", e.allowance.p99_ns / e.model.p99_ns);
  return "";
}

}  // namespace

std::string waits(const Unanswered& unanswered) {
  const std::uint64_t all = unanswered.count + unanswered.lost;
  if (all == 0) return "";
  std::string text = all == 1 ? "; 1 command has no answer" : "; " + std::to_string(all) + " commands have no answer";
  const std::string lost = all == unanswered.lost ? "" : std::to_string(unanswered.lost) + " of them ";
  if (unanswered.lost != 0) text += " (" + lost + "lost by a fault)";
  return text + (all == 1 ? ", for " : ", the oldest for ") + lasts(unanswered.oldest_ns);
}

ErrorBound error_bound(const FidelityStats& stats) {
  const auto lateness = std::make_unique<Histogram>(stats.lateness_ns);
  lateness->merge(stats.lateness_gap_ns);
  const auto sum_at = [&](double q) {
    const double half = 1 - (1 - q) / 2;
    return stats.wait_ns.quantile(half) + lateness->quantile(half);
  };
  const auto completions = static_cast<double>(std::max<std::uint64_t>(1, stats.completions));
  ErrorBound bound;
  const auto fetched = static_cast<double>(std::max<std::uint64_t>(1, stats.wait_ns.count()));
  bound.mean_ns =
      static_cast<double>(stats.wait_sum_ns) / fetched + static_cast<double>(stats.lateness_sum_ns) / completions;
  bound.p50_ns = sum_at(0.5);
  bound.p99_ns = sum_at(0.99);
  bound.p999_ns = sum_at(0.999);
  bound.max_ns = stats.wait_ns.max() + std::max(stats.lateness_max_ns, lateness->max());
  return bound;
}

Tolerance tolerance_of(const FidelityConfig& rule, const FidelityEvidence& e) {
  Tolerance limit;
  limit.mean_ns = allowed_ns(rule, e.has_host ? e.model.mean_ns : e.target_mean_ns, e.rounds) + e.allowance.mean_ns;
  limit.p99_ns = allowed_ns(rule, e.has_host ? e.model.p99_ns : e.target_p99_ns) + e.allowance.p99_ns;
  limit.iops_share = rule.max_iops_error;
  // A requester that may be answered so much later may ask so much less often.
  if (e.cycle_ns > 0)
    limit.iops_share = std::max(limit.iops_share, allowed_ns(rule, e.model.mean_ns, e.rounds) / e.cycle_ns);
  limit.iops_share += e.allowance.iops;
  return limit;
}

Verdict judge(const FidelityConfig& rule, const FidelityEvidence& e) {
  if (!e.has_model) return {"NONE", "no timing model: as fast as this machine can"};
  if (e.has_host && e.ios == 0 && e.failed_share == 0) return {"NONE", "nothing was completed in the measured time"};
  const bool host_counts = e.has_host && !e.injects_faults;
  const Tolerance limit = tolerance_of(rule, e);
  // What the device may have added is no matter of chance.
  const double bound_mean_ns = allowed_ns(rule, e.target_mean_ns), bound_p99_ns = allowed_ns(rule, e.target_p99_ns);
  if (const std::string what = bound_complaint(e, bound_mean_ns, bound_p99_ns); !what.empty())
    return {"INVALID", device_cause(e) + what};
  if (host_counts) {
    const std::string what = host_complaint(rule, e, limit);
    if (!what.empty() && e.moved_share > kNotable)
      return {"VALID (lateness only)",
              percent(e.moved_share) + " of the requests went to other addresses, to be verified" + what};
    if (!what.empty() && walks_its_own_way(rule, e))
      return {"VALID (lateness only)",
              "streams in step have many steady states, and this is not the yardstick's" + what};
    if (!what.empty()) return {"INVALID", host_cause(e) + what};
    if (const std::string why = too_short(rule, e); !why.empty()) return {"VALID (lateness only)", why};
    return {"VALID", ""};
  }
  if (e.injects_faults)
    return {"VALID (lateness only)", "faults were injected, of which the model knows nothing" + waits(e.unanswered)};
  if (e.busy_share > kSaturated)
    return {"VALID (lateness only)",
            "the units had work " + percent(e.busy_share) + " of the time: they may be the limit"};
  if (e.backlog_share > kOftenLeft)
    return {"VALID (lateness only)", percent(e.backlog_share) + " of the fetches left commands behind"};
  return {"VALID", ""};
}

}  // namespace flashmob::engine
