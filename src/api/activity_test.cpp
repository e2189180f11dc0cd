// What a monitor tells of hosts, whatever they said of themselves.
#include "api/activity.h"

#include <gtest/gtest.h>

#include "controller/controller.h"

namespace flashmob::api {
namespace {

TEST(ActivityMonitor, NamesOfHostsArePrintable) {
  DeviceConfig config;
  config.subsystem.namespaces[0].size_bytes = 1 << 20;
  const Clock clock = Clock::real();
  engine::Engine engine(config, clock);
  controller::Subsystem subsystem(config.subsystem, 1, config.timing.unit_bytes);
  controller::Controller host(subsystem, config.controller, engine);
  host.set_host("vfio-user", "a\xFF\x1B[2J\n");
  ActivityMonitor monitor(engine, subsystem, config.fidelity, true, clock);
  const ServerStats stats = monitor.look();
  ASSERT_EQ(stats.hosts.size(), 1u);
  EXPECT_EQ(stats.hosts[0].host, "a\\xff\\x1b[2J\\x0a");
}

}  // namespace
}  // namespace flashmob::api
