// What monitors see: counters come on request, from the admin thread, and outlive the controller's engine and itself.
#include "controller/activity.h"

#include <gtest/gtest.h>

#include "controller/controller_test_support.h"

namespace flashmob::controller {
namespace {

using testing::FakeHost, testing::TestDevice;

TEST(Activity, IsPublishedOnRequestOnly) {
  TestDevice device;
  device.enable();
  device.host.io = {.read_commands = 7, .write_commands = 1, .read_bytes = 3584, .written_bytes = 512};
  device.poll();
  EXPECT_EQ(device.controller().activity().io.read_commands, 0u);
  device.controller().request_activity();
  EXPECT_TRUE(device.controller().needs_poll());
  device.now_ns += 1'000;
  device.poll();
  EXPECT_EQ(device.controller().activity().io.read_commands, 7u);
  EXPECT_EQ(device.controller().activity().published_ns, device.now_ns);
  EXPECT_FALSE(device.controller().needs_poll());
  device.host.io.read_commands = 8;
  device.poll();
  EXPECT_EQ(device.controller().activity().io.read_commands, 7u);
}

TEST(Activity, AResetPublishesBecauseTheHostMayLeave) {
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

TEST(Activity, WhatARemovedControllerLastSaidStands) {
  FakeHost host;
  Subsystem subsystem(SubsystemConfig{}, 1, 512);
  ControllerConfig config;
  config.max_queue_pairs = 1;
  config.interrupt_vectors = 1;
  {
    Controller controller(subsystem, config, host);
    host.io.read_bytes = 4096;
    controller.request_activity();
    controller.poll(1);
    host.io = {};  // the engine has been left
  }
  const std::lock_guard lock(subsystem.mutex());
  EXPECT_EQ(subsystem.removed_counters().read_bytes, 4096u);
  EXPECT_EQ(subsystem.counters().read_bytes, 4096u);
  EXPECT_EQ(subsystem.controllers_added(), 1u);
}

}  // namespace
}  // namespace flashmob::controller
