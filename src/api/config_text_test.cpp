#include "flashmob/config_text.h"

#include <gtest/gtest.h>

#include <string>

#include "flashmob/error.h"

namespace flashmob {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_config_text(text, "settings");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ConfigText, ComesBackAsItWas) {
  DeviceConfig config;
  config.profile = "a = b # c";
  config.seed = ~std::uint64_t{0};
  config.faults = {"error on=read p=0.001, seed=7", "lose at=3"};
  config.timing.read_iops = 1.0 / 3;
  config.timing.nand.read_ns = {41'000, 57'000, 72'000};
  config.subsystem.namespaces.resize(3);
  config.subsystem.namespaces[2].command_set = "zns";
  config.subsystem.namespaces[2].zoned.reset_ns = {1, 2};
  config.subsystem.namespaces[1].kv.max_keys = 9;
  config.subsystem.placement.handles = 8;
  config.engine.cores = {0, 3};
  config.engine.move_data = false;
  config.fidelity.max_iops_error = 0.1;
  const std::string text = config_text(config);
  const DeviceConfig back = parse_config_text(text, "settings");
  EXPECT_EQ(config_text(back), text);
  EXPECT_EQ(back.profile, config.profile);
  EXPECT_EQ(back.seed, config.seed);
  EXPECT_EQ(back.faults, config.faults);
  EXPECT_EQ(back.timing.read_iops, config.timing.read_iops);
  EXPECT_EQ(back.timing.nand.read_ns, config.timing.nand.read_ns);
  ASSERT_EQ(back.subsystem.namespaces.size(), 3u);
  EXPECT_EQ(back.subsystem.namespaces[2].zoned.reset_ns, config.subsystem.namespaces[2].zoned.reset_ns);
  EXPECT_EQ(back.subsystem.namespaces[1].kv.max_keys, 9u);
  EXPECT_FALSE(back.engine.move_data);
  EXPECT_EQ(back.engine.cores, config.engine.cores);
}

TEST(ConfigText, WhatIsNotNamedKeepsItsDefault) {
  const DeviceConfig config = parse_config_text("# of mine\n\n  timing.read_iops=5e6\r\n", "settings");
  EXPECT_EQ(config.timing.read_iops, 5e6);
  EXPECT_EQ(config.timing.write_iops, TimingConfig{}.write_iops);
}

TEST(ConfigText, MistakesNameTheLine) {
  EXPECT_EQ(refusal("seed = 1\nseed"), "settings, line 2: write KEY = VALUE, not seed");
  EXPECT_EQ(refusal("sed = 1"),
            "settings, line 1: sed is no setting of a device; flashmob profiles show NAME lists them");
  EXPECT_EQ(refusal("seed = 1x"), "settings, line 1: seed cannot be 1x");
  EXPECT_EQ(refusal("seed = -1"), "settings, line 1: seed cannot be -1");
  EXPECT_EQ(refusal("engine.move_data = yes"), "settings, line 1: engine.move_data cannot be yes");
  EXPECT_EQ(refusal("engine.cores = 1,,2"), "settings, line 1: engine.cores cannot be 1,,2");
  EXPECT_NE(refusal("subsystem.namespaces.300.media = memory"), "");
  EXPECT_NE(refusal("subsystem.namespaces.x.media = memory"), "");
  EXPECT_NE(refusal("subsystem.namespaces.18446744073709551615.media = memory"), "");
}

}  // namespace
}  // namespace flashmob
