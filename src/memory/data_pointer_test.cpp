#include "memory/data_pointer.h"

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"

namespace flashmob::memory {
namespace {

using nvme::SglDescriptor;
using nvme::SglType;
using nvme::Sqe;
using nvme::Status;

constexpr std::uint64_t kPage = 4096;

// Guest memory: 32 pages at kBase, 32 more right behind them in another region whose host memory lies elsewhere, then
// a hole, and a read-only page.
class DataPointerTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBase = 0x100000;
  static constexpr std::uint64_t kSecond = kBase + 32 * kPage;
  static constexpr std::uint64_t kHole = kSecond + 32 * kPage;
  static constexpr std::uint64_t kReadOnly = kHole + 16 * kPage;

  DataPointerTest() : reader_(space_) {
    space_.map(kBase, 32 * kPage, first_.data());
    space_.map(kSecond, 32 * kPage, second_.data() + kPage);
    space_.map(kReadOnly, kPage, read_only_.data(), false);
    reader_.enter();
  }

  std::byte* host(std::uint64_t iova) {
    if (iova >= kBase && iova < kSecond) return first_.data() + (iova - kBase);
    if (iova >= kSecond && iova < kHole) return second_.data() + kPage + (iova - kSecond);
    if (iova >= kReadOnly && iova < kReadOnly + kPage) return read_only_.data() + (iova - kReadOnly);
    return nullptr;
  }
  void put(std::uint64_t iova, const std::vector<std::uint64_t>& words) {
    std::memcpy(host(iova), words.data(), words.size() * 8);
  }
  void put(std::uint64_t iova, const std::vector<SglDescriptor>& descriptors) {
    std::memcpy(host(iova), descriptors.data(), descriptors.size() * 16);
  }

  static Sqe prp(std::uint64_t prp1, std::uint64_t prp2 = 0) {
    Sqe sqe{};
    sqe.prp1 = prp1;
    sqe.prp2 = prp2;
    return sqe;
  }
  static SglDescriptor sgl(SglType type, std::uint64_t address, std::uint64_t length, std::uint8_t sub_type = 0) {
    SglDescriptor d{};
    d.address = address;
    d.length_bytes = static_cast<std::uint32_t>(length);
    d.identifier = static_cast<std::uint8_t>((static_cast<unsigned>(type) << 4) | sub_type);
    return d;
  }
  static SglDescriptor block(std::uint64_t address, std::uint64_t length) {
    return sgl(SglType::data_block, address, length);
  }
  static Sqe sgl_command(const SglDescriptor& first, std::uint8_t psdt = nvme::kFlagPsdtSglBufferMetadata) {
    Sqe sqe{};
    sqe.flags = psdt;
    sqe.sgl1 = first;
    return sqe;
  }

  Status run(const Sqe& sqe, std::uint64_t bytes, Direction direction = Direction::to_host) {
    return resolve(reader_, sqe, bytes, direction, limits_, list_);
  }
  // The segments as (host, bytes) pairs.
  std::vector<std::pair<std::byte*, std::uint64_t>> pieces() const {
    std::vector<std::pair<std::byte*, std::uint64_t>> out;
    for (const Segment& s : list_.segments()) out.emplace_back(s.host, s.bytes);
    return out;
  }
  using Pieces = std::vector<std::pair<std::byte*, std::uint64_t>>;

