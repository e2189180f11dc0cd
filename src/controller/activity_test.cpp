// What monitors see: counters are those of the engine, and outlive the controller's time with it and itself.
#include "controller/activity.h"

#include <gtest/gtest.h>

#include "controller/controller_test_support.h"

namespace flashmob::controller {
namespace {

using testing::FakeHost, testing::TestDevice;

TEST(Activity, CountersAreTheEnginesAndNeverShrink) {
  TestDevice device;
  device.enable();
  device.host.io = {.read_commands = 7, .write_commands = 1, .read_bytes = 3584, .written_bytes = 512};
  EXPECT_EQ(device.controller().counters().read_commands, 7u);
  device.controller().keep_counters();
  device.host.io = {};
  device.controller().keep_counters();
  EXPECT_EQ(device.controller().counters().read_commands, 7u);
  device.host.io.read_commands = 8;
  EXPECT_EQ(device.controller().counters().read_commands, 8u);
  EXPECT_EQ(device.controller().counters().written_bytes, 512u);
}

TEST(Activity, AResetKeepsCountersBecauseTheHostMayLeave) {
  TestDevice device;
  device.enable();
  device.host.io.write_commands = 5;
  device.disable();
  EXPECT_EQ(device.controller().activity().io.write_commands, 5u);
}

TEST(Activity, KnowsTheHost) {
  TestDevice device;
  EXPECT_EQ(device.controller().activity().door, "");
  device.controller().set_host("nvme-tcp", "nqn.x");
  EXPECT_EQ(device.controller().activity().door, "nvme-tcp");
  EXPECT_EQ(device.controller().activity().host, "nqn.x");
}

TEST(Activity, WhatARemovedControllerHadDoneStands) {
  FakeHost host;
  Subsystem subsystem(SubsystemConfig{}, 1, 512);
  ControllerConfig config;
  config.max_queue_pairs = 1;
  config.interrupt_vectors = 1;
  {
    Controller controller(subsystem, config, host);
    host.io.read_bytes = 4096;
    controller.keep_counters();
    host.io = {};  // the engine has been left
  }
  const std::lock_guard lock(subsystem.mutex());
  EXPECT_EQ(subsystem.removed_counters().read_bytes, 4096u);
  EXPECT_EQ(subsystem.counters().read_bytes, 4096u);
  EXPECT_EQ(subsystem.controllers_added(), 1u);
}

}  // namespace
}  // namespace flashmob::controller
