// Write Zeroes, Write Uncorrectable and Dataset Management.
#include "command_set/nvm_test_support.h"
#include "nvme/dataset.h"

namespace flashmob::command_set {
namespace {

constexpr auto kRead = nvme::NvmOpcode::read;
constexpr auto kWriteZeroes = nvme::NvmOpcode::write_zeroes;
constexpr auto kWriteUncorrectable = nvme::NvmOpcode::write_uncorrectable;

class NvmWriteZeroes : public NvmCommandTest {};

TEST_F(NvmWriteZeroes, ZeroesExactlyTheBlocks) {
  std::vector<std::byte> expected = media_->copy();
  std::fill_n(expected.begin() + 9 * 512, 5 * 512, std::byte{0});
  const Outcome outcome = run(command(kWriteZeroes, 9, 5));
  EXPECT_EQ(outcome.status, Status::success);
  EXPECT_EQ(media_->copy(), expected);
  expect_demand(outcome, DemandKind::write, 9, 5);
  EXPECT_EQ(outcome.host_write_bytes, 0u);
}

TEST_F(NvmWriteZeroes, DeallocationIsImmediate) {
  nvme::Sqe sqe = command(kWriteZeroes, 9, 5);
  sqe.cdw12 |= nvme::kIoDeallocate;
  const Outcome outcome = run(sqe);
  EXPECT_EQ(outcome.status, Status::success);
  expect_immediate(outcome);
  EXPECT_TRUE(is_zero(9, 5));
  using Units = std::pair<std::uint64_t, std::uint64_t>;
  EXPECT_EQ(model_.deallocated, (std::vector<Units>{{1009, 5}}));
  // Of units of eight blocks the whole ones alone; without the bit, blocks are written.
  ns_->unit_shift = 12;
  for (const auto& [slba, blocks] : {std::pair{7u, 10u}, {9u, 7u}, {0u, 24u}}) {
    nvme::Sqe next = command(kWriteZeroes, slba, blocks);
    next.cdw12 |= nvme::kIoDeallocate;
    EXPECT_EQ(status_of(next), Status::success);
    EXPECT_EQ(status_of(command(kWriteZeroes, slba, blocks)), Status::success);
  }
  EXPECT_EQ(model_.deallocated, (std::vector<Units>{{1009, 5}, {1001, 1}, {1000, 3}}));
}

TEST_F(NvmWriteZeroes, IsNotBoundByTheTransferSize) {
  EXPECT_EQ(status_of(command(kWriteZeroes, 0, kBlocks)), Status::success);
  EXPECT_TRUE(is_zero(0, kBlocks));
  EXPECT_EQ(media_->deallocates, 1);
  EXPECT_EQ(status_of(command(kWriteZeroes, 1, kBlocks)), Status::lba_out_of_range);
  EXPECT_EQ(status_of(command(kWriteZeroes, 0, 65536)), Status::lba_out_of_range);
}

TEST_F(NvmWriteZeroes, ClearsUncorrectableMarks) {
  ASSERT_TRUE(ns_->uncorrectable.insert(10, 4));
  EXPECT_EQ(status_of(command(kWriteZeroes, 9, 3)), Status::success);
  EXPECT_EQ(status_of(command(kRead, 9, 3)), Status::success);
  EXPECT_EQ(status_of(command(kRead, 12, 1)), Status::unrecovered_read_error);
}

TEST_F(NvmWriteZeroes, RejectsWhatItCannotDo) {
  nvme::Sqe sqe = command(kWriteZeroes, 0, 1);
  sqe.cdw12 |= 1u << 27;
  EXPECT_EQ(status_of(sqe), Status::invalid_field);
  media_->fail_deallocates = true;
  EXPECT_EQ(status_of(command(kWriteZeroes, 0, 1)), Status::write_fault);
  ns_->writable = false;
  EXPECT_EQ(status_of(command(kWriteZeroes, 0, 1)), Status::namespace_is_write_protected);
  EXPECT_EQ(media_->deallocates, 1);
}

TEST_F(NvmWriteZeroes, ForceUnitAccessAsksForItsBlocks) {
  nvme::Sqe sqe = command(kWriteZeroes, 4, 3);
  EXPECT_EQ(run(sqe).sync_bytes, 0u);
  sqe.cdw12 |= nvme::kIoForceUnitAccess;
  expect_sync(run(sqe), 4, 3, true);
}

TEST_F(NvmWriteZeroes, WithoutAWriteCacheAllWritesAreAsWithForceUnitAccess) {
  write_through_ = true;
  expect_sync(run(command(kWriteZeroes, 4, 3)), 4, 3, true);
  std::memset(guest(), 0, 512);
  const auto [compare, write] =
      run_fused(command(nvme::NvmOpcode::compare, 4, 1), command(nvme::NvmOpcode::write, 4, 1));
  EXPECT_EQ(compare.sync_bytes, 0u);
  expect_sync(write, 4, 1, true);
}

class NvmWriteUncorrectable : public NvmCommandTest {};

TEST_F(NvmWriteUncorrectable, MarksExactlyTheBlocks) {
  const std::vector<std::byte> before = media_->copy();
  const Outcome outcome = run(command(kWriteUncorrectable, 20, 3));
  EXPECT_EQ(outcome.status, Status::success);
  expect_immediate(outcome);
  EXPECT_EQ(status_of(command(kRead, 19, 1)), Status::success);
  EXPECT_EQ(status_of(command(kRead, 20, 1)), Status::unrecovered_read_error);
  EXPECT_EQ(status_of(command(kRead, 22, 1)), Status::unrecovered_read_error);
  EXPECT_EQ(status_of(command(kRead, 23, 1)), Status::success);
  EXPECT_EQ(media_->copy(), before);
}

TEST_F(NvmWriteUncorrectable, TakesAllBlocksOfTheNamespaceAndNoMore) {
  EXPECT_EQ(status_of(command(kWriteUncorrectable, 0, kBlocks)), Status::success);
  EXPECT_EQ(status_of(command(kRead, kBlocks - 1, 1)), Status::unrecovered_read_error);
  EXPECT_EQ(status_of(command(kWriteUncorrectable, 1, kBlocks)), Status::lba_out_of_range);
}

TEST_F(NvmWriteUncorrectable, RejectsDirectivesAndProtection) {
  nvme::Sqe sqe = command(kWriteUncorrectable, 0, 1);
  sqe.cdw12 |= 1u << 20;
  EXPECT_EQ(status_of(sqe), Status::invalid_field);
  ns_->writable = false;
  EXPECT_EQ(status_of(command(kWriteUncorrectable, 0, 1)), Status::namespace_is_write_protected);
  EXPECT_TRUE(ns_->uncorrectable.empty());
}

class NvmDatasetManagement : public NvmCommandTest {
 protected:
  nvme::Sqe manage(const std::vector<nvme::DatasetRange>& ranges, std::uint32_t attributes = nvme::kDatasetDeallocate) {
    put(ranges);
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(nvme::NvmOpcode::dataset_management);
    sqe.nsid = 1;
    sqe.cdw10 = static_cast<std::uint32_t>(ranges.size() - 1);
    sqe.cdw11 = attributes;
    point(sqe, 0, ranges.size() * sizeof(nvme::DatasetRange));
    return sqe;
  }
};

TEST_F(NvmDatasetManagement, DeallocatedBlocksReadAsZeroes) {
  std::vector<std::byte> expected = media_->copy();
  std::fill_n(expected.begin() + 3 * 512, 2 * 512, std::byte{0});
  std::fill_n(expected.begin() + 100 * 512, 1 * 512, std::byte{0});
  const Outcome outcome = run(manage({{0, 2, 3}, {0xFFFFFFFF, 1, 100}}));
  EXPECT_EQ(outcome.status, Status::success);
  expect_immediate(outcome);
  EXPECT_EQ(media_->copy(), expected);
  EXPECT_EQ(model_.deallocated, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{1003, 2}, {1100, 1}}));
}

