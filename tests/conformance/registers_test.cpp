// Controller properties (Base 2.0c, 3.1.3): what each register says, and that reserved ones say nothing.
#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

using nvme::kRegAcq, nvme::kRegAqa, nvme::kRegAsq, nvme::kRegCap, nvme::kRegCc, nvme::kRegCsts, nvme::kRegVs;

class RegistersTest : public UntouchedDeviceTest {};

TEST_F(RegistersTest, CapDescribesTheController) {
  const nvme::Cap cap = nvme::decode_cap(host().door.read64(kRegCap));
  EXPECT_EQ(cap.mqes, 1023);
  EXPECT_TRUE(cap.cqr);
  EXPECT_NE(cap.ams & nvme::kCapAmsWeightedRoundRobin, 0);
  EXPECT_GT(cap.to, 0);
  EXPECT_EQ(cap.dstrd, 0);
  EXPECT_NE(cap.css & nvme::kCapCssNvm, 0);
  EXPECT_EQ(cap.mpsmin, 0) << "the driver uses pages of 4096 bytes";
  // Base 2.0c, 3.1.3.1: a 2.0 controller reports at least one of its two ready modes.
  EXPECT_NE(cap.crms, 0);
}

TEST_F(RegistersTest, HalvesOfCapReadAlike) {
  const std::uint64_t cap = host().door.read64(kRegCap);
  EXPECT_EQ(read32(kRegCap), static_cast<std::uint32_t>(cap));
  EXPECT_EQ(read32(kRegCap + 4), static_cast<std::uint32_t>(cap >> 32));
}

TEST_F(RegistersTest, VersionIs2_0) { EXPECT_EQ(read32(kRegVs), nvme::kVersion20); }

TEST_F(RegistersTest, ReadOnlyRegistersIgnoreWrites) {
  const std::uint64_t cap = host().door.read64(kRegCap);
  const std::uint32_t version = read32(kRegVs);
  host().door.write64(kRegCap, ~cap);
  write32(kRegVs, ~version);
  write32(kRegCsts, 0x0F);
  device.pump_for(1'000'000);
  EXPECT_EQ(host().door.read64(kRegCap), cap);
  EXPECT_EQ(read32(kRegVs), version);
  EXPECT_EQ(read32(kRegCsts), 0u);
}

TEST_F(RegistersTest, ResetState) {
  EXPECT_EQ(read32(kRegCc) & 1, 0u);
  EXPECT_EQ(read32(kRegCsts), 0u);
  EXPECT_EQ(read32(kRegAqa), 0u);
  EXPECT_EQ(host().door.read64(kRegAsq), 0u);
  EXPECT_EQ(host().door.read64(kRegAcq), 0u);
}

TEST_F(RegistersTest, AdminQueueAttributesHoldTheirFields) {
  write32(kRegAqa, nvme::encode_aqa({.asqs = 0x123, .acqs = 0xFED}));
  EXPECT_EQ(read32(kRegAqa), 0x0FED'0123u);
  host().door.write64(kRegAsq, 0x1234'5678'9ABC'D000);
  EXPECT_EQ(host().door.read64(kRegAsq), 0x1234'5678'9ABC'D000u);
  // Hosts without 64-bit accesses write the halves (3.1.1).
  write32(kRegAcq, 0x8765'4000);
  write32(kRegAcq + 4, 0xFEDC);
  EXPECT_EQ(host().door.read64(kRegAcq), 0x0000'FEDC'8765'4000u);
  EXPECT_EQ(read32(kRegAcq), 0x8765'4000u);
}

TEST_F(RegistersTest, BaseAddressesHaveNoOffset) {
  host().door.write64(kRegAsq, 0x1234'5FFF);
  host().door.write64(kRegAcq, 0x9876'5FFF);
  EXPECT_EQ(host().door.read64(kRegAsq), 0x1234'5000u);
  EXPECT_EQ(host().door.read64(kRegAcq), 0x9876'5000u);
}

TEST_F(RegistersTest, UnknownOffsetsReadAsZero) {
  for (const std::uint32_t offset : {0x44u, 0xFFCu, 0x80u}) {
    write32(offset, 0xFFFFFFFF);
    EXPECT_EQ(read32(offset), 0u) << offset;
    EXPECT_EQ(host().door.read64(offset), 0u) << offset;
  }
}

TEST_F(RegistersTest, OddAccessesDoNothing) {
  controller::Controller& controller = host().controller;
  for (const unsigned size : {1u, 2u, 3u, 16u}) EXPECT_EQ(controller.read_register(kRegVs, size), 0u) << size;
  EXPECT_EQ(controller.read_register(kRegVs + 1, 4), 0u);
  controller.write_register(kRegAqa, 2, 0x1FF);
  controller.write_register(kRegAqa + 2, 4, 0xFFFF);
  EXPECT_EQ(read32(kRegAqa), 0u);
}

TEST_F(RegistersTest, InterruptMasksSetAndClear) {
  write32(nvme::kRegIntms, 0x0F);
  EXPECT_EQ(read32(nvme::kRegIntms), 0x0Fu);
  write32(nvme::kRegIntmc, 0x05);
  EXPECT_EQ(read32(nvme::kRegIntms), 0x0Au);
  EXPECT_EQ(read32(nvme::kRegIntmc), 0x0Au);
}

TEST_F(RegistersTest, RegistersStayReadableWhileEnabled) {
  driver().enable();
  EXPECT_EQ(read32(kRegCc), 0x00460001u | (nvme::decode_cc(read32(kRegCc)).css << 4));
  EXPECT_TRUE(csts().rdy);
  EXPECT_FALSE(csts().cfs);
  EXPECT_EQ(nvme::decode_aqa(read32(kRegAqa)).asqs, 63);
  EXPECT_NE(host().door.read64(kRegAsq), 0u);
}

}  // namespace
}  // namespace flashmob::conformance
