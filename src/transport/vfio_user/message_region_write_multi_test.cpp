// vfio-user message VFIO_USER_REGION_WRITE_MULTI: legal, boundary and illegal forms (docs/interop/vfio-user).
#include <gtest/gtest.h>

#include <cerrno>

#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

struct RegionWriteMultiMessage : testing::Test {
  RegionWriteMultiMessage() { EXPECT_EQ(host.negotiate().header.error, 0u); }
  Message ask(std::uint64_t count, std::span<const RegionWriteOne> writes) {
    auto payload = to_bytes(count);
    const auto bytes = std::as_bytes(writes);
    payload.insert(payload.end(), bytes.begin(), bytes.end());
    return host.ask(Command::region_write_multi, payload);
  }
  TestDevice device;
  TestHost host{device.path};
};

TEST_F(RegionWriteMultiMessage, EveryWriteIsDone) {
  const RegionWriteOne writes[3] = {{nvme::kRegAqa, kRegionBar0, 4, 0x00050006},
                                    {nvme::kRegAsq, kRegionBar0, 8, 0x7000},
                                    {0x3C, kRegionConfig, 1, 0x42}};
  const Message reply = ask(3, writes);
  std::uint64_t done = 0;
  ASSERT_TRUE(reply.read(done));
  EXPECT_EQ(done, 3u);
  EXPECT_EQ(host.reg(nvme::kRegAqa), 0x00050006u);
  EXPECT_EQ(host.read<std::uint64_t>(kRegionBar0, nvme::kRegAsq), 0x7000u);
  EXPECT_EQ(host.read<std::uint8_t>(kRegionConfig, 0x3C), 0x42u);
  EXPECT_EQ(ask(0, {}).header.error, 0u);
}

TEST_F(RegionWriteMultiMessage, CountsMustMatch) {
  const RegionWriteOne one[1] = {{nvme::kRegAqa, kRegionBar0, 4, 1}};
  EXPECT_EQ(ask(2, one).header.error, std::uint32_t{EINVAL});
  EXPECT_EQ(ask(UINT64_MAX, one).header.error, std::uint32_t{EINVAL});
  EXPECT_EQ(ask((UINT64_MAX / 24) + 2, one).header.error, std::uint32_t{EINVAL}) << "the product overflows";
  EXPECT_EQ(host.error_of(Command::region_write_multi, std::uint32_t{1}), std::uint32_t{EINVAL});
  EXPECT_EQ(host.reg(nvme::kRegAqa), 0u);
}

TEST_F(RegionWriteMultiMessage, EachWriteIsChecked) {
  for (const RegionWriteOne& bad : {RegionWriteOne{0, kRegionBar0, 9, 0},
                                    {0x2000, kRegionBar0, 4, 0},
                                    {0, 5, 4, 0},
                                    {UINT64_MAX, kRegionConfig, 8, 0},
                                    {0, 99, 1, 0}})
    EXPECT_EQ(ask(1, {&bad, 1}).header.error, std::uint32_t{EINVAL});
}

// A driver's way to start over, as one message, and as one write of all registers between the first and the last.
TEST_F(RegionWriteMultiMessage, WhatFollowsAResetIsWrittenWhenItHasEnded) {
  ASSERT_EQ(host.map_dma(0, TestHost::kMemoryBytes, -1), 0u);
  ASSERT_TRUE(host.enable());
  TestQueue moved = host.queue_at(0, 16, 32);
  const std::uint32_t aqa = nvme::encode_aqa({31, 31});
  const std::uint32_t cc = nvme::encode_cc({.en = true, .iosqes = 6, .iocqes = 4});
  const RegionWriteOne writes[5] = {{nvme::kRegCc, kRegionBar0, 4, 0},
                                    {nvme::kRegAqa, kRegionBar0, 4, aqa},
                                    {nvme::kRegAsq, kRegionBar0, 8, moved.sq_iova},
                                    {nvme::kRegAcq, kRegionBar0, 8, moved.cq_iova},
                                    {nvme::kRegCc, kRegionBar0, 4, cc}};
  nvme::Sqe alive{};
  alive.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::keep_alive);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(ask(5, writes).header.error, 0u);
  ASSERT_TRUE(host.wait_for_csts(1, 1));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << "it was waited for";
  EXPECT_EQ(host.run(moved, alive), 0u);

  moved = host.queue_at(0, 20, 32);
  struct Registers {
    std::uint32_t cc = 0, reserved = 0, csts = 0, nssr = 0, aqa = 0;
    std::uint64_t asq = 0, acq = 0;
  } __attribute__((packed));
  static_assert(sizeof(Registers) == nvme::kRegAcq + 8 - nvme::kRegCc);
  EXPECT_EQ(host.write(kRegionBar0, nvme::kRegCc, Registers{.aqa = aqa, .asq = moved.sq_iova, .acq = moved.cq_iova}),
            0u);
  EXPECT_EQ(host.read<std::uint64_t>(kRegionBar0, nvme::kRegAcq), moved.cq_iova);
  EXPECT_EQ(host.write(kRegionBar0, nvme::kRegCc, cc), 0u);
  ASSERT_TRUE(host.wait_for_csts(1, 1));
  EXPECT_EQ(host.run(moved, alive), 0u);
}

TEST_F(RegionWriteMultiMessage, WhatFollowsAFunctionResetIsWrittenWhenItHasEnded) {
  // The control register of the PCI Express capability, whose bit 15 begins a function level reset.
  std::uint64_t at = host.read<std::uint8_t>(kRegionConfig, 0x34);
  while (at != 0 && host.read<std::uint8_t>(kRegionConfig, at) != 0x10)
    at = host.read<std::uint8_t>(kRegionConfig, at + 1);
  ASSERT_NE(at, 0u);
  const RegionWriteOne writes[3] = {{nvme::kRegAqa, kRegionBar0, 4, 0x00050006},
                                    {at + 8, kRegionConfig, 2, 0x8000},
                                    {nvme::kRegAsq, kRegionBar0, 8, 0x7000}};
  EXPECT_EQ(ask(3, writes).header.error, 0u);
  EXPECT_EQ(host.reg(nvme::kRegAqa), 0u);
  EXPECT_EQ(host.read<std::uint64_t>(kRegionBar0, nvme::kRegAsq), 0x7000u);
}

}  // namespace
}  // namespace flashmob::transport
