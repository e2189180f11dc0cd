// Verify (NVM command set 1.0c, 3.2.5).
#include "conformance/mapping_fixture.h"

namespace flashmob::conformance {
namespace {

using VerifyTest = MappingTest;

TEST_F(VerifyTest, TransfersNoData) {
  ASSERT_EQ(write(kNs512, 100, data_), Status::success);
  EXPECT_EQ(on_blocks(NvmOpcode::verify, 100, 16), Status::success);
  EXPECT_EQ(on_blocks(NvmOpcode::verify, 0, 1), Status::success);
  EXPECT_EQ(on_blocks(NvmOpcode::verify, kBlocks512 - 1, 2), Status::lba_out_of_range);
}

}  // namespace
}  // namespace flashmob::conformance
