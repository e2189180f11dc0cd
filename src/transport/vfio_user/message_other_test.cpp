// vfio-user message that the server does not implement, and replies: legal, boundary and illegal forms
// (docs/interop/vfio-user).
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>

#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

TEST(OtherMessages, WhatIsOptionalOrUnknownIsNotSupported) {
  TestDevice device;
  TestHost host(device.path);
  ASSERT_EQ(host.negotiate().header.error, 0u);
  for (const unsigned command : {0u, 6u, 11u, 12u, 14u, 16u, 17u, 18u, 19u, 1000u, 0xFFFFu})
    EXPECT_EQ(host.error_of(static_cast<Command>(command), std::uint64_t{0}), std::uint32_t{EOPNOTSUPP}) << command;
  EXPECT_EQ(host.error_of(Command::device_get_info, DeviceInfo{16, 0, 0, 0}), 0u);
}

TEST(OtherMessages, ErrorsOfCommandsWithoutReplyAreSilent) {
  TestDevice device;
  TestHost host(device.path);
  ASSERT_EQ(host.negotiate().header.error, 0u);
  host.post(static_cast<Command>(999), {}, {}, kFlagNoReply);
  host.post(Command::dma_unmap, to_bytes(DmaUnmap{24, 0, 5, 5}), {}, kFlagNoReply);
  EXPECT_EQ(host.error_of(Command::device_get_info, DeviceInfo{16, 0, 0, 0}), 0u) << "the next reply is this one's";
}

TEST(OtherMessages, AReplyToNothingEndsTheConnection) {
  TestDevice device;
  TestHost host(device.path);
  ASSERT_EQ(host.negotiate().header.error, 0u);
  host.post(Command::dma_read, {}, {}, kTypeReply);
  EXPECT_TRUE(host.is_disconnected());
}

TEST(OtherMessages, AMessageTooLargeEndsTheConnection) {
  TestDevice device;
  TestHost host(device.path);
  ASSERT_EQ(host.negotiate().header.error, 0u);
  const Header header{1, 10, 0x7FFFFFFF, 0, 0};
  ASSERT_EQ(::send(host.socket().fd(), &header, sizeof(header), 0), 16);
  EXPECT_TRUE(host.is_disconnected());
}

TEST(OtherMessages, DescriptorsNobodyAskedForAreClosed) {
  TestDevice device;
  TestHost host(device.path);
  ASSERT_EQ(host.negotiate().header.error, 0u);
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const UniqueFd read_end(pipes[0]);
  UniqueFd write_end(pipes[1]);
  const int fd = write_end.get();
  ASSERT_EQ(host.error_of(Command::device_get_info, DeviceInfo{16, 0, 0, 0}, {&fd, 1}), 0u);
  write_end.reset();
  ASSERT_EQ(host.error_of(Command::device_get_info, DeviceInfo{16, 0, 0, 0}), 0u) << "the next message replaces it";
  char nothing;
  EXPECT_EQ(::read(read_end.get(), &nothing, 1), 0) << "the last writer is gone";
}

}  // namespace
}  // namespace flashmob::transport
