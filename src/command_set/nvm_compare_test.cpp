// Compare, the fused Compare and Write, and Verify.
#include <atomic>
#include <thread>
#include <tuple>

#include "command_set/nvm_test_support.h"

namespace flashmob::command_set {
namespace {

constexpr auto kCompare = nvme::NvmOpcode::compare;
constexpr auto kWrite = nvme::NvmOpcode::write;
constexpr auto kRead = nvme::NvmOpcode::read;
constexpr auto kVerify = nvme::NvmOpcode::verify;

class NvmCompare : public NvmCommandTest {
 protected:
  void give_guest(std::uint64_t lba, std::uint64_t blocks, std::uint64_t offset = 0) {
    std::memcpy(guest(offset), stored(lba, blocks), blocks << ns_->lba_shift);
  }
};

TEST_F(NvmCompare, EqualDataSucceeds) {
  give_guest(40, 100);
  const Outcome outcome = run(command(kCompare, 40, 100));
  EXPECT_EQ(outcome.status, Status::success);
  EXPECT_EQ(outcome.host_read_bytes, 100u * 512);
  expect_demand(outcome, DemandKind::read, 40, 100);
}

TEST_F(NvmCompare, EveryByteCounts) {
  for (const std::uint64_t at : {0, 511, 512, 4095, 4096, 100 * 512 - 1}) {
    give_guest(40, 100);
    *guest(at) ^= std::byte{0x10};
    const Outcome outcome = run(command(kCompare, 40, 100));
    EXPECT_EQ(outcome.status, Status::compare_failure) << at;
    EXPECT_EQ(outcome.demand.kind, DemandKind::read);
  }
}

TEST_F(NvmCompare, ChecksItsFieldsLikeARead) {
  EXPECT_EQ(status_of(command(kCompare, kBlocks - 1, 2)), Status::lba_out_of_range);
  EXPECT_EQ(status_of(command(kCompare, 0, 129)), Status::invalid_field);
  nvme::Sqe sqe = command(kCompare, 0, 1);
  sqe.cdw12 |= 1u << 26;
  EXPECT_EQ(status_of(sqe), Status::invalid_field);
  sqe = command(kCompare, 0, 1);
  sqe.flags = nvme::kFlagPsdtMask;
  EXPECT_EQ(status_of(sqe), Status::invalid_field);
  sqe = command(kCompare, 0, 1);
  sqe.prp1 = 0x10;
  EXPECT_EQ(status_of(sqe), Status::data_transfer_error);
}

TEST_F(NvmCompare, ReservedBitsAreIgnoredAndAProtectedNamespaceCompares) {
  ns_->writable = false;
  give_guest(0, 1);
  nvme::Sqe sqe = command(kCompare, 0, 1);
  sqe.cdw12 |= 0xFu << 20;
  EXPECT_EQ(status_of(sqe), Status::success);
}

TEST_F(NvmCompare, UnreadableBlocksAreAReadError) {
  give_guest(10, 1);
  ASSERT_TRUE(ns_->uncorrectable.insert(10, 1));
  EXPECT_EQ(status_of(command(kCompare, 10, 1)), Status::unrecovered_read_error);
  ns_->uncorrectable.clear();
  media_->fail_reads = true;
  EXPECT_EQ(status_of(command(kCompare, 10, 1)), Status::unrecovered_read_error);
}

TEST_F(NvmCompare, ForceUnitAccessAsksForItsBlocks) {
  give_guest(7, 2);
  for (const auto opcode : {kCompare, kVerify}) {
    nvme::Sqe sqe = command(opcode, 7, 2);
    sqe.cdw12 |= nvme::kIoForceUnitAccess;
    const Outcome outcome = run(sqe);
    EXPECT_EQ(outcome.status, Status::success);
    expect_sync(outcome, 7, 2, false);
  }
  *guest(0) ^= std::byte{1};
  EXPECT_EQ(run(command(kCompare, 7, 2)).sync_bytes, 0u);
}

class NvmFused : public NvmCompare {
 protected:
  static constexpr std::uint64_t kNewData = 64 * 1024;  // the write's buffer

