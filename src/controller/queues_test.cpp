// Create and delete I/O queues: every status, and operations that overlap.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "controller/controller_test_support.h"

namespace flashmob::controller::testing {
namespace {

using nvme::AdminOpcode;
using nvme::Status;

class Queues : public ::testing::Test {
 protected:
  Queues() { d.enable(); }
  nvme::Sqe cq(nvme::CreateIoCq fields, std::uint64_t iova = kData) {
    nvme::Sqe sqe = TestDevice::command(AdminOpcode::create_io_cq);
    nvme::encode_create_io_cq(fields, sqe);
    sqe.prp1 = iova;
    return sqe;
  }
  nvme::Sqe sq(nvme::CreateIoSq fields, std::uint64_t iova = kData) {
    nvme::Sqe sqe = TestDevice::command(AdminOpcode::create_io_sq);
    nvme::encode_create_io_sq(fields, sqe);
    sqe.prp1 = iova;
    return sqe;
  }
  TestDevice d;
};

TEST_F(Queues, CreatePassesEveryFieldOn) {
  EXPECT_EQ(d.run(cq({.qid = 3, .qsize = 255, .ien = true, .iv = 8})).status(), Status::success);
  const CqSpec made_cq = d.host.requests.back().cq;
  EXPECT_EQ(made_cq.cqid, 3);
  EXPECT_EQ(made_cq.entries, 256u);
  EXPECT_EQ(made_cq.iova, kData);
  EXPECT_TRUE(made_cq.interrupts_enabled);
  EXPECT_EQ(made_cq.vector, 8);
  EXPECT_EQ(d.run(sq({.qid = 5, .qsize = 1, .qprio = 3, .cqid = 3})).status(), Status::success);
  const SqSpec made_sq = d.host.requests.back().sq;
  EXPECT_EQ(made_sq.sqid, 5);
  EXPECT_EQ(made_sq.cqid, 3);
  EXPECT_EQ(made_sq.entries, 2u);
  EXPECT_EQ(made_sq.priority, QueuePriority::low);
}

TEST_F(Queues, IdentifiersOutsideTheGrantOrInUse) {
  EXPECT_EQ(d.create_cq(0).status(), Status::invalid_queue_identifier);
  EXPECT_EQ(d.create_cq(9).status(), Status::invalid_queue_identifier);
  EXPECT_EQ(d.create_cq(1).status(), Status::success);
  EXPECT_EQ(d.create_cq(1).status(), Status::invalid_queue_identifier);
  EXPECT_EQ(d.create_sq(0, 1).status(), Status::invalid_queue_identifier);
  EXPECT_EQ(d.create_sq(9, 1).status(), Status::invalid_queue_identifier);
  EXPECT_EQ(d.create_sq(1, 1).status(), Status::success);
  EXPECT_EQ(d.create_sq(1, 1).status(), Status::invalid_queue_identifier);
}

TEST_F(Queues, NumberOfQueuesLimitsIdentifiers) {
  const auto granted = d.set_feature(nvme::Feature::number_of_queues, nvme::encode_number_of_queues({1, 2}));
  EXPECT_EQ(granted.dw0, nvme::encode_number_of_queues({1, 2}));
  EXPECT_EQ(d.create_cq(4).status(), Status::invalid_queue_identifier);
  EXPECT_EQ(d.create_cq(3).status(), Status::success);
  EXPECT_EQ(d.create_sq(3, 3).status(), Status::invalid_queue_identifier);
  EXPECT_EQ(d.create_sq(2, 3).status(), Status::success);
}

TEST_F(Queues, Sizes) {
  EXPECT_EQ(d.run(cq({.qid = 1, .qsize = 0})).status(), Status::invalid_queue_size);
  EXPECT_EQ(d.run(cq({.qid = 1, .qsize = 256})).status(), Status::invalid_queue_size);
  EXPECT_EQ(d.run(cq({.qid = 1, .qsize = 1})).status(), Status::success);
  EXPECT_EQ(d.run(sq({.qid = 1, .qsize = 0, .cqid = 1})).status(), Status::invalid_queue_size);
  EXPECT_EQ(d.run(sq({.qid = 1, .qsize = 256, .cqid = 1})).status(), Status::invalid_queue_size);
}

TEST_F(Queues, EntrySizesMustBeSetInCc) {
  d.write(nvme::kRegCc, nvme::encode_cc({.en = true}));
  EXPECT_EQ(d.create_cq(1).status(), Status::invalid_queue_size);
  d.write(nvme::kRegCc, nvme::encode_cc({.en = true, .iosqes = 0, .iocqes = 4}));
  EXPECT_EQ(d.create_cq(1).status(), Status::success);
  EXPECT_EQ(d.create_sq(1, 1).status(), Status::invalid_queue_size);
  d.write(nvme::kRegCc, nvme::encode_cc({.en = true, .iosqes = 6, .iocqes = 4}));
  EXPECT_EQ(d.create_sq(1, 1).status(), Status::success);
}

TEST_F(Queues, Memory) {
  EXPECT_EQ(d.run(cq({.qid = 1, .qsize = 3, .pc = false})).status(), Status::invalid_field);
  EXPECT_EQ(d.run(cq({.qid = 1, .qsize = 3}, kData + 4)).status(), Status::prp_offset_invalid);
  EXPECT_EQ(d.run(cq({.qid = 1, .qsize = 3}, kUnmapped)).status(), Status::data_transfer_error);
  EXPECT_EQ(d.create_cq(1).status(), Status::success) << "the failed creation left nothing behind";
  EXPECT_EQ(d.run(sq({.qid = 1, .qsize = 3, .pc = false, .cqid = 1})).status(), Status::invalid_field);
  EXPECT_EQ(d.run(sq({.qid = 1, .qsize = 3, .cqid = 1}, kData + 64)).status(), Status::prp_offset_invalid);
  EXPECT_EQ(d.run(sq({.qid = 1, .qsize = 3, .cqid = 1}, kUnmapped)).status(), Status::data_transfer_error);
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_cq, 1).status(), Status::success) << "no SQ uses it";
}

