// Scatter gather lists (Base 2.0c, 4.1.2): data blocks, bit buckets, segments, last segments, and bad ones.
#include <algorithm>

#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

using nvme::SglDescriptor;
using nvme::SglType;

SglDescriptor descriptor(SglType type, std::uint64_t address, std::uint32_t bytes, std::uint8_t sub_type = 0) {
  return {address, bytes, {}, static_cast<std::uint8_t>((static_cast<unsigned>(type) << 4) | sub_type)};
}

class SglTest : public DeviceTest {
 protected:
  SglTest() {
    data_ = noise(128 << 10, 1);
    EXPECT_EQ(write(kNs512, 0, data_), Status::success);
    target_.fill(std::byte{0xEE});
  }
  Sqe command(NvmOpcode opcode, std::uint64_t bytes, const SglDescriptor& first) {
    Sqe sqe = make(opcode, kNs512, 0, static_cast<std::uint32_t>(bytes / 512));
    sqe.flags |= nvme::kFlagPsdtSglBufferMetadata;
    sqe.sgl1 = first;
    return sqe;
  }
  Status read_with(std::uint64_t bytes, const SglDescriptor& first) {
    return io(command(NvmOpcode::read, bytes, first));
  }
  std::uint64_t at(std::uint64_t offset) const { return target_.iova() + offset; }
  SglDescriptor block(std::uint64_t offset, std::uint32_t bytes) const {
    return descriptor(SglType::data_block, at(offset), bytes);
  }
  static SglDescriptor bucket(std::uint32_t bytes) { return descriptor(SglType::bit_bucket, 0, bytes); }
  // Stores descriptors in segment memory; returns the descriptor that points to them.
  SglDescriptor segment(std::size_t index, const std::vector<SglDescriptor>& entries, SglType type) {
    const std::size_t offset = index * 1024;
    segments_.store(std::as_bytes(std::span(entries)), offset);
    return descriptor(type, segments_.iova() + offset, static_cast<std::uint32_t>(entries.size() * 16));
  }
  SglDescriptor last_segment(std::size_t index, const std::vector<SglDescriptor>& entries) {
    return segment(index, entries, SglType::last_segment);
  }
  bool holds(std::uint64_t offset, std::uint64_t data_at, std::uint64_t bytes) const {
    return std::memcmp(target_.data() + offset, data_.data() + data_at, bytes) == 0;
  }
  bool untouched() const {
    const auto bytes = target_.copy(target_.size());
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0xEE}; });
  }

  std::vector<std::byte> data_;
  Buffer target_ = buffer(256 << 10);
  Buffer segments_ = buffer(64 << 10);
};

TEST_F(SglTest, OneDataBlock) {
  ASSERT_EQ(read_with(4096, block(1001, 4096)), Status::success) << "SGLs know no alignment here";
  EXPECT_TRUE(holds(1001, 0, 4096));
  EXPECT_EQ(target_.data()[1000], std::byte{0xEE});
  EXPECT_EQ(target_.data()[1001 + 4096], std::byte{0xEE});
}

// More pieces than any copy engine takes at once: one logical block in the smallest pieces there are.
TEST_F(SglTest, ABlockInBytes) {
  constexpr std::uint32_t kBytes = 2048;
  std::vector<SglDescriptor> pieces;
  for (std::uint32_t i = 0; i < kBytes; ++i) pieces.push_back(block(2ull * i, 1));
  ASSERT_EQ(read_with(kBytes, last_segment(0, pieces)), Status::success);
  for (std::uint32_t i = 0; i < kBytes; ++i) {
    ASSERT_TRUE(holds(2ull * i, i, 1)) << "byte " << i;
    ASSERT_EQ(target_.data()[2 * i + 1], std::byte{0xEE}) << "after byte " << i;
  }
}

TEST_F(SglTest, TheOtherPsdtValueMeansTheSameWithoutMetadata) {
  Sqe sqe = command(NvmOpcode::read, 512, block(0, 512));
  sqe.flags = nvme::kFlagPsdtSglSegmentMetadata;
  EXPECT_EQ(io(sqe), Status::success);
  sqe.flags = nvme::kFlagPsdtMask;
  EXPECT_EQ(io(sqe), Status::invalid_field) << "11b is reserved";
}

TEST_F(SglTest, PiecesOfAnyLength) {
  const auto last = last_segment(0, {block(0, 1), block(5000, 511), block(100, 7), block(9000, 505)});
  ASSERT_EQ(read_with(1024, last), Status::success);
  EXPECT_TRUE(holds(0, 0, 1));
  EXPECT_TRUE(holds(5000, 1, 511));
  EXPECT_TRUE(holds(100, 512, 7));
  EXPECT_TRUE(holds(9000, 519, 505));
}

TEST_F(SglTest, BitBucketsDropWhatIsRead) {
  const auto last = last_segment(0, {bucket(512), block(0, 512), bucket(1024), block(512, 512), bucket(512)});
  ASSERT_EQ(read_with(3072, last), Status::success);
  EXPECT_TRUE(holds(0, 512, 512));
  EXPECT_TRUE(holds(512, 2048, 512));
  EXPECT_EQ(target_.data()[1024], std::byte{0xEE});
}

TEST_F(SglTest, NothingButABitBucket) {
  EXPECT_EQ(read_with(4096, bucket(4096)), Status::success);
  EXPECT_TRUE(untouched());
}

