// The whole engine on threads with media that takes its time: the data is right whatever the medium does and in
// whatever order; errors reach their commands; nobody waits for a disk but those who must.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "api/direct_media_test_support.h"
#include "base/rng.h"
#include "nvme/dataset.h"
#include "nvme/io_command.h"

namespace flashmob::api::direct_media {
namespace {

constexpr std::uint32_t kMaxBlocks = 64;
constexpr std::uint32_t kSlots = 32;  // commands in flight in a queue, each with blocks of its own

// Writes and reads back random blocks at odd addresses, many commands at once. Each command slot has blocks of its own,
// so what it reads is what it wrote last; slots lie side by side within blocks of the store.
class Checker {
 public:
  Checker(Machine& machine, std::uint32_t index, std::uint32_t lba_bytes)
      : pair_(machine.driver->create_queue_pair({.sq_entries = kSlots + 1})),
        memory_(machine.door, kSlots * kStride),
        lists_(machine.door, kSlots, kMaxBlocks * 512 + 4096),
        lba_bytes_(lba_bytes),
        first_(std::uint64_t{index} * kSlots * slot_blocks()),
        rng_(index + 1),
        slots_(kSlots) {}

  void run(std::uint32_t commands) {
    for (std::uint16_t slot = 0; slot < kSlots; ++slot) start(slot);
    pair_.ring_sq();
    std::uint32_t ended = 0;
    ASSERT_TRUE(within(milliseconds(60000), [&] {
      pair_.reap(kSlots, [&](const nvme::Cqe& cqe) {
        ASSERT_EQ(cqe.status_phase >> 1, 0);
        check(cqe.cid);
        if (++ended + kSlots <= commands) start(cqe.cid);
      });
      pair_.ring_cq();
      pair_.ring_sq();
      return pair_.outstanding() == 0 || testing::Test::HasFatalFailure();
    })) << ended;
  }

 private:
  static constexpr std::uint64_t kStride = 2 * 9 * 4096;  // what is written, and what is read

  struct Slot {
    bool reading = true;
    std::uint32_t offset = 0, blocks = 0;
  };

  // Odd, so that neighbours meet within a block of the store.
  std::uint32_t slot_blocks() const { return lba_bytes_ == 512 ? kMaxBlocks - 1 : kMaxBlocks / 8; }
  std::byte* buffer(std::uint16_t slot, bool of_read) {
    return memory_.data() + slot * kStride + (of_read ? kStride / 2 : 0);
  }

  void start(std::uint16_t index) {
    Slot& slot = slots_[index];
    slot.reading = !slot.reading;
    if (!slot.reading) {
      slot.blocks = static_cast<std::uint32_t>(1 + rng_.below(rng_.below(4) == 0 ? slot_blocks() : 4));
      slot.offset = static_cast<std::uint32_t>(rng_.below(1024) * 4);
      std::byte* const data = buffer(index, false) + slot.offset;
      for (std::uint32_t i = 0; i < slot.blocks * lba_bytes_; i += 64) {
        const std::uint64_t word = rng_.next();
        std::memcpy(data + i, &word, sizeof(word));
      }
    } else {
      std::memset(buffer(index, true), 0xEE, kStride / 2);
    }
    nvme::Sqe sqe = command(slot.reading ? nvme::NvmOpcode::read : nvme::NvmOpcode::write, index,
                            first_ + std::uint64_t{index} * slot_blocks(), slot.blocks);
    const auto at = static_cast<std::uint64_t>(buffer(index, slot.reading) - memory_.data()) + slot.offset;
    const std::uint32_t bytes = slot.blocks * lba_bytes_;
    if (rng_.below(3) == 0) {  // an SGL data block
      sqe.flags = nvme::kFlagPsdtSglBufferMetadata;
      sqe.prp1 = memory_.iova() + at;
      sqe.prp2 = bytes;
    } else {
      lists_.describe(index, sqe, memory_.iova() + at, bytes);
    }
    pair_.submit() = sqe;
  }

