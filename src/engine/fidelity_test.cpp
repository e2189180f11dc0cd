// The verdict at its thresholds: valid at each limit, invalid just beyond, with the cause that explains it.
#include "engine/fidelity.h"

#include <gtest/gtest.h>

#include <memory>

#include "engine/fidelity_test_support.h"

namespace flashmob::engine {
namespace {

using Fidelity = test::FidelityTest;

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
  expect("INVALID", "host-bound: mean latency 11.00 us, model 10.00 us, tolerance 1.00 us");
  evidence.host.mean_ns = 8'999;
  expect("INVALID", "the load was another one");
}

TEST_F(Fidelity, TheHostsP99Counts) {
  evidence.host.p99_ns = 13'000;
  expect("VALID");
  evidence.host.p99_ns = 13'001;
  expect("INVALID", "host-bound: p99 latency");
}

// What the device added to a few is the cause of a tail, however little that is on average.
TEST_F(Fidelity, ATailIsTheDevicesIfItAddedThatToAFew) {
  evidence.host.p99_ns = 14'000;
  evidence.bound_mean_ns = 10;
  evidence.bound_max_ns = 999;
  expect("INVALID", "host-bound: p99 latency");
  evidence.bound_max_ns = 100'000;
  expect("INVALID", "frontend late: p99 latency");
  evidence.busy_share = 0.1;
  expect("INVALID", "frontend late: p99 latency");
  evidence.late_by_copy_share = 0.001;
  expect("INVALID", "copy-bound: p99 latency");
  evidence.engine_gap_share = 0.0009;
  expect("INVALID", "preempted: the machine took 0.1 % of the engine's time: p99 latency");
}

// A gap before the measured time leaves those waiting who came during it, and the rate is high while they are answered.
TEST_F(Fidelity, WhatTheMachineTookBeforehandIsACause) {
  evidence.host.iops = 1.1e6;
  expect("INVALID", "the load was another one than the model's: IOPS differ from the model's by 10.0 %");
  evidence.host.mean_ns = 400'000;
  evidence.bound_mean_ns = 10;
  expect("INVALID", "host-bound: mean latency 400 us");
  evidence.earlier_gap_ns = 409'600;
  expect("INVALID", "preempted: the machine took the engine's time for 410 us before the measured time: mean latency");
  evidence.cycle_ns = 10'000;
  expect("INVALID", "host-bound: mean latency");
}

TEST_F(Fidelity, WhereTheMachineTookNothingItIsNoCause) {
  evidence.host.iops = 0.9e6;
  evidence.host.mean_ns = 9'900;
  expect("INVALID", "frontend late: IOPS differ from the model's by -10.0 %");
}

TEST_F(Fidelity, OfASlowDriveAShareIsTolerated) {
  evidence.model.mean_ns = evidence.target.mean_ns = 160'000;
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
  evidence.cycle_ns = 10'000;
  evidence.allowance.iops = 0.2;
  expect("VALID (lateness only)", "the run is short: chance alone may move its rate by 20.0 %");
  evidence.allowance = {0, 2'000, 0, 0};
  expect("VALID (lateness only)", "the run is short: chance alone may move its mean by 20.0 %");
  evidence.allowance = {0, 0, 2'000, 0};
  expect("VALID (lateness only)", "the run is short: chance alone may move its p99 by 16.7 %");
  // What the host saw is told all the same, beside the tolerance that decides.
  evidence.host.p99_ns = 13'500;
  expect("VALID (lateness only)",
         "the run is short: chance alone may move its p99 by 16.7 %: p99 latency 13.50 us, "
         "model 12.00 us, tolerance 3.00 us");
  evidence.host.mean_ns = 12'000;
  expect("INVALID", "host-bound: mean latency");
  evidence.host.mean_ns = 10'000;
  // Where arrivals wait for nobody but each other's slots, it is not chance.
  evidence.cycle_ns = 0;
  expect("VALID (lateness only)", "requests wait for each other, and there the least delay adds up");
}

// A burst falls on this side of the measured time's ends or on that one; a rate that needs no such excuse is judged.
TEST_F(Fidelity, EndsExcuseOnlyARateThatIsOff) {
  evidence.cycle_ns = 100'000;
  evidence.edge_share = 0.5;
  expect("VALID");
  EXPECT_DOUBLE_EQ(tolerance_of(rule, evidence).iops_share, rule.max_iops_error);
  evidence.host.iops = 1e6 * (1 + rule.max_iops_error + 0.001);
  expect("VALID (lateness only)",
         "the run is short: chance alone may move its rate by 50.0 %: IOPS differ from the "
         "model's by 6.3 %, tolerance 56.2 %");
  EXPECT_DOUBLE_EQ(tolerance_of(rule, evidence).iops_share, rule.max_iops_error + 0.5);
  evidence.host.iops = 1e6 * 1.6;
  expect("INVALID");
  // What little it needs is stated.
  evidence.edge_share = 0.05;
  evidence.host.iops = 1e6 * (1 + rule.max_iops_error + 0.04);
  expect("VALID");
  EXPECT_DOUBLE_EQ(tolerance_of(rule, evidence).iops_share, rule.max_iops_error + 0.05);
}

TEST_F(Fidelity, AFasterHostHadAnotherLoad) {
  evidence.host.iops = 1.2e6;
  expect("INVALID", "the load was another one than the model's: IOPS");
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

// What passes through the door's own thread is late where that has no time left; no engine sees it.
TEST_F(Fidelity, ADoorThatIsBusyMayBeTheLimit) {
  evidence.has_host = false;
  evidence.door_busy_share = 0.98;
  expect("VALID");
  evidence.door_busy_share = 0.99;
  expect("VALID (lateness only)", "the NVMe/TCP door had work 99.0 % of the time: it may be the limit");
}

TEST_F(Fidelity, WhatTheDoorAddsIsTheDoors) {
  evidence.has_host = false;
  evidence.door_busy_share = 0.25;
  evidence.bound_mean_ns = 15'500;
  evidence.door_mean_ns = 15'000;
  expect("VALID");
  evidence.bound_mean_ns = 16'500;
  expect("INVALID", "frontend late");
  evidence.bound_mean_ns = 30'500;
  evidence.door_mean_ns = 30'000;
  expect("INVALID", "NVMe/TCP door late (its thread had work 25.0 % of the time): requests may have been held up");
  evidence.bound_mean_ns = 500;
  evidence.door_mean_ns = 0;
  evidence.bound_p99_ns = 3'000'000;
  evidence.door_p99_ns = 2'999'500;
  expect("INVALID", "NVMe/TCP door late");
  evidence.door_p99_ns = 0;
  expect("INVALID", "frontend late");
}

TEST_F(Fidelity, TheCauseIsNamed) {
  evidence.bound_p99_ns = 5'000;
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

// A unit that sleeps when requests come is late for them, be the machine as busy as it may.
TEST_F(Fidelity, UnitsThatSleptAreNamed) {
  evidence.has_host = false;
  evidence.bound_mean_ns = 20'000;
  evidence.bound_p99_ns = 1'000'000;
  evidence.engine_gap_share = 0.03;
  evidence.woken_share = 0.025;
  evidence.asleep_mean_ns = 9'000;
  expect("INVALID", "preempted");
  evidence.asleep_mean_ns = 10'000;
  expect("INVALID", "asleep: units slept when 2.5 % of the requests came (engine.idle_spin_ns): requests may have");
  evidence.engine_gap_share = 0.5;
  expect("INVALID", "asleep");
  // What the door added is no part of it.
  evidence.bound_mean_ns = 25'000;
  evidence.door_mean_ns = 5'000;
  expect("INVALID", "asleep");
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

// Of what the host saw the device can have added a part, or all of it where those who wait for slots add it up.
TEST_F(Fidelity, WhatTheDeviceDidNotAddIsTheHosts) {
  evidence.host.mean_ns = 12'000;
  evidence.bound_mean_ns = 999;
  expect("INVALID", "host-bound: mean latency");
  evidence.bound_mean_ns = 1'000;
  expect("INVALID", "frontend late: mean latency");
  evidence.bound_mean_ns = 100;
  evidence.slots_held_share = 0.91;
  evidence.slot_turns = 10;
  expect("INVALID", "frontend late: mean latency");
  evidence.slot_turns = 9;
  expect("INVALID", "host-bound: mean latency");
  evidence.slot_turns = 10;
  evidence.cycle_ns = 10'000;
  expect("INVALID", "host-bound: mean latency");
  evidence.host.mean_ns = 13'000;
  evidence.rounds = 2;
  expect("INVALID", "host-bound: mean latency");
  evidence.bound_mean_ns = 750;
  expect("INVALID", "frontend late: mean latency");
}

TEST_F(Fidelity, ReadsAndWritesAreJudgedApart) {
  evidence.reads = {90'000, {0, 10'000, 12'000, 0}, {0, 10'000, 12'000, 0}, {}};
  evidence.writes = {10'000, {0, 9'000, 9'500, 0}, {0, 8'000, 8'500, 0}, {}};
  expect("VALID");
  evidence.writes.host.p99_ns = 9'501;
  expect("INVALID", "host-bound: write p99 latency 9.50 us, model 8.50 us, tolerance 1.00 us");
  evidence.writes.ios = 999;  // whose slowest hundredth are nine
  expect("VALID");
  evidence.writes.host.mean_ns = 9'001;
  expect("INVALID", "host-bound: write mean latency 9.00 us");
  evidence.writes.ios = 99;
  expect("VALID");
  evidence.reads.host.mean_ns = 8'999;
  expect("INVALID", "the load was another one than the model's: read mean latency");
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
  // A run that is too short is not INVALID for a part of it, but what that part saw is told.
  evidence.allowance.mean_ns = 1'001;
  expect("VALID (lateness only)", "requests wait for each other");
  EXPECT_NE(judge(rule, evidence).cause.find(": write p99 latency 20.00 us"), std::string::npos);
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
  // So does a tail.
  evidence.host.mean_ns = 20'000;
  evidence.host.p99_ns = 22'000;
  expect("VALID");
  evidence.host.p99_ns = 22'001;
  expect("INVALID");
  EXPECT_DOUBLE_EQ(tolerance_of(rule, evidence).p99_ns, 10'000);
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
  evidence.faulted_share = 0.003;
  expect("VALID (lateness only)", "0.3 % of the requests met injected faults");
  evidence.host.p99_ns = 1e9;
  expect("VALID (lateness only)", "0.3 % of the requests met injected faults: p99 latency 1000000 us, model 12.00 us");
  evidence.lost_slots_share = 0.5;
  expect("VALID (lateness only)",
         "0.3 % of the requests met injected faults and 50.0 % of the slots were lost to them:");
  evidence.faulted_share = 0;
  expect("VALID (lateness only)", "50.0 % of the slots were lost to injected faults:");
  evidence.faulted_share = 0.003;
  evidence.bound_mean_ns = 1e6;
  expect("INVALID");
  evidence.bound_mean_ns = 0;
  evidence.has_host = false;
  expect("VALID (lateness only)", "faults were injected");
}

// One fault in a thousand requests is no licence to be late.
TEST_F(Fidelity, AFewFaultsAreNoExcuse) {
  evidence.faulted_share = 0.002;
  expect("VALID");
  evidence.host.mean_ns = 11'001;
  expect("INVALID", "host-bound: mean latency 11.00 us, model 10.00 us");
}

// They are the cause of what they can have done most of, and of no more.
TEST_F(Fidelity, InjectedFaultsAreTheCauseOfMostOrOfNothing) {
  constexpr char kHeld[] = "injected faults held slots that others waited for: ";
  evidence.faulted_share = 0.001;
  evidence.host.mean_ns = 14'000;
  evidence.faults_can.mean_ns = 500;
  evidence.faults_can.waits_ns = 1'500;
  expect("INVALID", kHeld);
  evidence.bound_mean_ns = 999;
  expect("INVALID", kHeld);
  evidence.faults_can.waits_ns = 1'499;
  expect("INVALID", "host-bound: mean latency");
  evidence.faults_can = {.mean_ns = 2'000, .waits_ns = 1'000};
  expect("INVALID", "injected faults made requests late: mean latency");
  evidence.rounds = 2;
  expect("INVALID", kHeld);
  evidence.host_gap_share = 0.003;
  expect("INVALID", "preempted");
  evidence.host_gap_share = 0;
  // What they can have done to the mean says nothing of a tail.
  evidence.rounds = 1;
  evidence.host.mean_ns = 10'000;
  evidence.host.p99_ns = 16'000;
  evidence.faults_can.p99_ns = 1'999;
  expect("INVALID", "host-bound: p99 latency");
  evidence.faults_can.p99_ns = 2'000;
  expect("INVALID", "injected faults made requests late: p99 latency");
  evidence.host.p99_ns = 12'000;
  evidence.host.iops = 0.8e6;
  evidence.busy_share = 0.4;
  evidence.faults_can.iops_share = 0.09;
  expect("INVALID", "host-bound: IOPS differ");
  evidence.faults_can.iops_share = 0.11;
  expect("INVALID", "injected faults made requests late: IOPS differ");
}

TEST_F(Fidelity, WhatInjectedFaultsMayMoveIsNoChance) {
  evidence.faulted_share = 0.001;
  evidence.allowance.mean_ns = 1'370;
  expect("VALID (lateness only)", "requests wait for each other");
  evidence.of_faults.mean_ns = 700;
  expect("VALID (lateness only)", "injected faults alone may move its mean by 13.7 %");
  evidence.cycle_ns = 10'000;
  evidence.of_faults.mean_ns = 100;
  expect("VALID (lateness only)", "the run is short: chance and injected faults may move its mean by 13.7 %");
}

TEST_F(Fidelity, ToleranceSaysAllThatValidAllows) {
  evidence.allowance = {0, 200, 300, 0};
  Tolerance limit = tolerance_of(rule, evidence);
  EXPECT_DOUBLE_EQ(limit.mean_ns, 1'200);
  EXPECT_DOUBLE_EQ(limit.p99_ns, 1'300);
  EXPECT_DOUBLE_EQ(limit.latency_share, 0.12);
  EXPECT_FALSE(limit.reads.mean_ns) << "there is but one direction";
  evidence.reads = {90'000, evidence.host, evidence.model, {}};
  evidence.writes = {999, {0, 4'000, 4'000, 0}, {0, 4'000, 4'000, 0}, {0, 300, 0, 0}};
  limit = tolerance_of(rule, evidence);
  EXPECT_DOUBLE_EQ(limit.reads.p99_ns.value_or(0), 1'000);
  EXPECT_DOUBLE_EQ(limit.writes.mean_ns.value_or(0), 1'300);
  EXPECT_FALSE(limit.writes.p99_ns) << "too few for a tail";
  EXPECT_DOUBLE_EQ(limit.latency_share, 1'300.0 / 4'000);
  evidence.writes.allowance.mean_ns = 401;
  EXPECT_FALSE(tolerance_of(rule, evidence).writes.mean_ns) << "chance says more than a tenth";
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

// The door's part is of the commands that came through it, whoever else there is.
TEST(ErrorBoundOfDoors, IsTheirHosts) {
  auto stats = std::make_unique<FidelityStats>();
  stats->completions = 1'000;
  stats->wait_ns.record(100, 1'000);
  stats->wait_sum_ns = 100'000;
  stats->lateness_ns.record(50, 1'000);
  stats->lateness_sum_ns = 50'000;
  EXPECT_EQ(error_bound(*stats).mean_ns, 150);
  stats->door_ns.record(20, 98);
  stats->door_ns.record(100, 2);
  const ErrorBound bound = error_bound(*stats);
  EXPECT_DOUBLE_EQ(bound.mean_ns, 150 + 21.6);
  EXPECT_EQ(bound.p50_ns, 100u + 50 + 20);
  EXPECT_EQ(bound.p99_ns, 100u + 50 + 100);
  EXPECT_EQ(bound.max_ns, 250u);
}

TEST(FidelityStatsSpan, IsTheSameOfThreadsAndAddsUpOverTime) {
  auto sum = std::make_unique<FidelityStats>();
  auto other = std::make_unique<FidelityStats>();
  other->span_ns = 5;
  sum->join(*other);
  sum->join(*other);
  EXPECT_EQ(sum->span_ns, 5u);
  sum->append(*other);
  EXPECT_EQ(sum->span_ns, 10u);
}

}  // namespace
}  // namespace flashmob::engine
