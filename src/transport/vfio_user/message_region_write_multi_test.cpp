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

}  // namespace
}  // namespace flashmob::transport
