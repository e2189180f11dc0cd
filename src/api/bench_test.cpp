// Whole runs: reproducible and verified in virtual time, free of races in real time.
#include "flashmob/bench.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "api/bench_test_support.h"
#include "base/check.h"

namespace flashmob {
namespace {

using test::Result;
using test::run;
using test::small_device;
using test::virtual_run;

void expect_verified(const Result& result) {
  EXPECT_EQ(result.text("verify_errors"), "0") << result.text("verify_first_error");
  EXPECT_GT(result.number("verified"), 100) << result.document();
  EXPECT_NE(result.document().find("\"errors\":{}"), std::string::npos) << result.document();
}

TEST(Bench, EqualSeedsGiveEqualResults) {
  const Result first = run(small_device(), virtual_run());
  const Result second = run(small_device(), virtual_run());
  EXPECT_EQ(first.reproducible(), second.reproducible());
  EXPECT_NE(first.reproducible().find("\"latency_cdf\""), std::string::npos);
  DeviceConfig other = small_device();
  other.seed = 2;
  const auto without_seed = [](const Result& result) {
    return result.reproducible().substr(0, result.reproducible().find("\"options\""));
  };
  EXPECT_NE(without_seed(first), without_seed(run(other, virtual_run())));
}

TEST(Bench, SaturatedItIsTrueToItsModel) {
  BenchOptions options = virtual_run();
  options.queue_depth = 64;
  const Result result = run(small_device(), options);
  EXPECT_EQ(result.text("verdict"), "\"VALID\"") << result.text("verdict_cause");
  EXPECT_NEAR(result.number("iops"), 1e6, 0.01e6);
  EXPECT_NEAR(result.number("model_iops"), 1e6, 0.01e6);
  expect_verified(result);
}

// In real time, on threads of its own, whatever shares a vector.
TEST(Bench, ADriverThatSleepsIsAnsweredInFull) {
  for (const char* const completion : {"interrupt", "hybrid"}) {
    DeviceConfig device = small_device();
    device.controller.interrupt_vectors = 3;
    BenchOptions options;
    options.completion = completion;
    options.queues = 4;
    options.threads = 2;
    options.queue_depth = 4;
    options.rw = "randrw";
    options.read_share = 0.5;
    options.ramp_ns = 20'000'000;
    options.runtime_ns = 200'000'000;
    options.verify_percent = 100;
    const Result result = run(device, options);
    EXPECT_EQ(result.text("verify_errors"), "0") << result.text("verify_first_error");
    EXPECT_GT(result.number("ios"), 10) << completion;
    EXPECT_GT(result.number("sleeps"), 10) << completion;
    EXPECT_NE(result.document().find("\"errors\":{}"), std::string::npos) << result.document();
    options.clock = "virtual";
    EXPECT_THROW(run(device, options), ConfigError);
  }
}

TEST(Bench, LightlyLoadedItTakesItsLatency) {
  BenchOptions options = virtual_run();
  options.queues = 1;
  options.queue_depth = 1;
  const Result result = run(small_device(), options);
  EXPECT_EQ(result.text("verdict"), "\"VALID\"") << result.text("verdict_cause");
  EXPECT_NEAR(result.number("iops"), 50'000, 1'500);
}

TEST(Bench, WritesAndMixesVerifyOnCrowdedSpace) {
  for (const char* rw : {"randwrite", "write", "randrw", "rw"}) {
    DeviceConfig device = small_device();
    device.subsystem.namespaces[0].size_bytes = 64 << 10;  // 128 sectors for 128 commands
    BenchOptions options = virtual_run();
    options.rw = rw;
    options.read_share = 0.5;
    options.queue_depth = 64;
    const Result result = run(device, options);
    EXPECT_EQ(result.text("verify_errors"), "0") << rw << result.document();
    EXPECT_GT(result.number("write_ios"), 1'000) << rw;
    if (std::string(rw).ends_with("rw")) expect_verified(result);
    EXPECT_NE(result.document().find("\"errors\":{}"), std::string::npos) << result.document();
  }
}

TEST(Bench, BlockSizesUpToTheLargestTransfer) {
  DeviceConfig device = small_device();
  device.subsystem.namespaces[0].size_bytes = 4 << 20;
  BenchOptions options = virtual_run(500'000, 15'000'000);
  options.rw = "randrw";
  options.read_share = 0.5;
  options.block_sizes = {{512, 4}, {4096, 2}, {12288, 1}, {131072, 1}};
  options.queue_depth = 8;
  expect_verified(run(device, options));
}

TEST(Bench, FourKibBlocks) {
  DeviceConfig device = small_device();
  device.subsystem.namespaces[0].lba_bytes = 4096;
  BenchOptions options = virtual_run();
  options.rw = "randrw";
  options.read_share = 0.7;
  options.block_sizes = {{4096, 1}};
  expect_verified(run(device, options));
}

TEST(Bench, GeneratedMedia) {
  DeviceConfig device = small_device();
  device.subsystem.namespaces[0].media = "generated";
  device.subsystem.namespaces[0].size_bytes = std::uint64_t{1} << 40;
  expect_verified(run(device, virtual_run()));
}

TEST(Bench, UnitsAndWorkersInVirtualTime) {
  for (const std::uint32_t units : {1u, 2u}) {
    for (const std::uint32_t workers : {0u, 1u, 2u}) {
      DeviceConfig device = small_device();
      device.engine.units = units;
      device.engine.workers = workers;
      BenchOptions options = virtual_run();
      options.rw = "randrw";
      options.read_share = 0.5;
      options.threads = 2;
      options.queues = 4;
      const Result result = run(device, options);
      expect_verified(result);
      EXPECT_EQ(result.reproducible(), run(device, options).reproducible()) << units << " units, " << workers;
    }
  }
}

TEST(Bench, AnOpenLoopHasItsRate) {
  for (const char* arrivals : {"fixed", "poisson"}) {
    BenchOptions options = virtual_run();
    options.rate_iops = 200'000;
    options.arrivals = arrivals;
    options.queue_depth = 64;
    options.runtime_ns = 20'000'000;
    const Result result = run(small_device(), options);
    EXPECT_NEAR(result.number("iops"), 200'000, arrivals[0] == 'f' ? 2'000 : 12'000) << arrivals;
    expect_verified(result);
  }
}

TEST(Bench, ThinkTime) {
  BenchOptions options = virtual_run();
  options.requesters = 4;
  options.think_time_ns = 80'000;
  options.runtime_ns = 50'000'000;
  const Result result = run(small_device(), options);
  EXPECT_NEAR(result.number("iops"), 4e9 / 100'000, 2'000);
  EXPECT_EQ(result.text("verdict"), "\"VALID\"") << result.text("verdict_cause");
}

TEST(Bench, WithoutData) {
  DeviceConfig device = small_device();
  device.engine.move_data = false;
  const Result result = run(device, virtual_run());
  EXPECT_EQ(result.text("data_moved"), "false");
  EXPECT_EQ(result.text("verified"), "0");
  EXPECT_EQ(result.text("verify_errors"), "0");
  EXPECT_NEAR(result.number("iops"), 1e6, 0.02e6);
}

TEST(Bench, WithoutAModelThereIsNoVerdict) {
  DeviceConfig device = small_device();
  device.timing.model = "none";
  const Result result = run(device, virtual_run());
  EXPECT_EQ(result.text("verdict"), "\"NONE\"");
  EXPECT_EQ(result.text("model_iops"), "null");
  expect_verified(result);
}

TEST(Bench, ByCount) {
  BenchOptions options = virtual_run();
  options.runtime_ns = 0;
  options.ios = 1'000;
  const Result result = run(small_device(), options);
  EXPECT_GE(result.number("ios"), 1'000);
  EXPECT_LE(result.number("ios"), 1'032);
}

class BenchFile : public testing::Test {
 protected:
  BenchFile() {
    std::string name = (std::filesystem::temp_directory_path() / "flashmob_bench_XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~BenchFile() override { std::filesystem::remove_all(directory_); }
  std::string make(const std::string& name, const std::string& content) const {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << content;
    return directory_ + "/" + name;
  }
  std::string directory_;
};

TEST_F(BenchFile, ReplaysATrace) {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += "1," + std::string(i % 3 == 0 ? "W" : "R") + "," + std::to_string(i * 37 % 200 * 4096) + "," +
            std::to_string(512 << (i % 5)) + "," + std::to_string(1'000 + i * 10) + "\n";
  }
  BenchOptions options = virtual_run();
  options.trace_path = make("trace.csv", text);
  for (const bool fast : {false, true}) {
    options.trace_as_fast = fast;
    const Result result = run(small_device(), options);
    EXPECT_EQ(result.text("ios"), "400") << result.document();
    EXPECT_EQ(result.number("write_ios"), 134);
    expect_verified(result);
    if (fast)
      EXPECT_LT(result.number("runtime_seconds"), 0.0035);
    else
      EXPECT_NEAR(result.number("runtime_seconds"), 0.004, 0.0005);
    EXPECT_EQ(result.reproducible(), run(small_device(), options).reproducible());
  }
}

TEST_F(BenchFile, AShortTraceEndsAlsoWhereACountWasGiven) {
  BenchOptions options = virtual_run();
  options.trace_path = make("trace.csv", "1,R,0,512,0\n1,W,4096,512,5\n1,R,4096,512,900\n");
  options.ios = 1'000;
  EXPECT_EQ(run(small_device(), options).text("ios"), "3");
}

TEST_F(BenchFile, AFileIsItsOwnTruth) {
  std::string content(300'000, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 2654435761u >> 13);
  for (const char* kind : {"cow:", "file:"}) {
    const std::string path = make("disk", content);
    DeviceConfig device = small_device();
    device.subsystem.namespaces[0].media = kind + path;
    device.subsystem.namespaces[0].size_bytes = 300'000 / 512 * 512;
    BenchOptions options = virtual_run();
    expect_verified(run(device, options));
    if (std::string(kind) == "cow:") {
      options.rw = "randrw";
      options.read_share = 0.6;
      expect_verified(run(device, options));
      std::ifstream back(path, std::ios::binary);
      EXPECT_EQ(std::string(std::istreambuf_iterator<char>(back), {}), content) << "copy-on-write wrote to the file";
    }
  }
}

// With a store several times its cache, filled through it, and commands of several sizes from two units.
TEST_F(BenchFile, AFilePastThePageCacheIsVerifiedAndLastsLonger) {
  const std::string path = make("direct", "");
  DeviceConfig device = small_device();
  device.subsystem.namespaces[0] = {.size_bytes = 8 << 20, .media = "direct:" + path, .cache_bytes = 1 << 20};
  device.engine.units = 2;
  BenchOptions options = virtual_run();
  options.rw = "randrw";
  options.block_sizes = {{512, 1}, {4096, 2}, {12288, 1}};
  expect_verified(run(device, options));
  for (const bool is_virtual : {false, true}) {
    options.clock = is_virtual ? "virtual" : "real";
    options.runtime_ns = is_virtual ? 2'000'000 : 300'000'000;
    options.rw = "randread";
    device.subsystem.namespaces[0].size_bytes = 0;
    expect_verified(run(device, options));
  }
  options.rw = "randrw";
  options.runtime_ns = 2'000'000;
  EXPECT_EQ(run(device, options).reproducible(), run(device, options).reproducible());
}

TEST(Bench, OptionsThatCannotBeAreErrors) {
  const auto expect_error = [](auto&& change, const std::string& part) {
    DeviceConfig device = small_device();
    BenchOptions options = virtual_run();
    change(device, options);
    try {
      Bench(device, options).run();
      ADD_FAILURE() << part;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  using D = DeviceConfig;
  using O = BenchOptions;
  expect_error([](D&, O& o) { o.clock = "wall"; }, "clock");
  expect_error([](D&, O& o) { o.queues = 0; }, "queues");
  expect_error([](D&, O& o) { o.queue_depth = 0; }, "queue_depth");
  expect_error([](D&, O& o) { o.queue_entries = o.queue_depth; }, "queue_entries");
  expect_error([](D&, O& o) { o.threads = o.queues + 1; }, "threads");
  expect_error([](D&, O& o) { o.verify_percent = 101; }, "verify_percent");
  expect_error([](D&, O& o) { o.rate_iops = -1; }, "rate_iops");
  expect_error([](D&, O& o) { o.arrivals = "often"; }, "arrivals");
  expect_error([](D&, O& o) { o.block_sizes.clear(); }, "block_sizes");
  expect_error([](D&, O& o) { o.runtime_ns = 0; }, "runtime_ns");
  expect_error([](D&, O& o) { o.queues = 17; }, "max_queue_pairs");
  expect_error([](D&, O& o) { o.block_sizes = {{2 << 20, 1}}; }, "max_transfer_bytes");
  expect_error([](D&, O& o) { o.requesters = 10'000'000; }, "at most 2097152");
  expect_error([](D& d, O&) { d.timing.read_iops = 0; }, "read_iops");
  expect_error([](D&, O& o) { o.trace_path = "/does/not/exist"; }, "/does/not/exist");
}

TEST(Bench, CancelBeforeAndDuringARun) {
  BenchOptions options = virtual_run();
  options.runtime_ns = 3'600'000'000'000;
  {
    Bench bench(small_device(), options);
    bench.cancel();
    EXPECT_NE(bench.run().find("flashmob-result"), std::string::npos);
  }
  Bench bench(small_device(), options);
  std::thread canceller([&] {
    while (bench.progress().ios < 2'000) std::this_thread::yield();
    bench.cancel();
  });
  const Result result(bench.run());
  canceller.join();
  EXPECT_GT(result.number("ios"), 0);
  EXPECT_EQ(bench.progress().phase, "done");
}

// The one that ThreadSanitizer is for: dispatchers, workers, drivers and a watcher, all on threads of their own.
TEST(Bench, RealThreadsVerifyWhatTheyMove) {
  DeviceConfig device = small_device();
  device.engine.units = 2;
  device.engine.workers = 1;
  device.timing.read_iops = device.timing.write_iops = 50'000;
  BenchOptions options;
  options.rw = "randrw";
  options.read_share = 0.5;
  options.queues = 4;
  options.queue_depth = 16;
  options.threads = 2;
  options.ramp_ns = 20'000'000;
  options.runtime_ns = 200'000'000;
  options.verify_percent = 100;
  Bench bench(device, options);
  std::atomic<bool> over{false};
  std::thread watcher([&] {
    while (!over) {
      const BenchProgress progress = bench.progress();
      EXPECT_EQ(progress.verify_errors, 0u);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const Result result(bench.run());
  over = true;
  watcher.join();
  EXPECT_EQ(result.text("verify_errors"), "0") << result.text("verify_first_error");
  EXPECT_GT(result.number("verified"), 0) << result.document();
  EXPECT_NE(result.document().find("\"errors\":{}"), std::string::npos) << result.document();
}

TEST(Bench, RealTimeWithoutWorkers) {
  BenchOptions options;
  options.queues = 2;
  options.queue_depth = 8;
  options.ramp_ns = 5'000'000;
  options.runtime_ns = 50'000'000;
  options.verify_percent = 100;
  DeviceConfig device = small_device();
  device.timing.read_iops = 20'000;
  device.timing.read_latency_ns = 100'000;
  const Result result = run(device, options);
  EXPECT_EQ(result.text("verify_errors"), "0");
  EXPECT_GT(result.number("verified"), 0);
}

}  // namespace
}  // namespace flashmob
