// Loads that say what is overwritten together, on model `nand`, in virtual time: true to the model, and cheaper for the
// drive.
#include <gtest/gtest.h>

#include <string>

#include "api/bench_test_support.h"
#include "flashmob/error.h"

namespace flashmob {
namespace {

using test::Result;
using test::run;

DeviceConfig placing_device(bool persistently_isolated = false) {
  DeviceConfig config = test::small_device();
  config.subsystem.namespaces[0].size_bytes = 32 << 20;
  config.subsystem.placement = {.handles = 4, .persistently_isolated = persistently_isolated};
  config.timing.model = "nand";
  config.timing.unit_bytes = 4096;
  NandConfig& nand = config.timing.nand;
  nand.channels = nand.dies_per_channel = 2;
  nand.planes = nand.bits_per_cell = 1;
  nand.read_ns = {50'000};
  nand.program_ns = 200'000;
  nand.over_provisioning = 0.15;
  nand.buffer_bytes = 1 << 20;
  return config;
}

BenchOptions run_of(const char* rw, const char* distribution, const char* placement) {
  BenchOptions options = test::virtual_run();
  options.rw = rw;
  options.distribution = distribution;
  options.placement = placement;
  options.block_sizes = {{4096, 1.0}};
  options.queue_depth = 4;
  options.runtime_ns = UINT64_MAX / 4;
  options.ios = 80'000;
  return options;
}

TEST(PlacementBench, HotAndColdApartAmplifyLess) {
  for (const bool persistently_isolated : {false, true}) {
    double amplification[2];
    for (const bool is_apart : {false, true}) {
      const BenchOptions options = run_of("randwrite", "hotcold:0.9:0.2", is_apart ? "apart" : "none");
      const Result result = run(placing_device(persistently_isolated), options);
      EXPECT_TRUE(result.text("verdict").starts_with("\"VALID")) << result.document();
      EXPECT_EQ(result.text("verify_errors"), "0");
      EXPECT_EQ(result.text("placement"), is_apart ? "\"apart\"" : "\"none\"");
      amplification[is_apart] = result.number("write_amplification");
    }
    EXPECT_LT(amplification[1], 0.95 * amplification[0]) << amplification[0] << ", isolated " << persistently_isolated;
  }
}

// Each queue goes round in a share of its own: its superblocks are overwritten as a whole.
TEST(PlacementBench, QueuesApartAmplifyNothing) {
  BenchOptions options = run_of("write", "uniform", "apart");
  options.queues = 4;
  const Result result = run(placing_device(), options);
  EXPECT_TRUE(result.text("verdict").starts_with("\"VALID")) << result.document();
  EXPECT_LT(result.number("write_amplification"), 1.02);
}

TEST(PlacementBench, WhatIsWrongIsSaid) {
  DeviceConfig none = placing_device();
  none.subsystem.placement = {};
  EXPECT_THROW(run(none, run_of("randwrite", "uniform", "apart")), ConfigError);
  EXPECT_THROW(run(placing_device(), run_of("randwrite", "uniform", "both")), ConfigError);
}

}  // namespace
}  // namespace flashmob
