#include "engine/fidelity.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "engine/fidelity_cause.h"

namespace flashmob::engine {
namespace {

// A run that chance alone may move by so much, or of so few requests, says nothing of what it was moved.
constexpr double kMostAllowance = 0.1;
constexpr std::uint64_t kFewestRequests = 100;
// Of so many reads, or writes, the slowest hundredth is more than a few.
constexpr std::uint64_t kFewestForTail = 1'000;
// A unit that has work nearly all the time, or often more than it takes at once, may be what holds its hosts back.
constexpr double kSaturated = 0.98;
constexpr double kOftenLeft = 0.01;

// Whoever waits for the slots of `rounds` others in turn waits for what may be added to each of them.
double allowed_ns(const FidelityConfig& rule, double latency_ns, double rounds = 1) {
  return std::max(rounds * static_cast<double>(rule.max_error_ns), rule.max_error_share * latency_ns);
}

// By how much the host's rate is another than the model's, as a share.
double rate_error(const FidelityEvidence& e) { return e.model.iops > 0 ? e.host.iops / e.model.iops - 1 : -1; }

double rate_tolerance(const FidelityConfig& rule, const FidelityEvidence& e) {
  // A requester that may be answered so much later may ask so much less often.
  const double share = e.cycle_ns > 0
                           ? std::max(rule.max_iops_error, allowed_ns(rule, e.model.mean_ns, e.rounds) / e.cycle_ns)
                           : rule.max_iops_error;
  return share + e.allowance.iops;
}

// What falls on this side or that of the measured time's ends may move the rate of a short closed loop by much. A rate
// that is the model's all the same needs no such allowance, and says more without.
double edges_needed(const FidelityConfig& rule, const FidelityEvidence& e) {
  return e.has_host && std::fabs(rate_error(e)) > rate_tolerance(rule, e) ? e.edge_share : 0;
}

std::string lasts(std::uint64_t ns) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", static_cast<double>(ns) / 1e9);
  return ns < 1'000'000'000 ? microseconds(static_cast<double>(ns)) : text;
}

// A tolerance that words are chosen by, and the one they state: that of the verdict and its report, if there is one.
struct StatedLimit {
  double ns = 0;
  std::optional<double> said_ns;
};

std::string differs(const char* what, double found_ns, double model_ns, const StatedLimit& limit) {
  return std::string(": ") + what + " latency " + microseconds(found_ns) + ", model " + microseconds(model_ns) +
         (limit.said_ns ? ", tolerance " + microseconds(*limit.said_ns) : "");
}

Complaint tail_complaint(const char* what, double found_ns, double model_ns, const StatedLimit& limit) {
  const double beyond_ns = std::fabs(found_ns - model_ns) - limit.ns;
  if (beyond_ns <= 0) return {};
  return {differs(what, found_ns, model_ns, limit), found_ns < model_ns, found_ns - model_ns, beyond_ns};
}

Complaint mean_complaint(const char* what, double found_ns, double model_ns, const StatedLimit& limit) {
  if (std::fabs(found_ns - model_ns) <= limit.ns) return {};
  return {differs(what, found_ns, model_ns, limit), found_ns < model_ns, found_ns - model_ns};
}

Complaint host_complaint(const FidelityEvidence& e, const Tolerance& limit, const Tolerance& said) {
  const double error = rate_error(e);
  Complaint mean = mean_complaint("mean", e.host.mean_ns, e.model.mean_ns, {limit.mean_ns, said.mean_ns});
  // Whoever catches up is quick for a while: that its requests took longer says what was wrong.
  const bool catches_up = error > 0 && !mean.text.empty() && !mean.is_quicker;
  if (std::fabs(error) > limit.iops_share && !catches_up)
    return {": IOPS differ from the model's by " + percent(error) + ", tolerance " + percent(said.iops_share),
            error > 0,
            e.host.mean_ns - e.model.mean_ns,
            0,
            nullptr,
            std::fabs(error)};
  return !mean.text.empty() ? mean : tail_complaint("p99", e.host.p99_ns, e.model.p99_ns, {limit.p99_ns, said.p99_ns});
}

Complaint direction_complaint(const SeenDirection& one, const Tolerance::OfDirection& limit,
                              const Tolerance::OfDirection& said, const std::string& name) {
  Complaint what;
  if (limit.mean_ns)
    what =
        mean_complaint((name + " mean").c_str(), one.host.mean_ns, one.model.mean_ns, {*limit.mean_ns, said.mean_ns});
  if (what.text.empty() && limit.p99_ns)
    what = tail_complaint((name + " p99").c_str(), one.host.p99_ns, one.model.p99_ns, {*limit.p99_ns, said.p99_ns});
  what.of = &one;
  return what;
}

// The same of reads and of writes by themselves.
Complaint directions_complaint(const FidelityEvidence& e, const Tolerance& limit, const Tolerance& said) {
  Complaint what = direction_complaint(e.reads, limit.reads, said.reads, "read");
  return !what.text.empty() ? what : direction_complaint(e.writes, limit.writes, said.writes, "write");
}

std::string held_up(double mean_ns, double p99_ns, double mean_limit_ns, double p99_limit_ns) {
  if (mean_ns > mean_limit_ns)
    return ": requests may have been held up by " + microseconds(mean_ns) + " on average, tolerance " +
           microseconds(mean_limit_ns);
  if (p99_ns > p99_limit_ns)
    return ": one request in 100 may have been held up by " + microseconds(p99_ns) + " or more, tolerance " +
           microseconds(p99_limit_ns);
  return "";
}

std::string bound_complaint(const FidelityConfig& rule, const FidelityEvidence& e) {
  const std::string what = held_up(e.bound_mean_ns - e.door_mean_ns, e.bound_p99_ns - e.door_p99_ns,
                                   allowed_ns(rule, e.target.mean_ns), allowed_ns(rule, e.target.p99_ns));
  return what.empty() ? "" : device_cause(e) + what;
}

// A network's door takes its time where nothing is wrong: its system calls, and the looks around them. That is the
// door's to state; more than this, and its hosts see another device.
std::string door_complaint(const FidelityEvidence& e) {
  constexpr double kMeanNs = 20'000, kMeanShare = 0.2, kP99Ns = 200'000;
  const std::string what = held_up(e.door_mean_ns, e.door_p99_ns, std::max(kMeanNs, kMeanShare * e.target.mean_ns),
                                   std::max(kP99Ns, e.target.p99_ns));
  return what.empty() ? "" : door_cause(e) + what;
}

// Whether what hosts saw of requests that had their slots is what the model gives for these commands as they came.
// Whoever waits for a slot waits for others' requests, which are judged themselves.
class Followed {
 public:
  Followed(const FidelityConfig& rule, const FidelityEvidence& e, const Seen& host, const Seen& served,
           const Targets& target)
      : rule_(rule),
        path_ns_(e.path_ns),
        rounds_(e.rounds),
        everybodys_(e.target),
        host_(host),
        served_(served),
        target_(target) {}