  void check(std::uint16_t index) {
    const Slot& slot = slots_[index];
    if (!slot.reading) return;
    const std::byte* const read = buffer(index, true);
    const std::size_t bytes = slot.blocks * lba_bytes_;
    ASSERT_EQ(std::memcmp(read + slot.offset, buffer(index, false) + slot.offset, bytes), 0) << "slot " << index;
    const auto untouched = [](std::byte byte) { return byte == std::byte{0xEE}; };
    ASSERT_TRUE(std::all_of(read, read + slot.offset, untouched));
    ASSERT_TRUE(std::all_of(read + slot.offset + bytes, read + kStride / 2, untouched));
  }

  driver::QueuePair& pair_;
  driver::DmaMemory memory_;
  driver::PrpLists lists_;
  std::uint32_t lba_bytes_;
  std::uint64_t first_;
  Rng rng_;
  std::vector<Slot> slots_;
};

TEST(DirectMediaEngine, DataIsRightWithAnySharesOfTheWork) {
  for (const Shape& shape : {Shape{}, Shape{.units = 2, .cache_bytes = 0}, Shape{.units = 2, .alignment = 512},
                             Shape{.workers = 2}, Shape{.units = 2, .lba_bytes = 4096}}) {
    SCOPED_TRACE(testing::Message() << shape.units << " " << shape.workers << " " << shape.lba_bytes);
    Machine machine(shape);
    machine.store->moves_less = true;
    std::vector<std::unique_ptr<Checker>> checkers;
    for (std::uint32_t i = 0; i < 2; ++i) checkers.push_back(std::make_unique<Checker>(machine, i, shape.lba_bytes));
    std::thread other([&] { checkers[1]->run(1500); });
    checkers[0]->run(1500);
    other.join();
    EXPECT_EQ(machine.store->under_way, 0u);
  }
}

struct DirectMediaEngineTest : testing::Test {
  DirectMediaEngineTest()
      : machine({}), pair(machine.driver->create_queue_pair({.sq_entries = 64})), memory(machine.door, 64 << 10) {}

  nvme::Sqe on_page(nvme::NvmOpcode opcode, std::uint16_t cid, std::uint64_t lba) {
    nvme::Sqe sqe = command(opcode, cid, lba, 8);
    sqe.prp1 = memory.iova() + cid * 4096u;
    return sqe;
  }
  void start(const nvme::Sqe& sqe) {
    const std::uint64_t before = machine.store->under_way;
    pair.submit() = sqe;
    pair.ring_sq();
    ASSERT_TRUE(within(milliseconds(5000), [&] { return machine.store->under_way > before; }));
  }

