// Failed commands: their status, More and Do Not Retry bits, and the Error Information log
// (Base 2.0c, 3.3.3.2, 5.16.1.2).
#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

class ErrorLogTest : public DeviceTest {
 protected:
  std::vector<nvme::ErrorInformationEntry> entries() {
    std::vector<nvme::ErrorInformationEntry> list(16);
    driver().log_page(1, nvme::kNsidBroadcast, 0, std::as_writable_bytes(std::span(list)));
    while (!list.empty() && list.back().error_count == 0) list.pop_back();
    return list;
  }
  Cqe out_of_range(std::uint64_t lba) {
    Buffer target = buffer(512);
    return run(target.attach(make(NvmOpcode::read, kNs512, lba, 1), 512));
  }
};

TEST_F(ErrorLogTest, AFailedCommandLeavesAnEntry) {
  const Cqe cqe = out_of_range(0x1'0000'0005);
  EXPECT_EQ(status_of(cqe), Status::lba_out_of_range);
  EXPECT_NE(field_of(cqe) & nvme::kStatusMore, 0) << "there is more to read in the log";
  EXPECT_NE(field_of(cqe) & nvme::kStatusDoNotRetry, 0) << "retrying cannot help";
  const auto log = entries();
  ASSERT_EQ(log.size(), 1u);
  EXPECT_EQ(log[0].error_count, 1u);
  EXPECT_EQ(log[0].sqid, queue().qid());
  EXPECT_EQ(log[0].cid, cqe.cid);
  EXPECT_EQ(nvme::status_of(log[0].status_field >> 1), Status::lba_out_of_range);
  EXPECT_EQ(log[0].lba, 0x1'0000'0005u);
  EXPECT_EQ(log[0].nsid, kNs512);
}

TEST_F(ErrorLogTest, NewestComesFirst) {
  for (std::uint64_t i = 0; i < 5; ++i) out_of_range(100'000 + i);
  const auto log = entries();
  ASSERT_EQ(log.size(), 5u);
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(log[i].error_count, 5 - i);
    EXPECT_EQ(log[i].lba, 100'004 - i);
  }
}

TEST_F(ErrorLogTest, TheLogForgetsTheOldest) {
  for (int i = 0; i < 300; ++i) out_of_range(100'000);
  const auto log = entries();
  ASSERT_EQ(log.size(), 16u);
  EXPECT_EQ(log[0].error_count, 300u);
  EXPECT_EQ(log[15].error_count, 285u);
  EXPECT_EQ(log_page<nvme::SmartHealth>(nvme::LogPage::smart_health).error_log_entries.low, 300u);
}

TEST_F(ErrorLogTest, AdminErrorsAreLoggedToo) {
  Sqe sqe = make(static_cast<AdminOpcode>(0xC5));
  const AdminResult result = driver().admin(sqe, {}, false);
  EXPECT_EQ(status_of(result), Status::invalid_opcode);
  EXPECT_NE(result.status_field & nvme::kStatusDoNotRetry, 0);
  const auto log = entries();
  ASSERT_EQ(log.size(), 1u);
  EXPECT_EQ(log[0].sqid, 0);
}

TEST_F(ErrorLogTest, SuccessSetsNoBits) {
  Buffer target = buffer(512);
  const Cqe cqe = run(target.attach(make(NvmOpcode::read, kNs512, 0, 1), 512));
  EXPECT_EQ(field_of(cqe), 0);
  EXPECT_TRUE(entries().empty());
}

TEST_F(ErrorLogTest, ErrorsThatMayPassAreRetryable) {
  // Unmapped host memory is not the command's fault alone: the host may map it and try again.
  Sqe sqe = make(NvmOpcode::read, kNs512, 0, 1);
  sqe.prp1 = 0x1000;
  const Cqe cqe = run(sqe);
  EXPECT_EQ(status_of(cqe), Status::data_transfer_error);
  EXPECT_EQ(field_of(cqe) & nvme::kStatusDoNotRetry, 0);
}

TEST_F(ErrorLogTest, InvalidAndInactiveNamespacesDiffer) {
  Buffer target = buffer(512);
  for (const std::uint32_t nsid : {0u, 257u, 0xFFFFFFFEu, 0xFFFFFFFFu})
    EXPECT_EQ(io(target.attach(make(NvmOpcode::read, nsid, 0, 1), 512)), Status::invalid_namespace_or_format) << nsid;
  // 3.2.1.4: an inactive NSID is an invalid field.
  EXPECT_EQ(io(target.attach(make(NvmOpcode::read, 3, 0, 1), 512)), Status::invalid_field);
}

TEST_F(ErrorLogTest, ReservedFuseValueIsInvalid) {
  Buffer target = buffer(512);
  Sqe sqe = target.attach(make(NvmOpcode::read, kNs512, 0, 1), 512);
  sqe.flags |= nvme::kFlagFuseMask;
  EXPECT_EQ(io(sqe), Status::invalid_field);
}

}  // namespace
}  // namespace flashmob::conformance
