// The verdict: was this run true to its model? A pure function of what was measured (architecture, idea 2).
//
// Two questions, in the host's terms. Did the host see what the model gives for the same arrivals (rate, mean, 99th
// percentile)? And how much can the emulator have added to a request: the time from its doorbell to its fetch, of which
// looks at the doorbell give an upper bound, and its lateness? Nothing is left out of either: time that the machine
// took away is a cause, not an excuse.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/stats.h"
#include "flashmob/config.h"

namespace flashmob::engine {

// Mean and distribution of an upper bound on what the emulator added to each request.
struct ErrorBound {
  double mean_ns = 0;
  std::uint64_t p50_ns = 0, p99_ns = 0, p999_ns = 0, max_ns = 0;
};
// Sums of two quantities of which only the distributions are known: at most one request in a hundred is above the sum
// of their values at one in two hundred, and so on.
ErrorBound error_bound(const FidelityStats& stats);

// A rate and latencies: what the host saw, or what the model gives.
struct Seen {
  double iops = 0;
  double mean_ns = 0;
  double p99_ns = 0;
  double p999_ns = 0;  // of the host alone
};

// The model's latencies for what was fetched, when it was fetched; shorter by path_ns than a host's.
struct Targets {
  double mean_ns = 0;
  double p99_ns = 0;
  // What is held against the tail of what the host saw of requests with slots: of more requesters than slots, a higher
  // percentile. Where a few of the requests are others than the host's.
  double p99_least_ns = 0;
  double p99_most_ns = 0;
  double max_ns = 0;
};

// Reads or writes by themselves: what the host saw, the model, and chance. Rates are unknown.
struct SeenDirection {
  std::uint64_t ios = 0;
  Seen host;
  Seen model;
  Seen allowance;
  Seen served = {};  // as in FidelityEvidence
  Targets target = {};
};

// What injected faults can have done at most to what the host saw.
struct FaultEffects {
  double mean_ns = 0;  // by their own delays
  double waits_ns = 0;  // ... to those who waited for slots that they held, where arrivals do not wait for answers
  double p99_ns = 0;  // by all of this
  double iops_share = 0;
};

struct FidelityEvidence {
  bool has_model = true;  // false: it has no times
  // What the engine knows.
  double bound_mean_ns = 0;
  double bound_p99_ns = 0;
  double bound_p999_ns = 0;
  double bound_max_ns = 0;
  double door_mean_ns = 0;  // the part of these that a door's thread added
  double door_p99_ns = 0;
  Targets target;
  double path_ns = 0;  // what the way to the device and back takes a host, and the targets leave out
  // What the host saw, and the yardstick; unknown where the host is another process's.
  bool has_host = false;
  bool host_sleeps = false;  // while it waits: when it looks is nobody else's affair
  bool was_stopped = false;  // before the yardstick was known: what the host saw is held against nothing
  Seen host;
  // What the host saw from when a request had a slot, or should have had one; without a rate, and its p99 is as high a
  // percentile as that of Targets.
  Seen served;
  Seen model;
  Seen allowance;  // by how much a run of this length differs from the model by chance; iops is a share
  double edge_share = 0;  // closed loop: what may fall on this side or that of the measured time's ends, of the rate
  SeenDirection reads, writes;
  double rounds = 1;  // closed loop: requesters for each slot of the queues, at least 1
  double service_ns = 0;  // how long the largest request occupies what serves it
  double cycle_ns =
      0;  // closed loop: a requester's time between two requests; 0 where arrivals do not wait for answers
  bool sequential = false;  // closed loop of streams that walk
  bool ages = false;  // the model has a state that lasts, such as where data lie
  bool places_matter = false;  // which address a request has may change how long it takes
  bool in_turns = false;  // more requesters than slots, of queues that wait for each other
  double slots_held_share = 0;  // of the slots' time, by requests that had not reached their targets
  double slot_turns = 1;  // how often each slot was used
  std::uint64_t ios = 0;  // that the host completed successfully
  double failed_share = 0;  // commands that failed, of those that completed
  double moved_share = 0;  // requests that went to other addresses than the yardstick's, of those that completed
  Unanswered unanswered;  // of a served device, at the end of the time
  double faulted_share = 0;  // requests that met an injected fault, of which the yardstick knows nothing
  double lost_slots_share = 0;  // slots that faults took for good
  Seen of_faults;  // their part of `allowance`
  FaultEffects faults_can;
  // Where it came from. Shares of the run's time, requests or fetches.
  double engine_gap_share = 0;  // taken by the machine
  double host_gap_share = 0;
  double earlier_gap_ns = 0;  // the longest of the engine's before the measured time
  double long_work_share = 0;  // our own
  double host_long_work_share = 0;
  double woken_share = 0;  // of the requests: they may have come while their unit slept for want of work
  double asleep_mean_ns = 0;  // that sleep's part of bound_mean_ns
  double late_by_copy_share = 0;
  double backlog_share = 0;  // fetches that left entries behind
  double busy_share = 0;  // of the units' time
  double door_busy_share = 0;  // of a served device's NVMe/TCP door
};

// All that VALID allows, chance included.
struct Tolerance {
  // Of reads, or of writes, by themselves; none where there are too few of them, or too much is left to chance.
  struct OfDirection {
    std::optional<double> mean_ns, p99_ns;
  };
  double iops_share = 0;
  double mean_ns = 0;
  double p99_ns = 0;
  OfDirection reads, writes;
  double latency_share = 0;  // the largest of these, of the model's mean or p99 that it belongs to
};
Tolerance tolerance_of(const FidelityConfig& rule, const FidelityEvidence& evidence);

// "; 3 commands have no answer, the oldest for 1.2 s": for a verdict's cause. Empty if there are none.
std::string waits(const Unanswered& unanswered);

struct Verdict {
  std::string verdict;  // VALID, "VALID (lateness only)", INVALID, NONE (no model)
  std::string cause;  // empty when VALID
};

Verdict judge(const FidelityConfig& rule, const FidelityEvidence& evidence);

}  // namespace flashmob::engine