  Machine machine;
  driver::QueuePair& pair;
  driver::DmaMemory memory;
};

TEST_F(DirectMediaEngineTest, ErrorsOfTheMediumReachTheirCommands) {
  machine.store->bad_from = 4096;
  machine.store->bad_to = 8192;
  const auto status = [](nvme::Status s) { return static_cast<std::uint16_t>(s); };
  EXPECT_EQ(run(pair, on_page(nvme::NvmOpcode::read, 0, 0)), 0);
  EXPECT_EQ(run(pair, on_page(nvme::NvmOpcode::read, 0, 8)), status(nvme::Status::unrecovered_read_error));
  EXPECT_EQ(run(pair, on_page(nvme::NvmOpcode::write, 0, 8)), status(nvme::Status::write_fault));
  EXPECT_EQ(run(pair, on_page(nvme::NvmOpcode::compare, 0, 8)), status(nvme::Status::unrecovered_read_error));
  machine.store->bad_error = ENOSPC;
  EXPECT_EQ(run(pair, on_page(nvme::NvmOpcode::write, 0, 8)), status(nvme::Status::capacity_exceeded));
  EXPECT_EQ(run(pair, on_page(nvme::NvmOpcode::write, 0, 16)), 0);
}

TEST_F(DirectMediaEngineTest, ForcedUnitAccessIsOneDurableWrite) {
  nvme::Sqe sqe = on_page(nvme::NvmOpcode::write, 0, 0);
  EXPECT_EQ(run(pair, sqe), 0);
  EXPECT_EQ(machine.store->durable_writes, 0u);
  sqe.cdw12 |= nvme::kIoForceUnitAccess;
  EXPECT_EQ(run(pair, sqe), 0);
  EXPECT_EQ(machine.store->durable_writes, 1u);
}

TEST_F(DirectMediaEngineTest, CommandsThatWaitComeAfterThoseOfTheirThread) {
  std::memset(memory.data(), 0x5A, 4096);
  for (int i = 0; i < 100; ++i) {
    pair.submit() = on_page(nvme::NvmOpcode::write, 0, 8);
    pair.submit() = command(nvme::NvmOpcode::write_zeroes, 1, 8, 8);
    pair.submit() = on_page(nvme::NvmOpcode::read, 2, 8);
    pair.ring_sq();
    for (int n = 0; n < 3; ++n) ASSERT_EQ(next_status(pair), 0);
    ASSERT_EQ(run(pair, on_page(nvme::NvmOpcode::read, 2, 8)), 0);
    const std::byte first = memory.data()[2 * 4096];
    ASSERT_TRUE(first == std::byte{0x5A} || first == std::byte{0});
    for (int b = 0; b < 4096; ++b) ASSERT_EQ(memory.data()[2 * 4096 + b], first) << "one or the other, not a mix";
  }
}

TEST_F(DirectMediaEngineTest, AHostThatTakesItsMemoryBackWaitsForNoDisk) {
  machine.store->stands_still = true;
  driver::DmaMemory other(machine.door, 4096);
  start(on_page(nvme::NvmOpcode::read, 0, 0));
  const auto since = std::chrono::steady_clock::now();
  std::vector<std::byte> page(8192);
  machine.door.dma_map(std::uint64_t{1} << 50, page.data(), 4096);
  machine.door.dma_unmap(std::uint64_t{1} << 50, 4096);
  EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::seconds(5)) << "it would have waited for ever";
  machine.store->stands_still = false;
  EXPECT_EQ(next_status(pair), 0);
}

// Lets the store go on a little later.
std::thread relieve(media::StoreInMemory& store) {
  return std::thread([&store] {
    std::this_thread::sleep_for(milliseconds(5));
    store.stands_still = false;
  });
}

nvme::Sqe deallocate(driver::DmaMemory& memory, std::uint16_t cid, std::span<const nvme::DatasetRange> ranges) {
  std::memcpy(memory.data() + cid * 4096u, ranges.data(), ranges.size_bytes());
  nvme::Sqe sqe = command(nvme::NvmOpcode::dataset_management, cid, 0, 0);
  sqe.prp1 = memory.iova() + cid * 4096u;
  sqe.cdw10 = static_cast<std::uint32_t>(ranges.size() - 1);
  sqe.cdw11 = nvme::kDatasetDeallocate;
  return sqe;
}

// Each of them had its thread wait for the disk, and every other queue of that thread with it.
TEST_F(DirectMediaEngineTest, ZeroingStallsNobody) {
  driver::QueuePair& second = machine.driver->create_queue_pair({.sq_entries = 8});
  ASSERT_EQ(run(second, on_page(nvme::NvmOpcode::read, 0, 4096)), 0) << "it is cached from here on";
  machine.store->stands_still = true;
  start(command(nvme::NvmOpcode::write_zeroes, 1, 2056, 8));
  const std::array<nvme::DatasetRange, 2> ranges{{{0, 1024, 1024}, {0, 3, 2057}}};
  start(deallocate(memory, 2, ranges));
  for (int i = 0; i < 10; ++i) ASSERT_EQ(run(second, on_page(nvme::NvmOpcode::read, 0, 4096)), 0);
  EXPECT_EQ(pair.reap(8, [](const nvme::Cqe&) {}), 0u) << "both wait for the medium";
  machine.store->stands_still = false;
  EXPECT_EQ(next_status(pair), 0);
  EXPECT_EQ(next_status(pair), 0);
}

TEST_F(DirectMediaEngineTest, ComparingAndVerifyingStallNobody) {
  driver::QueuePair& second = machine.driver->create_queue_pair({.sq_entries = 8});
  ASSERT_EQ(run(second, on_page(nvme::NvmOpcode::read, 0, 4096)), 0) << "it is cached from here on";
  const auto mismatch = static_cast<std::uint16_t>(nvme::Status::compare_failure);
  std::memset(machine.store->bytes.data() + 16 * 512, 0x5A, 4096);
  std::memset(memory.data() + 4096, 0x5A, 2 * 4096);
  for (const unsigned last : {0x5Au, 0x5Bu}) {
    memory.data()[2 * 4096 - 1] = static_cast<std::byte>(last);
    machine.store->stands_still = true;
    start(on_page(nvme::NvmOpcode::compare, 1, 16));
    start(command(nvme::NvmOpcode::verify, 2, 2000, 100));
    for (int i = 0; i < 10; ++i) ASSERT_EQ(run(second, on_page(nvme::NvmOpcode::read, 0, 4096)), 0);
    EXPECT_EQ(pair.reap(8, [](const nvme::Cqe&) {}), 0u) << "both wait for the medium";
    machine.store->stands_still = false;
    std::array<std::uint16_t, 3> seen{};
    ASSERT_TRUE(within(milliseconds(20000), [&] {
      pair.reap(
          8, [&](const nvme::Cqe& cqe) { seen[cqe.cid] = static_cast<std::uint16_t>(cqe.status_phase >> 1) | 0x8000; });
      return seen[1] != 0 && seen[2] != 0;
    }));
    pair.ring_cq();
    EXPECT_EQ(seen[1] & 0x7FF, last == 0x5A ? 0 : mismatch);
    EXPECT_EQ(seen[2] & 0x7FF, 0);
    // Neither is in the cache any more.
    for (std::uint64_t lba = 4104; lba < 8192; lba += 8)
      ASSERT_EQ(run(second, on_page(nvme::NvmOpcode::read, 0, lba)), 0);
    ASSERT_EQ(run(second, on_page(nvme::NvmOpcode::read, 0, 4096)), 0);
  }
  machine.store->bad_from = 2000 * 512;
  machine.store->bad_to = machine.store->bad_from + 4096;
  EXPECT_EQ(run(pair, command(nvme::NvmOpcode::verify, 2, 2000, 100)),
            static_cast<std::uint16_t>(nvme::Status::unrecovered_read_error));
}

TEST_F(DirectMediaEngineTest, ADeletedQueueWaitsForWhatLooks) {
  driver::QueuePair& second = machine.driver->create_queue_pair({.sq_entries = 64});
  machine.store->stands_still = true;
  start(on_page(nvme::NvmOpcode::write, 0, 64));
  for (std::uint16_t i = 1; i < 6; ++i) pair.submit() = on_page(nvme::NvmOpcode::compare, i, 56u + 8u * (i % 2));
  pair.ring_sq();
  ASSERT_TRUE(within(milliseconds(5000), [&] { return machine.store->under_way >= 2; })) << "some wait for the write";
  std::thread disk = relieve(*machine.store);
  machine.driver->delete_queue_pair(pair);
  EXPECT_EQ(machine.store->under_way, 0u);
  disk.join();
  EXPECT_EQ(run(second, on_page(nvme::NvmOpcode::compare, 1, 64)), 0);
  EXPECT_TRUE(machine.comes_to_rest());
}

TEST(DirectMediaEngine, ZeroingIsRightWithAnySharesOfTheWork) {
  for (const Shape& shape : {Shape{}, Shape{.units = 2, .alignment = 512, .cache_bytes = 0}, Shape{.workers = 2}}) {
    Machine machine(shape);
    auto& pair = machine.driver->create_queue_pair({.sq_entries = 64});
    driver::DmaMemory memory(machine.door, 64 << 10);
    machine.store->moves_less = true;
    std::vector<std::byte> expected(kBytes, std::byte{0x5A});
    machine.store->bytes = expected;
    Rng rng(shape.units + shape.workers);
    std::uint32_t asked = 0;
    for (int round = 0; round < 40; ++round) {
      std::array<nvme::DatasetRange, 5> ranges{};
      for (nvme::DatasetRange& range : ranges) {
        range.nlb = static_cast<std::uint32_t>(rng.below(rng.below(3) == 0 ? 600 : 20));
        range.slba = rng.below(kBytes / 512 - range.nlb);
      }
      const bool writes = ranges[0].nlb != 0 && round % 2 == 0;
      const auto count = std::span(ranges).first(writes ? 1 : ranges.size());
      const auto cid = static_cast<std::uint16_t>(round % 16);
      pair.submit() = writes ? command(nvme::NvmOpcode::write_zeroes, cid, ranges[0].slba, ranges[0].nlb)
                             : deallocate(memory, cid, count);
      for (const nvme::DatasetRange& range : count)
        std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(range.slba * 512), range.nlb * 512, std::byte{0});
      if (++asked < 16) continue;
      pair.ring_sq();
      for (; asked != 0; --asked) ASSERT_EQ(next_status(pair), 0);
    }
    pair.ring_sq();
    for (; asked != 0; --asked) ASSERT_EQ(next_status(pair), 0);
    EXPECT_TRUE(machine.store->bytes == expected);
  }
}

