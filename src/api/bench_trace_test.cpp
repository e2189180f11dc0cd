// Replayed traces: how large the namespace is made, what is refused, what is replayed.
#include "api/bench_trace.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "api/bench_test_support.h"
#include "base/check.h"

namespace flashmob::api {
namespace {

using test::Result;
using test::run;
using test::small_device;
using test::virtual_run;

class BenchTraceTest : public testing::Test {
 protected:
  BenchTraceTest() {
    std::string name = (std::filesystem::temp_directory_path() / "flashmob_bench_XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~BenchTraceTest() override { std::filesystem::remove_all(directory_); }

  BenchOptions replay(const std::string& text) const {
    BenchOptions options = virtual_run();
    options.runtime_ns = 0;
    options.trace_path = directory_ + "/trace.csv";
    options.trace_sizes_namespace = true;
    std::ofstream(options.trace_path, std::ios::binary) << text;
    return options;
  }
  static std::string refusal(const DeviceConfig& device, const BenchOptions& options) {
    try {
      run(device, options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "(accepted)";
  }
  std::string directory_;
};

constexpr std::uint64_t kTiB = std::uint64_t{1} << 40;

TEST_F(BenchTraceTest, TheNamespaceIsAsLargeAsTheTraceNeeds) {
  BenchTrace trace;
  const BenchOptions options = replay("1,R," + std::to_string(3 * kTiB) + ",4096,5\n1,W,0,512,6\n");
  NamespaceConfig config;
  trace.load(options);
  trace.size_namespace(options, config);
  EXPECT_EQ(config.size_bytes, 3 * kTiB + (1 << 20));
  trace.fit(config.size_bytes, 512, 1 << 20);
  EXPECT_TRUE(trace.summary().sized_from_trace);
  EXPECT_EQ(trace.summary().wrapped, 0u);
  EXPECT_EQ(trace.max_io_bytes(), 4096u);
  ASSERT_EQ(trace.touched().size(), 2u);
  EXPECT_EQ(load::total_bytes(trace.touched()), 8192u);
  // Not where the user chose a size.
  BenchOptions sized = options;
  sized.trace_sizes_namespace = false;
  BenchTrace small;
  config.size_bytes = 1 << 20;
  small.load(sized);
  small.size_namespace(sized, config);
  EXPECT_EQ(config.size_bytes, 1u << 20);
  small.fit(config.size_bytes, 512, 1 << 20);
  EXPECT_FALSE(small.summary().sized_from_trace);
  EXPECT_EQ(small.summary().wrapped, 1u);
}

// Blocks three tebibytes apart: only what the trace touches is filled, and all of it is verified.
TEST_F(BenchTraceTest, AFarNamespaceCostsWhatTheTraceTouches) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "1," + std::string(i % 2 == 0 ? "R" : "W") + "," + std::to_string(i % 8 * (3 * kTiB / 8)) + ",4096," +
            std::to_string(i * 100) + "\n";
  }
  const Result result = run(small_device(), replay(text));
  EXPECT_EQ(result.text("ios"), "200") << result.document();
  EXPECT_EQ(result.text("verify_errors"), "0") << result.document();
  EXPECT_EQ(result.text("verified"), "100") << result.document();
}

TEST_F(BenchTraceTest, TwoDisksDoNotMeet) {
  // Both write their first block; on top of each other one would read what the other wrote.
  BenchTrace trace;
  const BenchOptions options = replay("1,W,0,512,5\n2,W,0,512,6\n1,R,0,512,7\n2,R,0,512,8\n");
  NamespaceConfig config;
  trace.load(options);
  trace.size_namespace(options, config);
  trace.fit(config.size_bytes, 512, 1 << 20);
  EXPECT_EQ(config.size_bytes, 2u << 20);
  ASSERT_EQ(trace.commands().size(), 4u);
  EXPECT_EQ(trace.commands()[0].offset_bytes, 0u);
  EXPECT_EQ(trace.commands()[1].offset_bytes, 1u << 20);
  BenchOptions one = options;
  one.trace_disk = "2";
  EXPECT_EQ(run(small_device(), one).text("ios"), "2");
  one.trace_disk = "3";
  EXPECT_NE(refusal(small_device(), one).find("--trace-disk \"3\" is not in"), std::string::npos);
}

TEST_F(BenchTraceTest, NumberAndTimeLimitTheReplay) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "1,R," + std::to_string(i * 512) + ",512," + std::to_string(i * 10) + "\n";
  BenchOptions options = replay(text);
  options.ios = 30;
  EXPECT_EQ(run(small_device(), options).text("ios"), "30");
  options.ios = 0;
  options.runtime_ns = 205'000;
  const Result timed = run(small_device(), options);
  EXPECT_EQ(timed.text("ios"), "21");
  EXPECT_GT(timed.number("runtime_seconds"), 200e-6);
  // Without the trace's timing it is the run that has so much time.
  options.trace_as_fast = true;
  options.runtime_ns = 40'000;
  EXPECT_LT(run(small_device(), options).number("ios"), 100);
}

TEST_F(BenchTraceTest, LargeRequestsAreCutToWhatTheDeviceTakes) {
  DeviceConfig device = small_device();
  device.controller.max_transfer_bytes = 8192;
  EXPECT_EQ(run(device, replay("1,R,4096,20000,5\n1,W,0,8192,6\n")).text("ios"), "4");
}

TEST_F(BenchTraceTest, WhatCannotBeIsRefusedAtOnce) {
  const std::string path = directory_ + "/trace.csv";
  DeviceConfig device = small_device();
  BenchOptions no_trace = virtual_run();
  no_trace.trace_disk = "hm_0";
  EXPECT_EQ(refusal(device, no_trace),
            "--trace-disk \"hm_0\" is a disk of a trace; name the trace with --trace, or leave it out");
  EXPECT_EQ(refusal(device, replay("1,R," + std::to_string(70 * kTiB) + ",512,5\n2,R,0,512,6\n")),
            "trace " + path +
                " reaches to 70.0 TiB, beyond the 64 TiB of a namespace; give --size, and the report counts what "
                "wraps, or choose a disk with --trace-disk out of 1 (1 request) and 2 (1)");
  device.subsystem.namespaces[0].media = "generated";
  EXPECT_EQ(refusal(device, replay("1,R,0,512,5\n1,W,0,512,6\n")),
            "trace " + path + " writes or trims, and --media generated cannot be written; use --media memory");
  EXPECT_EQ(run(device, replay("1,R,0,512,5\n1,R,1099511627776,512,6\n")).text("verified"), "2");
}

TEST_F(BenchTraceTest, WritesThatMemoryCannotHoldAreRefused) {
  std::string text;
  for (std::uint64_t i = 0; i < 64; ++i) text += "1,W," + std::to_string(i * (kTiB / 16)) + ",1048576,5\n";
  BenchTrace trace;
  const BenchOptions options = replay(text);
  NamespaceConfig config;
  trace.load(options);
  trace.size_namespace(options, config);
  trace.fit(config.size_bytes, 512, 1 << 20);
  // 64 MiB of data, and 2 MiB of the verifier's for each of 64 places.
  EXPECT_NO_THROW(trace.need_memory(std::uint64_t{192} << 20));
  EXPECT_THROW(trace.need_memory(std::uint64_t{191} << 20), ConfigError);
  EXPECT_NO_THROW(trace.need_memory(0));  // not known
}

}  // namespace
}  // namespace flashmob::api
