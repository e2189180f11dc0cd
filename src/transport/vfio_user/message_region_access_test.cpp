// vfio-user message VFIO_USER_REGION_READ and VFIO_USER_REGION_WRITE: legal, boundary and illegal forms
// (docs/interop/vfio-user).
#include <gtest/gtest.h>

#include <cerrno>

#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

struct RegionAccessMessage : testing::Test {
  RegionAccessMessage() { EXPECT_EQ(host.negotiate().header.error, 0u); }
  Message read(std::uint32_t region, std::uint64_t offset, std::uint32_t bytes) {
    return host.ask(Command::region_read, to_bytes(RegionAccess{offset, region, bytes}));
  }
  TestDevice device;
  TestHost host{device.path};
};

TEST_F(RegionAccessMessage, TheReplyRepeatsTheRequest) {
  const Message got = read(kRegionBar0, 8, 4);
  RegionAccess access{};
  ASSERT_TRUE(got.read(access));
  EXPECT_EQ(got.payload.size(), sizeof(access) + 4);
  EXPECT_EQ(access.offset, 8u);
  EXPECT_EQ(access.region, 0u);
  EXPECT_EQ(access.count_bytes, 4u);
  auto payload = to_bytes(RegionAccess{nvme::kRegAqa, kRegionBar0, 4});
  payload.resize(payload.size() + 4, std::byte{1});
  const Message written = host.ask(Command::region_write, payload);
  EXPECT_EQ(written.payload.size(), sizeof(access));
  EXPECT_EQ(host.reg(nvme::kRegAqa), 0x01010101u);
}

TEST_F(RegionAccessMessage, RegistersAreReadInAnyWidth) {
  const auto cap = host.read<std::uint64_t>(kRegionBar0, nvme::kRegCap);
  EXPECT_NE(cap, 0u);
  EXPECT_EQ(host.read<std::uint32_t>(kRegionBar0, 4), static_cast<std::uint32_t>(cap >> 32));
  EXPECT_EQ(host.read<std::uint8_t>(kRegionBar0, 3), static_cast<std::uint8_t>(cap >> 24));
  EXPECT_EQ(host.read<std::uint16_t>(kRegionBar0, 3), static_cast<std::uint16_t>(cap >> 24));
  const Message all = read(kRegionBar0, 0, 0x2000);
  std::uint64_t first = 0;
  std::uint32_t version = 0;
  ASSERT_TRUE(all.read(first, 16) && all.read(version, 16 + nvme::kRegVs));
  EXPECT_EQ(first, cap);
  EXPECT_EQ(version, nvme::kVersion20);
}

TEST_F(RegionAccessMessage, RegistersAreWrittenInTheirWidthOnly) {
  EXPECT_EQ(host.write<std::uint64_t>(kRegionBar0, nvme::kRegAsq, 0x123456789000), 0u);
  EXPECT_EQ(host.read<std::uint64_t>(kRegionBar0, nvme::kRegAsq), 0x123456789000u);
  EXPECT_EQ(host.write<std::uint32_t>(kRegionBar0, nvme::kRegAsq + 4, 7), 0u);
  EXPECT_EQ(host.read<std::uint64_t>(kRegionBar0, nvme::kRegAsq), 0x756789000u);
  EXPECT_EQ(host.write<std::uint16_t>(kRegionBar0, nvme::kRegAsq + 4, 9), 0u);
  EXPECT_EQ(host.write<std::uint32_t>(kRegionBar0, nvme::kRegAsq + 2, 9), 0u);
  EXPECT_EQ(host.read<std::uint64_t>(kRegionBar0, nvme::kRegAsq), 0x756789000u);
}

TEST_F(RegionAccessMessage, TheMsixTableIsMemoryAndItsPendingBitsAreNot) {
  EXPECT_EQ(host.read<std::uint32_t>(4, 12), 1u) << "masked after reset";
  EXPECT_EQ(host.write<std::uint64_t>(4, 0, 0xFEE00000), 0u);
  EXPECT_EQ(host.read<std::uint64_t>(4, 0), 0xFEE00000u);
  EXPECT_EQ(host.write<std::uint64_t>(4, 0x8000, UINT64_MAX), 0u);
  EXPECT_EQ(host.read<std::uint64_t>(4, 0x8000), 0u);
  EXPECT_EQ(host.write<std::uint64_t>(4, 0x7FFC, UINT64_MAX), 0u) << "across the border of the two";
  EXPECT_EQ(host.read<std::uint64_t>(4, 0x7FFC), 0xFFFFFFFFu);
  EXPECT_EQ(read(4, 0, 0x10000).payload.size(), 16u + 0x10000u);
}

TEST_F(RegionAccessMessage, RangesMustLieWithinTheRegion) {
  EXPECT_EQ(read(kRegionConfig, 4096, 0).header.error, 0u);
  EXPECT_EQ(read(kRegionConfig, 4095, 1).header.error, 0u);
  EXPECT_EQ(read(kRegionConfig, 4095, 2).header.error, std::uint32_t{EINVAL});
  EXPECT_EQ(read(kRegionConfig, 4097, 0).header.error, std::uint32_t{EINVAL});
  EXPECT_EQ(read(kRegionConfig, UINT64_MAX, 2).header.error, std::uint32_t{EINVAL});
  EXPECT_EQ(read(kRegionBar0, 0x2000, 4).header.error, std::uint32_t{EINVAL});
  for (const std::uint32_t region : {1u, 2u, 3u, 5u, 6u, 8u, 9u, 100u, UINT32_MAX}) {
    EXPECT_EQ(read(region, 0, 1).header.error, std::uint32_t{EINVAL}) << region;
    EXPECT_EQ(host.write<std::uint8_t>(region, 0, 1), std::uint32_t{EINVAL}) << region;
  }
  EXPECT_EQ(host.write<std::uint64_t>(kRegionConfig, 4090, 1), std::uint32_t{EINVAL});
}

TEST_F(RegionAccessMessage, CountsAreCheckedAgainstTheMessage) {
  EXPECT_EQ(read(kRegionConfig, 0, (1 << 20) + 1).header.error, std::uint32_t{EINVAL});
  EXPECT_EQ(read(kRegionConfig, 0, UINT32_MAX).header.error, std::uint32_t{EINVAL});
  auto payload = to_bytes(RegionAccess{0x3C, kRegionConfig, 4});
  payload.resize(payload.size() + 3, std::byte{5});
  EXPECT_EQ(host.ask(Command::region_write, payload).header.error, std::uint32_t{EINVAL});
  EXPECT_EQ(host.read<std::uint8_t>(kRegionConfig, 0x3C), 0u) << "nothing was written";
  payload.resize(10);
  EXPECT_EQ(host.ask(Command::region_write, payload).header.error, std::uint32_t{EINVAL});
  EXPECT_EQ(host.ask(Command::region_read, payload).header.error, std::uint32_t{EINVAL});
}

TEST_F(RegionAccessMessage, WritesWithoutReplyAreDoneInOrder) {
  for (std::uint32_t i = 0; i < 100; ++i) {
    auto payload = to_bytes(RegionAccess{nvme::kRegAqa, kRegionBar0, 4});
    const auto data = to_bytes(i);
    payload.insert(payload.end(), data.begin(), data.end());
    host.post(Command::region_write, payload, {}, kFlagNoReply);
  }
  EXPECT_EQ(host.reg(nvme::kRegAqa), 99u);
}

}  // namespace
}  // namespace flashmob::transport
