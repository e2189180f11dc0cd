// Abort (Base 2.0c, 5.1): commands in flight really end, others are left alone.
#include <map>

#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

// A device so slow that everything is still in flight when the abort comes.
DeviceConfig slow_device() {
  DeviceConfig config = suite::small_device();
  config.timing.read_latency_ns = 100'000'000;
  config.timing.write_latency_ns = 100'000'000;
  return config;
}

class AbortTest : public DeviceTest {
 protected:
  AbortTest() : DeviceTest(slow_device()) {}
};

TEST_F(AbortTest, ACommandInFlightEndsAtOnce) {
  QueuePair& pair = queue();
  Buffer data = buffer(512);
  Sqe sqe = data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512);
  for (std::uint16_t cid = 10; cid < 15; ++cid) {
    sqe.cid = cid;
    pair.submit() = sqe;
  }
  pair.ring_sq();
  device.pump_for(50'000);
  const std::uint64_t start_ns = device.now_ns();
  EXPECT_TRUE(driver().abort(pair.qid(), 12));
  const auto first = wait(pair, 1);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].cid, 12);
  EXPECT_EQ(status_of(first[0]), Status::abort_requested);
  EXPECT_EQ(first[0].sqid, pair.qid());
  EXPECT_LT(device.now_ns() - start_ns, 10'000'000u);
  const auto rest = wait(pair, 4);
  ASSERT_EQ(rest.size(), 4u);
  for (const Cqe& cqe : rest) {
    EXPECT_NE(cqe.cid, 12);
    EXPECT_EQ(status_of(cqe), Status::success);
  }
}

TEST_F(AbortTest, WhatIsNotThereIsNotAborted) {
  QueuePair& pair = queue();
  EXPECT_FALSE(driver().abort(pair.qid(), 12));
  EXPECT_FALSE(driver().abort(0, 0x7777));
  Buffer data = buffer(512);
  const Cqe done = run(data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512));
  EXPECT_FALSE(driver().abort(pair.qid(), done.cid)) << "it has completed already";
}

TEST_F(AbortTest, QueuesThatDoNotExist) {
  Sqe sqe = make(AdminOpcode::abort);
  sqe.cdw10 = 9 | (1u << 16);
  const AdminResult result = driver().admin(sqe, {}, false);
  // The specification lets a controller answer "not aborted" or name the queue; never "aborted".
  if (status_of(result) == Status::success) {
    EXPECT_EQ(result.dw0 & 1, 1u);
  } else {
    EXPECT_TRUE(status_of(result) == Status::invalid_field || status_of(result) == Status::invalid_queue_identifier);
  }
}

TEST_F(AbortTest, SameIdentifierOnAnotherQueueSurvives) {
  QueuePair& one = queue();
  QueuePair& two = driver().create_queue_pair({});
  Buffer data = buffer(512);
  Sqe sqe = data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512);
  sqe.cid = 3;
  for (QueuePair* pair : {&one, &two}) {
    pair->submit() = sqe;
    pair->ring_sq();
  }
  device.pump_for(50'000);
  EXPECT_TRUE(driver().abort(two.qid(), 3));
  const auto survivor = wait(one, 1);
  ASSERT_EQ(survivor.size(), 1u);
  EXPECT_EQ(status_of(survivor[0]), Status::success);
  const auto victim = wait(two, 1);
  ASSERT_EQ(victim.size(), 1u);
  EXPECT_EQ(status_of(victim[0]), Status::abort_requested);
}

TEST_F(AbortTest, EveryOneOfManyEndsExactlyOnce) {
  QueuePair& pair = driver().create_queue_pair({.sq_entries = 128});
  Buffer data = buffer(4096);
  Sqe sqe = data.attach(make(NvmOpcode::write, kNs4096, 0, 1), 4096);
  for (std::uint16_t cid = 0; cid < 100; ++cid) {
    sqe.cid = cid;
    sqe.cdw10 = cid;
    pair.submit() = sqe;
  }
  pair.ring_sq();
  device.pump_for(10'000);
  for (std::uint16_t cid = 0; cid < 100; cid += 3) EXPECT_TRUE(driver().abort(pair.qid(), cid)) << cid;
  std::map<std::uint16_t, Status> ends;
  for (const Cqe& cqe : wait(pair, 100)) EXPECT_TRUE(ends.emplace(cqe.cid, status_of(cqe)).second) << cqe.cid;
  ASSERT_EQ(ends.size(), 100u);
  for (const auto& [cid, status] : ends)
    EXPECT_EQ(status, cid % 3 == 0 ? Status::abort_requested : Status::success) << cid;
  device.pump_for(200'000'000);  // past every target time
  EXPECT_EQ(device.engine().outstanding(), 0u) << "aborted commands must give back what they held";
}

TEST_F(AbortTest, AnAbortedCommandStillNeedsRoomInItsCompletionQueue) {
  RawCq cq(host(), 1, 3);  // room for two entries
  RawSq sq(host(), 1, 16);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(sq, cq), Status::success);
  Buffer data = buffer(512);
  for (std::uint16_t cid = 0; cid < 5; ++cid) sq.push(data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512), cid);
  sq.ring();
  device.pump_for(50'000);
  for (std::uint16_t cid = 0; cid < 5; ++cid) EXPECT_TRUE(driver().abort(1, cid));
  std::map<std::uint16_t, Status> ends;
  for (int i = 0; i < 5; ++i) {
    const auto entries = wait(cq, 1);
    ASSERT_EQ(entries.size(), 1u) << "an aborted command never completed: " << i << " of 5 did";
    EXPECT_TRUE(ends.emplace(entries[0].cid, status_of(entries[0])).second);
    cq.ring();
  }
  for (const auto& [cid, status] : ends) EXPECT_EQ(status, Status::abort_requested);
}

TEST_F(AbortTest, HalfAFusedPair) {
  QueuePair& pair = queue();
  Buffer data = buffer(512);
  Sqe sqe = data.attach(make(NvmOpcode::compare, kNs512, 0, 1), 512);
  sqe.flags |= nvme::kFlagFuseFirst;
  sqe.cid = 77;
  pair.submit() = sqe;
  pair.ring_sq();
  device.pump_for(50'000);
  // It waits for its second half, so it is in the device and may be aborted.
  if (!driver().abort(pair.qid(), 77)) GTEST_SKIP() << "this controller does not abort halves";
  const auto entries = wait(pair, 1);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].cid, 77);
  EXPECT_EQ(status_of(entries[0]), Status::abort_requested);
}

}  // namespace
}  // namespace flashmob::conformance
