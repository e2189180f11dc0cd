// vfio-user message VFIO_USER_DEVICE_GET_IRQ_INFO: legal, boundary and illegal forms (docs/interop/vfio-user).
#include <gtest/gtest.h>

#include <cerrno>

#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

struct IrqInfoMessage : testing::Test {
  IrqInfoMessage() { EXPECT_EQ(host.negotiate().header.error, 0u); }
  TestDevice device;
  TestHost host{device.path};
};

TEST_F(IrqInfoMessage, EachKindOfInterrupt) {
  const std::uint32_t counts[5] = {1, 0, 9, 1, 0};
  const std::uint32_t flags[5] = {kIrqEventfd | kIrqMaskable | kIrqAutomasked, 0, kIrqEventfd | kIrqMaskable,
                                  kIrqEventfd, 0};
  for (std::uint32_t index = 0; index < 5; ++index) {
    const Message reply = host.ask(Command::device_get_irq_info, to_bytes(IrqInfo{16, 0, index, 0}));
    IrqInfo info{};
    ASSERT_TRUE(reply.read(info));
    EXPECT_EQ(reply.payload.size(), sizeof(info));
    EXPECT_EQ(info.argsz, sizeof(info));
    EXPECT_EQ(info.index, index);
    EXPECT_EQ(info.count, counts[index]);
    EXPECT_EQ(info.flags, flags[index]);
  }
}

TEST_F(IrqInfoMessage, WhatDoesNotExistIsRefused) {
  EXPECT_EQ(host.error_of(Command::device_get_irq_info, IrqInfo{16, 0, 5, 0}), std::uint32_t{EINVAL});
  EXPECT_EQ(host.error_of(Command::device_get_irq_info, IrqInfo{16, 0, UINT32_MAX, 0}), std::uint32_t{EINVAL});
  EXPECT_EQ(host.error_of(Command::device_get_irq_info, IrqInfo{12, 0, 0, 0}), std::uint32_t{EINVAL});
  EXPECT_EQ(host.error_of(Command::device_get_irq_info, std::uint64_t{16}), std::uint32_t{EINVAL});
}

}  // namespace
}  // namespace flashmob::transport