TEST_F(DirectMediaEngineTest, WhatCannotBeZeroedIsSaid) {
  machine.store->bad_from = 4096;
  machine.store->bad_to = 8192;
  const auto status = [](nvme::Status s) { return static_cast<std::uint16_t>(s); };
  const std::array<nvme::DatasetRange, 2> ranges{{{0, 8, 8}, {0, 4, 0}}};
  std::fill_n(machine.store->bytes.begin(), 64 << 10, std::byte{1});
  EXPECT_EQ(run(pair, deallocate(memory, 1, ranges)), status(nvme::Status::write_fault));
  EXPECT_EQ(machine.store->bytes[0], std::byte{0}) << "the first range in the order of blocks was good";
  machine.store->bad_error = ENOSPC;
  EXPECT_EQ(run(pair, command(nvme::NvmOpcode::write_zeroes, 1, 8, 8)), status(nvme::Status::capacity_exceeded));
  EXPECT_EQ(run(pair, command(nvme::NvmOpcode::write_zeroes, 1, 0, 8)), 0);
  const std::array<nvme::DatasetRange, 1> beyond{{{0, 8, kBytes / 512 - 7}}};
  EXPECT_EQ(run(pair, deallocate(memory, 1, beyond)), status(nvme::Status::lba_out_of_range));
  const std::array<nvme::DatasetRange, 1> nothing{{{0, 0, 0}}};
  EXPECT_EQ(run(pair, deallocate(memory, 1, nothing)), 0);
  EXPECT_TRUE(machine.comes_to_rest());
}

