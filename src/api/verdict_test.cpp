// The verdict from end to end, in virtual time: whatever the machine does to dispatcher, worker or driver, a run whose
// host saw something else than the model is not VALID, and a run to which nothing was done is.
#include <gtest/gtest.h>

#include <string>

#include "api/verdict_test_support.h"
#include "base/rng.h"

namespace flashmob {
namespace {

using test::Case;
using test::kLatenessOnly;
using test::number_in;
using test::Result;
using test::run;
using test::Theft;
using test::trace_file;
using test::verdict;
using test::virtual_run;

TEST(Verdict, WaitingBeforeTheFetchIsSeen) {
  // One entry a look, at nearly the rate of looks: requests wait in their queue, and no completion is late.
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Case one;
    one.device.seed = seed;
    one.device.timing.read_iops = one.device.timing.write_iops = 100e6;
    one.device.timing.read_latency_ns = one.device.timing.write_latency_ns = 50'000;
    one.device.engine.fetch_limit = 1;
    one.load.queues = 1;
    one.load.queue_depth = 4096;
    one.load.rate_iops = 9'900'000;
    one.load.ios = 20'000;
    const Result result = run(one.device, one.load);
    EXPECT_EQ(verdict(result), "\"INVALID\"") << result.document();
    EXPECT_NE(result.text("verdict_cause").find("frontend late"), std::string::npos) << result.text("verdict_cause");
    EXPECT_GT(number_in(result, "fetch_wait_ns", "p99"), 1'000);
    EXPECT_LT(number_in(result, "lateness_ns", "p99"), 200);
  }
}

TEST(Verdict, FewPoissonArrivalsAreHeldAgainstThoseDrawn) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Case one;
    one.device.seed = seed;
    one.load.rate_iops = 1'000;
    one.load.ios = 300;
    const Result result = run(one.device, one.load);
    EXPECT_EQ(verdict(result), "\"VALID\"") << "seed " << seed << result.text("verdict_cause");
  }
}