TEST_F(NvmDatasetManagement, TakesAllRangesAndUsesTheLast) {
  std::vector<nvme::DatasetRange> ranges(nvme::kMaxDatasetManagementRanges);
  for (std::size_t i = 0; i < ranges.size(); ++i) ranges[i] = {0, 1, i * 2};
  EXPECT_EQ(status_of(manage(ranges)), Status::success);
  EXPECT_TRUE(is_zero(0, 1));
  EXPECT_FALSE(is_zero(1, 1));
  EXPECT_TRUE(is_zero(510, 1));
}

// However many ranges name a block, it is deallocated once, and the model hears of it once.
TEST_F(NvmDatasetManagement, RangesThatOverlapOrAdjoinAreOne) {
  const std::vector<nvme::DatasetRange> whole(nvme::kMaxDatasetManagementRanges, {0, kBlocks, 0});
  EXPECT_EQ(status_of(manage(whole)), Status::success);
  EXPECT_TRUE(is_zero(0, kBlocks));
  EXPECT_EQ(media_->deallocates, 1);
  using Units = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  EXPECT_EQ(model_.deallocated, (Units{{1000, kBlocks}}));
  model_.deallocated.clear();
  // Out of order, one inside another, one of no blocks between two that adjoin, and one apart.
  EXPECT_EQ(status_of(manage({{0, 4, 20}, {0, 10, 4}, {0, 2, 6}, {0, 0, 14}, {0, 2, 14}, {0, 0, 18}, {0, 3, 24}})),
            Status::success);
  EXPECT_EQ(model_.deallocated, (Units{{1004, 12}, {1020, 7}}));
}

