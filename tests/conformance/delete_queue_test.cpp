// Delete I/O Submission Queue and Delete I/O Completion Queue (Base 2.0c, 5.8 and 5.7).
#include "conformance/queue_fixture.h"

namespace flashmob::conformance {
namespace {

using DeleteQueueTest = QueueCommandTest;

TEST_F(DeleteQueueTest, ACompletionQueueInUseStays) {
  RawCq cq(host(), 1, 8);
  RawSq one(host(), 1, 8);
  RawSq two(host(), 2, 8);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(one, cq), Status::success);
  ASSERT_EQ(create(two, cq), Status::success);
  EXPECT_EQ(delete_cq(1), Status::invalid_queue_deletion);
  EXPECT_EQ(delete_sq(1), Status::success);
  EXPECT_EQ(delete_cq(1), Status::invalid_queue_deletion);
  EXPECT_TRUE(works(two, cq));
  EXPECT_EQ(delete_sq(2), Status::success);
  EXPECT_EQ(delete_cq(1), Status::success);
}

TEST_F(DeleteQueueTest, WhatDoesNotExistCannotBeDeleted) {
  for (const std::uint32_t id : {0u, 1u, kMostPairs, kMostPairs + 1, 0xFFFFu}) {
    EXPECT_EQ(delete_sq(id), Status::invalid_queue_identifier) << id;
    EXPECT_EQ(delete_cq(id), Status::invalid_queue_identifier) << id;
  }
}

TEST_F(DeleteQueueTest, CommandsInFlightEndBeforeTheDeletionDoes) {
  RawCq cq(host(), 1, 64);
  RawSq sq(host(), 1, 64);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(sq, cq), Status::success);
  Buffer data = buffer(4096);
  for (std::uint16_t cid = 0; cid < 40; ++cid) sq.push(data.attach(make(NvmOpcode::write, kNs4096, 1, 1), 4096), cid);
  sq.ring();
  device.pump_for(3'000);
  ASSERT_EQ(delete_sq(1), Status::success);
  std::vector<bool> seen(40);
  while (cq.ready()) {
    const Cqe cqe = cq.take();
    ASSERT_LT(cqe.cid, 40);
    EXPECT_FALSE(seen[cqe.cid]);
    seen[cqe.cid] = true;
    EXPECT_TRUE(status_of(cqe) == Status::success || status_of(cqe) == Status::aborted_sq_deletion);
  }
  device.pump_for(100'000'000);
  EXPECT_FALSE(cq.ready()) << "nothing may be posted for a queue that is gone";
  EXPECT_EQ(device.engine().outstanding(), 0u);
}

TEST_F(DeleteQueueTest, AnIdentifierMayBeUsedAgain) {
  for (std::uint32_t round = 0; round < 20; ++round) {
    RawCq cq(host(), 3, 4 + round);
    RawSq sq(host(), 3, 2 + round);
    ASSERT_EQ(create(cq), Status::success);
    ASSERT_EQ(create(sq, cq), Status::success);
    EXPECT_TRUE(works(sq, cq));
    EXPECT_TRUE(works(sq, cq, 2));
    ASSERT_EQ(delete_sq(3), Status::success);
    ASSERT_EQ(delete_cq(3), Status::success);
  }
}

TEST_F(DeleteQueueTest, DeletionWithAFullCompletionQueue) {
  RawCq cq(host(), 1, 2);
  RawSq sq(host(), 1, 32);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(sq, cq), Status::success);
  Buffer data = buffer(512);
  for (std::uint16_t cid = 0; cid < 20; ++cid) sq.push(data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512), cid);
  sq.ring();
  device.pump_for(1'000'000);
  EXPECT_EQ(delete_sq(1), Status::success);
  EXPECT_EQ(delete_cq(1), Status::success);
  EXPECT_EQ(device.engine().outstanding(), 0u);
}

}  // namespace
}  // namespace flashmob::conformance
