// Fused operations (Base 2.0c, 3.4.2): Compare and Write.
#include <algorithm>

#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

class FusedTest : public DeviceTest {
 protected:
  FusedTest() : expected_(host().door, 4096), replacement_(host().door, 4096), pair_(queue()) {}

  // One half with its data, as command `cid`.
  void submit_compare(std::span<const std::byte> data, std::uint16_t cid, std::uint64_t lba = 0) {
    expected_.store(data);
    submit(expected_.attach(make(NvmOpcode::compare, kNs512, lba, 1), 512), nvme::kFlagFuseFirst, cid);
  }
  void submit_write(std::span<const std::byte> data, std::uint16_t cid, std::uint64_t lba = 0) {
    replacement_.store(data);
    submit(replacement_.attach(make(NvmOpcode::write, kNs512, lba, 1), 512), nvme::kFlagFuseSecond, cid);
  }
  void submit(Sqe sqe, std::uint8_t fuse, std::uint16_t cid) {
    sqe.flags = static_cast<std::uint8_t>(sqe.flags | fuse);
    sqe.cid = cid;
    pair_.submit() = sqe;
  }
  // The completions of `count` commands, as (CID, status) in order.
  std::vector<std::pair<int, Status>> finish(std::size_t count) {
    pair_.ring_sq();
    std::vector<std::pair<int, Status>> result;
    for (const Cqe& cqe : wait(pair_, count)) result.emplace_back(cqe.cid, status_of(cqe));
    return result;
  }
  using Ends = std::vector<std::pair<int, Status>>;

  const std::vector<std::byte> old_ = noise(512, 1);
  const std::vector<std::byte> new_ = noise(512, 2);
  Buffer expected_;
  Buffer replacement_;
  QueuePair& pair_;
};

TEST_F(FusedTest, WritesWhereTheCompareSucceeds) {
  ASSERT_EQ(write(kNs512, 0, old_), Status::success);
  submit_compare(old_, 1);
  submit_write(new_, 2);
  EXPECT_EQ(finish(2), (Ends{{1, Status::success}, {2, Status::success}}));
  EXPECT_TRUE(read(kNs512, 0, 1) == new_);
}

TEST_F(FusedTest, WritesNothingWhereItFails) {
  ASSERT_EQ(write(kNs512, 0, old_), Status::success);
  submit_compare(new_, 1);
  submit_write(new_, 2);
  EXPECT_EQ(finish(2), (Ends{{1, Status::compare_failure}, {2, Status::aborted_failed_fused}}));
  EXPECT_TRUE(read(kNs512, 0, 1) == old_);
}

TEST_F(FusedTest, HalvesMayComeWithDifferentDoorbells) {
  ASSERT_EQ(write(kNs512, 0, old_), Status::success);
  submit_compare(old_, 1);
  pair_.ring_sq();
  device.pump_for(10'000'000);
  submit_write(new_, 2);
  EXPECT_EQ(finish(2), (Ends{{1, Status::success}, {2, Status::success}}));
  EXPECT_TRUE(read(kNs512, 0, 1) == new_);
}

TEST_F(FusedTest, AFirstHalfWithoutSecond) {
  submit_compare(old_, 1);
  submit(replacement_.attach(make(NvmOpcode::read, kNs512, 0, 1), 512), 0, 2);
  auto ends = finish(2);
  std::sort(ends.begin(), ends.end());
  EXPECT_EQ(ends, (Ends{{1, Status::aborted_missing_fused}, {2, Status::success}}));
}

TEST_F(FusedTest, ASecondHalfWithoutFirst) {
  ASSERT_EQ(write(kNs512, 0, old_), Status::success);
  submit_write(new_, 2);
  EXPECT_EQ(finish(1), (Ends{{2, Status::aborted_missing_fused}}));
  EXPECT_TRUE(read(kNs512, 0, 1) == old_);
}

TEST_F(FusedTest, TwoFirstHalves) {
  ASSERT_EQ(write(kNs512, 0, old_), Status::success);
  submit_compare(old_, 1);
  submit_compare(old_, 2);
  submit_write(new_, 3);
  auto ends = finish(3);
  std::sort(ends.begin(), ends.end());
  EXPECT_EQ(ends, (Ends{{1, Status::aborted_missing_fused}, {2, Status::success}, {3, Status::success}}));
  EXPECT_TRUE(read(kNs512, 0, 1) == new_);
}

TEST_F(FusedTest, HalvesOfDifferentRanges) {
  ASSERT_EQ(write(kNs512, 0, old_), Status::success);
  submit_compare(old_, 1, 0);
  submit_write(new_, 2, 1);
  // 3.4.2: the ranges must be the same, else the pair is an invalid field.
  EXPECT_EQ(finish(2), (Ends{{1, Status::invalid_field}, {2, Status::invalid_field}}));
}

TEST_F(FusedTest, WrongOrder) {
  ASSERT_EQ(write(kNs512, 0, old_), Status::success);
  submit(replacement_.attach(make(NvmOpcode::write, kNs512, 0, 1), 512), nvme::kFlagFuseFirst, 1);
  submit(expected_.attach(make(NvmOpcode::compare, kNs512, 0, 1), 512), nvme::kFlagFuseSecond, 2);
  EXPECT_EQ(finish(2), (Ends{{1, Status::invalid_field}, {2, Status::invalid_field}}));
  EXPECT_TRUE(read(kNs512, 0, 1) == old_);
}

TEST_F(FusedTest, AWrongWriteSparesTheCompare) {
  submit_compare(std::vector<std::byte>(512), 1, kNsBytes / 512);
  submit_write(new_, 2, kNsBytes / 512);
  const auto ends = finish(2);
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0], (std::pair{1, Status::lba_out_of_range}));
  EXPECT_EQ(ends[1], (std::pair{2, Status::aborted_failed_fused}));
}

TEST_F(FusedTest, AcrossTheRingsEnd) {
  // The queue has 64 entries: walk until a pair lies on both sides of the wrap.
  std::vector<std::byte> current = std::vector<std::byte>(512);
  for (int i = 0; i < 70; ++i) {
    const auto next = noise(512, static_cast<std::uint64_t>(i) + 10);
    submit_compare(current, 1);
    submit_write(next, 2);
    ASSERT_EQ(finish(2), (Ends{{1, Status::success}, {2, Status::success}})) << i;
    current = next;
    if (i % 3 == 0) io(make(NvmOpcode::flush, kNs512));
  }
  EXPECT_TRUE(read(kNs512, 0, 1) == current);
}

TEST_F(FusedTest, AResetForgetsAHalf) {
  submit_compare(old_, 1);
  pair_.ring_sq();
  device.pump_for(1'000'000);
  driver().enable();
  device.pump_for(1'000'000);
  EXPECT_EQ(device.engine().outstanding(), 0u);
}

TEST_F(FusedTest, DeletingTheQueueEndsAHalf) {
  submit_compare(old_, 1);
  pair_.ring_sq();
  device.pump_for(1'000'000);
  driver().delete_queue_pair(pair_);
  device.pump_for(1'000'000);
  EXPECT_EQ(device.engine().outstanding(), 0u);
}

}  // namespace
}  // namespace flashmob::conformance