  std::pair<nvme::Sqe, nvme::Sqe> pair(std::uint64_t slba, std::uint32_t blocks) {
    std::pair<nvme::Sqe, nvme::Sqe> both{command(kCompare, slba, blocks), command(kWrite, slba, blocks)};
    both.first.flags = nvme::kFlagFuseFirst;
    both.second.flags = nvme::kFlagFuseSecond;
    point(both.second, kNewData, std::uint64_t{blocks} << ns_->lba_shift);
    return both;
  }
  void expect_statuses(const nvme::Sqe& first, const nvme::Sqe& second, Status one, Status two) {
    const auto [a, b] = run_fused(first, second);
    EXPECT_EQ(a.status, one);
    EXPECT_EQ(b.status, two);
  }
};

TEST_F(NvmFused, WritesWhenTheComparisonHolds) {
  give_guest(7, 2);
  std::memset(guest(kNewData), 0x5A, 1024);
  const auto [first, second] = pair(7, 2);
  const auto [a, b] = run_fused(first, second);
  EXPECT_EQ(a.status, Status::success);
  EXPECT_EQ(b.status, Status::success);
  expect_demand(a, DemandKind::read, 7, 2);
  expect_demand(b, DemandKind::write, 7, 2);
  EXPECT_EQ(std::memcmp(stored(7, 2), guest(kNewData), 1024), 0);
}

TEST_F(NvmFused, MediaThatLocksItsOwnBlocksHoldsThemThroughout) {
  give_guest(7, 2);
  const auto [first, second] = pair(7, 2);
  EXPECT_EQ(run_fused(first, second).second.status, Status::success);
  const TestMedia::Range blocks{7 * 512, 2 * 512};
  EXPECT_EQ(media_->held_at_read, blocks);
  EXPECT_EQ(media_->held_at_write, blocks);
  EXPECT_EQ(media_->held, TestMedia::Range{});
}

TEST_F(NvmFused, DoesNotWriteWhenTheComparisonFails) {
  const std::vector<std::byte> before = media_->copy();
  give_guest(7, 2);
  *guest(1023) ^= std::byte{1};
  const auto [first, second] = pair(7, 2);
  const auto [a, b] = run_fused(first, second);
  EXPECT_EQ(a.status, Status::compare_failure);
  EXPECT_EQ(b.status, Status::aborted_failed_fused);
  expect_immediate(b);
  EXPECT_EQ(media_->copy(), before);
}

TEST_F(NvmFused, BothHalvesMustNameTheSameBlocks) {
  give_guest(7, 2);
  const std::vector<std::byte> before = media_->copy();
  auto [first, second] = pair(7, 2);
  nvme::set_lba_range(second, 8, 2);
  expect_statuses(first, second, Status::invalid_field, Status::invalid_field);
  nvme::set_lba_range(second, 7, 1);
  expect_statuses(first, second, Status::invalid_field, Status::invalid_field);
  nvme::set_lba_range(second, 7, 2);
  second.nsid = 2;
  expect_statuses(first, second, Status::invalid_field, Status::invalid_field);
  EXPECT_EQ(media_->copy(), before);
}

TEST_F(NvmFused, OnlyCompareAndWriteMakeAPair) {
  auto [first, second] = pair(7, 2);
  expect_statuses(second, first, Status::invalid_field, Status::invalid_field);
  expect_statuses(first, first, Status::invalid_field, Status::invalid_field);
}

TEST_F(NvmFused, AWrongHalfAbortsTheOther) {
  give_guest(7, 2);
  auto [first, second] = pair(7, 2);
  first.cdw12 |= nvme::kIoProtectionMask;
  expect_statuses(first, second, Status::invalid_field, Status::aborted_failed_fused);

  std::tie(first, second) = pair(7, 2);
  second.cdw12 |= nvme::kIoProtectionMask;
  expect_statuses(first, second, Status::aborted_failed_fused, Status::invalid_field);

  std::tie(first, second) = pair(kBlocks, 1);
  expect_statuses(first, second, Status::lba_out_of_range, Status::aborted_failed_fused);

  ns_->writable = false;
  std::tie(first, second) = pair(7, 2);
  expect_statuses(first, second, Status::aborted_failed_fused, Status::namespace_is_write_protected);
}

TEST_F(NvmFused, AWriteThatFailsAfterTheComparisonIsTheOnlyFailure) {
  give_guest(7, 2);
  media_->fail_writes = true;
  const auto [first, second] = pair(7, 2);
  expect_statuses(first, second, Status::success, Status::write_fault);
}

// Several threads increment a counter on the media by Compare and Write; no increment may be lost.
TEST_F(NvmFused, PairsOfSeveralThreadsAreAtomic) {
  constexpr int kThreads = 2;
  constexpr std::uint64_t kIncrements = 300;
  std::memset(stored(3), 0, 512);
  media_->yield_after_reads = true;
  std::atomic<int> ready{0};
  auto worker = [&](std::uint64_t self) {
    memory::AddressSpace::Reader reader(space_);
    memory::SegmentList segments(64);
    std::vector<std::byte> bounce(kMaxTransferBytes + kPage);
    ExecContext context{reader, segments, bounce, limits_};
    const std::uint64_t expected_at = self * 2 * kPage;
    const std::uint64_t wanted_at = expected_at + kPage;
    std::memset(guest(expected_at), 0, 2 * kPage);
    nvme::Sqe first = command(kCompare, 3, 1);
    nvme::Sqe second = command(kWrite, 3, 1);
    first.prp1 = kGuestIova + expected_at;
    second.prp1 = kGuestIova + wanted_at;
    ready.fetch_add(1);
    while (ready.load() < kThreads) std::this_thread::yield();
    std::uint64_t guess = 0;
    for (std::uint64_t done = 0; done < kIncrements; ++guess) {
      const std::uint64_t next = guess + 1;
      std::memcpy(guest(expected_at), &guess, 8);
      std::memcpy(guest(wanted_at), &next, 8);
      Outcome a, b;
      reader.enter();
      commands_.execute_fused(first, second, *ns_, context, a, b);
      reader.leave();
      if (b.status == Status::success) {
        ++done;
      } else if (guess > kThreads * kIncrements) {
        break;
      }
    }
  };
  std::thread other(worker, 1);
  worker(0);
  other.join();
  std::uint64_t counter = 0;
  std::memcpy(&counter, stored(3), 8);
  EXPECT_EQ(counter, kThreads * kIncrements);
}

// One thread adds by Compare and Write, another one writes plainly now and then: what it wrote is never written over by
// a pair that had compared before.
TEST_F(NvmFused, PairsAreAtomicAgainstPlainWrites) {
  constexpr std::uint64_t kPlainWrites = 300, kStep = 1'000'000;
  PieceLocks locks;
  std::memset(stored(3), 0, 512);
  std::memset(guest(), 0, 8 * kPage);
  media_->yield_after_reads = true;
  std::atomic<bool> stop{false};
  std::thread adder([&] {
    memory::AddressSpace::Reader reader(space_);
    memory::SegmentList segments(64);
    std::vector<std::byte> bounce(kMaxTransferBytes + kPage);
    ExecContext context{reader, segments, bounce, limits_, &locks};
    nvme::Sqe first = command(kCompare, 3, 1), second = command(kWrite, 3, 1), read = command(kRead, 3, 1);
    first.prp1 = read.prp1 = kGuestIova + 2 * kPage;
    second.prp1 = kGuestIova + 3 * kPage;
    while (!stop) {
      Outcome a, b;
      reader.enter();
      commands_.execute(read, *ns_, context);
      std::uint64_t value = 0;
      std::memcpy(&value, guest(2 * kPage), 8);
      ++value;
      std::memcpy(guest(3 * kPage), &value, 8);
      commands_.execute_fused(first, second, *ns_, context, a, b);
      reader.leave();
    }
  });
  ExecContext context{reader_, segments_, bounce_, limits_, &locks};
  const nvme::Sqe write = command(kWrite, 3, 1);
  nvme::Sqe read = command(kRead, 3, 1);
  read.prp1 = kGuestIova + kPage;
  std::uint64_t lost = 0;
  for (std::uint64_t n = 1; n <= kPlainWrites; ++n) {
    const std::uint64_t mine = n * kStep;
    std::memcpy(guest(), &mine, 8);
    reader_.enter();
    EXPECT_EQ(commands_.execute(write, *ns_, context).status, Status::success);
    for (int looks = 0; looks < 3; ++looks) {
      std::this_thread::yield();
      EXPECT_EQ(commands_.execute(read, *ns_, context).status, Status::success);
      std::uint64_t value = 0;
      std::memcpy(&value, guest(kPage), 8);
      lost += value < mine;
    }
    reader_.leave();
  }
  stop = true;
  adder.join();
  EXPECT_EQ(lost, 0u);
}

class NvmVerify : public NvmCommandTest {};

TEST_F(NvmVerify, ReadsTheBlocksAndBringsNothing) {
  const Outcome outcome = run(command(kVerify, 5, 300));  // more than MDTS, which does not bound it
  EXPECT_EQ(outcome.status, Status::success);
  EXPECT_GT(media_->reads, 1);
  expect_demand(outcome, DemandKind::read, 5, 300);
  EXPECT_EQ(outcome.host_read_bytes, 0u);
  EXPECT_TRUE(std::all_of(guest_.begin(), guest_.end() - kPage, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(NvmVerify, FindsUnreadableBlocks) {
  ASSERT_TRUE(ns_->uncorrectable.insert(50, 1));
  EXPECT_EQ(status_of(command(kVerify, 40, 11)), Status::unrecovered_read_error);
  EXPECT_EQ(status_of(command(kVerify, 40, 10)), Status::success);
  media_->fail_reads = true;
  EXPECT_EQ(status_of(command(kVerify, 40, 10)), Status::unrecovered_read_error);
}

TEST_F(NvmVerify, ChecksItsFields) {
  EXPECT_EQ(status_of(command(kVerify, kBlocks - 1, 1)), Status::success);
  EXPECT_EQ(status_of(command(kVerify, kBlocks - 1, 2)), Status::lba_out_of_range);
  EXPECT_EQ(status_of(command(kVerify, 0, kMaxVerifyBytes / 512)), Status::success);
  EXPECT_EQ(status_of(command(kVerify, 0, kMaxVerifyBytes / 512 + 1)), Status::invalid_field);
  nvme::Sqe sqe = command(kVerify, 0, 1);
  sqe.cdw12 |= 1u << 29;
  EXPECT_EQ(status_of(sqe), Status::invalid_field);
}

}  // namespace
}  // namespace flashmob::command_set
