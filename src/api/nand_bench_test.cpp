// Whole runs on model `nand`, in virtual time: true to the model from the state in which they begin, and reproducible.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "api/bench_test_support.h"
#include "flashmob/error.h"

namespace flashmob {
namespace {

using test::Result;
using test::run;
using test::virtual_run;

// 4 dies with 15 % of spare space; small, so that a run of some ten thousand writes goes round it.
DeviceConfig nand_device() {
  DeviceConfig config = test::small_device();
  config.subsystem.namespaces[0].size_bytes = 32 << 20;
  config.timing.model = "nand";
  config.timing.unit_bytes = 4096;
  config.timing.link_bytes_per_s = 3'000'000'000;
  NandConfig& nand = config.timing.nand;
  nand.channels = nand.dies_per_channel = 2;
  nand.planes = nand.bits_per_cell = 1;
  nand.read_ns = {50'000};
  nand.program_ns = 200'000;
  nand.over_provisioning = 0.15;
  nand.buffer_bytes = 1 << 20;
  return config;
}

BenchOptions run_of(const char* rw, std::uint64_t ios) {
  BenchOptions options = virtual_run();
  options.rw = rw;
  options.block_sizes = {{4096, 1.0}};
  options.runtime_ns = UINT64_MAX / 4;
  options.ios = ios;
  return options;
}

TEST(NandBench, ReadsOfAFilledDriveAreTrueToItsDies) {
  BenchOptions options = run_of("randread", 200'000);
  options.queue_depth = 8;
  const Result result = run(nand_device(), options);
  EXPECT_EQ(result.text("verdict"), "\"VALID\"") << result.document();
  // Sixteen random reads keep four dies busy for most of the time.
  EXPECT_LT(result.number("iops"), 4 / 50e-6);
  EXPECT_GT(result.number("iops"), 0.8 * 4 / 50e-6);
  EXPECT_EQ(result.text("unwritten_reads"), "0");
  EXPECT_EQ(result.text("verify_errors"), "0");
  EXPECT_EQ(result.text("host_written_bytes"), "0");
}

TEST(NandBench, ReadsOfAnEmptyDriveMeetItsMapAlone) {
  BenchOptions options = run_of("randread", 10'000);
  options.fill = false;
  options.verify_percent = 0;
  const Result result = run(nand_device(), options);
  EXPECT_EQ(result.text("verdict"), "\"VALID\"") << result.document();
  EXPECT_EQ(result.text("flash_reads"), "0");
  EXPECT_GT(result.number("iops"), 400'000);
}

TEST(NandBench, WritesThatCollectGarbageAreTrueToTheModel) {
  BenchOptions options = run_of("randwrite", 200'000);
  options.queue_depth = 4;
  const Result first = run(nand_device(), options);
  EXPECT_EQ(first.text("verdict"), "\"VALID\"") << first.document();
  EXPECT_EQ(first.number("host_written_bytes"), 200'000 * 4096.0);
  // What greedy cleaning gives in the long run is 3.96 (nand_test); this one begins with a drive in order.
  EXPECT_GT(first.number("write_amplification"), 2.0);
  EXPECT_LT(first.number("write_amplification"), 4.4);
  EXPECT_EQ(first.reproducible(), run(nand_device(), options).reproducible());
}

// What a long run of writes comes to, from the beginning.
TEST(NandBench, ASteadyStateNeedNotBeWritten) {
  BenchOptions options = run_of("randwrite", 20'000);
  options.precondition = "steady";
  const Result result = run(nand_device(), options);
  EXPECT_EQ(result.text("verdict"), "\"VALID\"") << result.document();
  EXPECT_GT(result.number("mean_erases"), 4);
  options = run_of("randwrite", 200'000);
  const double written = run(nand_device(), options).number("write_amplification");
  EXPECT_NEAR(result.number("write_amplification"), written, 0.05 * written);
  options.precondition = "steady";
  DeviceConfig other = nand_device();
  other.timing.model = "simple";
  EXPECT_THROW(run(other, options), ConfigError);
}

// A run that is stopped while its drive is made ready: neither that, nor what the model gives for nothing, is waited
// for.
TEST(NandBench, AStoppedRunDoesNotWaitForASteadyState) {
  for (const char* clock : {"virtual", "real"}) {
    BenchOptions options = run_of("randwrite", 20'000);
    options.precondition = "steady";
    options.clock = clock;
    Bench bench(nand_device(), options);
    bench.cancel();
    const Result result(bench.run());
    EXPECT_EQ(result.text("ios"), "0");
    EXPECT_EQ(result.text("cancelled"), "true");
    EXPECT_EQ(result.text("verdict"), "\"NONE\"");
    EXPECT_EQ(result.text("model"), "null");
    EXPECT_EQ(result.text("flash"), "null") << result.document();
    EXPECT_EQ(bench.progress().phase, "done");
  }
}

// Streams fall in step over the dies, or do not, by nanoseconds.
TEST(NandBench, StreamsThatNobodyDisturbedAreNotInvalid) {
  for (const char* rw : {"read", "write", "rw"}) {
    for (unsigned seed = 1; seed <= 4; ++seed) {
      DeviceConfig device = nand_device();
      device.seed = seed;
      BenchOptions options = run_of(rw, 20'000);
      options.queues = 1 + seed;
      options.queue_depth = 4 * seed;
      options.block_sizes = {{seed % 2 == 0 ? 16384u : 4096u, 1.0}};
      const Result result = run(device, options);
      EXPECT_TRUE(result.text("verdict").starts_with("\"VALID")) << rw << " seed " << seed << result.document();
    }
  }
}

// Who waits behind a program or an erase is decided by less than a command's way to the device takes.
TEST(NandBench, OpenLoopsThatNobodyDisturbedAreNotInvalid) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    DeviceConfig device = nand_device();
    device.seed = seed;
    BenchOptions options = run_of("randrw", 3'000);
    options.block_sizes = {{4096, 0.8}, {65536, 0.2}};
    options.queues = 4;
    options.queue_depth = 64;
    options.rate_iops = 5'000;
    const Result result = run(device, options);
    EXPECT_TRUE(result.text("verdict").starts_with("\"VALID")) << seed << result.document();
  }
}

// A trim is carried out after the write that was fetched behind it, and takes nothing of it away.
TEST(NandBench, AWriteBehindATrimIsThere) {
  std::string lines = "fio version 3 iolog\n0 f add\n0 f open\n";
  for (int i = 0; i < 100; ++i)
    for (const char* what : {" f trim ", " f write "})
      lines += std::to_string(i * 2'000) + what + std::to_string(i * 65536) + " 65536\n";
  for (int i = 0; i < 100; ++i)
    lines += std::to_string(400'000 + i * 500) + " f read " + std::to_string(i * 65536) + " 4096\n";
  for (const unsigned workers : {0u, 1u}) {
    DeviceConfig device = nand_device();
    device.engine.workers = workers;
    BenchOptions options = run_of("randread", 0);
    options.queues = 1;
    options.queue_depth = 128;
    options.trace_path = testing::TempDir() + "/flashmob_nand_trace." + std::to_string(getpid());
    options.trace_format = "fio";
    std::ofstream(options.trace_path) << lines;
    const Result result = run(device, options);
    EXPECT_EQ(result.text("unwritten_reads"), "0") << workers;
    EXPECT_TRUE(result.text("verdict").starts_with("\"VALID")) << workers << result.document();
  }
}

TEST(NandBench, MixesOverSeveralUnitsAreVerified) {
  DeviceConfig device = nand_device();
  device.engine.units = 2;
  device.engine.workers = 1;
  BenchOptions options = run_of("randrw", 30'000);
  options.read_share = 0.7;
  const Result result = run(device, options);
  EXPECT_NE(result.text("verdict"), "\"INVALID\"") << result.document();
  EXPECT_EQ(result.text("verify_errors"), "0") << result.text("verify_first_error");
  EXPECT_GT(result.number("erased_superblocks"), 0);
}

}  // namespace
}  // namespace flashmob
