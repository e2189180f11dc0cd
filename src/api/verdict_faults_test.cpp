// Runs with a few injected faults: what these may explain of what the host saw, and what they may not.
#include <gtest/gtest.h>

#include <string>

#include "api/verdict_test_support.h"

namespace flashmob {
namespace {

using test::Case;
using test::kLatenessOnly;
using test::number_in;
using test::Result;
using test::run;
using test::trace_file;
using test::verdict;

bool blames(const Result& result, const std::string& cause) {
  return result.text("verdict_cause").starts_with("\"" + cause);
}

// An open loop of one queue, with a ramp.
Case open_loop() {
  Case one;
  one.device.timing.read_latency_ns = 50'000;
  one.load.rate_iops = 100'000;
  one.load.queues = 1;
  one.load.queue_depth = 256;
  one.load.ramp_ns = 10'000'000;
  one.load.runtime_ns = 50'000'000;
  one.load.verify_percent = 0;
  return one;
}

TEST(VerdictFaults, ThoseOfTheRampAllowNothingLater) {
  Case one = open_loop();
  one.device.faults = {"delay delay=5ms times=20"};
  const Result result = run(one.device, one.load);
  EXPECT_EQ(verdict(result), "\"VALID\"") << result.document();
  EXPECT_LT(number_in(result, "tolerance", "mean_ns"), 1'010) << result.document();
  // One that goes on is of the measured time.
  one.device.faults = {"delay delay=20ms at=1"};
  EXPECT_GT(number_in(run(one.device, one.load), "tolerance", "mean_ns"), 4'000);
  // A slot that was lost stays lost.
  one.device.faults = {"lose at=1"};
  const Result lost = run(one.device, one.load);
  EXPECT_EQ(verdict(lost), kLatenessOnly) << lost.document();
  EXPECT_TRUE(blames(lost, "0.4 % of the slots were lost to injected faults")) << lost.text("verdict_cause");
}

TEST(VerdictFaults, ThoseOfAdminCommandsMeetNoRequests) {
  Case one;
  one.load.queues = 8;
  one.load.queue_depth = 1;
  one.load.verify_percent = 0;
  one.load.ios = 1'000;
  one.device.faults = {"delay on=create-sq delay=1us"};
  EXPECT_EQ(verdict(run(one.device, one.load)), "\"VALID\"");
}

TEST(VerdictFaults, LateInterruptsAreNotTheirs) {
  for (const std::string fault :
       {"", "error at=1000", "delay at=1000 delay=1us", "delay at=1000 delay=100us", "corrupt at=1000"}) {
    for (const std::uint64_t requesters : {0u, 32u}) {
      Case one;
      one.device.timing.read_latency_ns = 60'000;
      one.load = test::virtual_run(0, 50'000'000);
      one.load.queues = 1;
      one.load.requesters = requesters;
      one.load.verify_percent = 0;
      one.load.disturbance = [](BenchActor actor, std::uint64_t now_ns) {
        return actor == BenchActor::interrupt ? now_ns + 4'000 : 0;
      };
      if (!fault.empty()) one.device.faults = {fault};
      const Result result = run(one.device, one.load);
      EXPECT_EQ(verdict(result), "\"INVALID\"") << fault;
      EXPECT_TRUE(blames(result, "host-bound")) << fault << " " << requesters << result.text("verdict_cause");
    }
  }
}

// An open loop beyond what its slots carry, of which faults hold some for long: the device's own nanoseconds are not
// what the others wait for.
TEST(VerdictFaults, SlotsThatTheyHoldAreNotTheFrontends) {
  Case one;
  one.device.timing.instances = 64;
  one.device.timing.read_iops = 10e6;
  one.device.timing.read_latency_ns = 50'000;
  one.device.controller.max_queue_pairs = 32;
  one.device.controller.interrupt_vectors = 33;
  one.load.rate_iops = 9.9e6;
  one.load.queues = 16;
  one.load.ramp_ns = 0;
  one.load.ios = 60'000;
  one.load.verify_percent = 0;
  one.device.faults = {"delay every=3000 delay=5ms"};
  const Result result = run(one.device, one.load);
  EXPECT_EQ(verdict(result), "\"INVALID\"") << result.document();
  EXPECT_TRUE(blames(result, "injected faults held slots")) << result.text("verdict_cause");
}

// Half of the slots are held for a while, and the others are too few for what comes.
TEST(VerdictFaults, SlotsThatOthersWaitForAreTheirs) {
  Case one = open_loop();
  one.load.queue_depth = 8;
  one.device.faults = {"delay at=2000 delay=5ms", "delay at=2001 delay=5ms", "delay at=2002 delay=5ms",
                       "delay at=2003 delay=5ms"};
  const Result result = run(one.device, one.load);
  EXPECT_EQ(verdict(result), "\"INVALID\"") << result.document();
  EXPECT_TRUE(blames(result, "injected faults held slots")) << result.text("verdict_cause");
}

// No share is above all.
TEST(VerdictFaults, LostSlotsAreNoRequests) {
  Case one = open_loop();
  one.load.queue_depth = 16;
  one.load.ramp_ns = 0;
  one.device.faults = {"lose at=9", "delay delay=1us"};
  std::string cause = run(one.device, one.load).text("verdict_cause");
  EXPECT_EQ(cause.find("\"100.0 % of the requests met injected faults and 6.2 % of the slots were lost to them"), 0u)
      << cause;
  one.load.ramp_ns = 10'000'000;
  one.device.faults = {"lose times=8"};
  cause = run(one.device, one.load).text("verdict_cause");
  EXPECT_EQ(cause.find("\"50.0 % of the slots were lost to injected faults"), 0u) << cause;
}

// Nobody waits for anybody at a sixth of the rate.
TEST(VerdictFaults, WhatTheyMayMoveIsSaidToBeTheirs) {
  Case one = open_loop();
  one.device.faults = {"delay every=1000 delay=7ms"};
  const std::string cause = run(one.device, one.load).text("verdict_cause");
  EXPECT_NE(cause.find("injected faults alone may move its mean by"), std::string::npos) << cause;
}

// The last request of a trace, of which nobody waits for its slot.
TEST(VerdictFaults, ALastRequestThatIsLateHoldsNobodyUp) {
  std::string lines;
  for (int i = 0; i < 1'000; ++i) lines += "1,R," + std::to_string(i * 512) + ",512," + std::to_string(i * 10) + "\n";
  Case one;
  one.device.faults = {"delay at=1000 delay=1ms"};
  one.load = test::virtual_run(0, 0);
  one.load.queues = 1;
  one.load.verify_percent = 0;
  one.load.trace_path = trace_file(lines);
  const Result result = run(one.device, one.load);
  EXPECT_EQ(verdict(result), "\"INVALID\"") << result.document();
  EXPECT_TRUE(blames(result, "injected faults made requests late")) << result.text("verdict_cause");
}

// While faults hold all slots of one thread's queue, the other's has the device to itself, and ends sooner than the
// ideal device's, which shares it. Nothing of that is cut off.
TEST(VerdictFaults, TheYardstickReplaysAllThatWasAskedFor) {
  std::string lines;
  for (int i = 0; i < 10'000; ++i) lines += "1,R," + std::to_string((i % 500 + i % 2 * 1'000) * 512) + ",512,0\n";
  for (const bool as_fast : {false, true}) {
    Case one;
    one.device.faults = {"delay lba=0-999 times=16 delay=5ms"};
    one.load = test::virtual_run(0, 0);
    one.load.threads = 2;
    one.load.verify_percent = 0;
    one.load.trace_as_fast = as_fast;
    one.load.trace_path = trace_file(lines);
    const Result result = run(one.device, one.load);
    EXPECT_NEAR(number_in(result, "model", "iops"), 1e6, 1e4) << as_fast << result.document();
  }
}

// Requests without a slot are as old as when the last answer came.
TEST(VerdictFaults, NoLatencyHoldsTheWaitForALostCommand) {
  Case one = open_loop();
  one.load.rate_iops = 1.2e6;
  one.load.queue_depth = 600;
  one.load.ramp_ns = 0;
  one.load.runtime_ns = 5'000'000;
  one.device.faults = {"lose at=2000"};
  const Result result = run(one.device, one.load);
  EXPECT_EQ(result.number("unanswered"), 1);
  EXPECT_GT(number_in(result, "unfinished", "backlog"), 100);
  EXPECT_NEAR(number_in(result, "allowance", "max"), number_in(result, "model", "max"), 100'000) << result.document();
  EXPECT_TRUE(verdict(result).starts_with("\"VALID")) << result.document();
}

// Whether it has an end or not, what has nothing left but a lost command ends with what it was answered.
TEST(VerdictFaults, NoRateHoldsTheWaitForALostCommand) {
  std::string lines;
  for (int i = 0; i < 3'000; ++i)
    lines += "1,R," + std::to_string(i % 1'000 * 512) + ",512," + std::to_string(i * 4) + "\n";
  for (const bool as_fast : {false, true}) {
    for (const std::uint64_t runtime_ns : {std::uint64_t{0}, std::uint64_t{15'000'000}, std::uint64_t{2'000'000'000}}) {
      Case one;
      one.load = test::virtual_run(0, as_fast ? runtime_ns : 0);
      one.load.queue_depth = 8;
      one.load.verify_percent = 0;
      one.load.trace_as_fast = as_fast;
      one.load.trace_path = trace_file(lines);
      const double whole_s = run(one.device, one.load).number("runtime_seconds");
      one.device.faults = {"lose at=2000"};
      const Result result = run(one.device, one.load);
      EXPECT_EQ(result.number("unanswered"), 1);
      EXPECT_EQ(result.number("ios"), 2'999);
      EXPECT_NEAR(result.number("runtime_seconds") / whole_s, 1, 0.1) << as_fast << runtime_ns << result.document();
      EXPECT_GT(number_in(result, "unfinished", "oldest_ns"), 9e6) << result.document();
    }
  }
}

}  // namespace
}  // namespace flashmob
