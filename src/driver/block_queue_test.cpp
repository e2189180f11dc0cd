// The block client against a scripted device: bouncing, parts, slots, failures, waits that end, and a device that lies.
#include "driver/block_queue.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "driver/fake_nvme.h"
#include "nvme/dataset.h"
#include "nvme/identify_controller.h"
#include "nvme/io_command.h"

namespace flashmob::driver {
namespace {

constexpr BlockNamespace kNs{.nsid = 3, .lba_shift = 9, .blocks = 2048};
constexpr std::uint64_t kSlotBytes = 16 << 10;

struct BlockQueueTest : testing::Test {
  BlockQueueTest() : media(kNs.bytes()), driver(device, device.waiter()) {
    device.iova_offset = 0x7000'0000'0000;
    device.on_io = [this](const nvme::Sqe& sqe) -> FakeNvme::Answer {
      if (silent) return std::nullopt;
      if (sqe.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::flush)) return AdminResult{0, 0};
      EXPECT_EQ(sqe.nsid, kNs.nsid);
      if (sqe.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::dataset_management)) {
        ranges.resize(nvme::dataset_range_count(sqe));
        device.transfer(sqe, std::as_writable_bytes(std::span(ranges)), false);
        return AdminResult{0, 0};
      }
      const std::uint64_t at = nvme::starting_lba(sqe) * 512;
      const std::uint64_t bytes = nvme::block_count(sqe) * std::uint64_t{512};
      if (at == failing_at) return AdminResult{0x281, 0};
      device.transfer(sqe, std::span(media).subspan(at, bytes), sqe.opcode == 2);
      return AdminResult{0, 0};
    };
    driver.enable();
  }

  FakeNvme device;
  bool silent = false;
  std::uint64_t failing_at = UINT64_MAX;
  std::vector<std::byte> media;
  std::vector<nvme::DatasetRange> ranges;
  NvmeDriver driver;
};

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 7 + i / 512);
  return data;
}

TEST_F(BlockQueueTest, MovesAnyLengthFromAndToAnyMemoryInCommandsOfASlot) {
  BlockQueue queue(driver, {.slots = 3, .slot_bytes = kSlotBytes});
  const auto data = pattern(10 * kSlotBytes + 512);
  unsigned ended = 0;
  queue.write(kNs, 5, data.data(), data.size(), [&](std::uint16_t status) { ended += status == 0; });
  queue.wait_until([&] { return queue.requests() == 0; });
  EXPECT_EQ(ended, 1u);
  EXPECT_EQ(device.io_commands.size(), 11u);
  EXPECT_EQ(std::memcmp(media.data() + 5 * 512, data.data(), data.size()), 0);
  std::vector<std::byte> read(data.size() + 1);
  EXPECT_EQ(queue.run(nvme::NvmOpcode::read, kNs, 5, read.data() + 1, data.size()), 0);
  EXPECT_EQ(std::memcmp(read.data() + 1, data.data(), data.size()), 0);
  queue.flush(kNs.nsid, [&](std::uint16_t status) { ended += status == 0; });
  EXPECT_EQ(queue.outstanding(), 1u);
  while (queue.outstanding() != 0) {
    device.tick();
    queue.poll();
  }
  EXPECT_EQ(ended, 2u);
  EXPECT_FALSE(device.transfer_failed());
}

TEST_F(BlockQueueTest, DataCanBeMadeAndSeenInPlace) {
  BlockQueue queue(driver, {.slots = 2, .slot_bytes = 4096});
  const std::uint16_t slot = queue.take_slot();
  std::memset(queue.buffer(slot, 1024).data(), 9, 1024);
  queue.submit(slot, nvme::NvmOpcode::write, kNs, 1, 1024, {});
  queue.wait_until([&] { return queue.outstanding() == 0; });
  EXPECT_EQ(media[511], std::byte{0});
  EXPECT_EQ(media[512], std::byte{9});
  EXPECT_EQ(media[512 + 1023], std::byte{9});
  const std::uint16_t second = queue.take_slot();
  bool seen = false;
  queue.submit(second, nvme::NvmOpcode::read, kNs, 1, 512,
               [&](std::uint16_t status) { seen = status == 0 && queue.buffer(second, 512)[0] == std::byte{9}; });
  queue.wait_until([&] { return seen; });
}

