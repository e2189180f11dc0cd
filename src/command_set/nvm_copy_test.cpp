// Copy.
#include "command_set/nvm_test_support.h"
#include "nvme/dataset.h"

namespace flashmob::command_set {
namespace {

struct Source {
  std::uint64_t slba;
  std::uint32_t blocks;
};

class NvmCopy : public NvmCommandTest {
 protected:
  nvme::Sqe copy(std::uint64_t destination, const std::vector<Source>& sources) {
    std::vector<nvme::CopySourceRange> ranges(sources.size());
    for (std::size_t i = 0; i < sources.size(); ++i) {
      ranges[i].slba = sources[i].slba;
      ranges[i].nlb = static_cast<std::uint16_t>(sources[i].blocks - 1);
    }
    put(ranges);
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(nvme::NvmOpcode::copy);
    sqe.nsid = 1;
    sqe.cdw10 = static_cast<std::uint32_t>(destination);
    sqe.cdw11 = static_cast<std::uint32_t>(destination >> 32);
    sqe.cdw12 = static_cast<std::uint32_t>((sources.size() - 1) & 0xFF);
    point(sqe, 0, ranges.size() * sizeof(nvme::CopySourceRange));
    return sqe;
  }
  // The media after copying `sources`, as they were before, to `destination`.
  std::vector<std::byte> after(std::uint64_t destination, const std::vector<Source>& sources) {
    const std::vector<std::byte> before = media_->copy();
    std::vector<std::byte> result = before;
    std::size_t at = destination << ns_->lba_shift;
    for (const Source& source : sources) {
      const std::size_t bytes = std::size_t{source.blocks} << ns_->lba_shift;
      std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(source.slba << ns_->lba_shift), bytes,
                  result.begin() + static_cast<std::ptrdiff_t>(at));
      at += bytes;
    }
    return result;
  }
  void expect_copies(std::uint64_t destination, const std::vector<Source>& sources) {
    const std::vector<std::byte> expected = after(destination, sources);
    const Outcome outcome = run(copy(destination, sources));
    EXPECT_EQ(outcome.status, Status::success);
    EXPECT_TRUE(media_->copy() == expected);
  }
};

TEST_F(NvmCopy, JoinsItsSourcesInOrder) {
  const std::vector<Source> sources{{100, 2}, {50, 1}, {100, 1}};
  const std::vector<std::byte> expected = after(1000, sources);
  const Outcome outcome = run(copy(1000, sources));
  EXPECT_EQ(outcome.status, Status::success);
  EXPECT_EQ(media_->copy(), expected);
  expect_demand(outcome, DemandKind::write, 1000, 4);
  EXPECT_EQ(outcome.host_write_bytes, 0u);
}

TEST_F(NvmCopy, SourcesMayOverlapTheDestination) {
  expect_copies(101, {{100, 8}});
  expect_copies(99, {{100, 8}});
  expect_copies(100, {{104, 4}, {100, 4}});  // swaps two halves in place
}

TEST_F(NvmCopy, TheLimitsThemselvesAreLegal) {
  expect_copies(2000, {{0, 256}, {300, 256}, {600, 256}, {900, 256}});
  std::vector<Source> many(128);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = {i * 3, 8};
  expect_copies(2000, many);
}

TEST_F(NvmCopy, BeyondALimitIsCommandSizeLimitExceeded) {
  const std::vector<std::byte> before = media_->copy();
  EXPECT_EQ(status_of(copy(2000, {{0, 257}})), Status::command_size_limit_exceeded);
  EXPECT_EQ(status_of(copy(2000, {{0, 256}, {0, 256}, {0, 256}, {0, 256}, {0, 1}})),
            Status::command_size_limit_exceeded);
  EXPECT_EQ(status_of(copy(2000, std::vector<Source>(129, {0, 1}))), Status::command_size_limit_exceeded);
  EXPECT_EQ(status_of(copy(2000, std::vector<Source>(256, {0, 1}))), Status::command_size_limit_exceeded);
  EXPECT_EQ(media_->copy(), before);
}

TEST_F(NvmCopy, ACopyLargerThanTheBufferWorks) {
  format(12);
  expect_copies(2000, {{0, 256}, {300, 256}, {600, 256}, {900, 256}});  // 4 MiB
}

TEST_F(NvmCopy, RangesOutsideTheNamespaceAreRejected) {
  EXPECT_EQ(status_of(copy(kBlocks - 1, {{0, 1}})), Status::success);
  EXPECT_EQ(status_of(copy(kBlocks - 1, {{0, 2}})), Status::lba_out_of_range);
  EXPECT_EQ(status_of(copy(~std::uint64_t{0}, {{0, 1}})), Status::lba_out_of_range);
  EXPECT_EQ(status_of(copy(0, {{kBlocks - 1, 1}})), Status::success);
  const Outcome outcome = run(copy(0, {{5, 1}, {kBlocks - 1, 2}}));
  EXPECT_EQ(outcome.status, Status::lba_out_of_range);
  EXPECT_EQ(outcome.result, 1u);
  EXPECT_EQ(status_of(copy(0, {{~std::uint64_t{0} - 3, 8}})), Status::lba_out_of_range);
}

TEST_F(NvmCopy, UncorrectableSourcesAreNamed) {
  const std::vector<std::byte> before = media_->copy();
  ASSERT_TRUE(ns_->uncorrectable.insert(30, 1));
  const Outcome outcome = run(copy(1000, {{0, 4}, {28, 2}, {29, 2}}));
  EXPECT_EQ(outcome.status, Status::unrecovered_read_error);
  EXPECT_EQ(outcome.result, 2u);
  EXPECT_EQ(media_->copy(), before);
}

TEST_F(NvmCopy, TheDestinationIsReadableAgain) {
  ASSERT_TRUE(ns_->uncorrectable.insert(1000, 4));
  EXPECT_EQ(status_of(copy(1000, {{0, 3}})), Status::success);
  EXPECT_FALSE(ns_->uncorrectable.intersects(1000, 3));
  EXPECT_TRUE(ns_->uncorrectable.intersects(1003, 1));
}

TEST_F(NvmCopy, MediaErrorsHaveTheirStatus) {
  media_->fail_reads = true;
  EXPECT_EQ(status_of(copy(1000, {{0, 3}})), Status::unrecovered_read_error);
  media_->fail_reads = false;
  media_->fail_writes = true;
  EXPECT_EQ(status_of(copy(1000, {{0, 3}})), Status::write_fault);
}

TEST_F(NvmCopy, UnsupportedFormatsAndFeaturesAreInvalidFields) {
  nvme::Sqe sqe = copy(1000, {{0, 1}});
  sqe.cdw12 |= 1u << 8;  // descriptor format 1
  EXPECT_EQ(status_of(sqe), Status::invalid_field);
  for (const std::uint32_t bit : {12u, 15u, 20u, 23u, 26u, 29u}) {
    sqe = copy(1000, {{0, 1}});
    sqe.cdw12 |= 1u << bit;
    EXPECT_EQ(status_of(sqe), Status::invalid_field) << bit;
  }
  for (const std::uint32_t bit : {16u, 19u, 24u, 25u, 31u}) {
    sqe = copy(1000, {{0, 1}});
    sqe.cdw12 |= 1u << bit;
    EXPECT_EQ(status_of(sqe), Status::success) << bit;
  }
  sqe = copy(1000, {{0, 1}});
  sqe.flags = nvme::kFlagPsdtMask;
  EXPECT_EQ(status_of(sqe), Status::invalid_field);
  sqe = copy(1000, {{0, 1}});
  sqe.prp1 = 0x10;
  EXPECT_EQ(status_of(sqe), Status::data_transfer_error);
}

TEST_F(NvmCopy, AProtectedNamespaceIsNotWritten) {
  ns_->writable = false;
  EXPECT_EQ(status_of(copy(1000, {{0, 1}})), Status::namespace_is_write_protected);
  EXPECT_EQ(media_->writes, 0);
}

TEST_F(NvmCopy, ForceUnitAccessAsksForItsDestination) {
  nvme::Sqe sqe = copy(1000, {{0, 1}});
  sqe.cdw12 |= nvme::kIoForceUnitAccess;
  const Outcome outcome = run(sqe);
  EXPECT_EQ(outcome.status, Status::success);
  expect_sync(outcome, 1000, 1, true);
}

}  // namespace
}  // namespace flashmob::command_set
