// Write Uncorrectable (NVM command set 1.0c, 3.2.7).
#include "conformance/mapping_fixture.h"

namespace flashmob::conformance {
namespace {

using WriteUncorrectableTest = MappingTest;

TEST_F(WriteUncorrectableTest, MarkedBlocksCannotBeRead) {
  ASSERT_EQ(write(kNs512, 100, data_), Status::success);
  EXPECT_EQ(on_blocks(NvmOpcode::write_uncorrectable, 104, 2), Status::success);
  EXPECT_EQ(read_status(104, 1), Status::unrecovered_read_error);
  EXPECT_EQ(read_status(100, 16), Status::unrecovered_read_error);
  EXPECT_EQ(read_status(100, 4), Status::success);
  EXPECT_EQ(read_status(106, 10), Status::success);
  EXPECT_EQ(on_blocks(NvmOpcode::verify, 104, 1), Status::unrecovered_read_error);
}

TEST_F(WriteUncorrectableTest, WritingClearsTheMark) {
  ASSERT_EQ(on_blocks(NvmOpcode::write_uncorrectable, 100, 16), Status::success);
  ASSERT_EQ(write(kNs512, 104, std::span(data_).first(512)), Status::success);
  EXPECT_EQ(read_status(104, 1), Status::success);
  EXPECT_EQ(read_status(103, 1), Status::unrecovered_read_error);
  EXPECT_EQ(read_status(105, 1), Status::unrecovered_read_error);
  ASSERT_EQ(on_blocks(NvmOpcode::write_zeroes, 103, 1), Status::success);
  EXPECT_EQ(read_status(103, 2), Status::success);
  ASSERT_EQ(deallocate({{0, 1, 105}}), Status::success);
  EXPECT_EQ(read_status(103, 3), Status::success);
  EXPECT_EQ(read_status(106, 1), Status::unrecovered_read_error);
}

TEST_F(WriteUncorrectableTest, SurvivesAReset) {
  ASSERT_EQ(on_blocks(NvmOpcode::write_uncorrectable, 100, 1), Status::success);
  driver().enable();
  QueuePair& pair = driver().create_queue_pair({});
  Buffer target = buffer(512);
  pair.submit() = target.attach(make(NvmOpcode::read, kNs512, 100, 1), 512);
  pair.ring_sq();
  const auto done = wait(pair, 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(status_of(done[0]), Status::unrecovered_read_error);
}

TEST_F(WriteUncorrectableTest, RangesMustLieInTheNamespace) {
  EXPECT_EQ(on_blocks(NvmOpcode::write_uncorrectable, kBlocks512 - 1, 2), Status::lba_out_of_range);
}

}  // namespace
}  // namespace flashmob::conformance
