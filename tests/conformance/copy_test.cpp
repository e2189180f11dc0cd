// Copy (NVM command set 1.0c, 3.2.2): gathers source ranges into one destination.
#include "conformance/device_fixture.h"
#include "nvme/dataset.h"
#include "nvme/identify_namespace.h"

namespace flashmob::conformance {
namespace {

class CopyTest : public DeviceTest {
 protected:
  struct Source {
    std::uint64_t lba;
    std::uint32_t blocks;
  };
  Cqe copy(std::uint64_t destination, const std::vector<Source>& sources, std::uint32_t format = 0) {
    std::vector<nvme::CopySourceRange> ranges(sources.size());
    for (std::size_t i = 0; i < sources.size(); ++i) {
      ranges[i].slba = sources[i].lba;
      ranges[i].nlb = static_cast<std::uint16_t>(sources[i].blocks - 1);
    }
    Buffer list = buffer(8192);
    list.store(std::as_bytes(std::span(ranges)));
    Sqe sqe = list.attach(make(NvmOpcode::copy, kNs512), ranges.size() * sizeof ranges[0]);
    sqe.cdw10 = static_cast<std::uint32_t>(destination);
    sqe.cdw11 = static_cast<std::uint32_t>(destination >> 32);
    sqe.cdw12 = static_cast<std::uint32_t>(sources.size() - 1) | (format << 8);
    return run(sqe);
  }
  static constexpr std::uint64_t kBlocks = kNsBytes / 512;
};

TEST_F(CopyTest, OneRange) {
  const auto data = noise(20 * 512, 1);
  ASSERT_EQ(write(kNs512, 50, data), Status::success);
  EXPECT_EQ(status_of(copy(1000, {{50, 20}})), Status::success);
  EXPECT_TRUE(read(kNs512, 1000, 20) == data);
  EXPECT_TRUE(read(kNs512, 50, 20) == data);
}

TEST_F(CopyTest, RangesAreGatheredInOrder) {
  std::vector<std::byte> expected;
  std::vector<Source> sources;
  for (std::uint32_t i = 0; i < 10; ++i) {
    const auto data = noise((i + 1) * 512, i);
    const std::uint64_t lba = 900 - i * 50;
    ASSERT_EQ(write(kNs512, lba, data), Status::success);
    sources.push_back({lba, i + 1});
    expected.insert(expected.end(), data.begin(), data.end());
  }
  EXPECT_EQ(status_of(copy(2000, sources)), Status::success);
  EXPECT_TRUE(read(kNs512, 2000, static_cast<std::uint32_t>(expected.size() / 512)) == expected);
}

TEST_F(CopyTest, LimitsAreThoseThatIdentifyReports) {
  const auto ns = identify<nvme::IdentifyNamespace>(nvme::Cns::identify_namespace, kNs512);
  EXPECT_EQ(status_of(copy(0, {{1000, ns.mssrl}})), Status::success);
  if (ns.mssrl < 0xFFFF) {
    EXPECT_EQ(status_of(copy(0, {{1000, ns.mssrl + 1u}})), Status::command_size_limit_exceeded);
  }
  std::vector<Source> most(ns.msrc + 1u, Source{3000, 1});
  EXPECT_EQ(status_of(copy(0, most)), Status::success);
  if (ns.msrc < 255) {
    most.push_back({3000, 1});
    EXPECT_EQ(status_of(copy(0, most)), Status::command_size_limit_exceeded);
  }
  std::vector<Source> longest;
  for (std::uint32_t left = ns.mcl; left > 0;) {
    const std::uint32_t piece = std::min<std::uint32_t>(left, ns.mssrl);
    longest.push_back({2000, piece});
    left -= piece;
  }
  EXPECT_EQ(status_of(copy(0, longest)), Status::success);
  longest.push_back({0, 1});
  EXPECT_EQ(status_of(copy(0, longest)), Status::command_size_limit_exceeded);
}

TEST_F(CopyTest, RangesMustLieInTheNamespace) {
  EXPECT_EQ(status_of(copy(kBlocks - 4, {{0, 5}})), Status::lba_out_of_range);
  const auto data = noise(512, 1);
  ASSERT_EQ(write(kNs512, 10, data), Status::success);
  const Cqe cqe = copy(10, {{0, 1}, {kBlocks - 1, 1}, {kBlocks, 1}});
  EXPECT_EQ(status_of(cqe), Status::lba_out_of_range);
  EXPECT_EQ(cqe.dw0, 2u) << "DW0 names the first source range that failed";
  EXPECT_TRUE(read(kNs512, 10, 1) == data) << "nothing is written before everything was found right";
}

TEST_F(CopyTest, UncorrectableSourcesFail) {
  ASSERT_EQ(io(make(NvmOpcode::write_uncorrectable, kNs512, 77, 1)), Status::success);
  EXPECT_EQ(status_of(copy(0, {{70, 10}})), Status::unrecovered_read_error);
}

TEST_F(CopyTest, OtherDescriptorFormatsAreInvalid) {
  for (const std::uint32_t format : {1u, 2u, 15u})
    EXPECT_EQ(status_of(copy(0, {{10, 1}}, format)), Status::invalid_field);
}

}  // namespace
}  // namespace flashmob::conformance
