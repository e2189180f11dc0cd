// Controller properties: values, access rules, sizes.
#include <gtest/gtest.h>

#include "controller/controller_test_support.h"

namespace flashmob::controller::testing {
namespace {

TEST(Registers, CapTellsWhatTheControllerDoes) {
  TestDevice d;
  const nvme::Cap cap = nvme::decode_cap(d.controller().read_register(nvme::kRegCap, 8));
  EXPECT_EQ(cap.mqes, 255);
  EXPECT_TRUE(cap.cqr);
  EXPECT_EQ(cap.ams, nvme::kCapAmsWeightedRoundRobin);
  EXPECT_GT(cap.to, 0);
  EXPECT_EQ(cap.dstrd, 0);
  EXPECT_TRUE(cap.nssrs);
  EXPECT_EQ(cap.css, nvme::kCapCssNvm | nvme::kCapCssIoCommandSets);
  EXPECT_EQ(cap.mpsmin, 0);
  EXPECT_EQ(cap.mpsmax, 0);
  EXPECT_EQ(cap.crms, nvme::kCapCrmsWithMedia);
  EXPECT_EQ(d.controller().read_register(nvme::kRegCrto, 4), cap.to);
  EXPECT_EQ(d.controller().read_register(nvme::kRegVs, 4), 0x00020000u);
}

TEST(Registers, LargestQueueIs65536Entries) {
  DeviceOptions options;
  options.controller.max_queue_entries = 65536;
  TestDevice d(options);
  EXPECT_EQ(d.controller().read_register(nvme::kRegCap, 4) & 0xFFFF, 0xFFFFu);
}

TEST(Registers, FourByteReadsGiveTheHalvesOfEightByteRegisters) {
  TestDevice d;
  const std::uint64_t cap = d.controller().read_register(nvme::kRegCap, 8);
  EXPECT_EQ(d.controller().read_register(nvme::kRegCap, 4), cap & 0xFFFFFFFF);
  EXPECT_EQ(d.controller().read_register(nvme::kRegCap + 4, 4), cap >> 32);
  d.write(nvme::kRegAsq, 0x1234'5678'9ABC'DEF0, 8);
  EXPECT_EQ(d.controller().read_register(nvme::kRegAsq, 8), 0x1234'5678'9ABC'D000u) << "low 12 bits are reserved";
  d.write(nvme::kRegAcq, 0xAAAA'B000);
  d.write(nvme::kRegAcq + 4, 0xC);
  EXPECT_EQ(d.controller().read_register(nvme::kRegAcq, 8), 0xC'AAAA'B000u);
}

TEST(Registers, OddSizesAndOffsetsReadZeroAndWriteNothing) {
  TestDevice d;
  EXPECT_EQ(d.controller().read_register(nvme::kRegCap, 2), 0u);
  EXPECT_EQ(d.controller().read_register(nvme::kRegCap + 2, 4), 0u);
  EXPECT_EQ(d.controller().read_register(nvme::kRegVs + 4, 8), 0u) << "eight bytes need eight-byte alignment";
  EXPECT_EQ(d.controller().read_register(0x800, 4), 0u);
  EXPECT_EQ(d.controller().read_register(nvme::kRegDoorbells, 4), 0u);
  d.write(nvme::kRegAqa, 0xFF, 1);
  d.write(nvme::kRegAqa + 2, 0xFF, 4);
  EXPECT_EQ(d.controller().read_register(nvme::kRegAqa, 4), 0u);
}

TEST(Registers, ReadOnlyRegistersStayAsTheyAre) {
  TestDevice d;
  const std::uint64_t cap = d.controller().read_register(nvme::kRegCap, 8);
  d.write(nvme::kRegCap, 0, 8);
  d.write(nvme::kRegVs, 0x00010000);
  d.write(nvme::kRegCsts, 0xFFFFFFFF);
  d.poll();
  EXPECT_EQ(d.controller().read_register(nvme::kRegCap, 8), cap);
  EXPECT_EQ(d.controller().read_register(nvme::kRegVs, 4), 0x00020000u);
  EXPECT_EQ(d.csts(), 0u);
}

TEST(Registers, ReservedBitsReadZero) {
  TestDevice d;
  d.write(nvme::kRegAqa, 0xFFFFFFFF);
  EXPECT_EQ(d.controller().read_register(nvme::kRegAqa, 4), 0x0FFF0FFFu);
  d.write(nvme::kRegCc, 0xFFFFFFFE);
  EXPECT_EQ(d.controller().read_register(nvme::kRegCc, 4), 0x00FFFFF0u);
}

TEST(Registers, InterruptMaskSetAndClear) {
  TestDevice d;
  d.write(nvme::kRegIntms, 0xF0F0);
  d.write(nvme::kRegIntms, 0x000F);
  d.write(nvme::kRegIntmc, 0x00F0);
  EXPECT_EQ(d.controller().read_register(nvme::kRegIntms, 4), 0xF00Fu);
  EXPECT_EQ(d.controller().read_register(nvme::kRegIntmc, 4), 0xF00Fu);
  EXPECT_EQ(d.controller().interrupt_mask(), 0xF00Fu);
}

TEST(Registers, AdminQueueRegistersAreLockedWhileEnabled) {
  TestDevice d;
  d.enable();
  d.write(nvme::kRegAqa, 0);
  d.write(nvme::kRegAsq, 0xDEAD000, 8);
  d.write(nvme::kRegAcq, 0xBEEF000, 8);
  EXPECT_EQ(d.controller().read_register(nvme::kRegAqa, 4), 0x001F001Fu);
  EXPECT_EQ(d.controller().read_register(nvme::kRegAsq, 8), kAdminSq);
  EXPECT_EQ(d.controller().read_register(nvme::kRegAcq, 8), kAdminCq);
}

TEST(Registers, CcFieldsAreLockedWhileEnabled) {
  TestDevice d;
  d.enable();
  d.write(nvme::kRegCc, TestDevice::cc({.en = true, .css = 7, .mps = 3, .ams = 1}));
  const nvme::Cc cc = nvme::decode_cc(static_cast<std::uint32_t>(d.controller().read_register(nvme::kRegCc, 4)));
  EXPECT_EQ(cc.css, 0);
  EXPECT_EQ(cc.mps, 0);
  EXPECT_EQ(cc.ams, 0);
  d.poll();
  EXPECT_EQ(d.csts(), 1u);
}

TEST(Registers, WritesWakeTheAdminThreadOnlyWhenSomethingChanged) {
  TestDevice d;
  int wakes = 0;
  d.controller().set_wake([&] { ++wakes; });
  d.write(nvme::kRegAqa, 0x001F001F);
  EXPECT_FALSE(d.controller().needs_poll());
  d.start_enable();
  EXPECT_TRUE(d.controller().needs_poll());
  EXPECT_EQ(wakes, 1);
  d.poll();
  EXPECT_FALSE(d.controller().needs_poll());
  d.write(nvme::kRegCc, TestDevice::cc({.en = true}));
  EXPECT_EQ(wakes, 1);
}

TEST(Registers, TrappedDoorbellWrites) {
  TestDevice d;
  int wakes = 0;
  d.controller().set_wake([&] { ++wakes; });
  d.write(nvme::kRegDoorbells, 5);
  EXPECT_EQ(d.controller().doorbells()[0], 0u) << "not enabled";
  d.enable();
  wakes = 0;
  d.write(nvme::kRegDoorbells, 5);
  EXPECT_EQ(d.controller().doorbells()[0], 5u);
  EXPECT_EQ(wakes, 1);
  d.write(nvme::kRegDoorbells + 4, 3);
  EXPECT_EQ(d.controller().doorbells()[1], 3u);
  d.write(nvme::kRegDoorbells, 7, 8);
  EXPECT_EQ(d.controller().doorbells()[0], 5u) << "doorbells are written with four bytes";
}

TEST(Registers, WritesToDoorbellsOfNoQueueRaiseTheEvent) {
  for (const std::uint32_t offset : {8u, 12u, 2u, 8u * 9, 0x10000u}) {
    TestDevice d;
    d.enable();
    d.start(TestDevice::command(nvme::AdminOpcode::async_event_request), 7);
    d.write(nvme::kRegDoorbells + offset, 1);
    d.poll();
    ASSERT_EQ(d.host.completions.size(), 1u) << offset;
    EXPECT_EQ(d.host.completions[0].cid, 7);
    EXPECT_EQ(d.host.completions[0].dw0, 0x010000u) << "error, write to invalid doorbell, log page 1";
  }
}

TEST(Registers, DoorbellsArePageAlignedMemory) {
  TestDevice d;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(d.controller().doorbells()) % 4096, 0u);
  EXPECT_EQ(d.controller().doorbell_bytes(), 2u * 9 * 4);
  EXPECT_GE(d.controller().doorbell_fd(), 0);
}

}  // namespace
}  // namespace flashmob::controller::testing
