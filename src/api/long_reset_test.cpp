// Resets of large zones: whoever asks for one delays nobody but those who write into that zone, and is stopped where
// others are.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "api/direct_media_test_support.h"
#include "api/slow_memory_test_support.h"
#include "command_set/zns_state.h"
#include "nvme/zns.h"

namespace flashmob::api::direct_media {
namespace {

using command_set::ZonedState;
using nvme::ZoneState;

constexpr std::uint64_t kEndlessBytes = std::uint64_t{1} << 40;

std::uint16_t as_field(nvme::Status status) { return static_cast<std::uint16_t>(status); }

struct LongReset : testing::Test {
  explicit LongReset(std::uint64_t zone = kEndlessBytes, std::uint32_t units = 1)
      : LongReset(zone, units, std::make_unique<SlowMemory>(4 * zone)) {}
  LongReset(std::uint64_t zone, std::uint32_t units, std::unique_ptr<SlowMemory> made)
      : zone_blocks(zone / 512),
        media(*made),
        machine({.units = units, .bytes = 4 * zone, .zone_bytes = zone}, std::move(made)),
        pair(machine.driver->create_queue_pair({.sq_entries = 64})),
        second(machine.driver->create_queue_pair({.sq_entries = 64})),
        memory(machine.door, 64 << 10) {
    // As if they had been written: the last one but for a block.
    machine.stop();
    for (std::uint64_t zone_index = 0; zone_index < 3; ++zone_index)
      EXPECT_EQ(state().zones.write(zone_index * zone_blocks, zone_blocks), nvme::Status::success);
    EXPECT_EQ(state().zones.write(3 * zone_blocks, zone_blocks - 1), nvme::Status::success);
    machine.restart();
  }

  ZonedState& state() { return ZonedState::of(machine.ns()); }
  ZoneState state_of(std::uint32_t zone) {
    const std::lock_guard lock(state().mutex);
    return state().zones.zone(zone).state;
  }
  nvme::Sqe at(nvme::NvmOpcode opcode, std::uint16_t cid, std::uint64_t lba) {
    nvme::Sqe sqe = command(opcode, cid, 0, 1);
    sqe.cdw10 = static_cast<std::uint32_t>(lba);
    sqe.cdw11 = static_cast<std::uint32_t>(lba >> 32);
    sqe.prp1 = memory.iova() + cid * 4096u;
    return sqe;
  }
  nvme::Sqe append(std::uint16_t cid, std::uint32_t zone) {
    nvme::Sqe sqe = at(nvme::NvmOpcode::write, cid, zone * zone_blocks);
    sqe.opcode = static_cast<std::uint8_t>(nvme::ZonedOpcode::zone_append);
    return sqe;
  }
  nvme::Sqe reset(std::uint16_t cid, std::uint32_t zone, bool all = false) {
    nvme::Sqe sqe = at(nvme::NvmOpcode::read, cid, zone * zone_blocks);
    sqe.opcode = static_cast<std::uint8_t>(nvme::ZonedOpcode::zone_management_send);
    sqe.prp1 = 0;
    sqe.cdw12 = 0;
    sqe.cdw13 = static_cast<std::uint32_t>(nvme::ZoneSendAction::reset) | (all ? nvme::kZoneSelectAll : 0);
    return sqe;
  }
  void start(driver::QueuePair& queue, const nvme::Sqe& sqe) {
    queue.submit() = sqe;
    queue.ring_sq();
  }
  // One that will be at it for as long as a test may take.
  void begin(driver::QueuePair& queue, bool all = false) {
    start(queue, reset(1, 0, all));
    ASSERT_TRUE(within(milliseconds(20000), [&] { return media.parts > 2; }));
  }
  // What has come to its end is carried out no further, and its zone is in nobody's way.
  void expect_end(driver::QueuePair& queue) {
    const std::uint64_t parts = media.parts;
    EXPECT_TRUE(machine.comes_to_rest());
    EXPECT_EQ(media.parts, parts);
    EXPECT_EQ(state_of(0), ZoneState::full);
    EXPECT_EQ(run(queue, append(2, 0)), as_field(nvme::Status::zone_is_full));
    EXPECT_EQ(run(queue, append(3, 3)), 0);
  }
  // In which order so many commands of the queue ended, all of them well.
  std::vector<std::uint16_t> ended(driver::QueuePair& queue, std::size_t count) {
    std::vector<std::uint16_t> order;
    EXPECT_TRUE(within(milliseconds(30000), [&] {
      queue.reap(8, [&](const nvme::Cqe& cqe) {
        EXPECT_EQ(cqe.status_phase >> 1, 0) << cqe.cid;
        order.push_back(cqe.cid);
      });
      queue.ring_cq();
      return order.size() >= count;
    }));
    return order;
  }

