// Copy of media that takes its time: the data is right however ranges lie, nobody waits for a disk but its host, and
// what ends a command ends it.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "api/direct_media_test_support.h"
#include "base/rng.h"
#include "nvme/dataset.h"

namespace flashmob::api::direct_media {
namespace {

constexpr std::uint32_t kMostRanges = 128;

struct DirectCopy : testing::Test {
  explicit DirectCopy(const Shape& shape = {})
      : machine(shape),
        pair(machine.driver->create_queue_pair({.sq_entries = 64})),
        second(machine.driver->create_queue_pair({.sq_entries = 64})),
        memory(machine.door, 64 * 4096) {
    Rng rng(7);
    for (std::size_t i = 0; i < kBytes; i += 8) {
      const std::uint64_t word = rng.next();
      std::memcpy(machine.store->bytes.data() + i, &word, sizeof(word));
    }
    expected = machine.store->bytes;
  }
  struct Range {
    std::uint64_t first;
    std::uint32_t blocks;
  };
  nvme::Sqe copy(std::uint16_t cid, std::uint64_t to, const std::vector<Range>& from) {
    std::byte* const list = memory.data() + cid * 4096u;
    for (std::size_t i = 0; i < from.size(); ++i) {
      nvme::CopySourceRange range{};
      range.slba = from[i].first;
      range.nlb = static_cast<std::uint16_t>(from[i].blocks - 1);
      std::memcpy(list + i * sizeof(range), &range, sizeof(range));
    }
    nvme::Sqe sqe = command(nvme::NvmOpcode::copy, cid, to, 0);
    sqe.prp1 = memory.iova() + cid * 4096u;
    sqe.cdw12 = static_cast<std::uint32_t>(from.size() - 1);
    return sqe;
  }
  void expect(std::uint64_t to, const std::vector<Range>& from) {
    std::vector<std::byte> moved;
    for (const Range& range : from)
      moved.insert(moved.end(), expected.begin() + static_cast<std::ptrdiff_t>(range.first * 512),
                   expected.begin() + static_cast<std::ptrdiff_t>((range.first + range.blocks) * 512));
    std::memcpy(expected.data() + to * 512, moved.data(), moved.size());
  }
  nvme::Sqe read(std::uint16_t cid, std::uint64_t lba) {
    nvme::Sqe sqe = command(nvme::NvmOpcode::read, cid, lba, 8);
    sqe.prp1 = memory.iova() + cid * 4096u;
    return sqe;
  }
  void start(driver::QueuePair& queue, const nvme::Sqe& sqe) {
    queue.submit() = sqe;
    queue.ring_sq();
  }
  nvme::Cqe ended(driver::QueuePair& queue) {
    nvme::Cqe entry{};
    EXPECT_TRUE(
        within(milliseconds(20000), [&] { return queue.reap(1, [&](const nvme::Cqe& cqe) { entry = cqe; }) != 0; }));
    queue.ring_cq();
    return entry;
  }
  static nvme::Status status_of(const nvme::Cqe& cqe) {
    return nvme::status_of(static_cast<std::uint16_t>(cqe.status_phase >> 1));
  }