  bool mean_holds() const {
    return std::fabs(served_.mean_ns - target_.mean_ns - path_ns_) <= allowed_ns(rule_, target_.mean_ns);
  }
  bool p99_holds() const {
    const double allowed = allowed_ns(rule_, target_.p99_ns);
    return served_.p99_ns >= target_.p99_least_ns + path_ns_ - allowed &&
           served_.p99_ns <= target_.p99_most_ns + path_ns_ + allowed && waits_hold();
  }
  // Down to one request in a thousand.
  bool nobody_was_late() const {
    return served_.p999_ns <= target_.max_ns + path_ns_ + allowed_ns(rule_, target_.p99_ns);
  }

 private:
  // Nobody waits for worse than the tails of all whose turn comes before, be they reads or writes: who held them up may
  // have done so before the measured time. Where the requesters are no multiple of the slots, some wait one turn more
  // than others.
  bool waits_hold() const {
    if (rounds_ <= 1) return true;
    const auto tail_of = [](const Targets& of) { return std::max(0.0, of.p99_most_ns - of.mean_ns); };
    const double turn_ns = std::max(tail_of(target_), tail_of(everybodys_)) + allowed_ns(rule_, target_.p99_ns);
    const double uneven_ns = (std::ceil(rounds_) - rounds_) * (everybodys_.mean_ns + path_ns_);
    return host_.p99_ns - host_.mean_ns <= rounds_ * turn_ns + uneven_ns;
  }