  const std::uint64_t zone_blocks;
  SlowMemory& media;
  Machine machine;
  driver::QueuePair& pair;
  driver::QueuePair& second;
  driver::DmaMemory memory;
};

struct LongResetOf256MiB : LongReset {
  LongResetOf256MiB() : LongReset(256 << 20) {}
};

struct LongResetOnTwoUnits : LongReset {
  LongResetOnTwoUnits() : LongReset(256 << 20, 2) {}
};

// Fetched together: what is for other zones does not wait, and what is for this one comes after it.
TEST_F(LongResetOf256MiB, OnlyItsOwnZoneWaits) {
  machine.stop();
  pair.submit() = reset(1, 0);
  pair.submit() = at(nvme::NvmOpcode::write, 2, 0);
  pair.submit() = append(3, 0);
  pair.submit() = append(4, 3);
  pair.submit() = at(nvme::NvmOpcode::read, 5, 0);
  pair.ring_sq();
  machine.restart();
  const std::vector<std::uint16_t> order = ended(pair, 5);
  ASSERT_EQ(order.size(), 5u);
  EXPECT_GT(order[0], 3);
  EXPECT_GT(order[1], 3);
  EXPECT_EQ(order[2], 1);
  EXPECT_EQ(state().zones.zone(0).written, 2u);
  EXPECT_GT(media.parts, 100u);
}

TEST_F(LongResetOf256MiB, TwoOfOneZoneAndOneOfAllComeOneAfterTheOther) {
  machine.stop();
  pair.submit() = reset(1, 0);
  pair.submit() = reset(2, 0, true);
  pair.submit() = reset(3, 0);
  pair.ring_sq();
  machine.restart();
  EXPECT_EQ(ended(pair, 3).size(), 3u);
  for (std::uint32_t zone = 0; zone < 4; ++zone) EXPECT_EQ(state_of(zone), ZoneState::empty) << zone;
}

TEST_F(LongResetOnTwoUnits, TheOthersUnitGoesOn) {
  media.part_us = 50'000;  // until the others' commands are through
  start(pair, reset(1, 0));
  ASSERT_TRUE(within(milliseconds(20000), [&] { return media.parts > 2; }));
  start(second, at(nvme::NvmOpcode::write, 2, 0));
  EXPECT_EQ(run(second, append(3, 3)), 0);
  EXPECT_EQ(run(second, at(nvme::NvmOpcode::read, 4, 0)), 0);
  media.part_us = 50;
  EXPECT_EQ(ended(pair, 1), (std::vector<std::uint16_t>{1}));
  EXPECT_EQ(ended(second, 1), (std::vector<std::uint16_t>{2}));
  EXPECT_EQ(state().zones.zone(0).written, 1u);
}

// Though somebody asks for the first one all the while.
TEST_F(LongReset, WhoWaitsForAnotherZoneStandsInAnotherLine) {
  machine.stop();
  ASSERT_EQ(state().zones.reset(1), nvme::Status::success);
  ASSERT_EQ(state().zones.write(zone_blocks, (16 << 20) / 512), nvme::Status::success);
  pair.submit() = reset(1, 0);
  pair.submit() = at(nvme::NvmOpcode::write, 2, 0);
  pair.submit() = reset(3, 1);
  pair.submit() = at(nvme::NvmOpcode::write, 4, zone_blocks);
  pair.ring_sq();
  machine.restart();
  EXPECT_EQ(ended(pair, 2), (std::vector<std::uint16_t>{3, 4}));
  EXPECT_EQ(state_of(0), ZoneState::full);
}

TEST_F(LongReset, AnAbortEndsIt) {
  for (const bool all : {false, true}) {
    media.parts = 0;
    begin(pair, all);
    EXPECT_TRUE(machine.driver->abort(1, 1));
    EXPECT_EQ(next_status(pair), as_field(nvme::Status::abort_requested));
    const std::uint64_t parts = media.parts;
    EXPECT_TRUE(machine.comes_to_rest());
    EXPECT_EQ(media.parts, parts);
  }
  EXPECT_EQ(state_of(0), ZoneState::full);
  EXPECT_EQ(run(pair, append(2, 0)), as_field(nvme::Status::zone_is_full)) << "nobody is in its way";
}

TEST_F(LongReset, ADeletedQueueEndsIt) {
  driver::QueuePair& queue = machine.driver->create_queue_pair({.sq_entries = 8});
  begin(queue);
  machine.driver->delete_queue_pair(queue);
  expect_end(pair);
}

TEST_F(LongReset, AControllerResetEndsIt) {
  begin(pair);
  machine.driver->disable();
  machine.driver->enable();
  expect_end(machine.driver->create_queue_pair({.sq_entries = 8}));
}

TEST_F(LongReset, WriteProtectionEndsIt) {
  begin(pair);
  machine.stop();
  machine.ns().writable = false;
  machine.restart();
  EXPECT_EQ(next_status(pair), as_field(nvme::Status::namespace_is_write_protected));
  machine.stop();
  machine.ns().writable = true;
  machine.restart();
  expect_end(pair);
}

// What waits for the zone can be ended, too, and is: none of it is written when the reset has gone.
TEST_F(LongReset, WhoWaitsForItCanBeEnded) {
  begin(pair);
  for (std::uint16_t cid = 2; cid < 10; ++cid) second.submit() = append(cid, 0);
  second.ring_sq();
  EXPECT_TRUE(machine.driver->abort(2, 5));
  EXPECT_EQ(next_status(second), as_field(nvme::Status::abort_requested));
  machine.driver->delete_queue_pair(second);
  machine.driver->abort(1, 1);
  EXPECT_EQ(next_status(pair), as_field(nvme::Status::abort_requested));
  expect_end(pair);
}

}  // namespace
}  // namespace flashmob::api::direct_media
