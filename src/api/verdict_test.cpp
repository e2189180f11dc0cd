// The verdict from end to end, in virtual time: whatever the machine does to dispatcher, worker or driver, a run whose
// host saw something else than the model is not VALID, and a run to which nothing was done is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "api/bench_test_support.h"
#include "base/rng.h"

namespace flashmob {
namespace {

using test::Result;
using test::run;
using test::small_device;
using test::virtual_run;

struct Case {
  DeviceConfig device = small_device();
  BenchOptions load = virtual_run();
};

// Time taken from one kind of thread: each period for a while, from a moment on.
struct Theft {
  BenchActor from = BenchActor::dispatcher;
  std::uint64_t every_ns = 1;
  std::uint64_t lasts_ns = 0;
  std::uint64_t begins_ns = 0;

  std::uint64_t operator()(BenchActor actor, std::uint64_t now_ns) const {
    // The clock starts at one second; set-up is left alone.
    const std::uint64_t since_ns = now_ns - 1'000'000'000;
    if (actor != from || since_ns < begins_ns) return 0;
    const std::uint64_t within_ns = (since_ns - begins_ns) % every_ns;
    return within_ns < lasts_ns ? now_ns + lasts_ns - within_ns : 0;
  }
};

constexpr char kLatenessOnly[] = "\"VALID (lateness only)\"";

std::string verdict(const Result& result) { return result.text("verdict"); }

// Sub-objects repeat names: the number behind `name` after `object`.
double number_in(const Result& result, const std::string& object, const std::string& name) {
  const std::string& text = result.document();
  const std::size_t at = text.find("\"" + name + "\":", text.find("\"" + object + "\":{"));
  if (text.find("\"" + object + "\":{") == std::string::npos || at == std::string::npos) {
    ADD_FAILURE() << object << "." << name << " is not in the result";
    return std::numeric_limits<double>::quiet_NaN();
  }
  return std::strtod(text.c_str() + at + name.size() + 3, nullptr);
}

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
    // Nothing takes time in virtual time, so there are no gaps to name: the late side is.
    const std::string who = from == BenchActor::dispatcher ? "frontend late" : "host-bound";
    EXPECT_NE(result.text("verdict_cause").find(who), std::string::npos) << result.text("verdict_cause");
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

// Written anew for each run; its path.
std::string trace_file(const std::string& lines) {
  const std::string path = testing::TempDir() + "/flashmob_verdict_trace.csv";
  std::ofstream(path) << lines;
  return path;
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

// Where few blocks are asked for by many, verification moves requests away from each other.
TEST(Verdict, RequestsThatVerificationMovesAreNotJudged) {
  Case one;
  one.device.timing.instances = 16;
  one.device.timing.read_iops = one.device.timing.write_iops = 1e6;
  one.load.rw = "randrw";
  one.load.read_share = 0.5;
  one.device.subsystem.namespaces[0].size_bytes = 64 << 10;
  one.load.queue_depth = 32;
  one.load.ios = 10'000;
  for (const std::string distribution : {"uniform", "hotcold:0.9:0.1"}) {
    one.load.distribution = distribution;
    const Result result = run(one.device, one.load);
    EXPECT_EQ(verdict(result), kLatenessOnly) << distribution << result.document();
    EXPECT_NE(result.text("verdict_cause").find("other addresses"), std::string::npos) << result.text("verdict_cause");
  }
}

// A random load on a random device. Even seeds are open loops.
Case random_case(std::uint64_t seed) {
  Rng rng(seed * 7919);
  Case one;
  const auto pick = [&rng](auto... values) {
    const double all[] = {static_cast<double>(values)...};
    return all[rng.below(sizeof...(values))];
  };
  one.device.seed = seed;
  TimingConfig& timing = one.device.timing;
  timing.instances = static_cast<std::uint32_t>(pick(1, 1, 8));
  timing.read_iops = timing.write_iops = pick(2e5, 1e6, 3e6);
  timing.read_latency_ns = timing.write_latency_ns = static_cast<std::uint64_t>(pick(45'000, 60'000, 90'000));
  one.device.engine.workers = static_cast<std::uint32_t>(pick(0, 0, 1));
  one.load.queues = static_cast<std::uint32_t>(pick(1, 2, 4));
  one.load.queue_depth = static_cast<std::uint32_t>(pick(1, 8, 32, 64));
  one.load.rw = rng.below(2) != 0 ? "randread" : "randrw";
  one.load.read_share = 0.7;
  // Where requests are verified, few may want what another one holds: they go elsewhere, to other servers.
  one.load.verify_percent = rng.below(4) == 0 ? 1 : 0;
  if (one.load.verify_percent != 0) one.device.subsystem.namespaces[0].size_bytes = 16 << 20;
  if (rng.below(4) == 0) {
    one.load.block_sizes = {{512, 3}, {4096, 1}};
    timing.unit_bytes = 4096;
  }
  one.load.threads = static_cast<std::uint32_t>(1 + rng.below(std::min(2u, one.load.queues)));
  one.load.ios = 500 + rng.below(1'500);
  if (seed % 2 == 0) {
    // Not beyond what the slots carry: a queue that only grows adds up the grain of virtual time, too.
    one.load.queue_depth = 512;
    one.load.rate_iops = timing.read_iops * pick(0.1, 0.5, 0.8, 0.95);
    one.load.arrivals = rng.below(2) != 0 ? "poisson" : "fixed";
    // By time, so that a disturbance of the ramp leaves the measured arrivals what they are; and long enough for a
    // percentile not to depend on a few requests at the ends.
    one.load.runtime_ns = static_cast<std::uint64_t>(static_cast<double>(5 * one.load.ios) * 1e9 / one.load.rate_iops);
    one.load.ios = 0;
  } else if (rng.below(3) == 0) {
    one.load.think_time_ns = 20'000;
  } else if (rng.below(3) == 0) {
    one.load.requesters = 2ull * one.load.queues * one.load.queue_depth;
  }
  return one;
}

Theft random_theft(std::uint64_t seed, bool has_worker) {
  Rng rng(seed * 104'729);
  Theft theft;
  const std::uint64_t who = rng.below(has_worker ? 3 : 2);
  theft.from = who == 0 ? BenchActor::dispatcher : who == 1 ? BenchActor::driver : BenchActor::worker;
  theft.lasts_ns = 100 << rng.below(12);
  theft.every_ns = theft.lasts_ns * (2 + rng.below(60));
  theft.begins_ns = rng.below(4) * 500'000;
  if (rng.below(5) == 0) theft.every_ns = 1'000'000'000;  // once
  return theft;
}

// A tenth of them unless FLASHMOB_EVERY_SEED is set (some ten minutes); fewer where every access is checked.
std::uint64_t seeds(std::uint64_t all) {
  if (std::getenv("FLASHMOB_EVERY_SEED") != nullptr) return all;
#if defined(FLASHMOB_ASAN) || FLASHMOB_TSAN
  return all / 100;
#else
  return all / 10;
#endif
}

TEST(Verdict, UndisturbedRunsAreValid) {
  std::uint64_t judged = 0;
  const std::uint64_t all = seeds(5'000);
  for (std::uint64_t seed = 1; seed <= all; ++seed) {
    const Case one = random_case(seed);
    const Result result = run(one.device, one.load);
    // Of short closed loops chance alone may explain more than the verdict allows, and it says so.
    ASSERT_TRUE(verdict(result) == "\"VALID\"" || verdict(result) == kLatenessOnly) << seed << result.document();
    judged += verdict(result) == "\"VALID\"";
  }
  EXPECT_GT(judged, all / 2);
}

// Held against a run of the same seed to which nothing was done, not against the yardstick, which is on trial here.
TEST(Verdict, DisturbedRunsAreValidOnlyWhereTheHostSawTheModel) {
  std::uint64_t invalid = 0;
  const std::uint64_t all = seeds(10'000);
  for (std::uint64_t seed = 1; seed <= all; ++seed) {
    Case one = random_case(seed);
    one.load.disturbance = random_theft(seed, one.device.engine.workers != 0);
    const Result result = run(one.device, one.load);
    if (verdict(result) == "\"INVALID\"") {
      ++invalid;
      continue;
    }
    if (verdict(result) == kLatenessOnly) continue;
    ASSERT_EQ(verdict(result), "\"VALID\"") << result.document();
    one.load.disturbance = {};
    const Result clean = run(one.device, one.load);
    // A poll period's grain is in both runs; in a closed loop on several instances chance is, too.
    const auto off = [&](const char* name) {
      // Those of the host stand behind the model's, whose last part is the allowance.
      return std::fabs(number_in(result, "allowance", name) - number_in(clean, "allowance", name));
    };
    constexpr double kGrainNs = 300;
    for (const std::string name : {"mean", "p99"}) {
      const double limit_ns =
          number_in(result, "tolerance", name + "_ns") + number_in(result, "allowance", name + "_ns") + kGrainNs;
      // A closed loop has many steady states, and a disturbance may move it from one to another: in some of them a
      // request meets one or two others and waits for their service, as whoever waits for its slot does.
      const bool may_meet = one.load.rate_iops == 0 && name == "p99";
      const double rounds = one.load.requesters == 0 ? 1 : 2;
      const double met_ns =
          may_meet ? 2 * rounds * (1e9 * one.device.timing.instances / one.device.timing.read_iops) : 0;
      ASSERT_LE(off(name.c_str()), limit_ns + met_ns) << name << ", seed " << seed << result.document();
    }
  }
  // The test would say nothing if hardly any run were disturbed enough, or hardly any little enough.
  EXPECT_GT(invalid, all / 5);
  EXPECT_LT(invalid, all * 19 / 20);
}

}  // namespace
}  // namespace flashmob
