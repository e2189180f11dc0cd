// Create I/O Completion Queue and Create I/O Submission Queue (Base 2.0c, 5.5 and 5.6): legal, boundary, illegal.
#include "conformance/queue_fixture.h"

namespace flashmob::conformance {
namespace {

using CreateQueueTest = QueueCommandTest;

TEST_F(CreateQueueTest, SmallestAndLargest) {
  for (const std::uint32_t entries : {2u, 3u, kMostEntries}) {
    EXPECT_EQ(create_cq(1, entries, cq_ring()), Status::success) << entries;
    EXPECT_EQ(create_sq(1, entries, sq_ring(), 1), Status::success) << entries;
    EXPECT_EQ(delete_sq(1), Status::success);
    EXPECT_EQ(delete_cq(1), Status::success);
  }
}

TEST_F(CreateQueueTest, SizesOutsideTheLimits) {
  EXPECT_EQ(create_cq(1, 1, cq_ring()), Status::invalid_queue_size);
  EXPECT_EQ(create_cq(1, kMostEntries + 1, cq_ring()), Status::invalid_queue_size);
  EXPECT_EQ(create_cq(1, 65536, cq_ring()), Status::invalid_queue_size);
  ASSERT_EQ(create_cq(1, 8, cq_ring()), Status::success);
  EXPECT_EQ(create_sq(1, 1, sq_ring(), 1), Status::invalid_queue_size);
  EXPECT_EQ(create_sq(1, kMostEntries + 1, sq_ring(), 1), Status::invalid_queue_size);
}

TEST_F(CreateQueueTest, IdentifiersOutsideTheLimits) {
  for (const std::uint32_t id : {0u, kMostPairs + 1, 0xFFFFu})
    EXPECT_EQ(create_cq(id, 8, cq_ring()), Status::invalid_queue_identifier) << id;
  ASSERT_EQ(create_cq(kMostPairs, 8, cq_ring()), Status::success);
  for (const std::uint32_t id : {0u, kMostPairs + 1, 0xFFFFu})
    EXPECT_EQ(create_sq(id, 8, sq_ring(), kMostPairs), Status::invalid_queue_identifier) << id;
  EXPECT_EQ(create_sq(kMostPairs, 8, sq_ring(), kMostPairs), Status::success);
}

TEST_F(CreateQueueTest, FewerGrantedQueuesMeanFewerIdentifiers) {
  ASSERT_EQ(driver().request_queues(2), 2u);
  EXPECT_EQ(create_cq(3, 8, cq_ring()), Status::invalid_queue_identifier);
  EXPECT_EQ(create_cq(2, 8, cq_ring()), Status::success);
  EXPECT_EQ(create_sq(3, 8, sq_ring(), 2), Status::invalid_queue_identifier);
}

TEST_F(CreateQueueTest, IdentifiersInUse) {
  ASSERT_EQ(create_cq(1, 8, cq_ring()), Status::success);
  EXPECT_EQ(create_cq(1, 8, cq_ring()), Status::invalid_queue_identifier);
  ASSERT_EQ(create_sq(1, 8, sq_ring(), 1), Status::success);
  EXPECT_EQ(create_sq(1, 8, sq_ring(), 1), Status::invalid_queue_identifier);
}

TEST_F(CreateQueueTest, SubmissionQueuesNeedACompletionQueue) {
  EXPECT_EQ(create_sq(1, 8, sq_ring(), 1), Status::completion_queue_invalid);
  // 5.6: the admin queue and identifiers outside the controller's range are invalid identifiers.
  EXPECT_EQ(create_sq(1, 8, sq_ring(), 0), Status::invalid_queue_identifier);
  EXPECT_EQ(create_sq(1, 8, sq_ring(), kMostPairs + 1), Status::invalid_queue_identifier);
}

TEST_F(CreateQueueTest, RingsMustBeContiguous) {
  // CAP.CQR = 1: scattered queues are an invalid field.
  EXPECT_EQ(create_cq(1, 8, cq_ring(), 0), Status::invalid_field);
  ASSERT_EQ(create_cq(1, 8, cq_ring()), Status::success);
  EXPECT_EQ(create_sq(1, 8, sq_ring(), 1, 0), Status::invalid_field);
}

TEST_F(CreateQueueTest, RingsMustBeAlignedToPages) {
  EXPECT_EQ(create_cq(1, 8, cq_ring() + 64), Status::prp_offset_invalid);
  ASSERT_EQ(create_cq(1, 8, cq_ring()), Status::success);
  EXPECT_EQ(create_sq(1, 8, sq_ring() + 4, 1), Status::prp_offset_invalid);
}

TEST_F(CreateQueueTest, RingsMustBeInMappedMemory) {
  EXPECT_EQ(create_cq(1, 8, 0x1000), Status::data_transfer_error);
  // A ring whose end leaves the mapping.
  const LonelyPage page(host(), rings.data());
  const std::uint64_t last_page = page.iova();
  EXPECT_EQ(create_cq(1, 257, last_page), Status::data_transfer_error);
  EXPECT_EQ(create_cq(1, 256, last_page), Status::success);
  EXPECT_EQ(create_sq(1, 65, last_page, 1), Status::data_transfer_error);
  EXPECT_EQ(create_sq(1, 64, last_page, 1), Status::success);
}

TEST_F(CreateQueueTest, InterruptVectors) {
  EXPECT_EQ(create_cq(1, 8, cq_ring(), kContiguous | kInterrupts | (8u << 16)), Status::invalid_interrupt_vector);
  EXPECT_EQ(create_cq(1, 8, cq_ring(), kContiguous | kInterrupts | (7u << 16)), Status::success);
}

TEST_F(CreateQueueTest, ManySubmissionQueuesOnOneCompletionQueue) {
  RawCq cq(host(), 5, 64);
  ASSERT_EQ(create(cq), Status::success);
  std::vector<std::unique_ptr<RawSq>> queues;
  for (std::uint16_t id = 1; id <= kMostPairs; ++id) {
    queues.push_back(std::make_unique<RawSq>(host(), id, 8));
    ASSERT_EQ(create(*queues.back(), cq), Status::success);
  }
  for (auto& sq : queues) EXPECT_TRUE(works(*sq, cq, static_cast<std::uint16_t>(sq->id() * 100))) << sq->id();
}

TEST_F(CreateQueueTest, AllPairsAtOnce) {
  for (std::uint32_t i = 0; i < kMostPairs; ++i) driver().create_queue_pair({.sq_entries = 4});
  try {
    driver().create_queue_pair({.sq_entries = 4});
    FAIL();
  } catch (const driver::NvmeError& error) {
    EXPECT_EQ(nvme::status_of(error.status_field()), Status::invalid_queue_identifier);
  }
}

TEST_F(CreateQueueTest, AFailedCreationLeavesTheIdentifierFree) {
  EXPECT_EQ(create_cq(1, 8, 0x1000), Status::data_transfer_error);
  RawCq cq(host(), 1, 8);
  ASSERT_EQ(create(cq), Status::success);
  EXPECT_EQ(create_sq(1, 8, 0x1000, 1), Status::data_transfer_error);
  RawSq sq(host(), 1, 8);
  ASSERT_EQ(create(sq, cq), Status::success);
  EXPECT_TRUE(works(sq, cq));
}

}  // namespace
}  // namespace flashmob::conformance
