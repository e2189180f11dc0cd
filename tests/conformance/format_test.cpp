// Format NVM (Base 2.0c, 5.14): new block sizes, erased contents, and what stays.

#include "conformance/device_fixture.h"
#include "nvme/identify_namespace.h"

namespace flashmob::conformance {
namespace {

class FormatTest : public DeviceTest {
 protected:
  Status format(std::uint32_t nsid, std::uint32_t cdw10) {
    Sqe sqe = make(AdminOpcode::format_nvm, nsid);
    sqe.cdw10 = cdw10;
    return admin(sqe);
  }
  unsigned block_shift(std::uint32_t nsid) {
    const auto data = identify<nvme::IdentifyNamespace>(nvme::Cns::identify_namespace, nsid);
    return data.lbaf[nvme::lba_format_index(data.flbas)].lbads;
  }
  // The index of the format with 2^shift bytes per block.
  std::uint32_t format_of(unsigned shift) {
    const auto data = identify<nvme::IdentifyNamespace>(nvme::Cns::identify_namespace, kNs512);
    for (std::uint32_t i = 0; i <= data.nlbaf; ++i)
      if (data.lbaf[i].lbads == shift) return i;
    ADD_FAILURE() << "no such format";
    return 0;
  }
  static constexpr std::uint32_t kUserDataErase = 1u << 9;
};

TEST_F(FormatTest, ChangesTheBlockSize) {
  ASSERT_EQ(write(kNs512, 0, noise(8192, 1)), Status::success);
  EXPECT_EQ(format(kNs512, format_of(12)), Status::success);
  EXPECT_EQ(block_shift(kNs512), 12u);
  const auto data = identify<nvme::IdentifyNamespace>(nvme::Cns::identify_namespace, kNs512);
  EXPECT_EQ(data.nsze, kNsBytes / 4096);
  Buffer target = buffer(4096);
  EXPECT_EQ(io(target.attach(make(NvmOpcode::read, kNs512, kNsBytes / 4096 - 1, 1), 4096)), Status::success);
  EXPECT_EQ(io(target.attach(make(NvmOpcode::read, kNs512, kNsBytes / 4096, 1), 4096)), Status::lba_out_of_range);
  EXPECT_EQ(format(kNs512, format_of(9)), Status::success);
  EXPECT_EQ(block_shift(kNs512), 9u);
}

TEST_F(FormatTest, ErasesTheData) {
  ASSERT_EQ(write(kNs512, 0, noise(8192, 1)), Status::success);
  ASSERT_EQ(write(kNs4096, 0, noise(8192, 2)), Status::success);
  EXPECT_EQ(format(kNs512, format_of(9) | kUserDataErase), Status::success);
  EXPECT_TRUE(read(kNs512, 0, 16) == std::vector<std::byte>(8192));
  EXPECT_TRUE(read(kNs4096, 0, 2) == noise(8192, 2)) << "other namespaces keep theirs";
}

TEST_F(FormatTest, ClearsUncorrectableMarks) {
  ASSERT_EQ(io(make(NvmOpcode::write_uncorrectable, kNs512, 5, 1)), Status::success);
  EXPECT_EQ(format(kNs512, format_of(9)), Status::success);
  EXPECT_TRUE(read(kNs512, 5, 1) == std::vector<std::byte>(512));
}

TEST_F(FormatTest, UnknownFormatsAndProtectionAreRefused) {
  EXPECT_EQ(format(kNs512, 2), Status::invalid_format);
  EXPECT_EQ(format(kNs512, 15), Status::invalid_format);
  EXPECT_EQ(format(kNs512, 1u << 12), Status::invalid_format) << "format 16, by the upper bits";
  EXPECT_EQ(format(kNs512, format_of(9) | (1u << 5)), Status::invalid_format) << "protection without metadata";
  EXPECT_EQ(format(kNs512, format_of(9) | (1u << 4)), Status::invalid_format) << "extended blocks without metadata";
  EXPECT_EQ(format(kNs512, format_of(9) | (7u << 9)), Status::invalid_field) << "a reserved erase";
  EXPECT_EQ(block_shift(kNs512), 9u);
}

TEST_F(FormatTest, NamespacesThatDoNotExist) {
  EXPECT_EQ(format(0, 0), Status::invalid_namespace_or_format);
  EXPECT_EQ(format(5000, 0), Status::invalid_namespace_or_format);
  EXPECT_EQ(format(3, 0), Status::invalid_field);
}

TEST_F(FormatTest, NoWriteOfBeforeLandsAfterIt) {
  if (suite::on_other_engine != nullptr) GTEST_SKIP() << "a GPU's engine ends nothing yet";
  constexpr std::uint16_t kWrites = 40;
  const std::uint32_t same_format = format_of(9);
  QueuePair& pair = queue();
  Buffer data = buffer(4096);
  data.store(noise(4096, 1));
  for (std::uint16_t cid = 0; cid < kWrites; ++cid) {
    // Some are long, some are plain, and some are no transfers.
    Sqe sqe = cid % 4 == 3 ? make(NvmOpcode::write_uncorrectable, kNs512, cid * 8u, 8)
                           : data.attach(make(NvmOpcode::write, kNs512, cid * 8u, 8), 4096);
    sqe.cid = cid;
    pair.submit() = sqe;
  }
  pair.ring_sq();  // fetched together with the Format
  EXPECT_EQ(format(kNs512, same_format), Status::success);
  for (const Cqe& cqe : wait(pair, kWrites)) EXPECT_EQ(status_of(cqe), Status::format_in_progress) << cqe.cid;
  for (std::uint16_t n = 0; n < kWrites; ++n)
    EXPECT_TRUE(read(kNs512, n * 8u, 8) == std::vector<std::byte>(4096)) << "write " << n;
}

TEST_F(FormatTest, CommandsInFlightMeetEitherTheOldOrTheNewFormat) {
  QueuePair& pair = queue();
  Buffer data = buffer(4096);
  for (std::uint16_t cid = 0; cid < 40; ++cid) {
    Sqe sqe = data.attach(make(NvmOpcode::write, kNs512, cid * 8u, 8), 4096);
    sqe.cid = cid;
    pair.submit() = sqe;
  }
  pair.ring_sq();
  device.pump_for(1'000);
  EXPECT_EQ(format(kNs512, format_of(12)), Status::success);
  for (const Cqe& cqe : wait(pair, 40))
    EXPECT_TRUE(status_of(cqe) == Status::success || status_of(cqe) == Status::invalid_field ||
                status_of(cqe) == Status::lba_out_of_range || status_of(cqe) == Status::format_in_progress);
  EXPECT_FALSE(driver().fatal());
}

}  // namespace
}  // namespace flashmob::conformance
