// What a monitor tells of hosts, whatever they said of themselves, and which time a served SSD is judged by.
#include "api/activity.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "controller/controller.h"
#include "transport/nvme_tcp/target_test_support.h"

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

// A host with one I/O queue.
struct IoHost {
  explicit IoHost(transport::testing::Rig& rig) : admin(rig), io(rig) {
    EXPECT_TRUE(admin.initialize());
    const std::uint16_t cntlid = admin.attach();
    EXPECT_TRUE(io.initialize());
    EXPECT_EQ(io.attach_io(cntlid).status(), nvme::Status::success);
  }
  void give(nvme::NvmOpcode opcode, int times) {
    for (int i = 0; i < times; ++i) {
      nvme::Sqe sqe = transport::testing::Host::io(opcode, 0, 8);
      if (opcode != nvme::NvmOpcode::flush) transport::testing::Host::transport_sgl(sqe, 4096);
      const std::uint16_t cid = io.submit(sqe);
      EXPECT_EQ(io.finish(cid, {}).status(), nvme::Status::success);
    }
  }
  transport::testing::Host admin, io;
};

// Each command of an interval is in the rates of one host, or of those that have left.
TEST(ActivityMonitor, RatesOfHostsAddUpToTheSsds) {
  transport::testing::Rig rig;
  ActivityMonitor monitor(rig.engine(), rig.subsystem(), {}, false, rig.engine().clock());
  const auto sum = [](const ServerStats& stats, double IoRates::* rate) {
    double all = stats.left.*rate;
    for (const HostStats& host : stats.hosts) all += host.*rate;
    return all;
  };
  const auto look = [&](double commands, double reads, std::size_t hosts, std::uint64_t left) {
    const ServerStats stats = monitor.look();
    for (double IoRates::* const rate : {&IoRates::iops, &IoRates::read_iops, &IoRates::write_iops,
                                         &IoRates::read_bytes_per_s, &IoRates::written_bytes_per_s})
      EXPECT_NEAR(sum(stats, rate), stats.*rate, 1e-9 * stats.*rate);
    EXPECT_NEAR(stats.iops * stats.interval_s, commands, 1e-6);
    EXPECT_NEAR(stats.read_iops * stats.interval_s, reads, 1e-6);
    EXPECT_NEAR(stats.read_bytes_per_s * stats.interval_s, 4096 * reads, 1e-3);
    EXPECT_EQ(stats.hosts.size(), hosts);
    EXPECT_EQ(stats.left.count, left);
    return stats;
  };
  IoHost stays(rig);
  stays.give(nvme::NvmOpcode::read, 5);
  {
    IoHost leaves(rig);
    leaves.give(nvme::NvmOpcode::read, 7);
    const ServerStats stats = look(12, 12, 2, 0);
    EXPECT_NEAR(stats.hosts[1].read_iops * stats.interval_s, 7, 1e-6);
    leaves.give(nvme::NvmOpcode::read, 3);
    leaves.give(nvme::NvmOpcode::flush, 2);
    stays.give(nvme::NvmOpcode::read, 1);
  }
  {
    IoHost guest(rig);  // between two looks, and perhaps with the identifier of the one before
    guest.give(nvme::NvmOpcode::read, 11);
  }
  rig.pump();
  IoHost fresh(rig);
  fresh.give(nvme::NvmOpcode::read, 2);
  const ServerStats stats = look(19, 17, 2, 2);
  EXPECT_NEAR(stats.left.read_iops * stats.interval_s, 14, 1e-6);
  EXPECT_NEAR(stats.left.iops * stats.interval_s, 16, 1e-6);
  rig.pass_ns(1'000'000'000);
  EXPECT_EQ(look(0, 0, 2, 0).interval_s, 1);
}

// A Compare is a command when it is fetched, and a read when it has been carried out, by a worker.
TEST(ActivityMonitor, AnIntervalHasNoMoreReadsAndWritesThanCommands) {
  DeviceConfig config = transport::testing::Rig::small_device();
  config.engine.workers = 1;
  transport::testing::Rig rig({}, config);
  ActivityMonitor monitor(rig.engine(), rig.subsystem(), {}, false, rig.engine().clock());
  IoHost host(rig);
  double told = 0;
  const auto look = [&](double reads) {
    rig.pass_ns(1'000);
    const ServerStats stats = monitor.look();
    EXPECT_NEAR(stats.read_iops * stats.interval_s, reads, 1e-6);
    EXPECT_GE(stats.iops, stats.read_iops);
    EXPECT_EQ(stats.hosts.at(0).iops, stats.iops);
    told += stats.iops * stats.interval_s;
  };
  monitor.look();
  nvme::Sqe sqe = transport::testing::Host::io(nvme::NvmOpcode::compare, 0, 8);
  transport::testing::Host::capsule_sgl(sqe, 4096);
  const std::uint16_t cid = host.io.submit(sqe, std::vector<std::byte>(4096));
  for (int i = 0; i < 10; ++i) {
    rig.target().poll();
    rig.engine().poll_actor(0);
  }
  look(0);
  EXPECT_NEAR(told, 1, 1e-6);
  EXPECT_EQ(host.io.finish(cid, {}).status(), nvme::Status::success);
  look(1);
  host.give(nvme::NvmOpcode::flush, 3);
  look(0);
  EXPECT_NEAR(told, 4, 1e-6) << "each command once";
}

// The thread of an NVMe/TCP door that looks late, or sends late, in a process that is not busy at all.
TEST(ActivityMonitor, WhatTheDoorAddsIsJudged) {
  DeviceConfig config = transport::testing::Rig::small_device();
  config.timing.model = "simple";
  transport::testing::Rig rig({}, config);
  const Clock clock = Clock::real();
  ActivityMonitor monitor(rig.engine(), rig.subsystem(), config.fidelity, true, clock);
  transport::testing::Host admin(rig);
  transport::testing::Host io(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  ASSERT_TRUE(io.initialize());
  ASSERT_EQ(io.attach_io(cntlid).status(), nvme::Status::success);
  const auto read = [&](std::uint64_t late_ns) {
    nvme::Sqe sqe = transport::testing::Host::io(nvme::NvmOpcode::read, 0, 8);
    transport::testing::Host::transport_sgl(sqe, 4096);
    const std::uint16_t cid = io.submit(sqe);
    rig.pass_ns(late_ns);
    for (unsigned actor = 0; actor < rig.engine().actors(); ++actor) rig.engine().poll_actor(actor);
    for (int i = 0; i < 100; ++i) rig.pump();
    ASSERT_EQ(io.finish(cid, {}).status(), nvme::Status::success);
  };
  monitor.look();
  for (int i = 0; i < 20; ++i) read(0);
  const ServerStats before = monitor.look();
  EXPECT_LT(before.error_bound.p99_ns, 100'000u);
  for (int i = 0; i < 20; ++i) read(3'000'000);
  const ServerStats after = monitor.look();
  EXPECT_GE(after.error_bound.mean_ns, 3e6);
  EXPECT_EQ(after.verdict, "INVALID");
  EXPECT_EQ(after.verdict_cause.rfind("NVMe/TCP door late", 0), 0u) << after.verdict_cause;
  EXPECT_GE(after.total_error_bound.p99_ns, 3'000'000u);
  EXPECT_EQ(after.verdict_so_far, "INVALID");
}

}  // namespace
}  // namespace flashmob::api