TEST_F(NvmDatasetManagement, OneBadRangeChangesNothing) {
  const std::vector<std::byte> before = media_->copy();
  EXPECT_EQ(status_of(manage({{0, 2, 3}, {0, 2, kBlocks - 1}})), Status::lba_out_of_range);
  EXPECT_EQ(status_of(manage({{0, 2, 3}, {0, 1, ~std::uint64_t{0}}})), Status::lba_out_of_range);
  EXPECT_EQ(status_of(manage({{0, 0xFFFFFFFF, 3}})), Status::lba_out_of_range);
  EXPECT_EQ(media_->copy(), before);
  EXPECT_EQ(media_->deallocates, 0);
}

TEST_F(NvmDatasetManagement, TheWholeNamespaceAndNoBlocksAreLegal) {
  EXPECT_EQ(status_of(manage({{0, 0, kBlocks}})), Status::success);
  EXPECT_EQ(media_->deallocates, 0);
  EXPECT_EQ(status_of(manage({{0, kBlocks, 0}})), Status::success);
  EXPECT_TRUE(is_zero(0, kBlocks));
}

TEST_F(NvmDatasetManagement, HintsChangeNothing) {
  const std::vector<std::byte> before = media_->copy();
  EXPECT_EQ(status_of(manage({{0, 2, 3}}, nvme::kDatasetIntegralRead | nvme::kDatasetIntegralWrite)), Status::success);
  EXPECT_EQ(status_of(manage({{0, 2, 3}}, 0)), Status::success);
  EXPECT_EQ(status_of(manage({{0, 2, 3}}, 0xFFFFFFF8)), Status::success);  // reserved
  EXPECT_EQ(media_->copy(), before);
  EXPECT_EQ(status_of(manage({{0, 2, kBlocks}}, 0)), Status::lba_out_of_range);
}

TEST_F(NvmDatasetManagement, ClearsUncorrectableMarks) {
  ASSERT_TRUE(ns_->uncorrectable.insert(10, 1));
  EXPECT_EQ(status_of(manage({{0, 1, 10}})), Status::success);
  EXPECT_EQ(status_of(command(kRead, 10, 1)), Status::success);
}

TEST_F(NvmDatasetManagement, FailuresHaveTheirStatus) {
  nvme::Sqe sqe = manage({{0, 1, 10}});
  sqe.prp1 = 0x10;
  EXPECT_EQ(status_of(sqe), Status::data_transfer_error);
  sqe = manage({{0, 1, 10}});
  sqe.flags = nvme::kFlagPsdtMask;
  EXPECT_EQ(status_of(sqe), Status::invalid_field);
  media_->fail_deallocates = true;
  EXPECT_EQ(status_of(manage({{0, 1, 10}})), Status::write_fault);
  ns_->writable = false;
  EXPECT_EQ(status_of(manage({{0, 1, 10}})), Status::namespace_is_write_protected);
  EXPECT_EQ(status_of(manage({{0, 1, 10}}, nvme::kDatasetIntegralRead)), Status::success);
}

}  // namespace
}  // namespace flashmob::command_set