TEST_F(Queues, InterruptVectors) {
  EXPECT_EQ(d.run(cq({.qid = 1, .qsize = 3, .ien = true, .iv = 9})).status(), Status::invalid_interrupt_vector);
  EXPECT_EQ(d.run(cq({.qid = 1, .qsize = 3, .ien = false, .iv = 9})).status(), Status::success);
}

TEST_F(Queues, CompletionQueueOfASubmissionQueue) {
  EXPECT_EQ(d.create_sq(1, 0).status(), Status::invalid_queue_identifier) << "the admin queue";
  EXPECT_EQ(d.create_sq(1, 9).status(), Status::invalid_queue_identifier) << "beyond the range";
  EXPECT_EQ(d.create_sq(1, 2).status(), Status::completion_queue_invalid) << "not created";
  EXPECT_EQ(d.create_cq(2).status(), Status::success);
  for (std::uint16_t qid = 1; qid <= 8; ++qid) EXPECT_EQ(d.create_sq(qid, 2).status(), Status::success) << qid;
}

TEST_F(Queues, DeleteInTheRightOrder) {
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_cq, 0).status(), Status::invalid_queue_identifier);
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_cq, 1).status(), Status::invalid_queue_identifier);
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_cq, 0xFFFF).status(), Status::invalid_queue_identifier);
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_sq, 0).status(), Status::invalid_queue_identifier);
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_sq, 1).status(), Status::invalid_queue_identifier);
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_sq, 0xFFFF).status(), Status::invalid_queue_identifier);
  d.create_cq(1);
  d.create_sq(1, 1);
  d.create_sq(2, 1);
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_cq, 1).status(), Status::invalid_queue_deletion);
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_sq, 1).status(), Status::success);
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_cq, 1).status(), Status::invalid_queue_deletion);
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_sq, 2).status(), Status::success);
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_cq, 1).status(), Status::success);
  EXPECT_EQ(d.create_cq(1).status(), Status::success);
}

