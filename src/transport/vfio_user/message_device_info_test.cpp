// vfio-user message VFIO_USER_DEVICE_GET_INFO: legal, boundary and illegal forms (docs/interop/vfio-user).
#include <gtest/gtest.h>

#include <cerrno>

#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

TEST(DeviceInfoMessage, ItIsAPciDeviceThatCanBeReset) {
  TestDevice device;
  TestHost host(device.path);
  ASSERT_EQ(host.negotiate().header.error, 0u);
  const Message reply = host.ask(Command::device_get_info, to_bytes(DeviceInfo{32, 0, 0, 0}));
  DeviceInfo info{};
  ASSERT_TRUE(reply.read(info));
  EXPECT_EQ(reply.payload.size(), sizeof(info));
  EXPECT_EQ(info.argsz, sizeof(info));
  EXPECT_EQ(info.flags, kDeviceReset | kDevicePci);
  EXPECT_EQ(info.regions, 9u);
  EXPECT_EQ(info.irqs, 5u);
}

TEST(DeviceInfoMessage, TooShortIsRefused) {
  TestDevice device;
  TestHost host(device.path);
  ASSERT_EQ(host.negotiate().header.error, 0u);
  EXPECT_EQ(host.error_of(Command::device_get_info, DeviceInfo{15, 0, 0, 0}), std::uint32_t{EINVAL});
  EXPECT_EQ(host.error_of(Command::device_get_info, std::uint32_t{16}), std::uint32_t{EINVAL});
  EXPECT_EQ(host.ask(Command::device_get_info).header.error, std::uint32_t{EINVAL});
}

}  // namespace
}  // namespace flashmob::transport
