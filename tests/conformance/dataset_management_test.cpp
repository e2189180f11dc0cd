// Dataset Management (NVM command set 1.0c, 3.2.3): deallocation, and hints that change nothing.
#include "conformance/mapping_fixture.h"

namespace flashmob::conformance {
namespace {

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

}  // namespace
}  // namespace flashmob::conformance