TEST_F(Queues, NothingOverlapsOnOneIdentifier) {
  d.host.hold = true;
  const auto not_completed = d.create_cq(1);
  EXPECT_EQ(not_completed.cid, 0xFFFF);
  EXPECT_EQ(d.create_cq(1).status(), Status::invalid_queue_identifier) << "being created";
  EXPECT_EQ(d.create_sq(1, 1).status(), Status::completion_queue_invalid) << "not there yet";
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_cq, 1).status(), Status::invalid_queue_identifier);
  d.host.reply();
  EXPECT_EQ(d.host.completions.back().status(), Status::success);

  d.create_sq(1, 1);
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_cq, 1).status(), Status::invalid_queue_deletion);
  d.host.reply();
  d.delete_queue(AdminOpcode::delete_io_sq, 1);
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_sq, 1).status(), Status::invalid_queue_identifier);
  EXPECT_EQ(d.create_sq(1, 1).status(), Status::invalid_queue_identifier);
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_cq, 1).status(), Status::invalid_queue_deletion)
      << "the SQ is not gone before the engine says so";
  d.host.reply();
  d.delete_queue(AdminOpcode::delete_io_cq, 1);
  EXPECT_EQ(d.create_sq(1, 1).status(), Status::completion_queue_invalid);
  d.host.reply();
  EXPECT_EQ(d.host.completions.back().status(), Status::success);
  EXPECT_TRUE(d.host.held.empty());
}

TEST_F(Queues, DoorbellsStartAtZero) {
  d.controller().doorbells()[2] = 7;
  d.controller().doorbells()[3] = 8;
  d.create_cq(1);
  EXPECT_EQ(d.controller().doorbells()[3], 0u);
  EXPECT_EQ(d.controller().doorbells()[2], 7u);
  d.create_sq(1, 1);
  EXPECT_EQ(d.controller().doorbells()[2], 0u);
}

TEST_F(Queues, FailuresNameThePlaceOfTheError) {
  d.create_cq(0);
  d.run(cq({.qid = 1, .qsize = 3}, kData + 4));
  d.log_page(nvme::LogPage::error_information, 128);
  EXPECT_EQ(d.data<nvme::ErrorInformationEntry>(0).parameter_error_location, 24) << "PRP1";
  EXPECT_EQ(d.data<nvme::ErrorInformationEntry>(64).parameter_error_location, 40) << "CDW10";
}

TEST(QueueLimits, FourThousandPairsAndLargestQueues) {
  DeviceOptions options;
  options.controller.max_queue_pairs = 4096;
  options.controller.max_queue_entries = 65536;
  TestDevice d(options);
  d.enable();
  for (std::uint32_t qid = 1; qid <= 4096; ++qid) {
    ASSERT_EQ(d.create_cq(static_cast<std::uint16_t>(qid)).status(), Status::success);
    ASSERT_EQ(d.create_sq(static_cast<std::uint16_t>(qid), static_cast<std::uint16_t>(qid)).status(), Status::success);
  }
  EXPECT_EQ(d.create_cq(4097).status(), Status::invalid_queue_identifier);
  EXPECT_EQ(d.delete_queue(AdminOpcode::delete_io_sq, 4096).status(), Status::success);
  nvme::Sqe sqe = TestDevice::command(AdminOpcode::create_io_sq);
  nvme::encode_create_io_sq({.qid = 4096, .qsize = 65535, .cqid = 1}, sqe);
  sqe.prp1 = kGuestBase;
  EXPECT_EQ(d.run(sqe).status(), Status::data_transfer_error) << "4 MiB do not fit into the mapped memory";
  EXPECT_EQ(d.host.requests.back().sq.entries, 65536u);
}

// A trap thread writes doorbells while queues come and go: no race, and never a write into a queue that is not there.
TEST_F(Queues, DoorbellWritesRaceWithCreationAndDeletion) {
  std::atomic<bool> done{false};
  std::thread trap([&] {
    while (!done) d.write(nvme::kRegDoorbells + 8, 1);
  });
  d.create_cq(1);
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(d.create_sq(1, 1).status(), Status::success);
    ASSERT_EQ(d.delete_queue(AdminOpcode::delete_io_sq, 1).status(), Status::success);
    d.poll();
  }
  done = true;
  trap.join();
}

}  // namespace
}  // namespace flashmob::controller::testing