TEST_F(DirectMediaEngineTest, AnAbortOrADeletedQueueLeavesNothingUnderWay) {
  driver::QueuePair& second = machine.driver->create_queue_pair({.sq_entries = 64});
  machine.store->stands_still = true;
  for (std::uint16_t i = 0; i < 6; ++i) pair.submit() = on_page(nvme::NvmOpcode::write, i, 8u * (i / 2));
  pair.ring_sq();
  second.submit() = on_page(nvme::NvmOpcode::read, 7, 64);
  second.ring_sq();
  ASSERT_TRUE(within(milliseconds(5000), [&] { return machine.store->under_way == 4; }))
      << "three writes wait for others";
  std::thread disk = relieve(*machine.store);
  const bool aborted = machine.driver->abort(1, 5);
  disk.join();
  std::vector<std::uint16_t> seen(6, 0xFFFF);
  ASSERT_TRUE(within(milliseconds(5000), [&] {
    pair.reap(8, [&](const nvme::Cqe& cqe) { seen[cqe.cid] = (cqe.status_phase >> 1) & 0x7FF; });
    return std::none_of(seen.begin(), seen.end(), [](std::uint16_t status) { return status == 0xFFFF; });
  }));
  pair.ring_cq();
  EXPECT_EQ(seen[5], aborted ? static_cast<std::uint16_t>(nvme::Status::abort_requested) : 0);
  EXPECT_EQ(next_status(second), 0);

  machine.store->stands_still = true;
  start(on_page(nvme::NvmOpcode::write, 0, 0));
  disk = relieve(*machine.store);
  machine.driver->delete_queue_pair(pair);
  EXPECT_EQ(machine.store->under_way, 0u);
  disk.join();
  EXPECT_EQ(run(second, on_page(nvme::NvmOpcode::read, 1, 0)), 0);
}

