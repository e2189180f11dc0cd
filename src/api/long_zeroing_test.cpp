// Deallocate and Write Zeroes of media that lies in memory: whoever asks for many blocks delays nobody, and is stopped
// where others are.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "api/direct_media_test_support.h"
#include "api/slow_memory_test_support.h"
#include "base/rng.h"
#include "media/memory_media.h"
#include "nvme/dataset.h"
#include "nvme/io_command.h"

namespace flashmob::api::direct_media {
namespace {

constexpr std::uint64_t kHugeBytes = std::uint64_t{1} << 40;

std::uint16_t field(nvme::Status status) { return static_cast<std::uint16_t>(status); }

nvme::Sqe deallocate_all(driver::DmaMemory& memory, std::uint16_t cid, std::uint64_t bytes) {
  const nvme::DatasetRange range{0, static_cast<std::uint32_t>(bytes / 512), 0};
  std::memcpy(memory.data() + cid * 4096u, &range, sizeof(range));
  nvme::Sqe sqe = command(nvme::NvmOpcode::dataset_management, cid, 0, 0);
  sqe.prp1 = memory.iova() + cid * 4096u;
  sqe.cdw11 = nvme::kDatasetDeallocate;
  return sqe;
}

struct LongZeroing : testing::Test {
  explicit LongZeroing(std::uint64_t bytes = kHugeBytes) : LongZeroing(std::make_unique<SlowMemory>(bytes)) {}
  explicit LongZeroing(std::unique_ptr<SlowMemory> made)
      : media(*made),
        machine({.bytes = media.size_bytes()}, std::move(made)),
        pair(machine.driver->create_queue_pair({.sq_entries = 64})),
        memory(machine.door, 64 << 10) {}

  nvme::Sqe read(std::uint16_t cid) {
    nvme::Sqe sqe = command(nvme::NvmOpcode::read, cid, 0, 8);
    sqe.prp1 = memory.iova() + cid * 4096u;
    return sqe;
  }
  // One that will be at it for as long as a test may take.
  void begin(driver::QueuePair& queue) {
    queue.submit() = deallocate_all(memory, 1, kHugeBytes);
    queue.ring_sq();
    ASSERT_TRUE(within(milliseconds(20000), [&] { return media.parts > 2; }));
  }
  // What has come to its end is carried out no further.
  void expect_end() {
    const std::uint64_t parts = media.parts;
    EXPECT_TRUE(machine.comes_to_rest());
    EXPECT_EQ(media.parts, parts);
  }