TEST_F(BlockQueueTest, BlocksAreGivenBackByOneCommandHoweverManyTheyAre) {
  BlockQueue queue(driver, {.slots = 1, .slot_bytes = 4096});
  bool ended = false;
  queue.deallocate(kNs, 5, std::uint64_t{UINT32_MAX} + 7, [&](std::uint16_t) { ended = true; });
  queue.wait_until([&] { return ended; });
  const nvme::Sqe& sqe = device.io_commands.back();
  EXPECT_EQ(sqe.opcode, static_cast<std::uint8_t>(nvme::NvmOpcode::dataset_management));
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(sqe.cdw11, nvme::kDatasetDeallocate);
  EXPECT_EQ(ranges[0].slba, 5u);
  EXPECT_EQ(ranges[0].nlb, UINT32_MAX);
  EXPECT_EQ(ranges[1].slba, 5 + std::uint64_t{UINT32_MAX});
  EXPECT_EQ(ranges[1].nlb, 7u);
  EXPECT_EQ(queue.outstanding(), 0u);
}

TEST_F(BlockQueueTest, TheFirstFailureIsToldOnceAllPartsHaveEnded) {
  BlockQueue queue(driver, {.slots = 2, .slot_bytes = 4096});
  failing_at = 4096;
  const auto data = pattern(5 * 4096);
  EXPECT_EQ(queue.run(nvme::NvmOpcode::write, kNs, 0, const_cast<std::byte*>(data.data()), data.size()), 0x281);
  EXPECT_EQ(device.io_commands.size(), 5u);
  failing_at = UINT64_MAX;
  std::vector<std::byte> read(4096);
  EXPECT_EQ(queue.run(nvme::NvmOpcode::read, kNs, 0, read.data(), read.size()), 0);
}

TEST_F(BlockQueueTest, CallbacksMayStartMore) {
  BlockQueue queue(driver, {.slots = 1, .slot_bytes = 4096});
  const auto data = pattern(4096);
  unsigned ended = 0;
  std::function<void(std::uint16_t)> again = [&](std::uint16_t) {
    if (++ended < 20) queue.write(kNs, ended, data.data(), 512, again);
  };
  again(0);
  queue.wait_until([&] { return queue.requests() == 0; });
  EXPECT_EQ(ended, 20u);
}

TEST_F(BlockQueueTest, MemoryOfAWaitThatGaveUpIsNotTouchedWhenTheDeviceAnswersLate) {
  BlockQueue queue(driver, {.slots = 2, .slot_bytes = 4096});
  queue.timeout_ns = 1'000'000;
  std::fill(media.begin(), media.end(), std::byte{1});
  std::vector<std::byte> read(3 * 4096);
  bool told = false;
  silent = true;
  EXPECT_THROW(queue.run(nvme::NvmOpcode::read, kNs, 0, read.data(), 4096), NvmeTimeout);
  EXPECT_THROW(queue.read(kNs, 0, read.data(), read.size(), [&](std::uint16_t) { told = true; }), NvmeTimeout)
      << "it waits for a slot";
  EXPECT_EQ(queue.requests(), 0u);
  EXPECT_EQ(queue.outstanding(), 2u);
  silent = false;
  for (const nvme::Sqe& sqe : std::vector(device.io_commands)) {
    device.on_io(sqe);
    device.complete(sqe.cid, {0, 0}, 1);
  }
  EXPECT_EQ(queue.poll(), 0u);
  EXPECT_EQ(queue.outstanding(), 0u);
  EXPECT_FALSE(told);
  EXPECT_EQ(read, std::vector<std::byte>(3 * 4096)) << "the bytes came, and went nowhere";
  EXPECT_EQ(queue.run(nvme::NvmOpcode::read, kNs, 0, read.data(), 4096), 0) << "both slots are free again";
  EXPECT_EQ(read[4095], std::byte{1});
}

TEST_F(BlockQueueTest, WhatIsAbandonedIsToldToNobody) {
  BlockQueue queue(driver, {.slots = 4, .slot_bytes = 4096});
  std::fill(media.begin(), media.end(), std::byte{1});
  std::vector<std::byte> read(8192);
  queue.read(kNs, 0, read.data(), read.size(), [](std::uint16_t) { FAIL() << "nobody wants to know"; });
  queue.abandon();
  EXPECT_EQ(queue.requests(), 0u);
  queue.wait_until([&] { return queue.outstanding() == 0; });
  EXPECT_EQ(read, std::vector<std::byte>(8192));
}

