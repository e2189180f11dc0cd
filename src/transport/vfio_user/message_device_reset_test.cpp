// vfio-user message VFIO_USER_DEVICE_RESET: legal, boundary and illegal forms (docs/interop/vfio-user).
#include <gtest/gtest.h>

#include <cerrno>

#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

TEST(DeviceResetMessage, BringsBackTheFunctionAsItWas) {
  TestDevice device;
  TestHost host(device.path);
  host.attach();
  ASSERT_EQ(host.write<std::uint16_t>(kRegionConfig, 4, 0x0406), 0u);
  ASSERT_EQ(host.write<std::uint32_t>(kRegionConfig, 0x10, 0xFEB00000), 0u);
  ASSERT_EQ(host.write<std::uint32_t>(4, 0, 0xFEE00000), 0u);
  ASSERT_TRUE(host.enable());
  ASSERT_EQ(host.ask(Command::device_reset).header.error, 0u);
  EXPECT_EQ(host.read<std::uint16_t>(kRegionConfig, 4), 0u);
  EXPECT_EQ(host.read<std::uint32_t>(kRegionConfig, 0x10), 4u);
  EXPECT_EQ(host.read<std::uint32_t>(4, 0), 0u);
  EXPECT_EQ(host.reg(nvme::kRegCsts), 0u);
  EXPECT_EQ(host.read<std::uint64_t>(kRegionBar0, nvme::kRegAsq), 0u);
  EXPECT_TRUE(host.enable()) << "memory and bindings survive a reset";
}

TEST(DeviceResetMessage, AtAnyMoment) {
  TestDevice device;
  TestHost host(device.path);
  host.attach();
  ASSERT_EQ(host.ask(Command::device_reset).header.error, 0u) << "never enabled";
  ASSERT_EQ(host.ask(Command::device_reset).header.error, 0u);
  // Right after EN was set, before the controller can be ready.
  for (int i = 0; i < 50; ++i) {
    host.queue_at(0, 0, 32);
    host.write<std::uint32_t>(kRegionBar0, nvme::kRegAqa, nvme::encode_aqa({31, 31}));
    host.write<std::uint64_t>(kRegionBar0, nvme::kRegAcq, 4096);
    host.write<std::uint32_t>(kRegionBar0, nvme::kRegCc, nvme::encode_cc({.en = true, .iosqes = 6, .iocqes = 4}));
    ASSERT_EQ(host.ask(Command::device_reset).header.error, 0u);
    ASSERT_EQ(host.reg(nvme::kRegCsts), 0u);
  }
  // From the fatal state: admin queues in memory that is not there.
  host.write<std::uint32_t>(kRegionBar0, nvme::kRegAqa, nvme::encode_aqa({31, 31}));
  host.write<std::uint64_t>(kRegionBar0, nvme::kRegAsq, std::uint64_t{1} << 40);
  host.write<std::uint32_t>(kRegionBar0, nvme::kRegCc, nvme::encode_cc({.en = true, .iosqes = 6, .iocqes = 4}));
  EXPECT_TRUE(host.wait_for_csts(2, 2)) << "controller fatal status";
  ASSERT_EQ(host.ask(Command::device_reset).header.error, 0u);
  // From a shutdown.
  ASSERT_TRUE(host.enable());
  host.write<std::uint32_t>(kRegionBar0, nvme::kRegCc,
                            nvme::encode_cc({.en = true, .shn = 1, .iosqes = 6, .iocqes = 4}));
  EXPECT_TRUE(host.wait_for_csts(0xC, 8)) << "shutdown complete";
  ASSERT_EQ(host.ask(Command::device_reset).header.error, 0u);
  EXPECT_TRUE(host.enable());
}

}  // namespace
}  // namespace flashmob::transport