TEST(Verdict, StolenTimeIsNotExcused) {
  for (const BenchActor from : {BenchActor::dispatcher, BenchActor::driver}) {
    Case one;
    one.load.rate_iops = 500'000;
    one.load.runtime_ns = 20'000'000;
    EXPECT_EQ(verdict(run(one.device, one.load)), "\"VALID\"");
    one.load.disturbance = Theft{from, 5'000'000, 100'000, 0};
    const Result result = run(one.device, one.load);
    EXPECT_EQ(verdict(result), "\"INVALID\"") << result.document();
    const std::string whose = from == BenchActor::dispatcher ? "of the engine's time" : "of the driver's time";
    EXPECT_EQ(result.text("verdict_cause").find("\"preempted: the machine took 2.0 %"), 0u)
        << result.text("verdict_cause");
    EXPECT_NE(result.text("verdict_cause").find(whose), std::string::npos) << result.text("verdict_cause");
    EXPECT_NEAR(number_in(result, from == BenchActor::dispatcher ? "gaps" : "host_gaps", "longest_ns"), 100'000, 1'000);
  }
}

// Looks at doorbells that are too rare are nobody's but ours.
TEST(Verdict, RareLooksAreNotExcused) {
  Case one;
  one.load.rate_iops = 500'000;
  one.load.runtime_ns = 20'000'000;
  one.load.disturbance = Theft{BenchActor::dispatcher, 4'000, 3'900, 0};
  const Result result = run(one.device, one.load);
  EXPECT_EQ(result.text("verdict_cause").find("\"frontend late"), 0u) << result.document();
}

TEST(Verdict, LateInterruptsAreSeen) {
  for (const double rate_iops : {0.0, 500'000.0}) {
    Case one;
    one.load.rate_iops = rate_iops;
    one.load.ramp_ns = 1'000'000;
    one.load.runtime_ns = 20'000'000;
    EXPECT_EQ(verdict(run(one.device, one.load)), "\"VALID\"") << rate_iops;
    one.load.disturbance = Theft{BenchActor::interrupt, 20'000, 15'000, 0};
    const Result result = run(one.device, one.load);
    EXPECT_EQ(verdict(result), "\"INVALID\"") << result.document();
    EXPECT_EQ(result.text("verdict_cause").find("\"host-bound"), 0u) << result.text("verdict_cause");
    EXPECT_LT(number_in(result, "error_bound_ns", "p99"), 1'000) << "the device did as the model says";
  }
}

TEST(Verdict, SlowCopiesAreNamed) {
  Case one;
  one.device.engine.workers = 1;
  one.load.rate_iops = 500'000;
  EXPECT_EQ(verdict(run(one.device, one.load)), "\"VALID\"");
  one.load.disturbance = Theft{BenchActor::worker, 100'000, 60'000, 0};
  const Result result = run(one.device, one.load);
  EXPECT_EQ(verdict(result), "\"INVALID\"");
  EXPECT_NE(result.text("verdict_cause").find("copy-bound"), std::string::npos) << result.text("verdict_cause");
}

TEST(Verdict, AStallThatTheRunDoesNotOutliveIsSeen) {
  for (const double rate_iops : {0.0, 500'000.0}) {
    Case one;
    one.load.rate_iops = rate_iops;
    one.load.ramp_ns = 500'000;
    one.load.runtime_ns = 10'000'000;
    // The last 300 us of the measured time, and a millisecond after it.
    one.load.disturbance = Theft{BenchActor::dispatcher, 1'000'000'000, 1'300'000, 10'200'000};
    const Result result = run(one.device, one.load);
    EXPECT_EQ(verdict(result), "\"INVALID\"") << result.document();
    EXPECT_GT(number_in(result, "unfinished", "outstanding"), 0);
    EXPECT_GT(number_in(result, "unfinished", "oldest_ns"), 200'000);
  }
}

TEST(Verdict, TracesAreJudgedOnTheirArrivals) {
  Case one;
  one.load.rate_iops = 0;
  // Written by hand: bursts of 64 every millisecond at a device that serves one in a microsecond.
  std::string lines;
  for (int burst = 0; burst < 50; ++burst)
    for (int i = 0; i < 64; ++i)
      lines += "1,R," + std::to_string((burst * 64 + i) % 1'000 * 512) + ",512," + std::to_string(burst * 1'000) + "\n";
  one.load.trace_path = trace_file(lines);
  const Result clean = run(one.device, one.load);
  EXPECT_EQ(verdict(clean), "\"VALID\"") << clean.document();
  EXPECT_NEAR(number_in(clean, "model", "mean"), 51'500, 1'000) << "64 are served one after the other";
  one.load.disturbance = Theft{BenchActor::dispatcher, 1'000'000, 30'000, 0};
  EXPECT_EQ(verdict(run(one.device, one.load)), "\"INVALID\"");
}

// Requests of the same time go to several queues, and a host submits queue by queue.
TEST(Verdict, RequestsOfOneTimeOnSeveralQueuesAreValid) {
  Case one;
  one.device.timing.instances = 32;
  one.device.timing.read_latency_ns = 60'000;
  one.device.timing.write_latency_ns = 10'000;
  one.load = virtual_run(0, 1'000'000'000);
  one.load.queues = 4;
  one.load.verify_percent = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Rng rng(seed);
    std::string lines;
    std::uint64_t at_us = 0;
    for (int i = 0; i < 3'000; ++i) {
      at_us += rng.below(10) < 3 ? 0 : 1 + rng.below(200);
      lines += "1," + std::string(rng.below(10) < 6 ? "R," : "W,") + std::to_string(rng.below(1'000) * 512) + "," +
               (rng.below(5) == 0 ? "65536," : "4096,") + std::to_string(at_us) + "\n";
    }
    one.load.trace_path = trace_file(lines);
    const Result result = run(one.device, one.load);
    EXPECT_EQ(verdict(result), "\"VALID\"") << seed << result.document();
  }
}

TEST(Verdict, CommandsThatFailAreNoThroughput) {
  Case one;
  one.device.faults = {"error on=read p=0.5 seed=3"};
  const Result result = run(one.device, one.load);
  EXPECT_NEAR(number_in(result, "failed", "share"), 0.5, 0.05);
  EXPECT_NEAR(result.number("iops"), result.number("ios") / result.number("runtime_seconds"), 1);
  EXPECT_EQ(result.document().find("\"min\":0,"), std::string::npos) << "a refused command has no latency";
  EXPECT_EQ(verdict(result), "\"VALID (lateness only)\"");
}

TEST(Verdict, SequentialStreamsOfManyQueuesAreValid) {
  std::uint64_t judged = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Case one;
    one.device.seed = seed;
    one.device.controller.max_queue_pairs = 256;
    one.device.controller.interrupt_vectors = 257;
    one.device.subsystem.namespaces[0].size_bytes = 64 << 20;
    one.device.timing.instances = seed % 2 == 0 ? 64 : 256;
    one.device.timing.read_iops = 3e6;
    one.device.timing.read_latency_ns = 90'000;
    // All begin at the same instance.
    one.load.rw = "read";
    one.load.verify_percent = 0;
    one.load.queues = seed <= 2 ? 64 : 128;
    one.load.queue_depth = 4;
    one.load.ios = 10'000;
    const Result result = run(one.device, one.load);
    EXPECT_NE(verdict(result), "\"INVALID\"") << seed << result.document();
    judged += verdict(result) == "\"VALID\"";
  }
  EXPECT_GE(judged, 2u);
}

// Nothing but an interrupt, which comes after the driver's turn, says that the command which fails at once is answered.
TEST(Verdict, NoTimePassesWhereOnlyAnInterruptIsLeftToBeSeen) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Case one;
    one.device.seed = seed;
    one.device.timing.read_latency_ns = 90'000;
    one.device.faults = {"error every=100"};
    one.load.rw = "randread";
    one.load.verify_percent = 0;
    one.load.queues = one.load.queue_depth = 1;
    one.load.think_time_ns = 20'000;
    one.load.ios = 2'000;
    const Result result = run(one.device, one.load);
    EXPECT_NEAR(result.number("iops"), 1e6 / 110, 1e6 / 110 * 0.02) << seed << result.document();
  }
}

// Each answer is used a poll or two later than the model's, and whoever waits for slots waits for all of that.
TEST(Verdict, OverloadBeyondTheSlotsIsNotInvalid) {
  for (const std::uint32_t threads : {1u, 2u}) {
    for (const double load : {0.97, 1.02, 1.5}) {
      Case one;
      one.load.queues = 2;
      one.load.queue_depth = 1;
      one.load.threads = threads;
      one.load.rate_iops = load * 2 * 1e9 / 20'000;
      one.load.runtime_ns = 20'000'000;
      one.load.verify_percent = 0;
      const Result clean = run(one.device, one.load);
      EXPECT_NE(verdict(clean), "\"INVALID\"") << load << clean.document();
      if (load < 1.2) continue;
      EXPECT_EQ(verdict(clean), "\"VALID\"") << clean.text("verdict_cause");
      one.load.disturbance = Theft{BenchActor::driver, 1'000'000, 200'000, 0};
      EXPECT_NE(verdict(run(one.device, one.load)), "\"VALID\"") << load;
    }
  }
  // As many requesters as wait for ten others' slots each, of a device that answers in 3 us.
  Case deep;
  deep.device.timing.read_iops = 3e6;
  deep.device.timing.read_latency_ns = 3'000;
  deep.load.queue_depth = 2;
  deep.load.requesters = 40;
  deep.load.verify_percent = 0;
  deep.load.runtime_ns = 1'000'000;
  const Result result = run(deep.device, deep.load);
  EXPECT_EQ(verdict(result), "\"VALID\"") << result.document();
}

// What the emulator is late for each answer counts, though it is little, where those who wait for slots add it up.
TEST(Verdict, LatenessDoesNotWidenItsOwnTolerance) {
  Case one;
  one.device.timing.read_latency_ns = 240'000;
  one.load.queues = 1;
  one.load.queue_depth = 16;
  one.load.rate_iops = 1.1 * 16 * 1e9 / 240'000;
  one.load.runtime_ns = 20'000'000;
  one.load.verify_percent = 0;
  EXPECT_EQ(verdict(run(one.device, one.load)), "\"VALID\"");
  one.load.disturbance = Theft{BenchActor::dispatcher, 2'100, 2'000, 0};
  const Result result = run(one.device, one.load);
  EXPECT_LT(number_in(result, "error_bound_ns", "p99"), 4'800) << "of 240 us, by itself no reason";
  EXPECT_EQ(verdict(result), "\"INVALID\"") << result.document();
}

// At the rate that its slots carry, a drive's queue grows by what is next to nothing for one request: no chance.
TEST(Verdict, AQueueThatTheSlotsCannotCarryIsNamed) {
  Case one;
  one.device.timing.read_latency_ns = 6'000;
  one.load.queues = 1;
  one.load.queue_depth = 2;
  one.load.rate_iops = 340'000;
  one.load.runtime_ns = 100'000'000;
  one.load.verify_percent = 0;
  const Result result = run(one.device, one.load);
  EXPECT_EQ(verdict(result), kLatenessOnly) << result.document();
  EXPECT_EQ(result.text("verdict_cause").find("\"requests wait for each other"), 0u) << result.text("verdict_cause");
}

// Requesters of several servers meet each other in this run and not in that, and then no tolerance says how far the
// tail may be off: neither does VALID.
TEST(Verdict, NothingIsAllowedThatIsNotStated) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Case one;
    one.device.seed = seed;
    one.device.timing.instances = 4;
    one.device.timing.read_iops = one.device.timing.write_iops = 1.5e6;
    one.device.timing.read_latency_ns = one.device.timing.write_latency_ns = 6'000;
    one.load.rw = seed % 2 == 0 ? "randread" : "randrw";
    one.load.read_share = 0.5;
    one.load.queues = 1;
    one.load.queue_depth = 2;
    one.load.ios = 20'000;
    one.load.virtual_poll_ns = 500;
    one.load.verify_percent = 0;
    const Result result = run(one.device, one.load);
    EXPECT_EQ(verdict(result), kLatenessOnly) << result.document();
    EXPECT_NE(result.text("verdict_cause").find("p99 latency 7.5"), std::string::npos) << result.text("verdict_cause");
  }
}

TEST(Verdict, OneFaultIsNoLicenceToBeLate) {
  Case one;
  one.device.faults = {"delay delay=100us at=1000"};
  one.load.rate_iops = 500'000;
  one.load.runtime_ns = 20'000'000;
  EXPECT_EQ(verdict(run(one.device, one.load)), "\"VALID\"");
  one.load.disturbance = Theft{BenchActor::driver, 5'000'000, 100'000, 0};
  EXPECT_EQ(verdict(run(one.device, one.load)), "\"INVALID\"");
  // What many faults did is told.
  one.device.faults = {"delay delay=100us every=100"};
  const Result result = run(one.device, one.load);
  EXPECT_EQ(verdict(result), kLatenessOnly);
  EXPECT_NE(result.text("verdict_cause").find("mean latency"), std::string::npos) << result.text("verdict_cause");
}

TEST(Verdict, ShortRunsAreNotInvalidForOneDirection) {
  Case one;
  one.device.seed = 20'012;
  one.device.subsystem.namespaces[0].size_bytes = 64 << 20;
  one.device.timing.read_iops = 2.47e6;
  one.device.timing.write_iops = 150'000;
  one.device.timing.read_latency_ns = 50'000;
  one.device.timing.write_latency_ns = 15'000;
  one.device.timing.unit_bytes = 32'768;
  one.device.timing.read_bytes_per_s = 14'500'000'000;
  one.device.timing.write_bytes_per_s = 4'100'000'000;
  one.load.rw = "rw";
  one.load.read_share = 0.7;
  one.load.block_sizes = {{65'536, 1}};
  one.load.queue_depth = 128;
  one.load.threads = 2;
  one.load.think_time_ns = 1'000;
  one.load.verify_percent = 0;
  one.load.fill = false;
  one.load.ios = 2'000;
  const Result result = run(one.device, one.load);
  EXPECT_EQ(verdict(result), kLatenessOnly) << result.document();
  EXPECT_NE(result.text("verdict_cause").find("p99 latency"), std::string::npos) << result.text("verdict_cause");
}

// A few microseconds are nothing to nine slow reads in ten, and much to a write that a buffer answers.
TEST(Verdict, LateWritesDoNotHideBehindReads) {
  Case one;
  one.device.timing.read_latency_ns = 800'000;
  one.device.timing.write_latency_ns = 10'000;
  one.load.rw = "randrw";
  one.load.read_share = 0.9;
  one.load.queue_depth = 64;
  one.load.rate_iops = 50'000;
  one.load.runtime_ns = 30'000'000;
  one.load.verify_percent = 0;
  EXPECT_EQ(verdict(run(one.device, one.load)), "\"VALID\"");
  for (const BenchActor from : {BenchActor::dispatcher, BenchActor::driver}) {
    one.load.disturbance = Theft{from, 5'000, 4'000, 0};
    const Result result = run(one.device, one.load);
    EXPECT_EQ(verdict(result), "\"INVALID\"") << result.document();
    EXPECT_NE(result.text("verdict_cause").find(": write mean latency"), std::string::npos)
        << result.text("verdict_cause");
  }
}

}  // namespace
}  // namespace flashmob