TEST_F(BlockQueueTest, DeadControllersEndAWait) {
  BlockQueue queue(driver, {.slots = 1, .slot_bytes = 4096});
  std::vector<std::byte> data(512);
  silent = true;
  queue.read(kNs, 0, data.data(), 512, {});
  device.set_fatal();
  const std::uint64_t begin_ns = device.now_ns;
  EXPECT_THROW(queue.wait_until([] { return false; }), NvmeFatal);
  EXPECT_LT(device.now_ns - begin_ns, 100'000'000u) << "long before its time-out";
}

TEST_F(BlockQueueTest, AResetTakesTheQueueAwayAndItsEndAsksTheDeviceNothing) {
  {
    BlockQueue queue(driver, {.slots = 1, .slot_bytes = 4096});
    std::vector<std::byte> data(512);
    driver.enable();
    EXPECT_TRUE(queue.is_gone());
    EXPECT_THROW(queue.read(kNs, 0, data.data(), 512, {}), std::runtime_error);
    EXPECT_THROW(queue.poll(), std::runtime_error);
    device.admin_commands.clear();
  }
  EXPECT_TRUE(device.admin_commands.empty());
  EXPECT_EQ(driver.queue_pairs(), 0u);
  {
    BlockQueue queue(driver, {.slots = 1, .slot_bytes = 4096});
  }
  EXPECT_EQ(device.admin_commands.size(), 4u) << "one that is there is deleted";
}

TEST_F(BlockQueueTest, CompletionsThatNobodyWaitsForAreNotBelieved) {
  BlockQueue queue(driver, {.slots = 2, .slot_bytes = 4096});
  std::vector<std::byte> data(512);
  silent = true;
  queue.read(kNs, 0, data.data(), 512, {});
  device.tick();
  const std::uint16_t cid = device.io_commands.back().cid;
  device.complete(static_cast<std::uint16_t>(cid ^ 1), {0, 0}, 1);
  EXPECT_THROW(queue.poll(), std::runtime_error) << "a free slot";
  device.complete(40'000, {0, 0}, 1);
  EXPECT_THROW(queue.poll(), std::runtime_error) << "no slot at all";
  device.complete(cid, {0, 0}, 1);
  EXPECT_EQ(queue.poll(), 1u);
}

TEST_F(BlockQueueTest, NamespacesAreParsedOnceForEverybody) {
  nvme::IdentifyNamespace identify{};
  identify.nsze = 1000;
  identify.flbas = (1u << 5) | 2u | nvme::kFlbasExtendedMetadata;  // index 18
  identify.lbaf[18] = {.ms = 8, .lbads = 12, .rp = 0};
  identify.lbaf[2].lbads = 9;
  BlockNamespace ns = namespace_of(7, identify);
  EXPECT_EQ(ns.nsid, 7u);
  EXPECT_EQ(ns.lba_bytes(), 4096u);
  EXPECT_EQ(ns.bytes(), 4'096'000u);
  EXPECT_EQ(ns.metadata_bytes, 8);
  EXPECT_TRUE(ns.extended_metadata);
  identify.lbaf[18].lbads = 255;
  EXPECT_EQ(namespace_of(7, identify).lba_shift, 63) << "no shift that is none";

  // More than one list holds; and a limit in pages.
  device.on_admin = [this](const nvme::Sqe& sqe) {
    if (sqe.opcode != static_cast<std::uint8_t>(nvme::AdminOpcode::identify)) return AdminResult{0, 0};
    std::vector<std::byte> data(4096);
    if ((sqe.cdw10 & 0xFF) == 2) {
      std::vector<std::uint32_t> list(1024);
      std::iota(list.begin(), list.end(), sqe.nsid + 1);
      for (std::uint32_t& nsid : list) nsid = nsid > 1500 ? 0 : nsid;
      std::memcpy(data.data(), list.data(), data.size());
    } else {
      nvme::IdentifyController controller{};
      controller.mdts = 3;
      std::memcpy(data.data(), &controller, data.size());
    }
    device.transfer(sqe, data, true);
    return AdminResult{0, 0};
  };
  const auto active = active_namespaces(driver);
  ASSERT_EQ(active.size(), 1500u);
  EXPECT_EQ(active.back(), 1500u);
  EXPECT_EQ(max_transfer_bytes(driver), 32768u);
}

}  // namespace
}  // namespace flashmob::driver
