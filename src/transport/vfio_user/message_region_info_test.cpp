// vfio-user message VFIO_USER_DEVICE_GET_REGION_INFO: legal, boundary and illegal forms (docs/interop/vfio-user).
#include <gtest/gtest.h>

#include <cerrno>

#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

struct RegionInfoMessage : testing::Test {
  RegionInfoMessage() { EXPECT_EQ(host.negotiate().header.error, 0u); }
  Message ask(std::uint32_t index, std::uint32_t argsz = 256) {
    return host.ask(Command::device_get_region_info, to_bytes(RegionInfo{argsz, 0, index, 0, 0, 0}));
  }
  TestDevice device;
  TestHost host{device.path};
};

TEST_F(RegionInfoMessage, TheRegistersBarHasMappableDoorbells) {
  const Message reply = ask(kRegionBar0);
  RegionInfo info{};
  SparseMmap sparse{};
  SparseMmapArea area{};
  ASSERT_TRUE(reply.read(info));
  EXPECT_EQ(info.flags, kRegionReadable | kRegionWritable | kRegionMappable | kRegionCapabilities);
  EXPECT_EQ(info.argsz, reply.payload.size());
  EXPECT_EQ(info.size_bytes, 0x2000u) << "nine pairs of doorbells fit into one page";
  ASSERT_TRUE(reply.read(sparse, info.capability_offset));
  EXPECT_EQ(sparse.header.id, kCapabilitySparseMmap);
  EXPECT_EQ(sparse.header.version, 1u);
  EXPECT_EQ(sparse.header.next, 0u);
  ASSERT_EQ(sparse.areas, 1u);
  ASSERT_TRUE(reply.read(area, info.capability_offset + sizeof(sparse)));
  EXPECT_EQ(area.offset, 0x1000u);
  EXPECT_EQ(area.size_bytes, 0x1000u);
  ASSERT_EQ(reply.fds.size(), 1u);
  EXPECT_NE(ftruncate(reply.fds[0].get(), 0), 0) << "a client must not be able to take the doorbells away";
}

TEST_F(RegionInfoMessage, WithLittleRoomItSaysHowMuchIsNeeded) {
  const Message reply = ask(kRegionBar0, sizeof(RegionInfo));
  RegionInfo info{};
  ASSERT_TRUE(reply.read(info));
  EXPECT_EQ(reply.payload.size(), sizeof(info));
  EXPECT_EQ(info.argsz, sizeof(RegionInfo) + sizeof(SparseMmap) + sizeof(SparseMmapArea));
  EXPECT_EQ(ask(kRegionBar0, info.argsz).payload.size(), info.argsz);
  EXPECT_EQ(ask(kRegionBar0, info.argsz - 1).payload.size(), sizeof(info));
}

TEST_F(RegionInfoMessage, TheOtherRegions) {
  const std::uint64_t sizes[9] = {0x2000, 0, 0, 0, 0x10000, 0, 0, 4096, 0};
  for (std::uint32_t index = 1; index < 9; ++index) {
    const Message reply = ask(index, sizeof(RegionInfo));
    RegionInfo info{};
    ASSERT_TRUE(reply.read(info));
    EXPECT_EQ(info.index, index);
    EXPECT_EQ(info.size_bytes, sizes[index]);
    EXPECT_EQ(info.flags, sizes[index] == 0 ? 0 : kRegionReadable | kRegionWritable);
    EXPECT_TRUE(reply.fds.empty());
  }
}

TEST_F(RegionInfoMessage, WhatDoesNotExistIsRefused) {
  EXPECT_EQ(ask(9).header.error, std::uint32_t{EINVAL});
  EXPECT_EQ(ask(UINT32_MAX).header.error, std::uint32_t{EINVAL});
  EXPECT_EQ(ask(0, 31).header.error, std::uint32_t{EINVAL});
  EXPECT_EQ(host.error_of(Command::device_get_region_info, std::uint64_t{32}), std::uint32_t{EINVAL});
}

TEST(RegionInfoLarge, TheLargestDeviceStillFits) {
  DeviceConfig config = test_device_config();
  config.controller.max_queue_pairs = 4096;
  config.controller.interrupt_vectors = 4097;
  TestDevice device(config);
  TestHost host(device.path);
  ASSERT_EQ(host.negotiate().header.error, 0u);
  RegionInfo info{256, 0, 0, 0, 0, 0};
  SparseMmapArea area{};
  const Message reply = host.ask(Command::device_get_region_info, to_bytes(info));
  ASSERT_TRUE(reply.read(info) && reply.read(area, info.capability_offset + sizeof(SparseMmap)));
  EXPECT_EQ(info.size_bytes, 0x10000u);
  EXPECT_EQ(area.size_bytes, 0x9000u) << "2 x 4097 words in whole pages";
  IrqInfo irqs{16, 0, kIrqMsix, 0};
  ASSERT_TRUE(host.ask(Command::device_get_irq_info, to_bytes(irqs)).read(irqs));
  EXPECT_EQ(irqs.count, 2048u) << "what MSI-X allows";
  EXPECT_EQ(host.read<std::uint16_t>(kRegionConfig, 0x52), 2047u);
}

}  // namespace
}  // namespace flashmob::transport
