// Replayed traces, and what is in them besides reads and writes.
#include <gtest/gtest.h>

#include <string>

#include "api/verdict_test_support.h"
#include "base/rng.h"

namespace flashmob {
namespace {

using test::Case;
using test::number_in;
using test::Result;
using test::run;
using test::Theft;
using test::trace_file;
using test::verdict;

// A Flush waits for what came before it. What comes while it is carried out makes it no less late.
TEST(Verdict, AFlushIsDueByWhatCameBeforeIt) {
  Case one;
  one.device.engine.workers = 1;
  one.device.timing.read_latency_ns = 400'000;
  one.load.queues = 1;
  one.load.queue_depth = 512;
  one.load.verify_percent = 0;
  std::string lines = "fio version 3 iolog\n0 f add\n0 f open\n0 f sync\n";
  for (int i = 0; i < 350; ++i) lines += "0 f read " + std::to_string(i * 512) + " 512\n";
  one.load.trace_path = trace_file(lines);
  one.load.trace_format = "fio";
  EXPECT_LT(number_in(run(one.device, one.load), "lateness_ns", "max"), 1'000);
  // The reads are not due before it is over.
  one.load.disturbance = Theft{BenchActor::worker, 1'000'000'000, 300'000, 0};
  EXPECT_GT(number_in(run(one.device, one.load), "lateness_ns", "max"), 100'000);
}

// Its target is known at its fetch: what is fetched after it, of the same batch too, does not make it later.
TEST(Verdict, AFlushWaitsForWhatWasFetchedBeforeItAlone) {
  std::string lines = "fio version 3 iolog\n0 f add\n0 f open\n";
  for (int burst = 0; burst < 30; ++burst) {
    const std::string at = std::to_string(burst * 2'000);
    lines += at + " f sync\n";
    for (int i = 0; i < 128; ++i)
      lines += at + " f write " + std::to_string((burst * 128 + i) % 1'000 * 4096) + " 4096\n";
  }
  for (const unsigned workers : {0u, 1u}) {
    Case one;
    one.device.timing.unit_bytes = 4096;
    one.device.timing.write_iops = 150'000;
    one.device.timing.write_latency_ns = 15'000;
    one.device.engine.workers = workers;
    one.load.queues = 1;
    one.load.queue_depth = 256;
    one.load.verify_percent = 0;
    one.load.trace_path = trace_file(lines);
    one.load.trace_format = "fio";
    const Result result = run(one.device, one.load);
    EXPECT_EQ(verdict(result), "\"VALID\"") << workers << result.document();
    EXPECT_NEAR(number_in(result, "latency_ns", "mean"), number_in(result, "model", "mean"), 500) << workers;
  }
}

// Cut off before its end, a trace is counted as an open loop is.
TEST(Verdict, ATraceThatIsCutOffIsValid) {
  std::string lines;
  Rng rng(3);
  for (int i = 0; i < 20'000; ++i)
    lines += "1," + std::string(rng.below(2) == 0 ? "R," : "W,") + std::to_string(rng.below(1'000) * 4096) + ",4096," +
             std::to_string(i) + "\n";
  for (unsigned seed = 1; seed <= 6; ++seed) {
    Case one;
    one.device.seed = seed;
    one.device.timing.unit_bytes = 4096;
    one.device.timing.read_iops = 2.5e6;
    one.device.timing.write_iops = 150'000;
    one.load.queues = 8;
    one.load.queue_depth = 128;
    one.load.ios = 0;
    one.load.runtime_ns = 3'000'000;
    one.load.trace_as_fast = true;
    one.load.trace_path = trace_file(lines);
    const Result result = run(one.device, one.load);
    EXPECT_TRUE(verdict(result).starts_with("\"VALID")) << seed << result.document();
  }
}

// A command that is never answered is given up, as in a loop: the trace ends with it.
TEST(Verdict, ATraceWithALostCommandEnds) {
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "1,R," + std::to_string(i * 4096) + ",4096," + std::to_string(i) + "\n";
  for (const bool as_fast : {false, true}) {
    Case one;
    one.device.faults = {"lose at=20"};
    one.load.trace_as_fast = as_fast;
    one.load.trace_path = trace_file(lines);
    const Result result = run(one.device, one.load);
    EXPECT_EQ(result.number("unanswered"), 1) << result.document();
    EXPECT_EQ(result.number("ios"), 199);
    EXPECT_LT(result.number("runtime_seconds"), 60) << result.document();
  }
}

// Where none is left to ask with, nothing more is measured.
TEST(Verdict, ATraceAsFastAsItGoesEndsWhereAllOfItsSlotsAreLost) {
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "1,R," + std::to_string(i * 4096) + ",4096," + std::to_string(i) + "\n";
  Case one;
  one.device.faults = {"lose at=20", "lose at=40"};
  one.load.queues = 1;
  one.load.queue_depth = 2;
  one.load.trace_as_fast = true;
  one.load.trace_path = trace_file(lines);
  const Result result = run(one.device, one.load);
  EXPECT_EQ(result.number("unanswered"), 2) << result.document();
  const double served_s = result.number("ios") * number_in(result, "latency_ns", "mean") / 1e9;
  EXPECT_LT(result.number("runtime_seconds"), served_s) << result.document();
}

// What costs the model nothing counts as what does: the whole trace is measured.
TEST(Verdict, DeallocationsCountInTheModelsRate) {
  std::string lines = "fio version 3 iolog\n0 f add\n0 f open\n";
  for (int i = 0; i < 1'000; ++i)
    lines += (i % 20 == 19 ? "0 f trim " : "0 f write ") + std::to_string(i * 4096) + " 4096\n";
  for (const bool as_fast : {false, true}) {
    Case one;
    one.device.timing.unit_bytes = 4096;
    one.device.timing.write_iops = 200'000;
    one.load.queues = 8;
    one.load.queue_depth = 256;
    one.load.trace_as_fast = as_fast;
    one.load.trace_path = trace_file(lines);
    one.load.trace_format = "fio";
    const Result result = run(one.device, one.load);
    EXPECT_TRUE(verdict(result).starts_with("\"VALID")) << result.document();
    EXPECT_NEAR(number_in(result, "model", "iops") / result.number("iops"), 1, 0.001) << result.document();
  }
}

// In virtual time copies take none: who is due at once waits for no megabytes that were fetched before.
TEST(Verdict, NobodyWaitsForCopiesThatTakeNoTime) {
  std::string lines = "fio version 3 iolog\n0 f add\n0 f open\n";
  for (int i = 0; i < 80; ++i) lines += "0 f read " + std::to_string(i % 40 << 20) + " 1048576\n";
  lines += "0 f trim 0 4096\n0 f sync\n";
  for (const unsigned workers : {0u, 1u}) {
    Case one;
    one.device.subsystem.namespaces[0].size_bytes = 40 << 20;
    one.device.controller.max_transfer_bytes = 1 << 20;
    one.device.engine.workers = workers;
    one.load.queues = 1;
    one.load.queue_depth = 256;
    one.load.trace_path = trace_file(lines);
    one.load.trace_format = "fio";
    const Result result = run(one.device, one.load);
    EXPECT_LE(number_in(result, "lateness_ns", "max"), 200) << workers;
    EXPECT_TRUE(verdict(result).starts_with("\"VALID")) << workers << result.document();
  }
}

}  // namespace
}  // namespace flashmob