TEST_F(DirectMediaEngineTest, AResetEndsZeroing) {
  std::array<nvme::DatasetRange, 256> ranges{};
  for (std::uint32_t i = 0; i < ranges.size(); ++i) ranges[i] = {0, 8, 16 * i};
  for (int round = 0; round < 5; ++round) {
    driver::QueuePair& queue = machine.driver->create_queue_pair({.sq_entries = 8});
    machine.store->stands_still = true;
    for (std::uint16_t i = 0; i < 3; ++i) queue.submit() = deallocate(memory, i, ranges);
    queue.ring_sq();
    ASSERT_TRUE(within(milliseconds(5000), [&] { return machine.store->under_way != 0; }));
    std::thread disk = relieve(*machine.store);
    machine.driver->disable();
    const std::uint64_t after = machine.store->transfers;
    EXPECT_EQ(machine.store->under_way, 0u) << "no write lands behind the host's back";
    disk.join();
    EXPECT_TRUE(machine.comes_to_rest());
    machine.driver->enable();
    driver::QueuePair& fresh = machine.driver->create_queue_pair({.sq_entries = 8});
    ASSERT_EQ(run(fresh, on_page(nvme::NvmOpcode::write, 1, 0)), 0);
    EXPECT_EQ(machine.store->transfers - after, 2u) << "what the reset has stopped stays so";
  }
}

// Another queue comes meanwhile: the threads stop, and go on where they were.
TEST_F(DirectMediaEngineTest, ZeroingGoesOnAfterAPause) {
  std::fill_n(machine.store->bytes.begin(), 4 << 20, std::byte{1});
  std::array<nvme::DatasetRange, 256> ranges{};
  for (std::uint32_t i = 0; i < ranges.size(); ++i) ranges[i] = {0, 8, 16 * i};
  machine.store->stands_still = true;
  start(deallocate(memory, 1, ranges));
  std::thread disk = relieve(*machine.store);
  for (int i = 0; i < 3; ++i) machine.driver->create_queue_pair({.sq_entries = 8});
  disk.join();
  ASSERT_EQ(next_status(pair), 0);
  for (std::uint32_t block = 0; block < 4096; ++block)
    ASSERT_EQ(machine.store->bytes[block * 512], std::byte(block / 8 % 2)) << block;
}

TEST_F(DirectMediaEngineTest, AResetWaitsForWhatIsUnderWay) {
  std::memset(memory.data(), 0x11, 4096);
  std::memset(memory.data() + 4096, 0x22, 4096);
  for (int round = 0; round < 10; ++round) {
    driver::QueuePair& queue = machine.driver->create_queue_pair({.sq_entries = 64});
    machine.store->stands_still = true;
    for (std::uint16_t i = 0; i < 10; ++i) queue.submit() = on_page(nvme::NvmOpcode::write, 0, 8u * (i / 2));
    queue.ring_sq();
    ASSERT_TRUE(within(milliseconds(5000), [&] { return machine.store->under_way >= 5; }));
    std::thread disk = relieve(*machine.store);
    machine.driver->disable();
    EXPECT_EQ(machine.store->under_way, 0u) << "no write lands behind the host's back";
    disk.join();
    EXPECT_TRUE(machine.comes_to_rest());
    machine.driver->enable();
    driver::QueuePair& fresh = machine.driver->create_queue_pair({.sq_entries = 8});
    ASSERT_EQ(run(fresh, on_page(nvme::NvmOpcode::write, 1, 0)), 0);
    ASSERT_EQ(run(fresh, on_page(nvme::NvmOpcode::read, 2, 0)), 0);
    ASSERT_EQ(std::memcmp(memory.data() + 4096, memory.data() + 8192, 4096), 0);
  }
}

}  // namespace
}  // namespace flashmob::api::direct_media