  std::vector<std::byte> first_ = std::vector<std::byte>(32 * kPage);
  // A page in front keeps it from lying right behind the first one, by chance, in host memory too.
  std::vector<std::byte> second_ = std::vector<std::byte>(33 * kPage);
  std::vector<std::byte> read_only_ = std::vector<std::byte>(kPage);
  AddressSpace space_;
  AddressSpace::Reader reader_;
  DataPointerLimits limits_;
  SegmentList list_{1024};
};

TEST_F(DataPointerTest, OnePageIgnoresPrp2) {
  EXPECT_EQ(run(prp(kBase + 0x200, ~std::uint64_t{0}), 512), Status::success);
  EXPECT_EQ(pieces(), (Pieces{{host(kBase + 0x200), 512}}));
  EXPECT_EQ(run(prp(kBase + kPage - 4, 7), 4), Status::success);
  EXPECT_EQ(run(prp(kBase, 7), kPage), Status::success);
  EXPECT_EQ(run(prp(0xDEAD0001, 7), 0), Status::success) << "nothing to transfer, nothing to look at";
  EXPECT_TRUE(pieces().empty());
}

TEST_F(DataPointerTest, Prp1IsDwordAlignedAndMapped) {
  for (const std::uint64_t bad : {1, 2, 3}) EXPECT_EQ(run(prp(kBase + bad), 4), Status::prp_offset_invalid);
  EXPECT_EQ(run(prp(kBase + 4), 4), Status::success);
  EXPECT_EQ(run(prp(kHole), 4), Status::data_transfer_error);
  EXPECT_EQ(run(prp(0), 4), Status::data_transfer_error);
  EXPECT_EQ(run(prp(~std::uint64_t{3}), 4), Status::data_transfer_error);
}

TEST_F(DataPointerTest, DirectionDecidesAboutReadOnlyMemory) {
  EXPECT_EQ(run(prp(kReadOnly), 512, Direction::to_host), Status::data_transfer_error);
  EXPECT_EQ(run(prp(kReadOnly), 512, Direction::from_host), Status::success);
  put(kBase, std::vector<std::uint64_t>{kSecond, kSecond + kPage});
  EXPECT_EQ(run(prp(kReadOnly, kBase), 3 * kPage, Direction::from_host), Status::success);
  EXPECT_EQ(run(prp(kBase + 8 * kPage, kReadOnly), 2 * kPage, Direction::to_host), Status::data_transfer_error);
  // A list is only read, whatever the direction of the data.
  std::memset(read_only_.data(), 0, kPage);
  const std::vector<std::uint64_t> entries{kSecond, kSecond + kPage};
  std::memcpy(read_only_.data(), entries.data(), 16);
  EXPECT_EQ(run(prp(kBase, kReadOnly), 3 * kPage, Direction::to_host), Status::success);
}

TEST_F(DataPointerTest, TwoPagesUsePrp2AsAnEntry) {
  EXPECT_EQ(run(prp(kBase + 0x800, kSecond), kPage), Status::success);
  EXPECT_EQ(pieces(), (Pieces{{host(kBase + 0x800), 0x800}, {host(kSecond), 0x800}}));
  EXPECT_EQ(run(prp(kBase, kSecond), 2 * kPage), Status::success);
  EXPECT_EQ(run(prp(kBase, kSecond + 8), 2 * kPage), Status::prp_offset_invalid);
  EXPECT_EQ(run(prp(kBase, kSecond + 2048), kPage + 512), Status::prp_offset_invalid);
  EXPECT_EQ(run(prp(kBase, kHole), 2 * kPage), Status::data_transfer_error);
}

TEST_F(DataPointerTest, AdjacentPagesBecomeOneSegment) {
  put(kSecond, std::vector<std::uint64_t>{kBase + kPage, kBase + 2 * kPage, kBase + 4 * kPage});
  EXPECT_EQ(run(prp(kBase, kSecond), 4 * kPage), Status::success);
  EXPECT_EQ(pieces(), (Pieces{{host(kBase), 3 * kPage}, {host(kBase + 4 * kPage), kPage}}));
}

TEST_F(DataPointerTest, ListMayBeginInsideItsPage) {
  put(kSecond + 0x7F8, std::vector<std::uint64_t>{kBase + 5 * kPage, kBase + 9 * kPage});
  EXPECT_EQ(run(prp(kBase + 0x400, kSecond + 0x7F8), 2 * kPage + 0x400), Status::success);
  EXPECT_EQ(pieces(),
            (Pieces{{host(kBase + 0x400), 0xC00}, {host(kBase + 5 * kPage), kPage}, {host(kBase + 9 * kPage), 0x800}}));
  for (const std::uint64_t bad : {1, 2, 4, 7}) {
    EXPECT_EQ(run(prp(kBase, kSecond + bad), 3 * kPage), Status::prp_offset_invalid);
  }
  EXPECT_EQ(run(prp(kBase, kHole), 3 * kPage), Status::data_transfer_error);
}

TEST_F(DataPointerTest, ListEntriesHaveNoOffset) {
  put(kSecond, std::vector<std::uint64_t>{kBase + 5 * kPage, kBase + 9 * kPage + 4});
  EXPECT_EQ(run(prp(kBase, kSecond), 3 * kPage), Status::prp_offset_invalid);
  put(kSecond, std::vector<std::uint64_t>{kBase + 5 * kPage, kHole});
  EXPECT_EQ(run(prp(kBase, kSecond), 3 * kPage), Status::data_transfer_error);
}

TEST_F(DataPointerTest, LastEntryOfAFullListIsALinkOnlyIfMoreRemains) {
  const std::uint64_t list = kSecond + kPage - 16;  // room for two entries
  put(list, std::vector<std::uint64_t>{kBase + 2 * kPage, kBase + 6 * kPage});
  EXPECT_EQ(run(prp(kBase, list), 3 * kPage), Status::success);
  EXPECT_EQ(pieces().back(), (std::pair{host(kBase + 6 * kPage), kPage})) << "two pages remain: both are entries";

  put(list, std::vector<std::uint64_t>{kBase + 2 * kPage, kSecond + 4 * kPage});
  put(kSecond + 4 * kPage, std::vector<std::uint64_t>{kBase + 10 * kPage, kBase + 12 * kPage});
  EXPECT_EQ(run(prp(kBase, list), 4 * kPage - 512), Status::success);
  EXPECT_EQ(pieces(), (Pieces{{host(kBase), kPage},
                              {host(kBase + 2 * kPage), kPage},
                              {host(kBase + 10 * kPage), kPage},
                              {host(kBase + 12 * kPage), kPage - 512}}));

  put(list, std::vector<std::uint64_t>{kBase + 2 * kPage, kSecond + 4 * kPage + 8});
  EXPECT_EQ(run(prp(kBase, list), 4 * kPage), Status::prp_offset_invalid) << "later lists begin their page";
  put(list, std::vector<std::uint64_t>{kBase + 2 * kPage, kHole});
  EXPECT_EQ(run(prp(kBase, list), 4 * kPage), Status::data_transfer_error);
}

TEST_F(DataPointerTest, ListThatLinksToItselfEnds) {
  // Every page-long list takes 511 pages off the transfer, so that the walk ends; here in a list of itself only.
  std::vector<std::uint64_t> words(512, kBase + kPage);
  words[511] = kSecond;
  put(kSecond, words);
  EXPECT_EQ(run(prp(kBase, kSecond), 1200 * kPage), Status::internal_error) << "more segments than the list holds";
  SegmentList large(2000);
  EXPECT_EQ(resolve(reader_, prp(kBase, kSecond), 1200 * kPage, Direction::to_host, limits_, large), Status::success);
  std::uint64_t total = 0;
  for (const Segment& s : large.segments()) total += s.bytes;
  EXPECT_EQ(total, 1200 * kPage);
}

TEST_F(DataPointerTest, LargerMemoryPages) {
  limits_.page_bytes = 16384;
  EXPECT_EQ(run(prp(kBase + 4096, kSecond), 16384), Status::success);
  EXPECT_EQ(pieces(), (Pieces{{host(kBase + 4096), 12288}, {host(kSecond), 4096}}));
  EXPECT_EQ(run(prp(kBase, kSecond + 4096), 32768), Status::prp_offset_invalid);
}

TEST_F(DataPointerTest, ResolveSingleTakesOnlyTheCommonCase) {
  std::byte* out = nullptr;
  EXPECT_TRUE(resolve_single(reader_, prp(kBase + 512), 512, Direction::to_host, 4096, out));
  EXPECT_EQ(out, host(kBase + 512));
  EXPECT_TRUE(resolve_single(reader_, prp(kBase), 4096, Direction::to_host, 4096, out));
  EXPECT_FALSE(resolve_single(reader_, prp(kBase + 4), 4096, Direction::to_host, 4096, out));
  EXPECT_FALSE(resolve_single(reader_, prp(kBase + 2), 512, Direction::to_host, 4096, out));
  EXPECT_FALSE(resolve_single(reader_, prp(kHole), 512, Direction::to_host, 4096, out));
  EXPECT_FALSE(resolve_single(reader_, prp(kReadOnly), 512, Direction::to_host, 4096, out));
  EXPECT_TRUE(resolve_single(reader_, prp(kReadOnly), 512, Direction::from_host, 4096, out));
  EXPECT_FALSE(resolve_single(reader_, sgl_command(block(kBase, 512)), 512, Direction::to_host, 4096, out));
}

TEST_F(DataPointerTest, ReservedPsdtIsAnInvalidField) {
  Sqe sqe = prp(kBase);
  sqe.flags = nvme::kFlagPsdtMask;
  EXPECT_EQ(run(sqe, 512), Status::invalid_field);
}

TEST_F(DataPointerTest, SglDataBlock) {
  for (const auto psdt : {nvme::kFlagPsdtSglBufferMetadata, nvme::kFlagPsdtSglSegmentMetadata}) {
    EXPECT_EQ(run(sgl_command(block(kBase + 1, 777), psdt), 777), Status::success) << "any byte may be the first";
    EXPECT_EQ(pieces(), (Pieces{{host(kBase + 1), 777}}));
  }
  EXPECT_EQ(run(sgl_command(block(kBase, 511)), 512), Status::data_sgl_length_invalid);
  EXPECT_EQ(run(sgl_command(block(kBase, 513)), 512), Status::data_sgl_length_invalid);
  EXPECT_EQ(run(sgl_command(block(kBase, 0)), 0), Status::success);
  EXPECT_EQ(run(sgl_command(block(kHole, 512)), 512), Status::data_transfer_error);
  EXPECT_EQ(run(sgl_command(block(~std::uint64_t{0} - 100, 512)), 512), Status::data_transfer_error);
  EXPECT_EQ(run(sgl_command(block(kReadOnly, 512)), 512), Status::data_transfer_error);
  EXPECT_EQ(run(sgl_command(block(kReadOnly, 512)), 512, Direction::from_host), Status::success);
}

TEST_F(DataPointerTest, SglDataBlockSpansAdjacentRegions) {
  EXPECT_EQ(run(sgl_command(block(kSecond - 100, 300)), 300), Status::success);
  EXPECT_EQ(pieces(), (Pieces{{host(kSecond - 100), 100}, {host(kSecond), 200}}));
  EXPECT_EQ(run(sgl_command(block(kHole - 100, 300)), 300), Status::data_transfer_error);
}

TEST_F(DataPointerTest, SglTypesThatWeDoNotKnow) {
  EXPECT_EQ(run(sgl_command(sgl(SglType::data_block, kBase, 512, 1)), 512), Status::sgl_descriptor_type_invalid);
  EXPECT_EQ(run(sgl_command(sgl(static_cast<SglType>(0x4), kBase, 512)), 512), Status::sgl_descriptor_type_invalid);
  EXPECT_EQ(run(sgl_command(sgl(static_cast<SglType>(0xF), kBase, 512)), 512), Status::sgl_descriptor_type_invalid);
  EXPECT_EQ(run(sgl_command(sgl(SglType::last_segment, kBase, 16, 1)), 512), Status::sgl_descriptor_type_invalid);
  put(kBase, std::vector<SglDescriptor>{block(kSecond, 512), sgl(static_cast<SglType>(0x5), 0, 0)});
  EXPECT_EQ(run(sgl_command(sgl(SglType::last_segment, kBase, 32)), 512), Status::sgl_descriptor_type_invalid);
}

TEST_F(DataPointerTest, SglBitBucket) {
  put(kBase, std::vector<SglDescriptor>{block(kSecond, 100), sgl(SglType::bit_bucket, 0, 50),
                                        sgl(SglType::bit_bucket, 0, 6), block(kSecond + 156, 100)});
  const Sqe sqe = sgl_command(sgl(SglType::last_segment, kBase, 64));
  EXPECT_EQ(run(sqe, 256), Status::success);
  EXPECT_EQ(pieces(), (Pieces{{host(kSecond), 100}, {nullptr, 56}, {host(kSecond + 156), 100}}));
  // On the way from the host the bucket's length does not count.
  EXPECT_EQ(run(sqe, 256, Direction::from_host), Status::data_sgl_length_invalid);
  EXPECT_EQ(run(sqe, 200, Direction::from_host), Status::success);
  EXPECT_EQ(pieces(), (Pieces{{host(kSecond), 100}, {host(kSecond + 156), 100}}));
  EXPECT_EQ(run(sgl_command(sgl(SglType::bit_bucket, 0, 512)), 512), Status::success);
}

TEST_F(DataPointerTest, SglSegmentsChain) {
  put(kBase, std::vector<SglDescriptor>{block(kSecond, 8), sgl(SglType::segment, kBase + kPage, 32)});
  put(kBase + kPage,
      std::vector<SglDescriptor>{block(kSecond + 100, 8), sgl(SglType::last_segment, kBase + 2 * kPage, 16)});
  put(kBase + 2 * kPage, std::vector<SglDescriptor>{block(kSecond + 200, 8)});
  EXPECT_EQ(run(sgl_command(sgl(SglType::segment, kBase, 32)), 24), Status::success);
  EXPECT_EQ(pieces(), (Pieces{{host(kSecond), 8}, {host(kSecond + 100), 8}, {host(kSecond + 200), 8}}));
  EXPECT_EQ(run(sgl_command(sgl(SglType::segment, kBase, 32)), 25), Status::data_sgl_length_invalid);
  EXPECT_EQ(run(sgl_command(sgl(SglType::segment, kBase, 32)), 20), Status::data_sgl_length_invalid);
}

TEST_F(DataPointerTest, SglSegmentDescriptorsThatAreWrong) {
  put(kBase, std::vector<SglDescriptor>{block(kSecond, 512), block(kSecond, 0)});
  EXPECT_EQ(run(sgl_command(sgl(SglType::last_segment, kBase, 0)), 512), Status::invalid_sgl_segment_descriptor);
  EXPECT_EQ(run(sgl_command(sgl(SglType::last_segment, kBase, 24)), 512), Status::invalid_sgl_segment_descriptor);
  EXPECT_EQ(run(sgl_command(sgl(SglType::segment, kBase, 8)), 512), Status::invalid_sgl_segment_descriptor);
  EXPECT_EQ(run(sgl_command(sgl(SglType::last_segment, kBase + 4, 16)), 512), Status::invalid_sgl_segment_descriptor);
  EXPECT_EQ(run(sgl_command(sgl(SglType::last_segment, kHole, 16)), 512), Status::data_transfer_error);
  EXPECT_EQ(run(sgl_command(sgl(SglType::last_segment, kHole - 16, 32)), 512), Status::data_transfer_error);
  EXPECT_EQ(run(sgl_command(sgl(SglType::last_segment, kBase, 32)), 512), Status::success);
  EXPECT_EQ(run(sgl_command(sgl(SglType::segment, kBase, 32)), 512), Status::invalid_sgl_segment_descriptor)
      << "a segment that is not the last one has to lead on";
  put(kBase, std::vector<SglDescriptor>{block(kSecond, 512), sgl(SglType::last_segment, kBase + kPage, 16)});
  EXPECT_EQ(run(sgl_command(sgl(SglType::last_segment, kBase, 32)), 512), Status::invalid_sgl_segment_descriptor)
      << "the last segment leads nowhere";
  put(kBase, std::vector<SglDescriptor>{sgl(SglType::last_segment, kBase + kPage, 16), block(kSecond, 512)});
  EXPECT_EQ(run(sgl_command(sgl(SglType::segment, kBase, 32)), 512), Status::invalid_number_of_sgl_descriptors)
      << "a link stands at its segment's end";
}

TEST_F(DataPointerTest, SglSegmentSpansAdjacentRegions) {
  std::vector<SglDescriptor> descriptors;
  for (std::uint64_t i = 0; i < 8; ++i) descriptors.push_back(block(kBase + i * kPage, 16));
  const std::uint64_t at = kSecond - 3 * 16;
  put(at, std::vector<SglDescriptor>(descriptors.begin(), descriptors.begin() + 3));
  put(kSecond, std::vector<SglDescriptor>(descriptors.begin() + 3, descriptors.end()));
  EXPECT_EQ(run(sgl_command(sgl(SglType::last_segment, at, 128)), 128), Status::success);
  EXPECT_EQ(pieces().size(), 8u);
}

TEST_F(DataPointerTest, SglDescriptorsAreCountedAndLoopsEnd) {
  put(kBase, std::vector<SglDescriptor>{block(kSecond, 0), sgl(SglType::segment, kBase, 32)});
  EXPECT_EQ(run(sgl_command(sgl(SglType::segment, kBase, 32)), 512), Status::invalid_number_of_sgl_descriptors);
  EXPECT_EQ(run(sgl_command(sgl(SglType::last_segment, kBase, 0xFFFFFFF0)), 512),
            Status::invalid_number_of_sgl_descriptors);
  limits_.max_sgl_descriptors = 3;
  put(kBase, std::vector<SglDescriptor>{block(kSecond, 1), block(kSecond + 4, 1), block(kSecond + 8, 1),
                                        block(kSecond + 12, 1)});
  EXPECT_EQ(run(sgl_command(sgl(SglType::last_segment, kBase, 48)), 3), Status::success);
  EXPECT_EQ(run(sgl_command(sgl(SglType::last_segment, kBase, 64)), 4), Status::invalid_number_of_sgl_descriptors);
  SegmentList small(2);
  EXPECT_EQ(resolve(reader_, sgl_command(sgl(SglType::last_segment, kBase, 48)), 3, Direction::to_host, limits_, small),
            Status::invalid_number_of_sgl_descriptors);
}

TEST_F(DataPointerTest, CopiesToAndFromTheHost) {
  std::vector<std::byte> data(6000);
  Rng rng(5);
  for (auto& b : data) b = static_cast<std::byte>(rng.next());
  EXPECT_EQ(copy_to_host(reader_, prp(kBase + 0x800, kSecond), std::span(data).first(5000), limits_, list_),
            Status::success);
  EXPECT_EQ(std::memcmp(host(kBase + 0x800), data.data(), 2048), 0);
  EXPECT_EQ(std::memcmp(host(kSecond), data.data() + 2048, 2952), 0);
  std::vector<std::byte> back(5000);
  EXPECT_EQ(copy_from_host(reader_, prp(kBase + 0x800, kSecond), back, limits_, list_), Status::success);
  EXPECT_EQ(std::memcmp(back.data(), data.data(), back.size()), 0);
  EXPECT_EQ(copy_to_host(reader_, prp(kHole), data, limits_, list_), Status::data_transfer_error);
  EXPECT_EQ(copy_from_host(reader_, prp(kBase + 1), back, limits_, list_), Status::prp_offset_invalid);

  put(kBase, std::vector<SglDescriptor>{block(kSecond, 3), sgl(SglType::bit_bucket, 0, 4), block(kSecond + 3, 3)});
  std::memset(host(kSecond), 0xEE, 16);
  EXPECT_EQ(copy_to_host(reader_, sgl_command(sgl(SglType::last_segment, kBase, 48)), std::span(data).first(10),
                         limits_, list_),
            Status::success);
  EXPECT_EQ(std::memcmp(host(kSecond), data.data(), 3), 0);
  EXPECT_EQ(std::memcmp(host(kSecond) + 3, data.data() + 7, 3), 0);
  EXPECT_EQ(host(kSecond)[6], std::byte{0xEE});
}

// Walks PRPs one entry at a time, straight from the specification's words, and names every dword of the transfer.
struct Oracle {
  Status status = Status::success;
  std::vector<std::byte*> dwords;
};

class PrpPropertyTest : public DataPointerTest {
 protected:
  bool entry(std::uint64_t address, std::uint64_t& left, Oracle& oracle) {
    for (std::uint64_t i = address; left > 0 && (i == address || i % kPage != 0); i += 4, left -= 4) {
      if (host(i) == nullptr) {
        oracle.status = Status::data_transfer_error;
        return false;
      }
      oracle.dwords.push_back(host(i));
    }
    return true;
  }
  Oracle walk(const Sqe& sqe, std::uint64_t bytes) {
    Oracle oracle;
    std::uint64_t left = bytes;
    if (sqe.prp1 % 4 != 0) return {Status::prp_offset_invalid, {}};
    if (!entry(sqe.prp1, left, oracle) || left == 0) return oracle;
    std::uint64_t cursor = sqe.prp2;
    if (left <= kPage) {
      if (cursor % kPage != 0) return {Status::prp_offset_invalid, {}};
      entry(cursor, left, oracle);
      return oracle;
    }
    if (cursor % 8 != 0) return {Status::prp_offset_invalid, {}};
    while (left > 0) {
      if (host(cursor) == nullptr) return {Status::data_transfer_error, {}};
      std::uint64_t word = 0;
      std::memcpy(&word, host(cursor), 8);
      if (word % kPage != 0) return {Status::prp_offset_invalid, {}};
      const bool last_in_page = cursor % kPage == kPage - 8;
      if (last_in_page && left > kPage) {
        cursor = word;
        continue;
      }
      if (!entry(word, left, oracle)) return oracle;
      cursor += 8;
    }
    return oracle;
  }
};

TEST_F(PrpPropertyTest, AgreesWithTheNaiveWalkOnRandomLists) {
  Rng rng(20240607);
  int good = 0;
  for (int round = 0; round < 1000; ++round) {
    // All of the second region is list entries, mostly right ones, and its page ends often link to its pages.
    const bool hostile = rng.below(2) == 0;
    auto address = [&](std::uint64_t link_chance) {
      if (hostile && rng.below(200) == 0) return rng.next();
      if (hostile && rng.below(200) == 0) return kHole + rng.below(8) * kPage;
      if (rng.below(100) < link_chance) return kSecond + rng.below(32) * kPage;
      return kBase + rng.below(32) * kPage;
    };
    std::vector<std::uint64_t> words(2 * 512);
    for (auto& word : words) word = address(0);
    const std::uint64_t list_page = kSecond + rng.below(31) * kPage;
    words[511] = address(100);
    words[1023] = address(100);
    put(list_page, words);
    const std::uint64_t bytes = 4 + rng.below(60 * kPage) / 4 * 4;
    // Lists near the end of their page link soon.
    const std::uint64_t list = list_page + kPage - 8 * (1 + rng.below(40)) + (hostile && rng.below(20) == 0 ? 4 : 0);
    const std::uint64_t prp2 = rng.below(4) == 0 ? address(50) : list;
    const Sqe sqe = prp(kBase + rng.below(32 * kPage) / 4 * 4 + (hostile && rng.below(20) == 0 ? 2 : 0), prp2);

    const Oracle oracle = walk(sqe, bytes);
    const Status status = run(sqe, bytes);
    ASSERT_EQ(status, oracle.status) << "round " << round;
    if (status != Status::success) continue;
    ++good;
    std::size_t dword = 0;
    for (const Segment& segment : list_.segments()) {
      for (std::uint64_t i = 0; i < segment.bytes; i += 4, ++dword) {
        ASSERT_LT(dword, oracle.dwords.size());
        ASSERT_EQ(segment.host + i, oracle.dwords[dword]) << "round " << round;
      }
    }
    ASSERT_EQ(dword * 4, bytes);
  }
  EXPECT_GT(good, 250);
}

TEST_F(DataPointerTest, RandomSglChainsCoverExactlyTheirBlocks) {
  Rng rng(99);
  for (int round = 0; round < 500; ++round) {
    // Descriptors go to the first region, blocks to the second; the chain is written as it is expected back.
    std::vector<std::byte*> expected;
    const std::uint64_t segments = 1 + rng.below(5);
    for (std::uint64_t s = 0; s < segments; ++s) {
      std::vector<SglDescriptor> descriptors;
      const std::uint64_t blocks = 1 + rng.below(70);
      for (std::uint64_t b = 0; b < blocks; ++b) {
        const std::uint64_t length = rng.below(40);
        const bool bucket = rng.below(10) == 0;
        const std::uint64_t address = kSecond + rng.below(32 * kPage - 40);
        descriptors.push_back(bucket ? sgl(SglType::bit_bucket, rng.next(), length) : block(address, length));
        for (std::uint64_t i = 0; i < length; ++i) expected.push_back(bucket ? nullptr : host(address + i));
      }
      // Written back to front below, therefore the next segment's length is known only to a fixed grid of 71 entries.
      while (descriptors.size() < 70) descriptors.push_back(block(kSecond, 0));
      const auto next_type = s + 2 == segments ? SglType::last_segment : SglType::segment;
      descriptors.push_back(s + 1 == segments ? block(kHole, 0) : sgl(next_type, kBase + (s + 1) * kPage, 71 * 16));
      put(kBase + s * kPage, descriptors);
    }
    const Sqe sqe = sgl_command(sgl(segments == 1 ? SglType::last_segment : SglType::segment, kBase, 71 * 16));
    ASSERT_EQ(run(sqe, expected.size()), Status::success) << "round " << round;
    std::vector<std::byte*> got;
    for (const Segment& segment : list_.segments()) {
      for (std::uint64_t i = 0; i < segment.bytes; ++i) {
        got.push_back(segment.host == nullptr ? nullptr : segment.host + i);
      }
    }
    ASSERT_EQ(got, expected) << "round " << round;
    ASSERT_EQ(run(sqe, expected.size() + 1), Status::data_sgl_length_invalid);
    if (expected.empty()) continue;
    ASSERT_EQ(run(sqe, expected.size() - 1), Status::data_sgl_length_invalid);
  }
}

}  // namespace
}  // namespace flashmob::memory
