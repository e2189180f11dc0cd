// Namespace Management (Base 2.0c, 5.23): create and delete, and what is left to allocate.
#include "conformance/namespaces_fixture.h"

namespace flashmob::conformance {
namespace {

using NamespaceManagementTest = NamespacesTest;

TEST_F(NamespaceManagementTest, CreateAttachUseDetachDelete) {
  const std::uint64_t free_bytes = unallocated();
  const std::uint32_t nsid = create(2048);
  EXPECT_EQ(nsid, 3u);
  EXPECT_EQ(unallocated(), free_bytes - 2048 * 512);
  EXPECT_EQ(touch(nsid), Status::invalid_field) << "allocated, but not attached";
  EXPECT_EQ(identify<nvme::IdentifyNamespace>(nvme::Cns::allocated_namespace, nsid).nsze, 2048u);

  ASSERT_EQ(attach(nsid, {id(0)}), Status::success);
  EXPECT_EQ(touch(nsid), Status::success);
  EXPECT_EQ(touch(nsid, 1), Status::invalid_field) << "the other controller does not have it";
  const auto data = noise(512, 1);
  ASSERT_EQ(write(nsid, 2047, data), Status::success);
  EXPECT_TRUE(read(nsid, 2047, 1) == data);

  ASSERT_EQ(detach(nsid, {id(0)}), Status::success);
  EXPECT_EQ(touch(nsid), Status::invalid_field);
  ASSERT_EQ(remove(nsid), Status::success);
  EXPECT_EQ(unallocated(), free_bytes);
  EXPECT_EQ(remove(nsid), Status::invalid_field) << "there is nothing to delete any more";
}

TEST_F(NamespaceManagementTest, ANewNamespaceHasNoOldData) {
  for (int round = 0; round < 2; ++round) {
    const std::uint32_t nsid = create(1024);
    ASSERT_EQ(attach(nsid, {id(0)}), Status::success);
    EXPECT_TRUE(read(nsid, 0, 8) == std::vector<std::byte>(8 * 512)) << round;
    ASSERT_EQ(write(nsid, 0, noise(8 * 512, 1)), Status::success);
    ASSERT_EQ(remove(nsid), Status::success);
  }
}

TEST_F(NamespaceManagementTest, CreationLimits) {
  Status status;
  EXPECT_EQ(create((16 << 20) / 512 + 1, 0, status), 0u);
  EXPECT_EQ(status, Status::namespace_insufficient_capacity);
  EXPECT_EQ(create(~std::uint64_t{0}, 0, status), 0u);
  EXPECT_EQ(status, Status::namespace_insufficient_capacity) << "as bytes the size wraps";
  EXPECT_EQ(create(0, 0, status), 0u);
  EXPECT_NE(status, Status::success);
  EXPECT_EQ(create(8, 9, status), 0u);
  EXPECT_EQ(status, Status::invalid_format);
  EXPECT_NE(create((16 << 20) / 512, 0, status), 0u) << "exactly what is left";
  EXPECT_EQ(create(8, 0, status), 0u);
  EXPECT_EQ(status, Status::namespace_insufficient_capacity);
}

}  // namespace
}  // namespace flashmob::conformance
