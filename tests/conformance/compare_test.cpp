// Compare (NVM command set 1.0c, 3.2.1).
#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

class CompareTest : public DeviceTest {
 protected:
  Status compare(std::uint32_t nsid, std::uint64_t lba, std::span<const std::byte> data) {
    Buffer source = buffer(data.size());
    source.store(data);
    const auto blocks = static_cast<std::uint32_t>(data.size() / lba_bytes(nsid));
    return io(source.attach(make(NvmOpcode::compare, nsid, lba, blocks), data.size()));
  }
};

TEST_F(CompareTest, EqualAndNot) {
  auto data = noise(8 * 512, 1);
  ASSERT_EQ(write(kNs512, 20, data), Status::success);
  EXPECT_EQ(compare(kNs512, 20, data), Status::success);
  for (const std::size_t at : {std::size_t{0}, std::size_t{2000}, data.size() - 1}) {
    data[at] ^= std::byte{1};
    EXPECT_EQ(compare(kNs512, 20, data), Status::compare_failure) << "byte " << at;
    data[at] ^= std::byte{1};
  }
  EXPECT_EQ(compare(kNs512, 20, data), Status::success);
}

TEST_F(CompareTest, ComparesAgainstZeroesWhereNothingWasWritten) {
  EXPECT_EQ(compare(kNs4096, 100, std::vector<std::byte>(4096)), Status::success);
  EXPECT_EQ(compare(kNs4096, 100, noise(4096, 1)), Status::compare_failure);
}

TEST_F(CompareTest, ChangesNothing) {
  const auto data = noise(512, 1);
  ASSERT_EQ(write(kNs512, 0, data), Status::success);
  EXPECT_EQ(compare(kNs512, 0, noise(512, 2)), Status::compare_failure);
  EXPECT_TRUE(read(kNs512, 0, 1) == data);
}

TEST_F(CompareTest, Limits) {
  EXPECT_EQ(compare(kNs512, kNsBytes / 512, noise(512, 1)), Status::lba_out_of_range);
  EXPECT_EQ(compare(kNs512, 0, noise((128 << 10) + 512, 1)), Status::invalid_field);
}

}  // namespace
}  // namespace flashmob::conformance
