// Read, Write and Flush, and the decoding that the engine shares.
#include "command_set/nvm_test_support.h"
#include "nvme/dataset.h"

namespace flashmob::command_set {
namespace {

constexpr auto kRead = nvme::NvmOpcode::read;
constexpr auto kWrite = nvme::NvmOpcode::write;

class NvmReadWrite : public NvmCommandTest {};

TEST_F(NvmReadWrite, ReadBringsTheBlocks) {
  const Outcome outcome = run(command(kRead, 17, 3));
  EXPECT_EQ(outcome.status, Status::success);
  EXPECT_EQ(std::memcmp(guest(), stored(17, 3), 3 * 512), 0);
  EXPECT_EQ(outcome.host_read_bytes, 3u * 512);
  EXPECT_EQ(outcome.host_write_bytes, 0u);
  expect_demand(outcome, DemandKind::read, 17, 3);
}

TEST_F(NvmReadWrite, WriteStoresTheBlocksAndNothingElse) {
  fill_guest(3 * 512, 1);
  std::vector<std::byte> expected = media_->copy();
  std::memcpy(expected.data() + 17 * 512, guest(), 3 * 512);
  const Outcome outcome = run(command(kWrite, 17, 3));
  EXPECT_EQ(outcome.status, Status::success);
  EXPECT_EQ(media_->copy(), expected);
  EXPECT_EQ(outcome.host_write_bytes, 3u * 512);
  EXPECT_EQ(outcome.host_read_bytes, 0u);
  expect_demand(outcome, DemandKind::write, 17, 3);
}

TEST_F(NvmReadWrite, DataMayLieInManyPagesAtAnOffset) {
  nvme::Sqe sqe = command(kRead, 0, 128);  // all of MDTS
  point(sqe, 1020, kMaxTransferBytes);
  EXPECT_EQ(status_of(sqe), Status::success);
  EXPECT_EQ(std::memcmp(guest(1020), stored(0, 128), kMaxTransferBytes), 0);
}

TEST_F(NvmReadWrite, TheLastBlocksAreInRangeAndNothingBehindThem) {
  EXPECT_EQ(status_of(command(kRead, kBlocks - 1, 1)), Status::success);
  EXPECT_EQ(status_of(command(kWrite, kBlocks - 2, 2)), Status::success);
  EXPECT_EQ(status_of(command(kRead, kBlocks - 1, 2)), Status::lba_out_of_range);
  EXPECT_EQ(status_of(command(kRead, kBlocks, 1)), Status::lba_out_of_range);
  EXPECT_EQ(status_of(command(kWrite, ~std::uint64_t{0}, 1)), Status::lba_out_of_range);
  EXPECT_EQ(status_of(command(kRead, ~std::uint64_t{0} - 1, 4)), Status::lba_out_of_range);
}

TEST_F(NvmReadWrite, MoreThanTheMaximumTransferIsAnInvalidField) {
  EXPECT_EQ(status_of(command(kRead, 0, 128)), Status::success);
  EXPECT_EQ(status_of(command(kRead, 0, 129)), Status::invalid_field);
  EXPECT_EQ(status_of(command(kRead, 0, 65536)), Status::invalid_field);
}

TEST_F(NvmReadWrite, FeaturesThatWeLackAreRejectedAndReservedBitsIgnored) {
  for (const auto opcode : {kRead, kWrite}) {
    for (std::uint32_t bit = 16; bit < 32; ++bit) {
      nvme::Sqe sqe = command(opcode, 0, 1);
      sqe.cdw12 |= 1u << bit;
      const bool protection = bit >= 26 && bit <= 29;
      const bool directive = bit >= 20 && bit <= 23;
      EXPECT_EQ(status_of(sqe), protection || directive ? Status::invalid_field : Status::success) << bit;
    }
  }
}

TEST_F(NvmReadWrite, ReservedPsdtIsAnInvalidFieldAndSglNeedsSglSupport) {
  nvme::Sqe sqe = command(kRead, 0, 1);
  sqe.flags = nvme::kFlagPsdtMask;
  EXPECT_EQ(status_of(sqe), Status::invalid_field);

  sqe.flags = nvme::kFlagPsdtSglBufferMetadata;
  sqe.sgl1 = {kGuestIova + 64, 512, {}, static_cast<std::uint8_t>(nvme::SglType::data_block) << 4};
  EXPECT_EQ(status_of(sqe), Status::success);
  EXPECT_EQ(std::memcmp(guest(64), stored(0), 512), 0);
  limits_.sgl_supported = false;
  EXPECT_EQ(status_of(sqe), Status::invalid_field);
}

TEST_F(NvmReadWrite, UnmappedDataMovesNothing) {
  const std::vector<std::byte> before = media_->copy();
  nvme::Sqe sqe = command(kWrite, 0, 1);
  sqe.prp1 = 0x10;
  EXPECT_EQ(status_of(sqe), Status::data_transfer_error);
  EXPECT_EQ(media_->copy(), before);
}

TEST_F(NvmReadWrite, MediaErrorsHaveTheirStatus) {
  media_->fail_reads = media_->fail_writes = true;
  const Outcome read = run(command(kRead, 0, 1));
  EXPECT_EQ(read.status, Status::unrecovered_read_error);
  EXPECT_EQ(read.host_read_bytes, 0u);
  expect_immediate(read);
  EXPECT_EQ(status_of(command(kWrite, 0, 1)), Status::write_fault);
}

TEST_F(NvmReadWrite, AProtectedNamespaceCanBeReadOnly) {
  ns_->writable = false;
  EXPECT_EQ(status_of(command(kRead, 0, 1)), Status::success);
  EXPECT_EQ(status_of(command(kWrite, 0, 1)), Status::namespace_is_write_protected);
  EXPECT_EQ(media_->writes, 0);
}

// Through every command that could; the namespace itself may be written by others.
TEST_F(NvmReadWrite, AHostThatMayOnlyReadWritesNothing) {
  using nvme::NvmOpcode;
  limits_.read_only = true;
  put(std::vector<nvme::DatasetRange>{{0, 1, 0}});
  nvme::Sqe deallocate = command(NvmOpcode::dataset_management, 0, 1);
  deallocate.cdw10 = 0;
  deallocate.cdw11 = nvme::kDatasetDeallocate;
  EXPECT_EQ(status_of(deallocate), Status::namespace_is_write_protected);
  for (const NvmOpcode opcode :
       {NvmOpcode::write, NvmOpcode::write_zeroes, NvmOpcode::write_uncorrectable, NvmOpcode::copy}) {
    nvme::Sqe sqe = command(opcode, 0, 1);
    if (opcode == NvmOpcode::copy) {
      put(std::vector<nvme::CopySourceRange>(1));
      sqe.cdw12 = 0;
    }
    EXPECT_EQ(status_of(sqe), Status::namespace_is_write_protected) << static_cast<int>(opcode);
  }
  const nvme::Sqe compare = command(NvmOpcode::compare, 0, 1);
  std::memset(guest(), 0, 512);
  EXPECT_EQ(run_fused(compare, command(kWrite, 0, 1)).second.status, Status::namespace_is_write_protected);
  EXPECT_EQ(media_->writes + media_->deallocates, 0);
  EXPECT_TRUE(ns_->uncorrectable.empty());
  for (const NvmOpcode opcode : {NvmOpcode::read, NvmOpcode::compare, NvmOpcode::verify})
    EXPECT_EQ(status_of(command(opcode, 0, 1)), Status::success) << static_cast<int>(opcode);
}

TEST_F(NvmReadWrite, UncorrectableBlocksFailUntilWritten) {
  ASSERT_TRUE(ns_->uncorrectable.insert(10, 2));
  EXPECT_EQ(status_of(command(kRead, 8, 2)), Status::success);
  EXPECT_EQ(status_of(command(kRead, 8, 3)), Status::unrecovered_read_error);
  EXPECT_EQ(status_of(command(kWrite, 10, 1)), Status::success);
  EXPECT_EQ(status_of(command(kRead, 10, 1)), Status::success);
  EXPECT_EQ(status_of(command(kRead, 11, 1)), Status::unrecovered_read_error);
}

TEST_F(NvmReadWrite, AFailedWriteLeavesTheMark) {
  ASSERT_TRUE(ns_->uncorrectable.insert(10, 1));
  media_->fail_writes = true;
  EXPECT_EQ(status_of(command(kWrite, 10, 1)), Status::write_fault);
  EXPECT_EQ(status_of(command(kRead, 10, 1)), Status::unrecovered_read_error);
}

TEST_F(NvmReadWrite, ForceUnitAccessAsksForItsBlocksOnlyWithAVolatileWriteCache) {
  nvme::Sqe write = command(kWrite, 3, 2);
  nvme::Sqe read = command(kRead, 0, 1);
  EXPECT_EQ(run(write).sync_bytes, 0u);
  write.cdw12 |= nvme::kIoForceUnitAccess;
  read.cdw12 |= nvme::kIoForceUnitAccess;
  expect_sync(run(write), 3, 2, true);
  expect_sync(run(read), 0, 1, false);
  EXPECT_EQ(media_->flushes, 0) << "that is the caller's";
  limits_.volatile_write_cache = false;
  EXPECT_EQ(run(write).sync_bytes, 0u);
}

TEST_F(NvmReadWrite, LargeBlocksCountTheirUnits) {
  format(12);
  const Outcome outcome = run(command(kRead, 5, 2));
  EXPECT_EQ(outcome.status, Status::success);
  EXPECT_EQ(outcome.demand.first_unit, 1000u + 5 * 8);
  EXPECT_EQ(outcome.demand.units, 16u);
  EXPECT_EQ(status_of(command(kRead, 0, 16)), Status::success);
  EXPECT_EQ(status_of(command(kRead, 0, 17)), Status::invalid_field);
}

TEST_F(NvmReadWrite, ATransferAcrossABoundaryTouchesBothUnits) {
  ns_->unit_shift = 12;
  const auto demand_of = [&](std::uint64_t offset, std::uint64_t bytes) {
    timing::Demand demand;
    ns_->units().touch(offset, bytes, DemandKind::read, demand);
    return demand;
  };
  EXPECT_EQ(demand_of(4096 - 512, 512).units, 1u);
  EXPECT_EQ(demand_of(4096 - 512, 1024).units, 2u);
  EXPECT_EQ(demand_of(4096, 4096).first_unit, 1001u);
  EXPECT_EQ(demand_of(4096, 4096).units, 1u);
}

TEST_F(NvmReadWrite, UnknownOpcodesAreInvalid) {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    if (opcode == 1 || opcode == 2 || opcode == 4 || opcode == 5 || opcode == 8 || opcode == 9 || opcode == 0x0C ||
        opcode == 0x19)
      continue;
    nvme::Sqe sqe = command(kRead, 0, 1);
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    const Outcome outcome = run(sqe);
    EXPECT_EQ(outcome.status, Status::invalid_opcode) << opcode;
    expect_immediate(outcome);
  }
}

}  // namespace
}  // namespace flashmob::command_set