  const FidelityConfig& rule_;
  double path_ns_, rounds_;
  const Targets& everybodys_;
  const Seen& host_;
  const Seen& served_;
  const Targets& target_;
};

// Of all requests, and of the direction that the complaint is about: slow reads say nothing of late writes.
template <typename Holds>
bool follow_targets(const FidelityConfig& rule, const FidelityEvidence& e, const Complaint& what, Holds&& holds) {
  return holds(Followed(rule, e, e.host, e.served, e.target)) &&
         (what.of == nullptr || holds(Followed(rule, e, what.of->host, what.of->served, what.of->target)));
}

bool mean_and_p99_hold(const Followed& one) { return one.mean_holds() && one.p99_holds(); }

// Time that the machine took, or that we did, is a cause of what the host saw.
bool nothing_was_taken(const FidelityEvidence& e) {
  return std::max({e.host_gap_share, e.engine_gap_share, e.host_long_work_share, e.long_work_share}) <= kNotable;
}

// A closed loop chooses its own arrivals. Requesters that never meet in the ideal run do meet where a nanosecond is
// between them, and then stay as they are for long: the tail is one of many that the model has. It may be longer by the
// time that two who are met take, if it follows from the arrivals, and nobody was held up.
bool is_another_tail(const FidelityConfig& rule, const FidelityEvidence& e, const Complaint& what) {
  return e.cycle_ns != 0 && what.tail_beyond_ns > 0 && what.tail_beyond_ns <= e.rounds * 2 * e.service_ns &&
         e.bound_p999_ns <= allowed_ns(rule, e.target.p99_ns) &&
         follow_targets(rule, e, what, [](const Followed& one) { return one.p99_holds() && one.nobody_was_late(); });
}

// Whether what the host of a closed loop saw follows from what the model gives for the commands as they came: their
// mean and p99, and the rate of requesters who ask anew so much later.
bool follows_from_arrivals(const FidelityConfig& rule, const FidelityEvidence& e, const Complaint& what) {
  if (e.cycle_ns == 0 || e.failed_share > kNotable || !nothing_was_taken(e)) return false;
  const double cycle_ns = e.cycle_ns + e.host.mean_ns - e.model.mean_ns;
  const double rate = e.model.iops * e.cycle_ns / std::max(1.0, cycle_ns);
  return std::fabs(e.host.iops / rate - 1) <= rate_tolerance(rule, e) + e.edge_share &&
         follow_targets(rule, e, what, mean_and_p99_hold);
}

// Requests that verification sent elsewhere, where other places may take another time: a write of one block changes how
// long all later reads of it take, where blocks have places of their own.
bool went_elsewhere(const FidelityConfig& rule, const FidelityEvidence& e, const Complaint& what) {
  if (!e.places_matter || e.moved_share <= (e.ages ? 0 : kNotable)) return false;
  if (e.cycle_ns != 0) return follows_from_arrivals(rule, e, what);
  // Other addresses do not change how much is asked for, unless they hold all slots.
  const bool is_rate_its_own = std::fabs(rate_error(e)) <= rate_tolerance(rule, e) || e.slots_held_share > kMostlyHeld;
  return is_rate_its_own && nothing_was_taken(e) && follow_targets(rule, e, what, mean_and_p99_hold);
}

// What a run says too little to be judged for; empty if it says enough.
std::string too_little(const FidelityEvidence& e, double edge_share) {
  if (e.ios < kFewestRequests) return "only " + std::to_string(e.ios) + " requests were completed";
  const auto says = [&e](const char* what, double share, double faults_share) {
    // Where the very arrivals were replayed, chance has little part.
    const std::string why = faults_share > share / 2 ? "injected faults alone"
                            : e.cycle_ns == 0 ? "requests wait for each other, and there the least delay adds up: it"
                            : std::ceil(e.rounds) != e.rounds
                                ? "requesters are no multiple of the slots, and who of them waits longer is chance: it"
                            : e.faulted_share > 0 ? "the run is short: chance and injected faults"
                            : e.ages              ? "for this drive the run is short: chance alone"
                                                  : "the run is short: chance alone";
    return why + " may move its " + what + " by " + percent(share);
  };
  const double rate = e.allowance.iops + edge_share;
  if (rate > kMostAllowance) return says("rate", rate, e.of_faults.iops);
  if (e.allowance.mean_ns > kMostAllowance * e.model.mean_ns)
    return says("mean", e.allowance.mean_ns / e.model.mean_ns, e.of_faults.mean_ns / e.model.mean_ns);
  if (e.allowance.p99_ns > kMostAllowance * e.model.p99_ns)
    return says("p99", e.allowance.p99_ns / e.model.p99_ns, e.of_faults.p99_ns / e.model.p99_ns);
  return "";
}

Tolerance::OfDirection tolerance_of(const FidelityConfig& rule, const SeenDirection& one, double rounds) {
  const auto allowed = [&](std::uint64_t fewest, double model_ns, double allowance_ns) -> std::optional<double> {
    if (one.ios < fewest || allowance_ns > kMostAllowance * model_ns) return std::nullopt;
    return allowed_ns(rule, model_ns, rounds) + allowance_ns;
  };
  return {allowed(kFewestRequests, one.model.mean_ns, one.allowance.mean_ns),
          allowed(kFewestForTail, one.model.p99_ns, one.allowance.p99_ns)};
}

double latency_share(const FidelityEvidence& e, const Tolerance& limit) {
  double most = 0;
  const auto add = [&most](std::optional<double> tolerance_ns, double model_ns) {
    if (tolerance_ns && model_ns > 0) most = std::max(most, *tolerance_ns / model_ns);
  };
  add(limit.mean_ns, e.has_host ? e.model.mean_ns : e.target.mean_ns);
  add(limit.p99_ns, e.has_host ? e.model.p99_ns : e.target.p99_ns);
  add(limit.reads.mean_ns, e.reads.model.mean_ns);
  add(limit.reads.p99_ns, e.reads.model.p99_ns);
  add(limit.writes.mean_ns, e.writes.model.mean_ns);
  add(limit.writes.p99_ns, e.writes.model.p99_ns);
  return most;
}

// What the host saw beside the model, where it is not held against the run: chance is no reason not to tell. The
// tolerance beside it is the report's, chance included.
std::string told(const FidelityConfig& rule, FidelityEvidence e) {
  const Tolerance said = tolerance_of(rule, e);
  e.allowance = e.reads.allowance = e.writes.allowance = {};
  e.edge_share = 0;
  const Tolerance limit = tolerance_of(rule, e);
  const Complaint what = host_complaint(e, limit, said);
  return !what.text.empty() ? what.text : directions_complaint(e, limit, said).text;
}

// Why a run of which the host saw something else may still be the model's; empty if nothing speaks for that.
std::string excuse_of(const FidelityConfig& rule, const FidelityEvidence& e, const Complaint& what) {
  if (went_elsewhere(rule, e, what))
    return percent(e.moved_share) + " of the requests went to other addresses, to be verified";
  // Sequential streams on several servers fall in step with each other or do not, by nanoseconds, and never forget it.
  if (e.sequential && follows_from_arrivals(rule, e, what))
    return "streams in step have many steady states, and this is not the yardstick's";
  if (e.in_turns && follows_from_arrivals(rule, e, what))
    return std::string("the queues took turns in another order than the yardstick's") +
           (e.ages ? "" : " (engine.fetch_limit)");
  if (is_another_tail(rule, e, what)) return "requesters met each other in another way than the yardstick's";
  return "";
}

// The same for all that is wrong: reads and writes, too, where the complaint is of all requests, or of the others.
std::string excuse(const FidelityConfig& rule, const FidelityEvidence& e, const Tolerance& limit,
                   const Complaint& what) {
  for (const Complaint& one : {direction_complaint(e.reads, limit.reads, limit.reads, "read"),
                               direction_complaint(e.writes, limit.writes, limit.writes, "write")})
    if (!one.text.empty() && excuse_of(rule, e, one).empty()) return "";
  return excuse_of(rule, e, what);
}

// "0.3 % of the requests met injected faults and 1.6 % of the slots were lost to them".
std::string met_faults(const FidelityEvidence& e) {
  const std::string lost = percent(e.lost_slots_share) + " of the slots were lost to ";
  if (e.faulted_share == 0) return lost + "injected faults";
  return percent(e.faulted_share) + " of the requests met injected faults" +
         (e.lost_slots_share > 0 ? " and " + lost + "them" : "");
}

Verdict judge_host(const FidelityConfig& rule, const FidelityEvidence& e, const Tolerance& limit) {
  constexpr char kLatenessOnly[] = "VALID (lateness only)";
  if (e.faulted_share + e.lost_slots_share > kNotable) return {kLatenessOnly, met_faults(e) + told(rule, e)};
  if (e.ios < kFewestRequests) return {kLatenessOnly, too_little(e, 0) + told(rule, e)};
  Complaint what = host_complaint(e, limit, limit);
  if (what.text.empty()) {
    if (const std::string why = too_little(e, edges_needed(rule, e)); !why.empty())
      return {kLatenessOnly, why + told(rule, e)};
    what = directions_complaint(e, limit, limit);
    // One direction of a run that is so short is fewer still.
    const std::string why = what.text.empty() ? "" : too_little(e, e.edge_share);
    if (!why.empty()) return {kLatenessOnly, why + what.text};
  }
  if (what.text.empty()) return {"VALID", ""};
  if (const std::string why = excuse(rule, e, limit, what); !why.empty()) return {kLatenessOnly, why + what.text};
  const std::string few = e.faulted_share > 0 ? "; a few requests met injected faults" : "";
  return {"INVALID", host_cause(e, what) + what.text + few};
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
  // Whoever comes through a door's thread is a host, too: where there is one, its commands are the ones to judge by.
  const double parts = stats.door_ns.count() != 0 ? 3 : 2;
  const auto sum_at = [&](double q) {
    const double part = 1 - (1 - q) / parts;
    return stats.wait_ns.quantile(part) + lateness->quantile(part) + stats.door_ns.quantile(part);
  };
  const auto completions = static_cast<double>(std::max<std::uint64_t>(1, stats.completions));
  ErrorBound bound;
  const auto fetched = static_cast<double>(std::max<std::uint64_t>(1, stats.wait_ns.count()));
  bound.mean_ns = static_cast<double>(stats.wait_sum_ns) / fetched +
                  static_cast<double>(stats.lateness_sum_ns) / completions + stats.door_ns.mean();
  bound.p50_ns = sum_at(0.5);
  bound.p99_ns = sum_at(0.99);
  bound.p999_ns = sum_at(0.999);
  bound.max_ns = stats.wait_ns.max() + std::max(stats.lateness_max_ns, lateness->max()) + stats.door_ns.max();
  return bound;
}

Tolerance tolerance_of(const FidelityConfig& rule, const FidelityEvidence& e) {
  Tolerance limit;
  limit.mean_ns = allowed_ns(rule, e.has_host ? e.model.mean_ns : e.target.mean_ns, e.rounds) + e.allowance.mean_ns;
  limit.p99_ns = allowed_ns(rule, e.has_host ? e.model.p99_ns : e.target.p99_ns, e.rounds) + e.allowance.p99_ns;
  limit.iops_share = rate_tolerance(rule, e) + edges_needed(rule, e);
  // Where there is only one direction, all has been said.
  if (e.reads.ios != 0 && e.writes.ios != 0) {
    limit.reads = tolerance_of(rule, e.reads, e.rounds);
    limit.writes = tolerance_of(rule, e.writes, e.rounds);
  }
  limit.latency_share = latency_share(e, limit);
  return limit;
}

Verdict judge(const FidelityConfig& rule, const FidelityEvidence& e) {
  if (!e.has_model) return {"NONE", "no timing model: there is nothing to be true to"};
  if ((e.has_host || e.was_stopped) && e.ios == 0)
    return {"NONE", e.failed_share > 0 ? "all commands failed" : "nothing was completed in the measured time"};
  // What the device may have added is no matter of chance.
  if (const std::string what = bound_complaint(rule, e); !what.empty()) return {"INVALID", what};
  if (const std::string what = door_complaint(e); !what.empty()) return {"INVALID", what};
  if (e.host_sleeps)
    return {"VALID (lateness only)", "the host slept while it waited, and saw what had completed when it had woken"};
  if (e.has_host) return judge_host(rule, e, tolerance_of(rule, e));
  if (e.was_stopped)
    return {"VALID (lateness only)", "stopped before the model was asked what its host would have seen"};
  if (e.faulted_share > 0)
    return {"VALID (lateness only)", "faults were injected, of which the model knows nothing" + waits(e.unanswered)};
  if (e.busy_share > kSaturated)
    return {"VALID (lateness only)",
            "the units had work " + percent(e.busy_share) + " of the time: they may be the limit"};
  if (e.door_busy_share > kSaturated)
    return {"VALID (lateness only)",
            "the NVMe/TCP door had work " + percent(e.door_busy_share) + " of the time: it may be the limit"};
  if (e.backlog_share > kOftenLeft)
    return {"VALID (lateness only)", percent(e.backlog_share) + " of the fetches left commands behind"};
  return {"VALID", ""};
}

}  // namespace flashmob::engine
