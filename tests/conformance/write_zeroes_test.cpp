// Write Zeroes (NVM command set 1.0c, 3.2.8).
#include "conformance/mapping_fixture.h"
#include "nvme/io_command.h"

namespace flashmob::conformance {
namespace {

using WriteZeroesTest = MappingTest;

TEST_F(WriteZeroesTest, BlocksReadAsZeroesAfterwards) {
  for (const std::uint32_t flags : {0u, nvme::kIoDeallocate, nvme::kIoForceUnitAccess}) {
    ASSERT_EQ(write(kNs512, 100, data_), Status::success);
    EXPECT_EQ(on_blocks(NvmOpcode::write_zeroes, 103, 5, flags), Status::success);
    EXPECT_TRUE(read(kNs512, 100, 16) == with_zeroes(3, 5)) << flags;
  }
}

TEST_F(WriteZeroesTest, MayExceedMdts) {
  ASSERT_EQ(write(kNs512, 5000, data_), Status::success);
  EXPECT_EQ(on_blocks(NvmOpcode::write_zeroes, 0, kBlocks512), Status::success);
  EXPECT_TRUE(read(kNs512, 5000, 16) == std::vector<std::byte>(16 * 512));
}

TEST_F(WriteZeroesTest, RangesMustLieInTheNamespace) {
  EXPECT_EQ(on_blocks(NvmOpcode::write_zeroes, kBlocks512 - 1, 1), Status::success);
  EXPECT_EQ(on_blocks(NvmOpcode::write_zeroes, kBlocks512 - 1, 2), Status::lba_out_of_range);
  EXPECT_EQ(on_blocks(NvmOpcode::write_zeroes, kBlocks512, 1), Status::lba_out_of_range);
}

}  // namespace
}  // namespace flashmob::conformance
