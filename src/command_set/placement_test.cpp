// What a drive with placement may be, and what is counted without a model that keeps writes apart.
#include "command_set/placement.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "base/check.h"

namespace flashmob::command_set {
namespace {

DeviceConfig placing(const std::function<void(DeviceConfig&)>& change = {}) {
  DeviceConfig config;
  config.subsystem.placement.handles = 8;
  if (change) change(config);
  return config;
}

void expect_accepted(const std::function<void(DeviceConfig&)>& change) { EXPECT_NO_THROW(placing(change).validate()); }

void expect_rejected(const std::string& key, const std::function<void(DeviceConfig&)>& change) {
  try {
    placing(change).validate();
    ADD_FAILURE() << "accepted a bad " << key;
  } catch (const ConfigError& error) {
    const std::string said = error.what();
    EXPECT_TRUE(said.starts_with(key) && (key.back() == '_' || said.starts_with(key + " = "))) << said;
  }
}

TEST(PlacementConfig, SaysWhatIsWrong) {
  expect_accepted([](DeviceConfig&) {});
  expect_accepted([](DeviceConfig& c) { c.subsystem.placement.handles = 128; });
  expect_accepted([](DeviceConfig& c) { c.subsystem.placement = {.handles = 2, .reclaim_groups = 127}; });
  expect_rejected("subsystem.placement.handles", [](DeviceConfig& c) { c.subsystem.placement.handles = 1; });
  expect_rejected("subsystem.placement.handles", [](DeviceConfig& c) { c.subsystem.placement.handles = 129; });
  expect_rejected("subsystem.placement.reclaim_groups",
                  [](DeviceConfig& c) { c.subsystem.placement.reclaim_groups = 32; });
  expect_rejected("subsystem.placement.reclaim_unit_bytes",
                  [](DeviceConfig& c) { c.subsystem.placement.reclaim_unit_bytes = 6000; });
  const std::string first = "subsystem.namespaces[0].";
  expect_accepted([](DeviceConfig& c) { c.subsystem.namespaces[0].placement_handles = {7, 0}; });
  expect_rejected(first + "placement_handles[1]",
                  [](DeviceConfig& c) { c.subsystem.namespaces[0].placement_handles = {7, 7}; });
  expect_rejected(first + "placement_handles[0]",
                  [](DeviceConfig& c) { c.subsystem.namespaces[0].placement_handles = {8}; });
  expect_rejected(first + "placement_handles", [](DeviceConfig& c) {
    c.subsystem.placement.handles = 0;
    c.subsystem.namespaces[0].placement_handles = {0};
  });
  // Without handles the others would be ignored.
  for (const PlacementConfig& lacking :
       {PlacementConfig{.reclaim_groups = 2}, PlacementConfig{.reclaim_unit_bytes = 4096}})
    expect_rejected("subsystem.placement.reclaim_", [lacking](DeviceConfig& c) { c.subsystem.placement = lacking; });
  expect_rejected("subsystem.placement.persistently_isolated",
                  [](DeviceConfig& c) { c.subsystem.placement = {.persistently_isolated = true}; });
  expect_rejected("subsystem.placement.enabled", [](DeviceConfig& c) { c.subsystem.placement = {.enabled = false}; });
  expect_rejected(first + "command_set", [](DeviceConfig& c) { c.subsystem.namespaces[0].command_set = "zns"; });
  expect_rejected("subsystem.namespaces[1].lba_bytes",
                  [](DeviceConfig& c) { c.subsystem.namespaces.push_back(NamespaceConfig{.lba_bytes = 4096}); });
  expect_accepted([](DeviceConfig& c) {
    c.subsystem.namespaces[0].placement_handles = {0, 1};
    c.subsystem.namespaces.push_back(NamespaceConfig{.lba_bytes = 4096, .placement_handles = {2}});
  });
}

TEST(PlacementConfig, IsWhatModelNandCanKeep) {
  const auto nand = [](const std::function<void(DeviceConfig&)>& change) {
    return [change](DeviceConfig& c) {
      c.timing.model = "nand";
      c.timing.unit_bytes = 4096;
      change(c);
    };
  };
  expect_accepted(nand([](DeviceConfig&) {}));
  expect_rejected("subsystem.placement.reclaim_groups",
                  nand([](DeviceConfig& c) { c.subsystem.placement.reclaim_groups = 2; }));
  expect_rejected("subsystem.placement.reclaim_unit_bytes",
                  nand([](DeviceConfig& c) { c.subsystem.placement.reclaim_unit_bytes = 1 << 20; }));
  expect_rejected("subsystem.placement.handles", nand([](DeviceConfig& c) {
                    c.timing.nand.slc_dynamic = 0.1;
                    c.timing.nand.slc_read_ns = c.timing.nand.slc_program_ns = 1;
                  }));
  // Each handle fills a row in the buffer, of 192 KiB here.
  expect_rejected("subsystem.placement.handles",
                  nand([](DeviceConfig& c) { c.timing.nand.buffer_bytes = 10 * (192 << 10); }));
  expect_accepted(nand([](DeviceConfig& c) { c.timing.nand.buffer_bytes = 11 * (192 << 10); }));
}

nvme::Sqe write_to(std::uint16_t identifier) {
  nvme::Sqe sqe{};
  sqe.cdw12 = 2u << 20;
  sqe.cdw13 = std::uint32_t{identifier} << 16;
  return sqe;
}

TEST(Placement, CountsByItselfFromSeveralThreads) {
  Placement drive({.handles = 4, .reclaim_groups = 2, .reclaim_unit_bytes = 1 << 20});
  EXPECT_EQ(drive.group_bits(), 1u);
  const NamespacePlacement ns(drive, 1, {3, 1});
  constexpr int kThreads = 4, kWrites = 5'000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      timing::Demand demand{};
      for (int i = 0; i < kWrites; ++i) ns.place(write_to(0x8001), 4096, 0, demand);
      EXPECT_EQ(demand.units, 0u) << "a model that keeps nothing apart is not told";
    });
  for (std::thread& thread : threads) thread.join();
  constexpr std::uint64_t kBytes = std::uint64_t{kThreads} * kWrites * 4096;
  EXPECT_EQ(drive.statistics().host_bytes, kBytes);
  EXPECT_EQ(drive.bytes_left({1, 1}), (1 << 20) - kBytes % (1 << 20));
  EXPECT_EQ(drive.bytes_left({0, 1}), 1u << 20);
  EXPECT_EQ(drive.next_unit({1, 1}), (1 << 20) - kBytes % (1 << 20));
  EXPECT_EQ(drive.next_unit({1, 1}), 0u);
}

TEST(Placement, IdentifiersNameGroupAndHandle) {
  Placement drive({.handles = 4, .reclaim_groups = 3, .reclaim_unit_bytes = 1 << 20});
  const NamespacePlacement ns(drive, 1, {3, 1});
  EXPECT_EQ(drive.group_bits(), 2u);
  for (std::uint32_t group = 0; group < 3; ++group) {
    for (std::uint32_t handle = 0; handle < 2; ++handle) {
      const auto target = ns.target_of(ns.identifier_of(group, handle));
      ASSERT_TRUE(target);
      EXPECT_EQ(target->group, group);
      EXPECT_EQ(target->handle, ns.handles()[handle]);
    }
  }
  EXPECT_FALSE(ns.target_of(2));
  EXPECT_FALSE(ns.target_of(0xC000)) << "there is no fourth group";
  EXPECT_FALSE(ns.target_of(0xFFFF));
}

}  // namespace
}  // namespace flashmob::command_set
