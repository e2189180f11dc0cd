// Write Zeroes, Write Uncorrectable, Dataset Management and Verify (NVM command set 1.0c, 3.2.8, 3.2.7, 3.2.3, 3.2.5).
#include "conformance/device_fixture.h"
#include "nvme/dataset.h"
#include "nvme/io_command.h"

namespace flashmob::conformance {
namespace {

constexpr std::uint64_t kBlocks512 = kNsBytes / 512;

class MappingTest : public DeviceTest {
 protected:
  Status on_blocks(NvmOpcode opcode, std::uint64_t lba, std::uint32_t blocks, std::uint32_t flags = 0) {
    Sqe sqe = make(opcode, kNs512, lba, blocks);
    sqe.cdw12 |= flags;
    return io(sqe);
  }
  Status read_status(std::uint64_t lba, std::uint32_t blocks) {
    Buffer target = buffer(std::max<std::size_t>(blocks * 512, 512));
    return io(target.attach(make(NvmOpcode::read, kNs512, lba, blocks), blocks * 512));
  }
  Status deallocate(const std::vector<nvme::DatasetRange>& ranges, std::uint32_t attributes = nvme::kDatasetDeallocate,
                    std::uint32_t nsid = kNs512) {
    Buffer list = buffer(4096);
    list.store(std::as_bytes(std::span(ranges)));
    Sqe sqe = list.attach(make(NvmOpcode::dataset_management, nsid), ranges.size() * sizeof ranges[0]);
    sqe.cdw10 = static_cast<std::uint32_t>(ranges.size() - 1);
    sqe.cdw11 = attributes;
    return io(sqe);
  }
  const std::vector<std::byte> data_ = noise(16 * 512, 1);
  std::vector<std::byte> with_zeroes(std::size_t first, std::size_t count) const {
    auto copy = data_;
    std::fill_n(copy.begin() + static_cast<std::ptrdiff_t>(first * 512), count * 512, std::byte{0});
    return copy;
  }
};

using WriteZeroesTest = MappingTest;

TEST_F(WriteZeroesTest, BlocksReadAsZeroesAfterwards) {
  for (const std::uint32_t flags : {0u, nvme::kIoDeallocate, nvme::kIoForceUnitAccess}) {
    ASSERT_EQ(write(kNs512, 100, data_), Status::success);
    EXPECT_EQ(on_blocks(NvmOpcode::write_zeroes, 103, 5, flags), Status::success);
    EXPECT_TRUE(read(kNs512, 100, 16) == with_zeroes(3, 5)) << flags;
  }
}

TEST_F(WriteZeroesTest, MayExceedMdts) {
  ASSERT_EQ(write(kNs512, 5000, data_), Status::success);
  EXPECT_EQ(on_blocks(NvmOpcode::write_zeroes, 0, kBlocks512), Status::success);
  EXPECT_TRUE(read(kNs512, 5000, 16) == std::vector<std::byte>(16 * 512));
}

TEST_F(WriteZeroesTest, RangesMustLieInTheNamespace) {
  EXPECT_EQ(on_blocks(NvmOpcode::write_zeroes, kBlocks512 - 1, 1), Status::success);
  EXPECT_EQ(on_blocks(NvmOpcode::write_zeroes, kBlocks512 - 1, 2), Status::lba_out_of_range);
  EXPECT_EQ(on_blocks(NvmOpcode::write_zeroes, kBlocks512, 1), Status::lba_out_of_range);
}

using WriteUncorrectableTest = MappingTest;

TEST_F(WriteUncorrectableTest, MarkedBlocksCannotBeRead) {
  ASSERT_EQ(write(kNs512, 100, data_), Status::success);
  EXPECT_EQ(on_blocks(NvmOpcode::write_uncorrectable, 104, 2), Status::success);
  EXPECT_EQ(read_status(104, 1), Status::unrecovered_read_error);
  EXPECT_EQ(read_status(100, 16), Status::unrecovered_read_error);
  EXPECT_EQ(read_status(100, 4), Status::success);
  EXPECT_EQ(read_status(106, 10), Status::success);
  EXPECT_EQ(on_blocks(NvmOpcode::verify, 104, 1), Status::unrecovered_read_error);
}

TEST_F(WriteUncorrectableTest, WritingClearsTheMark) {
  ASSERT_EQ(on_blocks(NvmOpcode::write_uncorrectable, 100, 16), Status::success);
  ASSERT_EQ(write(kNs512, 104, std::span(data_).first(512)), Status::success);
  EXPECT_EQ(read_status(104, 1), Status::success);
  EXPECT_EQ(read_status(103, 1), Status::unrecovered_read_error);
  EXPECT_EQ(read_status(105, 1), Status::unrecovered_read_error);
  ASSERT_EQ(on_blocks(NvmOpcode::write_zeroes, 103, 1), Status::success);
  EXPECT_EQ(read_status(103, 2), Status::success);
  ASSERT_EQ(deallocate({{0, 1, 105}}), Status::success);
  EXPECT_EQ(read_status(103, 3), Status::success);
  EXPECT_EQ(read_status(106, 1), Status::unrecovered_read_error);
}

TEST_F(WriteUncorrectableTest, SurvivesAReset) {
  ASSERT_EQ(on_blocks(NvmOpcode::write_uncorrectable, 100, 1), Status::success);
  driver().enable();
  QueuePair& pair = driver().create_queue_pair({});
  Buffer target = buffer(512);
  pair.submit() = target.attach(make(NvmOpcode::read, kNs512, 100, 1), 512);
  pair.ring_sq();
  const auto done = wait(pair, 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(status_of(done[0]), Status::unrecovered_read_error);
}

TEST_F(WriteUncorrectableTest, RangesMustLieInTheNamespace) {
  EXPECT_EQ(on_blocks(NvmOpcode::write_uncorrectable, kBlocks512 - 1, 2), Status::lba_out_of_range);
}

using DatasetManagementTest = MappingTest;

TEST_F(DatasetManagementTest, DeallocatedBlocksReadAsZeroes) {
  ASSERT_EQ(write(kNs512, 100, data_), Status::success);
  EXPECT_EQ(deallocate({{0, 3, 102}, {0, 1, 110}}), Status::success);
  auto expected = with_zeroes(2, 3);
  std::fill_n(expected.begin() + 10 * 512, 512, std::byte{0});
  EXPECT_TRUE(read(kNs512, 100, 16) == expected);
}

TEST_F(DatasetManagementTest, HintsChangeNothing) {
  ASSERT_EQ(write(kNs512, 100, data_), Status::success);
  EXPECT_EQ(deallocate({{0xFFFF, 16, 100}}, nvme::kDatasetIntegralRead | nvme::kDatasetIntegralWrite), Status::success);
  EXPECT_TRUE(read(kNs512, 100, 16) == data_);
}

TEST_F(DatasetManagementTest, TheMostRangesThereCanBe) {
  std::vector<nvme::DatasetRange> ranges;
  for (std::uint64_t i = 0; i < 256; ++i) ranges.push_back({0, 1, i * 2});
  for (std::uint64_t lba = 0; lba < 512; lba += 16) ASSERT_EQ(write(kNs512, lba, data_), Status::success);
  EXPECT_EQ(deallocate(ranges), Status::success);
  auto expected = data_;
  for (std::size_t i = 0; i < 16; i += 2)
    std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(i * 512), 512, std::byte{0});
  for (std::uint64_t lba = 0; lba < 512; lba += 16) EXPECT_TRUE(read(kNs512, lba, 16) == expected) << lba;
}

TEST_F(DatasetManagementTest, OneBadRangeSparesNothingHalfDone) {
  ASSERT_EQ(write(kNs512, 100, data_), Status::success);
  EXPECT_EQ(deallocate({{0, 1, 100}, {0, 2, kBlocks512 - 1}}), Status::lba_out_of_range);
  EXPECT_TRUE(read(kNs512, 100, 16) == data_);
}

TEST_F(DatasetManagementTest, RangesThatWrapAreOutOfRange) {
  EXPECT_EQ(deallocate({{0, 0xFFFFFFFF, ~std::uint64_t{0}}}), Status::lba_out_of_range);
  EXPECT_EQ(deallocate({{0, 1, ~std::uint64_t{0}}}), Status::lba_out_of_range);
}

using VerifyTest = MappingTest;

TEST_F(VerifyTest, TransfersNoData) {
  ASSERT_EQ(write(kNs512, 100, data_), Status::success);
  EXPECT_EQ(on_blocks(NvmOpcode::verify, 100, 16), Status::success);
  EXPECT_EQ(on_blocks(NvmOpcode::verify, 0, 1), Status::success);
  EXPECT_EQ(on_blocks(NvmOpcode::verify, kBlocks512 - 1, 2), Status::lba_out_of_range);
}

}  // namespace
}  // namespace flashmob::conformance