  SlowMemory& media;
  Machine machine;
  driver::QueuePair& pair;
  driver::DmaMemory memory;
};

struct LongZeroingOf256MiB : LongZeroing {
  LongZeroingOf256MiB() : LongZeroing(256 << 20) {}
};

TEST_F(LongZeroingOf256MiB, OthersDoNotWaitForItsEnd) {
  nvme::Sqe zeroes = command(nvme::NvmOpcode::write_zeroes, 1, 0, 65536);
  for (const nvme::Sqe& sqe : {deallocate_all(memory, 1, 256 << 20), zeroes}) {
    machine.stop();
    pair.submit() = sqe;
    pair.submit() = read(2);
    pair.ring_sq();  // fetched together
    machine.restart();
    std::vector<std::uint16_t> order;
    ASSERT_TRUE(within(milliseconds(20000), [&] {
      pair.reap(2, [&](const nvme::Cqe& cqe) {
        EXPECT_EQ(cqe.status_phase >> 1, 0);
        order.push_back(cqe.cid);
      });
      return order.size() == 2;
    }));
    pair.ring_cq();
    EXPECT_EQ(order, (std::vector<std::uint16_t>{2, 1}));
  }
}

// However many of them a host has begun, another one's do not wait for the end of one.
TEST_F(LongZeroing, AnotherHostsAreBegun) {
  constexpr std::uint16_t kMany = 300;
  driver::QueuePair& queue = machine.driver->create_queue_pair({.sq_entries = 512});
  const nvme::Sqe all = deallocate_all(memory, 1, kHugeBytes);
  media.part_us = 0;
  for (std::uint16_t cid = 0; cid < kMany; ++cid) {
    nvme::Sqe& sqe = queue.submit();
    sqe = all;
    sqe.cid = cid;
  }
  queue.ring_sq();
  ASSERT_TRUE(within(milliseconds(20000), [&] { return media.parts > 2 * kMany; }));
  Machine::Other other(machine);
  driver::QueuePair& others = other.driver->create_queue_pair({.sq_entries = 8});
  EXPECT_EQ(run(others, command(nvme::NvmOpcode::write_zeroes, 1, 0, 8)), 0);
  EXPECT_EQ(queue.reap(1, [](const nvme::Cqe&) {}), 0u);
  machine.driver->disable();
  expect_end();
}

TEST_F(LongZeroing, AnAbortEndsIt) {
  begin(pair);
  EXPECT_TRUE(machine.driver->abort(1, 1));
  EXPECT_EQ(next_status(pair), field(nvme::Status::abort_requested));
  expect_end();
  EXPECT_EQ(run(pair, read(2)), 0);
}

TEST_F(LongZeroing, ADeletedQueueEndsIt) {
  driver::QueuePair& queue = machine.driver->create_queue_pair({.sq_entries = 8});
  begin(queue);
  machine.driver->delete_queue_pair(queue);
  expect_end();
  EXPECT_EQ(run(pair, read(2)), 0);
}

TEST_F(LongZeroing, AResetEndsIt) {
  begin(pair);
  machine.driver->disable();
  expect_end();
  machine.driver->enable();
  EXPECT_EQ(run(machine.driver->create_queue_pair({.sq_entries = 8}), read(2)), 0);
}

TEST_F(LongZeroing, WriteProtectionEndsIt) {
  begin(pair);
  machine.stop();
  machine.ns().writable = false;
  machine.restart();
  EXPECT_EQ(next_status(pair), field(nvme::Status::namespace_is_write_protected));
  expect_end();
}

// Many more than are carried out side by side; their turns come, and that of a Read among them.
TEST_F(LongZeroingOf256MiB, SoManyThatSomeWait) {
  driver::QueuePair& queue = machine.driver->create_queue_pair({.sq_entries = 1024});
  driver::DmaMemory ranges(machine.door, 4096);
  for (std::uint16_t cid = 0; cid < 600; ++cid) {
    nvme::Sqe sqe = deallocate_all(ranges, 0, 4 << 20);
    sqe.cid = cid;
    queue.submit() = sqe;
  }
  queue.ring_sq();
  EXPECT_EQ(run(pair, read(2)), 0);
  for (int i = 0; i < 600; ++i) ASSERT_EQ(next_status(queue), 0);
}

TEST(LongZeroingData, IsRightWithAnySharesOfTheWork) {
  constexpr std::uint64_t kAll = 64 << 20;
  for (const Shape& shape :
       {Shape{.bytes = kAll}, Shape{.units = 2, .bytes = kAll}, Shape{.workers = 2, .bytes = kAll}}) {
    auto made = media::MemoryMedia::create(kAll);
    std::byte* const bytes = made->base();
    Machine machine(shape, std::move(made));
    std::array pairs{&machine.driver->create_queue_pair({.sq_entries = 64}),
                     &machine.driver->create_queue_pair({.sq_entries = 64})};
    driver::DmaMemory memory(machine.door, 64 << 10);
    std::vector<std::byte> expected(kAll, std::byte{0x5A});
    std::memcpy(bytes, expected.data(), kAll);
    Rng rng(shape.units + shape.workers);
    for (std::uint16_t cid = 0; cid < 16; ++cid) {
      std::array<nvme::DatasetRange, 3> ranges{};
      for (nvme::DatasetRange& range : ranges) {
        range.nlb = static_cast<std::uint32_t>(rng.below(rng.below(2) == 0 ? 20'000 : 100));
        range.slba = rng.below(kAll / 512 - range.nlb);
        std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(range.slba * 512), range.nlb * 512, std::byte{0});
      }
      std::memcpy(memory.data() + cid * 4096u, ranges.data(), sizeof(ranges));
      nvme::Sqe sqe = command(nvme::NvmOpcode::dataset_management, cid, 0, 0);
      sqe.prp1 = memory.iova() + cid * 4096u;
      sqe.cdw10 = ranges.size() - 1;
      sqe.cdw11 = nvme::kDatasetDeallocate;
      pairs[cid % 2]->submit() = sqe;
    }
    for (driver::QueuePair* const pair : pairs) pair->ring_sq();
    for (int i = 0; i < 16; ++i) ASSERT_EQ(next_status(*pairs[i % 2]), 0);
    EXPECT_EQ(std::memcmp(bytes, expected.data(), kAll), 0);
  }
}

// The timing model is told of all whole units, and of no others.
TEST(LongZeroingData, ReachesTheModelsMap) {
  constexpr std::uint64_t kAll = 64 << 20, kUnitBytes = 4096;
  Machine machine({.bytes = kAll, .model = "nand", .unit_bytes = kUnitBytes}, std::make_unique<SlowMemory>(kAll));
  driver::QueuePair& pair = machine.driver->create_queue_pair({.sq_entries = 8});
  driver::DmaMemory memory(machine.door, 8192);
  machine.stop();
  machine.model().assume_written(0, kAll / kUnitBytes, nullptr);
  machine.restart();
  nvme::Sqe sqe = deallocate_all(memory, 0, kAll);
  const nvme::DatasetRange range{0, static_cast<std::uint32_t>(kAll / 512 - 7), 3};
  std::memcpy(memory.data(), &range, sizeof(range));
  ASSERT_EQ(run(pair, sqe), 0);
  machine.stop();
  std::uint64_t now_ns = std::uint64_t{1} << 60;
  for (std::uint64_t unit = 0; unit < kAll / kUnitBytes; ++unit) {
    const timing::Demand read{unit, 1, timing::DemandKind::read, {}, timing::sectors_of(kUnitBytes)};
    std::uint64_t done_ns = 0;
    machine.model().schedule({&read, 1}, now_ns += 1'000'000, {&done_ns, 1});
  }
  EXPECT_EQ(machine.model().flash_counters()->unwritten_reads, kAll / kUnitBytes - 2);
  machine.restart();
}

}  // namespace
}  // namespace flashmob::api::direct_media
