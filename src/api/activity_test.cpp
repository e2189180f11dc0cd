// What a monitor tells of hosts, whatever they said of themselves, and which time a served SSD is judged by.
#include "api/activity.h"

#include <gtest/gtest.h>

#include <memory>

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

std::unique_ptr<engine::FidelityStats> interval(std::uint64_t completions, std::uint64_t gap_ns) {
  auto stats = std::make_unique<engine::FidelityStats>();
  stats->completions = completions;
  if (gap_ns != 0) stats->gaps.add(gap_ns);
  return stats;
}

TEST(ActiveTime, GapsBeforeACompletionAreItsOwn) {
  ActiveTime active;
  double seconds = 1;
  EXPECT_TRUE(active.add(*interval(10, 1'000), seconds, true));
  // Two intervals in which commands wait and the machine is elsewhere.
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(active.add(*interval(0, 900'000'000), seconds = 1, true));
  const auto next = interval(5, 2'000);
  EXPECT_TRUE(active.add(*next, seconds = 1, false));
  EXPECT_EQ(next->gaps.total_ns, 1'800'002'000u);
  EXPECT_EQ(seconds, 3);
  EXPECT_EQ(active.gaps.total_ns, 1'800'003'000u);
  EXPECT_EQ(active.seconds, 4);
}

TEST(ActiveTime, OfIdleTimeTheLastIntervalCounts) {
  ActiveTime active;
  double seconds = 1;
  for (int i = 0; i < 100; ++i) active.add(*interval(0, 5'000), seconds = 1, false);
  EXPECT_EQ(active.seconds, 0);
  const auto next = interval(1, 0);
  active.add(*next, seconds = 1, false);
  EXPECT_EQ(next->gaps.total_ns, 5'000u);
  EXPECT_EQ(active.seconds, 2);
  active.add(*interval(1, 0), seconds = 1, false);
  EXPECT_EQ(active.gaps.total_ns, 5'000u) << "and once";
}

}  // namespace
}  // namespace flashmob::api
