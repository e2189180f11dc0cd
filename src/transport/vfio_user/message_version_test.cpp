// vfio-user message VFIO_USER_VERSION: legal, boundary and illegal forms (docs/interop/vfio-user).
#include <gtest/gtest.h>

#include <cerrno>

#include "transport/vfio_user/vfio_user_test_support.h"
#include "vfio/capabilities.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

struct VersionMessage : testing::Test {
  TestDevice device;
  TestHost host{device.path};
};

TEST_F(VersionMessage, TheReplyFitsWhatWasProposed) {
  const Message reply = host.negotiate(R"({"capabilities":{"migration":{"pgsize":4096,"max_bitmap_size":268435456},)"
                                       R"("max_msg_fds":16,"max_data_xfer_size":1048576,"pgsizes":4096,)"
                                       R"("max_dma_maps":65535,"write_multiple":true}})",
                                       {0, 0});
  Version version{9, 9};
  ASSERT_EQ(reply.header.error, 0u);
  ASSERT_TRUE(reply.read(version));
  EXPECT_EQ(version.major, 0u);
  EXPECT_EQ(version.minor, 0u) << "no more than was proposed";
  ASSERT_EQ(reply.payload.back(), std::byte{0});
  const std::string text(reinterpret_cast<const char*>(reply.payload.data()) + sizeof(version));
  const auto capabilities = parse_capabilities(text);
  ASSERT_TRUE(capabilities) << text;
  EXPECT_EQ(capabilities->max_message_fds, 16u) << "what QEMU accepts at most";
  EXPECT_EQ(capabilities->max_data_transfer_bytes, 1u << 20);
  EXPECT_EQ(capabilities->page_sizes, 4096u);
  EXPECT_LE(capabilities->max_dma_maps, 65535u);
  EXPECT_TRUE(capabilities->write_multiple);
  EXPECT_EQ(text.find("migration"), std::string::npos);
  EXPECT_LE(text.size() + 1, 170u) << "QEMU reads the reply into a buffer of the request's size";
}

TEST_F(VersionMessage, NewerMinorVersionsAreAnsweredWithOurs) {
  Version version{};
  ASSERT_TRUE(host.negotiate("{}", {0, 7}).read(version));
  EXPECT_EQ(version.minor, 1u);
}

TEST_F(VersionMessage, TextIsOptional) {
  const Message reply = host.negotiate("");
  EXPECT_EQ(reply.header.error, 0u);
  EXPECT_EQ(reply.payload.size(), sizeof(Version));
}

TEST_F(VersionMessage, AnotherMajorVersionEndsTheConnection) {
  EXPECT_EQ(host.negotiate("{}", {1, 0}).header.error, std::uint32_t{EINVAL});
  EXPECT_TRUE(host.is_disconnected());
}

TEST_F(VersionMessage, MalformedCapabilitiesEndTheConnection) {
  EXPECT_EQ(host.negotiate(R"({"capabilities":{"max_msg_fds":"many"}})").header.error, std::uint32_t{EINVAL});
  EXPECT_TRUE(host.is_disconnected());
}

TEST_F(VersionMessage, ATruncatedMessageEndsTheConnection) {
  EXPECT_EQ(host.error_of(Command::version, std::uint16_t{0}), std::uint32_t{EINVAL});
  EXPECT_TRUE(host.is_disconnected());
}

TEST_F(VersionMessage, NothingElseMayComeFirst) {
  host.post(Command::device_get_info, to_bytes(DeviceInfo{16, 0, 0, 0}));
  EXPECT_TRUE(host.is_disconnected());
  EXPECT_EQ(device.controllers(), 0u) << "no controller was made for it";
}

TEST_F(VersionMessage, ASecondOneIsAnErrorOnly) {
  ASSERT_EQ(host.negotiate().header.error, 0u);
  EXPECT_EQ(host.negotiate().header.error, std::uint32_t{EINVAL});
  EXPECT_EQ(host.error_of(Command::device_get_info, DeviceInfo{16, 0, 0, 0}), 0u) << "the connection stays";
}

TEST_F(VersionMessage, WithoutAReplyWhenNoneIsWanted) {
  host.post(Command::version, to_bytes(Version{0, 1}), {}, kFlagNoReply);
  EXPECT_EQ(host.error_of(Command::device_get_info, DeviceInfo{16, 0, 0, 0}), 0u);
}

}  // namespace
}  // namespace flashmob::transport
