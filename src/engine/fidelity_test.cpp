// The verdict at its thresholds: valid at each limit, invalid just beyond, with the cause that explains it.
#include "engine/fidelity.h"

#include <gtest/gtest.h>

#include <memory>

namespace flashmob::engine {
namespace {

// A run that is exactly true to its model, under limits that binary fractions hit exactly.
struct Fidelity : testing::Test {
  Fidelity() {
    rule.max_iops_error = 0.0625;
    rule.max_error_ns = 1'000;
    rule.max_error_share = 0.0625;
    evidence.has_host = true;
    evidence.ios = 100'000;
    evidence.host = evidence.model = {1e6, 10'000, 12'000, 13'000};
    evidence.target_mean_ns = 10'000;
    evidence.target_p99_ns = 12'000;
    evidence.target_p99_least_ns = evidence.target_p99_most_ns = 12'000;
    evidence.target_max_ns = 13'000;
    evidence.busy_share = 0.9;
  }
  void expect(const std::string& verdict, const std::string& cause = "") const {
    const Verdict found = judge(rule, evidence);
    EXPECT_EQ(found.verdict, verdict) << found.cause;
    EXPECT_EQ(found.cause.rfind(cause, 0), 0u) << found.cause;
    EXPECT_EQ(found.cause.empty(), verdict == "VALID");
  }
  FidelityConfig rule;
  FidelityEvidence evidence;
};

TEST_F(Fidelity, ATrueRunIsValid) { expect("VALID"); }

TEST_F(Fidelity, WithoutAModelThereIsNoVerdict) {
  evidence.has_model = false;
  evidence.bound_mean_ns = 1e9;
  expect("NONE");
}

TEST_F(Fidelity, TheHostsMeanCountsInBothDirections) {
  evidence.host.mean_ns = 11'000;
  expect("VALID");
  evidence.host.mean_ns = 11'001;
  expect("INVALID", "frontend late: mean latency 11.00 us, model 10.00 us, tolerance 1.00 us");
  evidence.host.mean_ns = 8'999;
  expect("INVALID", "the load was another one");
}

TEST_F(Fidelity, TheHostsP99Counts) {
  evidence.host.p99_ns = 13'000;
  expect("VALID");
  evidence.host.p99_ns = 13'001;
  expect("INVALID", "frontend late: p99 latency");
}

TEST_F(Fidelity, OfASlowDriveAShareIsTolerated) {
  evidence.model.mean_ns = evidence.target_mean_ns = 160'000;
  evidence.host.mean_ns = 170'000;
  expect("VALID");
  evidence.host.mean_ns = 170'001;
  expect("INVALID");
}

TEST_F(Fidelity, TheRateCountsInBothDirections) {
  evidence.host.iops = 1e6 * 0.9375;
  expect("VALID");
  evidence.host.iops = 1e6 * 0.9374;
  expect("INVALID", "frontend late: IOPS differ from the model's by -6.3 %");
  evidence.host.iops = 1e6 * 1.0626;
  expect("INVALID");
}

// By Little's law: whoever may be answered 1 us later than after 10 us may ask that much less often.
TEST_F(Fidelity, AClosedLoopsRateFollowsItsLatency) {
  evidence.host.iops = 1e6 * 0.91;
  expect("INVALID");
  evidence.cycle_ns = 10'000;
  expect("VALID");
  evidence.host.iops = 1e6 * 0.899;
  expect("INVALID");
  evidence.cycle_ns = 1e6;  // with so long a pause the rate hardly depends on the latency
  evidence.host.iops = 1e6 * 0.91;
  expect("INVALID");
}

TEST_F(Fidelity, WhatChanceMayDoIsAllowed) {
  evidence.allowance = {0.01, 500, 800, 0};
  evidence.host = {1e6 * 0.93, 11'500, 13'800, 14'000};
  expect("VALID");
  evidence.host.p99_ns = 13'801;
  expect("INVALID");
}

TEST_F(Fidelity, AShortRunIsNotJudgedForMoreThanItShows) {
  evidence.ios = 99;
  expect("VALID (lateness only)", "only 99 requests");
  evidence.ios = 0;
  expect("NONE", "nothing was completed");
  evidence.ios = 100'000;
  evidence.allowance.iops = 0.2;
  expect("VALID (lateness only)", "the run is short: chance alone may move its rate by 20.0 %");
  evidence.allowance = {0, 2'000, 0, 0};
  expect("VALID (lateness only)", "the run is short: chance alone may move its mean by 20.0 %");
  evidence.allowance = {0, 0, 2'000, 0};
  evidence.cycle_ns = 10'000;
  expect("VALID");  // its tail follows from its arrivals
  evidence.bound_p999_ns = 1'001;
  expect("VALID (lateness only)", "the run is short: chance alone may move its p99 by 16.7 %");
  evidence.bound_p999_ns = 0;
  evidence.cycle_ns = 0;
  evidence.host.mean_ns = 12'000;
  expect("INVALID", "frontend late: mean latency");
}

TEST_F(Fidelity, AFasterHostHadAnotherLoad) {
  evidence.host.iops = 1.2e6;
  expect("INVALID", "the load was another one than the model's: IOPS");
}

TEST_F(Fidelity, AClosedLoopsTailMayBeAnotherOneOfTheModels) {
  evidence.cycle_ns = 10'000;
  evidence.service_ns = 1'000;
  evidence.host.p99_ns = evidence.target_p99_ns = 15'000;
  evidence.target_p99_least_ns = evidence.target_p99_most_ns = 15'000;
  evidence.host.p999_ns = evidence.target_max_ns = 16'000;
  expect("VALID");
  evidence.service_ns = 900;  // two who are met take no longer
  expect("INVALID");
  evidence.service_ns = 1'000;
  evidence.bound_p999_ns = 1'001;
  expect("INVALID", "frontend late: p99 latency 15.00 us");
  evidence.bound_p999_ns = 0;
  evidence.host.p999_ns = 17'100;
  expect("INVALID");
  evidence.host.p999_ns = 16'000;
  // Two requesters for each slot: the tails of two requests, and the mean of the one that is waited for.
  evidence.rounds = 2;
  evidence.service_ns = 2'000;
  evidence.host = {1e6, 20'000, 30'000, 32'000};
  evidence.model = {1e6, 20'000, 22'000, 0};
  expect("VALID");
  evidence.host.p99_ns = 31'001;
  expect("INVALID");
  evidence.host.p99_ns = 30'000;
  evidence.rounds = 1;
  evidence.cycle_ns = 0;
  expect("INVALID");
}

TEST_F(Fidelity, WhatTheDeviceMayHaveAddedCountsByItself) {
  evidence.bound_mean_ns = 1'000;
  evidence.bound_p99_ns = 1'000;
  expect("VALID");
  evidence.bound_p99_ns = 1'001;
  expect("INVALID", "frontend late: one request in 100 may have been held up by 1.00 us or more");
  evidence.bound_mean_ns = 1'001;
  expect("INVALID", "frontend late: requests may have been held up by 1.00 us on average");
  // Chance is no excuse for it.
  evidence.allowance = {1, 1e6, 1e6, 0};
  expect("INVALID");
}

TEST_F(Fidelity, TheCauseIsNamed) {
  evidence.bound_p99_ns = 5'000;
  evidence.asleep_share = 0.01;
  expect("INVALID", "asleep");
  evidence.late_by_copy_share = 0.02;
  expect("INVALID", "copy-bound");
  evidence.engine_gap_share = 0.03;
  expect("INVALID", "preempted: the machine took 3.0 % of the engine's time");
  evidence.late_by_copy_share = 0.9;
  expect("INVALID", "copy-bound");
  evidence.engine_gap_share = 0.5;
  expect("INVALID", "preempted");
  evidence.engine_gap_share = 0.03;
  evidence.late_by_copy_share = 0.02;
  evidence.long_work_share = 0.04;
  expect("INVALID", "long work of the engine's own took 4.0 %");
}

TEST_F(Fidelity, TheCauseMayBeTheHosts) {
  evidence.host.iops = 0.5e6;
  evidence.busy_share = 0.4;
  expect("INVALID", "host-bound: IOPS");
  evidence.host_long_work_share = 0.01;
  expect("INVALID", "long work of the program's own");
  evidence.host_gap_share = 0.02;
  expect("INVALID", "preempted: the machine took 2.0 % of the driver's time");
  evidence.failed_share = 0.002;
  expect("INVALID", "preempted");  // so few are no cause
  evidence.failed_share = 0.003;
  expect("INVALID", "0.3 % of the commands failed");
}

TEST_F(Fidelity, ReadsAndWritesAreJudgedApart) {
  evidence.reads = {90'000, {0, 10'000, 12'000, 0}, {0, 10'000, 12'000, 0}, {}};
  evidence.writes = {10'000, {0, 9'000, 9'500, 0}, {0, 8'000, 8'500, 0}, {}};
  expect("VALID");
  evidence.writes.host.p99_ns = 9'501;
  expect("INVALID", "frontend late: write p99 latency 9.50 us, model 8.50 us, tolerance 1.00 us");
  evidence.writes.ios = 999;  // whose slowest hundredth are nine
  expect("VALID");
  evidence.writes.host.mean_ns = 9'001;
  expect("INVALID", "frontend late: write mean latency 9.00 us");
  evidence.writes.ios = 99;
  expect("VALID");
  evidence.reads.host.mean_ns = 8'999;
  expect("INVALID", "frontend late: read mean latency");
  evidence.reads.allowance.mean_ns = 1'000;
  expect("VALID");
  evidence.reads.host.mean_ns = 7'999;
  evidence.writes.ios = 0;
  expect("VALID");  // all were reads: what holds of all is said already
}

// Chance that moves the writes' tail by more than a tenth leaves the rest of the run to be judged.
TEST_F(Fidelity, ADirectionThatChanceMovesIsLeftOut) {
  evidence.reads = {90'000, evidence.host, evidence.model, {}};
  evidence.writes = {10'000, {0, 8'000, 20'000, 0}, {0, 8'000, 8'500, 0}, {0, 0, 851, 0}};
  expect("VALID");
  evidence.writes.allowance.p99_ns = 850;
  expect("INVALID");
}

TEST_F(Fidelity, RequestsThatWentElsewhereAreNotHeldAgainstTheYardstick) {
  evidence.host.mean_ns = 50'000;
  evidence.moved_share = 0.002;
  expect("INVALID");
  evidence.moved_share = 0.003;
  expect("VALID (lateness only)", "0.3 % of the requests went to other addresses, to be verified: mean latency");
  evidence.bound_mean_ns = 1e6;
  expect("INVALID");
}

TEST_F(Fidelity, StreamsInStepHaveManySteadyStates) {
  evidence.cycle_ns = 10'000;
  evidence.host = {0.5e6, 20'000, 25'000, 26'000};
  evidence.target_mean_ns = 19'000;
  expect("INVALID");
  evidence.sequential = true;
  expect("VALID (lateness only)", "streams in step");
  evidence.host.mean_ns = 20'188;  // 6.25 % of 19 us, and one
  expect("INVALID");
}

// Ten in turn at each slot, each of which may be answered 1 us late.
TEST_F(Fidelity, WhoeverWaitsInTurnWaitsForOthersTolerances) {
  evidence.rounds = 10;
  evidence.cycle_ns = 30'000;
  evidence.host.mean_ns = 20'000;
  evidence.host.iops = 0.7e6;
  expect("VALID");
  evidence.host.mean_ns = 20'001;
  expect("INVALID");
}

TEST_F(Fidelity, AServedDeviceIsJudgedByWhatItAddsAndByItsBacklog) {
  evidence.has_host = false;
  evidence.host = {};
  expect("VALID");
  evidence.backlog_share = 0.02;
  expect("VALID (lateness only)", "2.0 % of the fetches left commands behind");
  evidence.busy_share = 0.99;
  expect("VALID (lateness only)", "the units had work 99.0 % of the time");
  evidence.bound_p99_ns = 2'000;
  expect("INVALID");
}

TEST_F(Fidelity, InjectedFaultsAreNotInTheYardstick) {
  evidence.injects_faults = true;
  evidence.host.p99_ns = 1e9;
  expect("VALID (lateness only)", "faults were injected");
  evidence.bound_mean_ns = 1e6;
  expect("INVALID");
}

// Half of the requests waited 100 ns and the others 2,000; one in twenty was 5,000 late: however these coincide, no
// more than one in a hundred is above the sum of what one in two hundred exceeds.
TEST(ErrorBound, AddsWhatOnlyTheDistributionsTell) {
  const auto stats = std::make_unique<FidelityStats>();
  stats->wait_ns.record(100, 500);
  stats->wait_ns.record(2'000, 500);
  stats->wait_sum_ns = 1'050'000;
  stats->lateness_ns.record(10, 900);
  stats->lateness_gap_ns.record(5'000, 100);
  stats->completions = 1'000;
  stats->lateness_sum_ns = 509'000;
  stats->lateness_max_ns = 5'000;
  const ErrorBound bound = error_bound(*stats);
  EXPECT_DOUBLE_EQ(bound.mean_ns, 1'050 + 509);
  EXPECT_NEAR(static_cast<double>(bound.p50_ns), 2'010, 20);
  EXPECT_NEAR(static_cast<double>(bound.p99_ns), 7'000, 60);
  EXPECT_EQ(bound.max_ns, 7'000u);
}

}  // namespace
}  // namespace flashmob::engine