  Machine machine;
  driver::QueuePair& pair;
  driver::QueuePair& second;
  driver::DmaMemory memory;
  std::vector<std::byte> expected;
};

TEST_F(DirectCopy, StallsNobody) {
  ASSERT_EQ(run(second, read(0, 4096)), 0) << "it is cached from here on";
  const std::vector<Range> from{{100, 8}, {1003, 5}, {2000, 256}};
  machine.store->stands_still = true;
  start(pair, copy(1, 8001, from));
  for (int i = 0; i < 10; ++i) ASSERT_EQ(run(second, read(0, 4096)), 0);
  EXPECT_EQ(pair.reap(8, [](const nvme::Cqe&) {}), 0u) << "it waits for the medium";
  machine.store->stands_still = false;
  EXPECT_EQ(next_status(pair), 0);
  expect(8001, from);
  EXPECT_TRUE(machine.store->bytes == expected);
}

TEST(DirectCopyData, IsRightWithAnySharesOfTheWork) {
  for (const Shape& shape : {Shape{}, Shape{.units = 2, .alignment = 512, .cache_bytes = 0}, Shape{.workers = 2}}) {
    struct Copies : DirectCopy {
      explicit Copies(const Shape& of) : DirectCopy(of) {}
      void TestBody() override {}
    } test(shape);
    test.machine.store->moves_less = true;
    Rng rng(shape.units + shape.workers);
    for (int round = 0; round < 60; ++round) {
      std::vector<DirectCopy::Range> from(1 + rng.below(rng.below(4) == 0 ? kMostRanges : 4));
      std::uint32_t blocks = 0;
      // Close together, so that sources lie in the destination now and then.
      for (auto& range : from) {
        range.blocks = static_cast<std::uint32_t>(1 + rng.below(std::min<std::size_t>(256, 1000 / from.size())));
        range.first = rng.below(3000);
        blocks += range.blocks;
      }
      const std::uint64_t to = rng.below(3000);
      driver::QueuePair& queue = round % 2 == 0 ? test.pair : test.second;
      ASSERT_EQ(run(queue, test.copy(1, to, from)), 0) << blocks;
      test.expect(to, from);
      ASSERT_TRUE(test.machine.store->bytes == test.expected) << round;
    }
  }
}

// More than there are places for, and each reads what another one writes.
TEST_F(DirectCopy, ManyThatCrossAllEnd) {
  for (std::uint16_t cid = 0; cid < 60; ++cid) {
    driver::QueuePair& queue = cid % 2 == 0 ? pair : second;
    queue.submit() = cid % 4 < 2 ? copy(cid, 0, {{4000, 256}, {4256, 256}}) : copy(cid, 4000, {{0, 256}, {256, 256}});
  }
  pair.ring_sq();
  second.ring_sq();
  for (int i = 0; i < 30; ++i) {
    ASSERT_EQ(next_status(pair), 0);
    ASSERT_EQ(next_status(second), 0);
  }
  EXPECT_TRUE(machine.comes_to_rest());
}

TEST_F(DirectCopy, SaysWhatCouldNotBeDone) {
  const std::vector<Range> from{{100, 8}, {200, 8}, {300, 8}};
  const auto bad_at = [&](std::uint64_t lba, int error) {
    machine.store->bad_error = error;
    machine.store->bad_to = lba * 512 + 4096;
    machine.store->bad_from = lba * 512;
  };
  bad_at(200, EIO);
  start(pair, copy(1, 8000, from));
  nvme::Cqe entry = ended(pair);
  EXPECT_EQ(status_of(entry), nvme::Status::unrecovered_read_error);
  EXPECT_EQ(entry.dw0, 1u) << "the range that could not be read";
  bad_at(8000, EIO);
  EXPECT_EQ(run(pair, copy(1, 8000, from)), static_cast<std::uint16_t>(nvme::Status::write_fault));
  bad_at(8000, ENOSPC);
  EXPECT_EQ(run(pair, copy(1, 8000, from)), static_cast<std::uint16_t>(nvme::Status::capacity_exceeded));
  EXPECT_TRUE(machine.store->bytes == expected);
  machine.store->bad_to = 0;
  EXPECT_EQ(run(pair, copy(1, 8000, from)), 0);
  EXPECT_EQ(run(pair, copy(1, kBytes / 512 - 1, from)), static_cast<std::uint16_t>(nvme::Status::lba_out_of_range));
}

// What was with the disk ends there; nothing of it is begun anew.
TEST_F(DirectCopy, AnAbortOrADeletedQueueEndsIt) {
  for (const bool aborts : {true, false}) {
    machine.store->stands_still = true;
    for (std::uint16_t cid = 1; cid < 12; ++cid) pair.submit() = copy(cid, 8000 + cid * 512u, {{100, 256}, {400, 256}});
    pair.ring_sq();
    ASSERT_TRUE(within(milliseconds(20000), [&] { return machine.store->under_way != 0; }));
    std::thread disk([&] {
      std::this_thread::sleep_for(milliseconds(5));
      machine.store->stands_still = false;
    });
    if (aborts) {
      EXPECT_TRUE(machine.driver->abort(pair.qid(), 1));
      EXPECT_EQ(next_status(pair), static_cast<std::uint16_t>(nvme::Status::abort_requested));
      for (int i = 2; i < 12; ++i) EXPECT_EQ(next_status(pair), 0);
    } else {
      machine.driver->delete_queue_pair(pair);
    }
    disk.join();
    EXPECT_TRUE(machine.comes_to_rest());
    EXPECT_EQ(machine.store->under_way, 0u);
  }
  EXPECT_EQ(run(second, copy(1, 0, {{100, 8}})), 0) << "there is a place for it";
}

TEST_F(DirectCopy, WriteProtectionEndsItHalfWay) {
  machine.store->stands_still = true;
  start(pair, copy(1, 8000, {{100, 256}, {400, 256}}));
  ASSERT_TRUE(within(milliseconds(20000), [&] { return machine.store->under_way != 0; }));
  std::thread disk([&] {
    std::this_thread::sleep_for(milliseconds(5));
    machine.store->stands_still = false;
  });
  machine.stop();
  disk.join();
  machine.ns().writable = false;
  machine.restart();
  EXPECT_EQ(next_status(pair), static_cast<std::uint16_t>(nvme::Status::namespace_is_write_protected));
  EXPECT_TRUE(machine.store->bytes == expected);
}

}  // namespace
}  // namespace flashmob::api::direct_media
