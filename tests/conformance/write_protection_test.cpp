// Namespace Write Protection (Base 2.0c, 8.12): two hosts, one of whom protects what both use.
#include "conformance/namespaces_fixture.h"
#include "nvme/features.h"

namespace flashmob::conformance {
namespace {

class WriteProtectionTest : public NamespacesTest {
 protected:
  void set(nvme::WriteProtection state) {
    driver().set_feature(static_cast<std::uint8_t>(nvme::Feature::namespace_write_protection),
                         static_cast<std::uint32_t>(state), false, kNs512);
  }
  // One block, by the other host.
  Status other_writes() {
    Buffer source(host(1).door, 4096);
    return status_of(run(source.attach(make(NvmOpcode::write, kNs512, 0, 1), 512), 1));
  }
};

TEST_F(WriteProtectionTest, NobodyWritesUntilItEnds) {
  const auto data = noise(512, 7);
  ASSERT_EQ(write(kNs512, 0, data), Status::success);
  set(nvme::WriteProtection::protect);
  EXPECT_EQ(write(kNs512, 0, noise(512, 8)), Status::namespace_is_write_protected);
  EXPECT_EQ(other_writes(), Status::namespace_is_write_protected);
  Sqe format = make(AdminOpcode::format_nvm, kNs512);
  EXPECT_EQ(admin(format), Status::namespace_is_write_protected);
  EXPECT_EQ(touch(kNs512, 1), Status::success) << "reading goes on";
  Buffer target(host(0).door, 4096);
  EXPECT_EQ(status_of(run(target.attach(make(NvmOpcode::read, kNs512, 0, 1), 512))), Status::success);
  EXPECT_TRUE(target.copy(512) == data);
  EXPECT_EQ(write(kNs4096, 0, noise(4096, 8)), Status::success) << "another namespace";
  set(nvme::WriteProtection::none);
  EXPECT_EQ(other_writes(), Status::success);
}

// Writes that were fetched while they were allowed, and whose data has not been moved when the namespace has become
// protected, are not carried out any more; Reads are.
TEST_F(WriteProtectionTest, NoWriteOfBeforeLandsAfterIt) {
  if (suite::on_other_engine != nullptr) GTEST_SKIP() << "a GPU's engine ends nothing yet";
  constexpr std::uint16_t kCommands = 40;
  QueuePair& pair = queue();
  Buffer data(host(0).door, 4096), target(host(0).door, 4096);
  data.store(noise(4096, 1));
  const auto is_read = [](std::uint16_t cid) { return cid % 4 == 3; };
  for (std::uint16_t cid = 0; cid < kCommands; ++cid) {
    // Some are long, some are plain, some are no transfers.
    const std::uint32_t blocks = cid % 4 == 0 ? 8 : 1;
    Sqe sqe = cid % 4 == 2
                  ? make(NvmOpcode::write_zeroes, kNs512, cid * 8u, 8)
                  : (is_read(cid) ? target : data)
                        .attach(make(is_read(cid) ? NvmOpcode::read : NvmOpcode::write, kNs512, cid * 8u, blocks),
                                512 * blocks);
    sqe.cid = cid;
    pair.submit() = sqe;
  }
  pair.ring_sq();  // fetched together with the command that protects
  set(nvme::WriteProtection::protect);
  for (const Cqe& cqe : wait(pair, kCommands))
    EXPECT_EQ(status_of(cqe), is_read(cqe.cid) ? Status::success : Status::namespace_is_write_protected) << cqe.cid;
  for (std::uint16_t n = 0; n < kCommands; ++n) {
    EXPECT_EQ(status_of(run(target.attach(make(NvmOpcode::read, kNs512, n * 8u, 8), 4096))), Status::success);
    EXPECT_TRUE(target.copy(4096) == std::vector<std::byte>(4096)) << "write " << n;
  }
}

}  // namespace
}  // namespace flashmob::conformance
