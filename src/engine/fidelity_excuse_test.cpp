// What speaks for a run of which the host saw something else than the yardstick: at each limit, and just beyond.
#include <gtest/gtest.h>

#include "engine/fidelity_test_support.h"

namespace flashmob::engine {
namespace {

using FidelityExcuse = test::FidelityTest;

// Which VALID does not say, because no tolerance says it.
TEST_F(FidelityExcuse, AClosedLoopsTailMayBeAnotherOneOfTheModels) {
  evidence.cycle_ns = 10'000;
  evidence.service_ns = 1'000;
  evidence.host.p99_ns = evidence.target.p99_ns = 15'000;
  evidence.target.p99_least_ns = evidence.target.p99_most_ns = 15'000;
  evidence.host.p999_ns = evidence.target.max_ns = 16'000;
  evidence.served = evidence.host;
  expect("VALID (lateness only)", "requesters met each other in another way than the yardstick's: p99 latency 15.00");
  evidence.service_ns = 900;  // two who are met take no longer
  expect("INVALID");
  evidence.service_ns = 1'000;
  evidence.bound_p999_ns = 1'001;
  expect("INVALID", "host-bound: p99 latency 15.00 us");
  evidence.bound_p999_ns = 0;
  evidence.served.p999_ns = 17'100;
  expect("INVALID");
  evidence.served.p999_ns = 16'000;
  evidence.host.mean_ns = 11'001;
  expect("INVALID", "host-bound: mean latency");
  // Two requesters for each slot: what they saw once they had it.
  evidence.rounds = 2;
  evidence.service_ns = 2'000;
  evidence.host = {1e6, 20'000, 30'000, 32'000};
  evidence.model = {1e6, 20'000, 22'000, 0};
  expect("VALID (lateness only)", "requesters met");
  evidence.served.p99_ns = 16'001;
  expect("INVALID");
  evidence.served.p99_ns = 15'000;
  evidence.service_ns = 3'000;
  evidence.host.p99_ns = 32'000;  // 20 us, and twice a tail of 5 us and 1 us
  expect("VALID (lateness only)", "requesters met");
  evidence.host.p99_ns = 32'001;
  expect("INVALID");
  evidence.host.p99_ns = 30'000;
  evidence.rounds = 1;
  evidence.cycle_ns = 0;
  expect("INVALID");
}

// Of an open loop other addresses change neither how much is asked for, nor what the device adds to its targets.
TEST_F(FidelityExcuse, RequestsThatWentElsewhereAreNotHeldAgainstTheYardstick) {
  evidence.host.mean_ns = 50'000;
  evidence.moved_share = 0.003;
  expect("INVALID");  // one server, which all addresses share
  evidence.places_matter = true;
  expect("VALID (lateness only)", "0.3 % of the requests went to other addresses, to be verified: mean latency");
  for (double FidelityEvidence::* const gap : {&FidelityEvidence::host_gap_share, &FidelityEvidence::engine_gap_share,
                                               &FidelityEvidence::host_long_work_share}) {
    evidence.*gap = 0.003;
    expect("INVALID", gap == &FidelityEvidence::host_long_work_share ? "long work" : "preempted");
    evidence.*gap = 0;
  }
  evidence.moved_share = 0.002;
  expect("INVALID");
  evidence.moved_share = 0.003;
  evidence.served.mean_ns = 11'001;
  expect("INVALID");
  evidence.served.mean_ns = 11'000;
  evidence.served.p99_ns = 13'001;
  expect("INVALID");
  evidence.served.p99_ns = 13'000;
  evidence.host.iops = 0.9e6;
  expect("INVALID");
  evidence.slots_held_share = 0.91;  // by requests that take longer than those of the yardstick
  expect("VALID (lateness only)");
  evidence.bound_mean_ns = 1e6;
  expect("INVALID");
}

// In a closed loop what the host saw must still be the model's for the commands as they came.
TEST_F(FidelityExcuse, RequestsThatWentElsewhereAreHeldAgainstTheirOwnTargets) {
  evidence.places_matter = true;
  evidence.moved_share = 0.003;
  evidence.cycle_ns = 10'000;
  evidence.host = evidence.served = {0.5e6, 20'000, 25'000, 26'000};
  evidence.target = {19'500, 24'500, 24'500, 24'500, 25'000};
  expect("VALID (lateness only)", "0.3 % of the requests went to other addresses");
  evidence.served.p99_ns = 26'032;
  expect("INVALID");
  evidence.served.p99_ns = 26'031;
  evidence.host.iops = 0.3e6;  // of those who are asked anew so much later it is 0.5 M
  expect("INVALID");
}

// What is said of all requests together excuses none of those who have a complaint of their own.
TEST_F(FidelityExcuse, ReadsThatFollowTheirTargetsDoNotHideWritesThatDoNot) {
  evidence.places_matter = true;
  evidence.moved_share = 0.003;
  evidence.cycle_ns = 10'000;
  evidence.host = evidence.served = {0.5e6, 20'000, 25'000, 26'000};
  evidence.target = {19'500, 24'500, 24'500, 24'500, 25'000};
  evidence.reads = {90'000, evidence.host, evidence.model, {}, evidence.served, evidence.target};
  evidence.writes = {10'000, {0, 6'000, 8'000, 0}, {0, 4'000, 6'000, 0}, {}, {0, 6'000, 8'000, 0}, {}};
  evidence.writes.target = {5'500, 7'500, 7'500, 7'500, 7'500};
  expect("VALID (lateness only)", "0.3 % of the requests went to other addresses");
  evidence.writes.host = evidence.writes.served = {0, 60'000, 80'000, 0};
  expect("INVALID");
}

TEST_F(FidelityExcuse, StreamsInStepHaveManySteadyStates) {
  evidence.cycle_ns = 10'000;
  evidence.host = evidence.served = {0.5e6, 20'000, 25'000, 26'000};
  evidence.target = {19'000, 24'500, 24'500, 24'500, 25'000};
  expect("INVALID");
  for (bool FidelityEvidence::* const why : {&FidelityEvidence::sequential, &FidelityEvidence::in_turns}) {
    evidence.*why = true;
    expect("VALID (lateness only)", why == &FidelityEvidence::sequential ? "streams in step" : "the queues took turns");
    evidence.served.mean_ns = 20'188;  // 6.25 % of 19 us, and one
    expect("INVALID");
    evidence.served.mean_ns = 20'000;
    evidence.served.p99_ns = 26'100;
    expect("INVALID");
    evidence.served.p99_ns = 25'000;
    evidence.host_gap_share = 0.003;
    expect("INVALID", "preempted");
    evidence.host_gap_share = 0;
    evidence.*why = false;
  }
}

// Two for each slot who pause for 20 us: each waits for the other's 22 us, less its own pause.
TEST_F(FidelityExcuse, WhoeverPausesWaitsLessForASlot) {
  evidence.sequential = true;
  evidence.rounds = 2;
  evidence.model = {1e6, 20'000, 21'000, 0};
  evidence.cycle_ns = 40'000;
  evidence.host = {1e6 * 40 / 44, 24'000, 25'000, 26'000};
  evidence.served = {0, 22'000, 23'000, 24'000};
  evidence.target = {22'000, 23'000, 23'000, 23'000, 24'000};
  expect("VALID (lateness only)", "streams in step");
  evidence.served.mean_ns = 24'000;
  expect("INVALID");
}

// Ten slow reads say nothing of a write that is late.
TEST_F(FidelityExcuse, ADirectionIsExcusedByItsOwnTargetsAlone) {
  evidence.sequential = true;
  evidence.cycle_ns = 10'000;
  evidence.reads = {90'000, evidence.host, evidence.model, {}, evidence.host, evidence.target};
  evidence.writes = {10'000, {0, 6'000, 8'000, 0}, {0, 4'000, 6'000, 0}, {}, {0, 6'000, 8'000, 0}, {}};
  evidence.writes.target = {5'500, 7'500, 7'500, 7'500, 7'500};
  expect("VALID (lateness only)",
         "streams in step have many steady states, and this is not the yardstick's: write mean");
  evidence.writes.target.mean_ns = 4'900;
  expect("INVALID", "host-bound: write mean latency 6.00 us");
  evidence.writes.target.mean_ns = 5'500;
  evidence.writes.target.p99_most_ns = 6'900;
  expect("INVALID");
  // So is a tail.
  evidence.sequential = false;
  evidence.service_ns = 1'000;
  evidence.writes.host.mean_ns = evidence.writes.served.mean_ns = 4'000;
  expect("INVALID", "host-bound: write p99");
  evidence.writes.target.p99_most_ns = 7'500;
  expect("VALID (lateness only)", "requesters met each other in another way than the yardstick's: write p99");
}

// A write waits in turn behind reads, too, and of three requesters for two slots some wait one turn more.
TEST_F(FidelityExcuse, WhoeverWaitsForASlotWaitsForReadsAndWrites) {
  evidence.sequential = true;
  evidence.rounds = 2;
  evidence.cycle_ns = 40'000;
  evidence.host = {1e6 * 40 / 42, 22'000, 30'000, 32'000};
  evidence.model = {1e6, 20'000, 28'000, 0};
  evidence.served = {0, 11'000, 15'000, 16'000};
  evidence.target = {11'000, 15'000, 15'000, 15'000, 16'000};
  evidence.reads = {90'000, evidence.host, evidence.model, {}, evidence.served, evidence.target};
  evidence.writes = {10'000, {0, 15'000, 24'000, 0}, {0, 12'000, 20'000, 0}, {}, {0, 4'000, 4'000, 0}, {}};
  evidence.writes.target = {4'000, 4'000, 4'000, 4'000, 4'000};  // no tail of its own
  expect("VALID (lateness only)", "streams in step");
  evidence.writes.host.p99_ns = 25'001;  // twice the tail of 4 us, and 1 us
  expect("INVALID");
  evidence.writes = {};
  evidence.rounds = 1.5;
  evidence.target.p99_least_ns = evidence.target.p99_most_ns = evidence.target.p99_ns = 11'000;
  evidence.served.p99_ns = evidence.reads.served.p99_ns = 11'000;
  evidence.reads = {};
  evidence.host.mean_ns = 22'000;
  evidence.host.p99_ns = 22'000 + 1'500 + 5'500;
  expect("VALID (lateness only)", "streams in step");
  evidence.host.p99_ns += 1;
  expect("INVALID");
}

// A target leaves out what the way takes by itself; of what a host saw that is a part.
TEST_F(FidelityExcuse, TargetsAreShorterThanWhatAHostSeesByThePath) {
  evidence.path_ns = 2'000;
  evidence.target = {9'000, 13'000, 13'000, 13'000, 14'000};
  evidence.cycle_ns = 10'000;
  evidence.service_ns = 1'500;
  evidence.host = evidence.served = {1e6, 11'000, 15'000, 16'000};
  expect("VALID (lateness only)", "requesters met");
  evidence.host.mean_ns = evidence.served.mean_ns = 11'500;
  evidence.host.iops = 1e6 / 1.15;
  evidence.sequential = true;
  expect("VALID (lateness only)", "streams in step");
  evidence.cycle_ns = 0;
  evidence.host.iops = 1e6;
  evidence.places_matter = true;
  evidence.moved_share = 0.003;
  expect("VALID (lateness only)", "0.3 % of the requests went");
  evidence.path_ns = 1'000;
  expect("INVALID");
  // What the device adds is held against its own targets.
  evidence.path_ns = 2'000;
  evidence.bound_mean_ns = 1'001;
  expect("INVALID");
}

// Whoever stops a run while the model is asked is told what the device says of itself, and no more.
TEST_F(FidelityExcuse, AYardstickThatWasNotWaitedForIsSaid) {
  evidence.has_host = false;
  evidence.was_stopped = true;
  expect("VALID (lateness only)", "stopped before the model was asked");
  evidence.bound_mean_ns = 1'001;
  expect("INVALID", "frontend late");
  evidence.ios = 0;
  expect("NONE", "nothing was completed");
  evidence.has_model = false;
  expect("NONE");
}

// When a host that sleeps looks is its own affair, and what the device adds is still not.
TEST_F(FidelityExcuse, AHostThatSleepsIsNoReason) {
  evidence.host.mean_ns = 2 * evidence.model.mean_ns;
  expect("INVALID");
  evidence.host_sleeps = true;
  expect("VALID (lateness only)", "the host slept while it waited");
  evidence.bound_mean_ns = 1'001;
  expect("INVALID", "frontend late");
}

}  // namespace
}  // namespace flashmob::engine