TEST_F(SglTest, OnWritesABitBucketIsNoData) {
  target_.store(noise(512, 7));
  const auto last = last_segment(0, {bucket(512), block(0, 512)});
  ASSERT_EQ(io(command(NvmOpcode::write, 512, last)), Status::success);
  EXPECT_TRUE(read(kNs512, 0, 1) == noise(512, 7));
}

TEST_F(SglTest, SegmentsChain) {
  const auto third = last_segment(2, {block(3000, 512)});
  const auto second = segment(1, {block(2000, 512), bucket(512), third}, SglType::segment);
  const auto first = segment(0, {block(1000, 512), second}, SglType::segment);
  ASSERT_EQ(read_with(2048, first), Status::success);
  EXPECT_TRUE(holds(1000, 0, 512));
  EXPECT_TRUE(holds(2000, 512, 512));
  EXPECT_TRUE(holds(3000, 1536, 512));
}

TEST_F(SglTest, ManyDescriptors) {
  std::vector<SglDescriptor> entries;
  for (std::uint32_t i = 0; i < 256; ++i) entries.push_back(block(i * 513, 256));
  segments_.store(std::as_bytes(std::span(entries)));
  ASSERT_EQ(read_with(64 << 10, descriptor(SglType::last_segment, segments_.iova(), 256 * 16)), Status::success);
  for (std::uint32_t i = 0; i < 256; ++i) EXPECT_TRUE(holds(i * 513, i * 256, 256)) << i;
}

TEST_F(SglTest, LengthsMustMatchTheTransfer) {
  EXPECT_EQ(read_with(4096, block(0, 4095)), Status::data_sgl_length_invalid);
  EXPECT_EQ(read_with(4096, block(0, 4097)), Status::data_sgl_length_invalid);
  EXPECT_EQ(read_with(1024, last_segment(0, {block(0, 512)})), Status::data_sgl_length_invalid);
  EXPECT_EQ(read_with(512, last_segment(0, {block(0, 512), block(512, 512)})), Status::data_sgl_length_invalid);
  EXPECT_TRUE(untouched());
}

TEST_F(SglTest, ZeroLengthsAreSkipped) {
  EXPECT_EQ(read_with(512, last_segment(0, {block(0, 0), block(100, 512), bucket(0)})), Status::success);
  EXPECT_TRUE(holds(100, 0, 512));
}

TEST_F(SglTest, UnknownTypes) {
  EXPECT_EQ(read_with(512, descriptor(static_cast<SglType>(4), at(0), 512)), Status::sgl_descriptor_type_invalid);
  EXPECT_EQ(read_with(512, descriptor(static_cast<SglType>(15), at(0), 512)), Status::sgl_descriptor_type_invalid);
  EXPECT_EQ(read_with(512, descriptor(SglType::data_block, at(0), 512, 1)), Status::sgl_descriptor_type_invalid)
      << "offsets belong to fabrics";
  EXPECT_TRUE(untouched());
}

TEST_F(SglTest, BadSegments) {
  EXPECT_EQ(read_with(512, descriptor(SglType::last_segment, segments_.iova(), 0)),
            Status::invalid_sgl_segment_descriptor);
  EXPECT_EQ(read_with(512, descriptor(SglType::last_segment, segments_.iova(), 15)),
            Status::invalid_sgl_segment_descriptor);
  // A last segment that leads on, and a segment that does not.
  const auto inner = last_segment(1, {block(0, 512)});
  EXPECT_EQ(read_with(512, last_segment(0, {inner})), Status::invalid_sgl_segment_descriptor);
  EXPECT_EQ(read_with(512, segment(0, {block(0, 512)}, SglType::segment)), Status::invalid_sgl_segment_descriptor);
  EXPECT_EQ(read_with(512, descriptor(SglType::last_segment, 0x123000, 16)), Status::data_transfer_error);
  EXPECT_TRUE(untouched());
}

TEST_F(SglTest, UnmappedBlocks) {
  EXPECT_EQ(read_with(1024, last_segment(0, {block(0, 512), descriptor(SglType::data_block, 0x123000, 512)})),
            Status::data_transfer_error);
  EXPECT_TRUE(untouched());
}

TEST_F(SglTest, ChainsThatLoopEnd) {
  // A segment whose link points to itself.
  const std::uint64_t here = segments_.iova();
  const std::vector<SglDescriptor> loop{bucket(0), descriptor(SglType::segment, here, 32)};
  segments_.store(std::as_bytes(std::span(loop)));
  EXPECT_EQ(read_with(512, descriptor(SglType::segment, here, 32)), Status::invalid_number_of_sgl_descriptors);
}

TEST_F(SglTest, OtherCommandsTakeSglsToo) {
  target_.store(std::span(data_).first(1024));
  Sqe sqe = command(NvmOpcode::compare, 1024, last_segment(0, {block(0, 300), block(300, 724)}));
  EXPECT_EQ(io(sqe), Status::success);
  target_.data()[301] ^= std::byte{1};
  EXPECT_EQ(io(sqe), Status::compare_failure);
}

TEST_F(SglTest, AdminCommandsOnPcieUsePrps) {
  // Base 2.0c, 4.1.2: on PCIe, admin commands shall not use SGLs.
  Sqe sqe = make(AdminOpcode::identify);
  sqe.cdw10 = 1;
  sqe.flags = nvme::kFlagPsdtSglBufferMetadata;
  sqe.sgl1 = block(0, 4096);
  EXPECT_EQ(admin(sqe), Status::invalid_field);
}

}  // namespace
}  // namespace flashmob::conformance
