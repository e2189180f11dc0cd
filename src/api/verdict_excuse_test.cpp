// What a run's yardstick cannot know is no licence: what the host saw must follow from the commands as they came.
#include <gtest/gtest.h>

#include <string>

#include "api/verdict_test_support.h"

namespace flashmob {
namespace {

using test::Case;
using test::kLatenessOnly;
using test::Result;
using test::run;
using test::Theft;
using test::verdict;

// Few blocks that many ask for.
Case few_blocks() {
  Case one;
  one.device.timing.instances = 16;
  one.device.timing.read_iops = one.device.timing.write_iops = 1e6;
  one.load.rw = "randrw";
  one.load.read_share = 0.5;
  one.device.subsystem.namespaces[0].size_bytes = 64 << 10;
  one.load.queue_depth = 32;
  return one;
}

// Where few blocks are asked for by many, verification moves requests away from each other.
TEST(Verdict, RequestsThatVerificationMovesAreNotJudged) {
  Case one = few_blocks();
  one.load.ios = 10'000;
  for (const std::string distribution : {"uniform", "hotcold:0.9:0.1"}) {
    one.load.distribution = distribution;
    const Result result = run(one.device, one.load);
    EXPECT_EQ(verdict(result), kLatenessOnly) << distribution << result.document();
    EXPECT_NE(result.text("verdict_cause").find("other addresses"), std::string::npos) << result.text("verdict_cause");
  }
}

// One server serves all addresses alike.
TEST(Verdict, VerificationExcusesNothingWhereAddressesAreAlike) {
  Case one;
  one.device.timing.instances = 1;
  one.device.timing.read_iops = one.device.timing.write_iops = 1e6;
  one.device.timing.read_latency_ns = one.device.timing.write_latency_ns = 50'000;
  one.device.subsystem.namespaces[0].size_bytes = 2 << 20;
  one.load.rw = "randrw";
  one.load.read_share = 0.5;
  one.load.queues = 8;
  one.load.queue_depth = 256;
  one.load.ios = 40'000;
  one.load.verify_percent = 100;
  EXPECT_EQ(verdict(run(one.device, one.load)), "\"VALID\"");
  one.load.disturbance = Theft{BenchActor::driver, 4'000'000, 2'000'000, 0};
  const Result result = run(one.device, one.load);
  EXPECT_EQ(verdict(result), "\"INVALID\"") << result.document();
}

TEST(Verdict, StreamsInStepDoNotExcuseATailThatTheDeviceDoesNotHave) {
  for (const std::uint32_t depth : {256u, 1024u}) {
    Case one;
    one.device.timing.instances = 8;
    one.device.timing.read_iops = 2.5e6;
    one.device.timing.read_latency_ns = 50'000;
    one.device.subsystem.namespaces[0].size_bytes = 64 << 20;
    one.load.rw = "read";
    one.load.verify_percent = 0;
    one.load.queues = 8;
    one.load.queue_depth = depth;
    one.load.ios = 40'000;
    EXPECT_EQ(verdict(run(one.device, one.load)), "\"VALID\"") << depth;
    one.load.disturbance = Theft{BenchActor::driver, 8'000'000, 400'000, 0};
    const Result result = run(one.device, one.load);
    EXPECT_EQ(verdict(result), "\"INVALID\"") << depth << result.document();
  }
}

// Late writes are not excused because all requests together, mostly slow reads, are what the device's were.
TEST(Verdict, ADirectionThatIsLateIsNotExcusedByTheOther) {
  Case one;
  one.device.timing.instances = 8;
  one.device.timing.read_latency_ns = 800'000;
  one.device.timing.write_latency_ns = 10'000;
  one.load.rw = "rw";
  one.load.read_share = 0.9;
  one.load.queue_depth = 64;
  one.load.ios = 20'000;
  one.load.verify_percent = 0;
  EXPECT_EQ(verdict(run(one.device, one.load)), "\"VALID\"");
  one.load.disturbance = Theft{BenchActor::driver, 7'000, 6'000, 0};
  const Result result = run(one.device, one.load);
  EXPECT_EQ(verdict(result), "\"INVALID\"") << result.document();
  EXPECT_NE(result.text("verdict_cause").find(": write mean"), std::string::npos) << result.text("verdict_cause");
}

// Other addresses take another time, but no longer than the device says, and the host asks no less often.
TEST(Verdict, RequestsThatVerificationMovesMakeNoOpenLoopLate) {
  Case one = few_blocks();
  one.load.rate_iops = 500'000;
  one.load.runtime_ns = 20'000'000;
  const Result clean = run(one.device, one.load);
  EXPECT_TRUE(verdict(clean).starts_with("\"VALID")) << clean.document();
  one.load.disturbance = Theft{BenchActor::driver, 1'000'000, 300'000, 0};
  const Result result = run(one.device, one.load);
  EXPECT_EQ(verdict(result), "\"INVALID\"") << result.document();
}

// Near saturation one stop of less than a hundredth of the time is in the tail of what a host sees, and where the
// requests went is known: the yardstick asks for the same places.
TEST(Verdict, OneStopNearSaturationIsNotTakenForRequestsThatWentElsewhere) {
  Case one = few_blocks();
  one.load.rate_iops = 480'000;
  one.load.queue_depth = 256;
  one.load.runtime_ns = 100'000'000;
  const Result clean = run(one.device, one.load);
  EXPECT_EQ(verdict(clean), "\"VALID\"") << clean.document();
  one.load.disturbance = Theft{BenchActor::driver, 1'000'000'000, 190'000, 40'000'000};
  const Result result = run(one.device, one.load);
  EXPECT_EQ(verdict(result), "\"INVALID\"") << result.document();
}

// Whoever pauses between two requests waits less for a slot.
TEST(Verdict, StreamsOfManyWhoPauseAreNotInvalid) {
  for (const std::uint64_t think_time_ns : {1'000, 5'000, 20'000, 60'000}) {
    Case one;
    one.device.timing.instances = 8;
    one.load.rw = "read";
    one.load.verify_percent = 0;
    one.load.requesters = 64;
    one.load.think_time_ns = think_time_ns;
    const Result result = run(one.device, one.load);
    EXPECT_NE(verdict(result), "\"INVALID\"") << think_time_ns << result.document();
  }
}

// The device takes one command from each queue in turn, and whose turn is first is nobody's choice.
TEST(Verdict, QueuesThatAreFetchedInTurnsAreNotInvalid) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Case one;
    one.device.seed = seed;
    one.device.subsystem.namespaces[0].size_bytes = 256 << 20;
    one.device.timing.model = "nand";
    one.device.timing.unit_bytes = 4096;
    one.device.timing.link_bytes_per_s = 14'500'000'000;
    one.device.timing.nand.channels = 2;
    one.device.timing.nand.dies_per_channel = 8;
    one.device.engine.fetch_limit = 1;
    one.load.rw = "randwrite";
    one.load.block_sizes = {{4096, 1}};
    one.load.verify_percent = 0;
    one.load.queues = 8;
    one.load.queue_depth = 4;
    one.load.requesters = 48;
    one.load.ios = 2'829;
    const Result result = run(one.device, one.load);
    EXPECT_NE(verdict(result), "\"INVALID\"") << seed << result.document();
  }
}

}  // namespace
}  // namespace flashmob
