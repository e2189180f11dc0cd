// Read and Write (NVM command set 1.0c, 3.2.4 and 3.2.6): data, limits, flags, and the time they take.
#include "conformance/device_fixture.h"
#include "nvme/io_command.h"

namespace flashmob::conformance {
namespace {

class ReadWriteTest : public DeviceTest, public ::testing::WithParamInterface<std::uint32_t> {
 protected:
  std::uint32_t nsid() const { return GetParam(); }
  std::size_t block() const { return lba_bytes(nsid()); }
  std::uint64_t blocks() const { return kNsBytes / block(); }
  std::uint32_t mdts_blocks() const { return static_cast<std::uint32_t>((128 << 10) / block()); }
  Status touch(NvmOpcode opcode, std::uint64_t lba, std::uint32_t count, std::uint32_t cdw12_flags = 0) {
    Sqe sqe = make(opcode, nsid(), lba, count);
    sqe.cdw12 |= cdw12_flags;
    return io(target_.attach(sqe, std::min(count * block(), target_.size())));
  }

 private:
  Buffer target_ = buffer(256 << 10);
};

INSTANTIATE_TEST_SUITE_P(, ReadWriteTest, ::testing::Values(kNs512, kNs4096),
                         [](const auto& param) { return param.param == kNs512 ? "512" : "4096"; });

TEST_P(ReadWriteTest, WhatIsWrittenIsRead) {
  for (const std::uint32_t count : {1u, 2u, 3u, 7u, 8u, 9u, 31u, mdts_blocks()}) {
    for (const std::uint64_t lba : {std::uint64_t{0}, std::uint64_t{5}, blocks() - count}) {
      const auto data = noise(count * block(), lba * 100 + count);
      ASSERT_EQ(write(nsid(), lba, data), Status::success) << lba << "+" << count;
      EXPECT_TRUE(read(nsid(), lba, count) == data) << lba << "+" << count;
    }
  }
}

TEST_P(ReadWriteTest, NeighboursStayUntouched) {
  ASSERT_EQ(write(nsid(), 9, noise(3 * block(), 1)), Status::success);
  const auto middle = noise(block(), 2);
  ASSERT_EQ(write(nsid(), 10, middle), Status::success);
  const auto all = read(nsid(), 9, 3);
  const auto before = noise(3 * block(), 1);
  EXPECT_TRUE(std::equal(all.begin(), all.begin() + block(), before.begin()));
  EXPECT_TRUE(std::equal(middle.begin(), middle.end(), all.begin() + block()));
  EXPECT_TRUE(std::equal(all.begin() + 2 * block(), all.end(), before.begin() + 2 * block()));
}

TEST_P(ReadWriteTest, NamespacesDoNotShareBlocks) {
  const std::uint32_t other = nsid() == kNs512 ? kNs4096 : kNs512;
  const auto data = noise(8192, 1);
  ASSERT_EQ(write(nsid(), 0, data), Status::success);
  EXPECT_TRUE(read(other, 0, static_cast<std::uint32_t>(8192 / lba_bytes(other))) == std::vector<std::byte>(8192));
}

TEST_P(ReadWriteTest, FreshBlocksReadAsZeroes) {
  EXPECT_TRUE(read(nsid(), blocks() - 4, 4) == std::vector<std::byte>(4 * block()));
}

TEST_P(ReadWriteTest, RangesMustLieInTheNamespace) {
  for (const NvmOpcode opcode : {NvmOpcode::read, NvmOpcode::write}) {
    EXPECT_EQ(touch(opcode, blocks() - 1, 1), Status::success);
    EXPECT_EQ(touch(opcode, blocks() - 1, 2), Status::lba_out_of_range);
    EXPECT_EQ(touch(opcode, blocks(), 1), Status::lba_out_of_range);
    EXPECT_EQ(touch(opcode, ~std::uint64_t{0}, 1), Status::lba_out_of_range);
    EXPECT_EQ(touch(opcode, ~std::uint64_t{0}, 2), Status::lba_out_of_range) << "the sum wraps";
    EXPECT_EQ(touch(opcode, std::uint64_t{1} << 60, 8), Status::lba_out_of_range) << "as bytes the address wraps";
  }
}

TEST_P(ReadWriteTest, TransfersBeyondMdtsAreInvalid) {
  for (const NvmOpcode opcode : {NvmOpcode::read, NvmOpcode::write}) {
    EXPECT_EQ(touch(opcode, 0, mdts_blocks()), Status::success);
    EXPECT_EQ(touch(opcode, 0, mdts_blocks() + 1), Status::invalid_field);
  }
}

TEST_P(ReadWriteTest, ForceUnitAccessAndLimitedRetryAreAccepted) {
  for (const NvmOpcode opcode : {NvmOpcode::read, NvmOpcode::write}) {
    EXPECT_EQ(touch(opcode, 0, 4, nvme::kIoForceUnitAccess), Status::success);
    EXPECT_EQ(touch(opcode, 0, 4, nvme::kIoLimitedRetry), Status::success);
  }
}

TEST_P(ReadWriteTest, ProtectionInformationNeedsMetadata) {
  // 5.2.1: without protection information PRACT and PRCHK have nothing to act on; we say so instead of ignoring them.
  EXPECT_EQ(touch(NvmOpcode::read, 0, 1, 1u << 29), Status::invalid_field);
  EXPECT_EQ(touch(NvmOpcode::write, 0, 1, 1u << 26), Status::invalid_field);
}

TEST_P(ReadWriteTest, ReadsIntoUnmappedMemoryTransferNothing) {
  ASSERT_EQ(write(nsid(), 0, noise(block(), 3)), Status::success);
  Sqe sqe = make(NvmOpcode::read, nsid(), 0, 1);
  sqe.prp1 = 0x4000;
  EXPECT_EQ(io(sqe), Status::data_transfer_error);
  sqe.opcode = static_cast<std::uint8_t>(NvmOpcode::write);
  EXPECT_EQ(io(sqe), Status::data_transfer_error);
  EXPECT_TRUE(read(nsid(), 0, 1) == noise(block(), 3));
}

TEST_P(ReadWriteTest, CommandsOnOneQueueMayOverlapInTime) {
  QueuePair& pair = queue();
  constexpr std::uint16_t kCommands = 60;
  std::vector<std::unique_ptr<Buffer>> buffers;
  for (std::uint16_t cid = 0; cid < kCommands; ++cid) {
    buffers.push_back(std::make_unique<Buffer>(host().door, block()));
    buffers.back()->store(noise(block(), cid));
    Sqe sqe = buffers.back()->attach(make(NvmOpcode::write, nsid(), cid * 3u, 1), block());
    sqe.cid = cid;
    pair.submit() = sqe;
  }
  pair.ring_sq();
  EXPECT_EQ(wait(pair, kCommands).size(), kCommands);
  for (std::uint16_t cid = 0; cid < kCommands; ++cid)
    EXPECT_TRUE(read(nsid(), cid * 3u, 1) == noise(block(), cid)) << cid;
}

class TimingTest : public DeviceTest {};

TEST_F(TimingTest, ACommandTakesWhatTheModelSays) {
  QueuePair& pair = queue();
  Buffer data = buffer(512);
  const std::uint64_t start_ns = device.now_ns();
  pair.submit() = data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512);
  pair.ring_sq();
  std::uint64_t done_ns = 0;
  device.pump_until([&] {
    pair.reap(1, [&](const Cqe&) { done_ns = device.now_ns(); });
    return done_ns != 0;
  });
  const std::uint64_t target_ns = device.config().timing.read_latency_ns;
  EXPECT_GE(done_ns - start_ns, target_ns);
  EXPECT_LT(done_ns - start_ns, target_ns + 500);
}

}  // namespace
}  // namespace flashmob::conformance
