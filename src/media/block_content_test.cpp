#include "media/block_content.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <vector>

#include "base/rng.h"

namespace flashmob::media {
namespace {

using Sector = std::array<std::byte, kSectorBytes>;

constexpr BlockIdentity kIdentity{0x123456789Aull, 3, 7, 42};

Sector filled(const BlockIdentity& identity) {
  Sector sector;
  fill_block(sector, identity);
  return sector;
}

std::uint64_t word(const Sector& sector, std::size_t index) {
  std::uint64_t value;
  std::memcpy(&value, sector.data() + index * 8, 8);
  return value;
}

// The content as the header comment words it, one word at a time: an oracle for every vector width.
Sector oracle(const BlockIdentity& id) {
  std::array<std::uint64_t, 64> add{}, mix{}, w{};
  std::uint64_t state = 0x666C617368;
  for (auto& x : add) x = state = splitmix64(state);
  state = 0x6D6F62;
  for (auto& x : mix) x = state = splitmix64(state);
  const std::uint64_t ids = id.nsid | (std::uint64_t{id.generation} << 32);
  const std::uint64_t key = splitmix64(splitmix64(splitmix64(id.seed) ^ ids) ^ id.lba);
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint64_t x = key + add[i];
    w[i] = ((x & 0xFFFFFFFF) * (x >> 32)) ^ ((x << 32) | (x >> 32));
  }
  w[0] = id.lba;
  w[1] = ids;
  w[2] = id.seed;
  w[3] = 0;
  std::array<std::uint64_t, 8> sum{};
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint64_t x = w[i] ^ mix[i];
    sum[i % 8] += (x & 0xFFFFFFFF) * (x >> 32) + w[i ^ 1];
  }
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < 8; i += 2) {
    const unsigned __int128 p = static_cast<unsigned __int128>(sum[i] ^ add[i]) * (sum[i + 1] ^ add[i + 1]);
    out += static_cast<std::uint64_t>(p) ^ static_cast<std::uint64_t>(p >> 64);
  }
  w[3] = splitmix64(out);
  Sector sector;
  std::memcpy(sector.data(), w.data(), sizeof(w));
  return sector;
}

TEST(BlockContent, HeaderLayoutIsAsDocumented) {
  const Sector sector = filled(kIdentity);
  EXPECT_EQ(word(sector, 0), kIdentity.lba);
  EXPECT_EQ(word(sector, 1), kIdentity.nsid | (std::uint64_t{kIdentity.generation} << 32));
  EXPECT_EQ(word(sector, 2), kIdentity.seed);
}

TEST(BlockContent, EqualsTheWordByWordDefinition) {
  Rng rng(1);
  for (int i = 0; i < 200; ++i) {
    const BlockIdentity id{rng.next(), static_cast<std::uint32_t>(rng.next()), static_cast<std::uint32_t>(rng.next()),
                           rng.next()};
    ASSERT_EQ(filled(id), oracle(id)) << "case " << i;
  }
  for (const BlockIdentity id : {BlockIdentity{0, 0, 0, 0}, BlockIdentity{~0ull, ~0u, ~0u, ~0ull}}) {
    EXPECT_EQ(filled(id), oracle(id));
    EXPECT_EQ(check_block(filled(id), id), BlockVerdict::ok);
  }
}

// Constants from one machine: a change of content would make every stored file unverifiable, so it must be on purpose.
TEST(BlockContent, ContentIsPinned) {
  const Sector sector = filled(kIdentity);
  EXPECT_EQ(word(sector, 3), 391679271844666120ull);
  EXPECT_EQ(word(sector, 4), 4301093360004487697ull);
  EXPECT_EQ(word(sector, 63), 11876368963744390944ull);
}

TEST(BlockContent, VerdictsComeInTheDocumentedOrder) {
  Sector sector = filled(kIdentity);
  EXPECT_EQ(check_block(sector, kIdentity), BlockVerdict::ok);
  BlockIdentity other = kIdentity;
  other.generation = 8;
  EXPECT_EQ(check_block(sector, other), BlockVerdict::wrong_generation);
  other.lba += 1;
  EXPECT_EQ(check_block(sector, other), BlockVerdict::wrong_address);
  other = kIdentity;
  other.nsid = 4;
  EXPECT_EQ(check_block(sector, other), BlockVerdict::wrong_address);
  other = kIdentity;
  other.seed = 43;
  EXPECT_EQ(check_block(sector, other), BlockVerdict::wrong_address);
  sector[511] ^= std::byte{1};
  EXPECT_EQ(check_block(sector, other), BlockVerdict::corrupt);
  EXPECT_EQ(check_block(sector, kIdentity), BlockVerdict::corrupt);
  EXPECT_EQ(identify_block(sector), std::nullopt);
}

TEST(BlockContent, EverySingleBitFlipIsFound) {
  Sector sector = filled(kIdentity);
  for (std::size_t bit = 0; bit < kSectorBytes * 8; ++bit) {
    sector[bit / 8] ^= std::byte(1u << (bit % 8));
    ASSERT_EQ(check_block(sector, kIdentity), BlockVerdict::corrupt) << "bit " << bit;
    ASSERT_NE(check_sectors(sector, kIdentity.lba, kIdentity.nsid, kIdentity.generation, kIdentity.seed), kNoBadSector);
    sector[bit / 8] ^= std::byte(1u << (bit % 8));
  }
  EXPECT_EQ(check_block(sector, kIdentity), BlockVerdict::ok);
}

TEST(BlockContent, TornSectorsAreCorrupt) {
  const Sector old_data = filled(kIdentity);
  BlockIdentity next = kIdentity;
  ++next.generation;
  const Sector new_data = filled(next);
  // Word 0 is the same in both; from a cut of 16 on, the parts disagree about the generation.
  for (std::size_t cut = 16; cut < kSectorBytes; cut += 8) {
    Sector torn = old_data;
    std::memcpy(torn.data(), new_data.data(), cut);
    ASSERT_EQ(check_block(torn, next), BlockVerdict::corrupt) << cut;
    std::memcpy(torn.data(), old_data.data(), cut);
    std::memcpy(torn.data() + cut, new_data.data() + cut, kSectorBytes - cut);
    ASSERT_EQ(check_block(torn, kIdentity), BlockVerdict::corrupt) << cut;
  }
}

TEST(BlockContent, ExchangedWordsAreCorrupt) {
  const Sector sector = filled(kIdentity);
  for (std::size_t a = 0; a < 64; ++a) {
    for (std::size_t b = a + 1; b < 64; ++b) {
      Sector exchanged = sector;
      std::memcpy(exchanged.data() + a * 8, sector.data() + b * 8, 8);
      std::memcpy(exchanged.data() + b * 8, sector.data() + a * 8, 8);
      ASSERT_EQ(check_block(exchanged, kIdentity), BlockVerdict::corrupt) << a << " " << b;
    }
  }
}

TEST(BlockContent, ConstantSectorsAreCorrupt) {
  for (const unsigned value : {0x00u, 0xFFu, 0xA5u}) {
    Sector sector;
    sector.fill(std::byte(value));
    EXPECT_EQ(check_block(sector, kIdentity), BlockVerdict::corrupt);
  }
}

TEST(BlockContent, BodiesOfNeighboursShareNoWord) {
  std::set<std::uint64_t> words;
  std::size_t total = 0;
  const auto add = [&](const BlockIdentity& id) {
    const Sector sector = filled(id);
    for (std::size_t i = 3; i < 64; ++i, ++total) words.insert(word(sector, i));
  };
  for (std::uint64_t lba = 0; lba < 200; ++lba) add({lba, 1, 0, 1});
  for (std::uint32_t generation = 1; generation < 50; ++generation) add({0, 1, generation, 1});
  for (std::uint32_t nsid = 2; nsid < 50; ++nsid) add({0, nsid, 0, 1});
  for (std::uint64_t seed = 2; seed < 50; ++seed) add({0, 1, 0, seed});
  EXPECT_EQ(words.size(), total);
}

TEST(BlockContent, SectorsHelpersWorkOnWholeBlocksAtAnyAlignment) {
  std::vector<std::byte> buffer(8 * kSectorBytes + 64);
  for (std::size_t shift : {0, 1, 4, 63}) {
    const std::span<std::byte> bytes(buffer.data() + shift, 8 * kSectorBytes);
    fill_sectors(bytes, 1000, 2, 5, 9);
    EXPECT_EQ(check_sectors(bytes, 1000, 2, 5, 9), kNoBadSector);
    for (std::uint64_t i = 0; i < 8; ++i) {
      const auto sector = bytes.subspan(i * kSectorBytes, kSectorBytes);
      EXPECT_EQ(check_block(sector, {1000 + i, 2, 5, 9}), BlockVerdict::ok);
      EXPECT_EQ(identify_block(sector), (BlockIdentity{1000 + i, 2, 5, 9}));
    }
    bytes[3 * kSectorBytes + 100] ^= std::byte{0x10};
    bytes[6 * kSectorBytes] ^= std::byte{0x10};
    EXPECT_EQ(check_sectors(bytes, 1000, 2, 5, 9), 1003u);
    EXPECT_EQ(check_sectors(bytes.first(3 * kSectorBytes), 1000, 2, 5, 9), kNoBadSector);
    EXPECT_EQ(check_sectors(bytes.first(kSectorBytes), 1001, 2, 5, 9), 1001u);
    EXPECT_EQ(check_sectors(bytes.first(kSectorBytes), 1000, 2, 6, 9), 1000u);
  }
  EXPECT_EQ(check_sectors({}, 5, 1, 0, 1), kNoBadSector);
}

TEST(BlockContent, ExplanationsNameExpectedAndFound) {
  Sector sector = filled(kIdentity);
  BlockIdentity expected = kIdentity;
  expected.generation = 9;
  EXPECT_EQ(explain_mismatch(sector, expected),
            "sector 78187493530: expected generation 9, found generation 7 (stale)");
  expected.generation = 6;
  EXPECT_NE(explain_mismatch(sector, expected).find("found generation 7 (too new)"), std::string::npos);
  expected.lba = 5;
  EXPECT_NE(explain_mismatch(sector, expected).find("sector 5: expected sector 5"), std::string::npos);
  EXPECT_NE(explain_mismatch(sector, expected).find("found sector 78187493530"), std::string::npos);
  sector[80] ^= std::byte{1};
  EXPECT_NE(explain_mismatch(sector, kIdentity).find("1 of 64 words differ, the first at byte 80"), std::string::npos);
  sector.fill(std::byte{0});
  EXPECT_NE(explain_mismatch(sector, kIdentity).find("found zeroes"), std::string::npos);
  EXPECT_NE(explain_mismatch(filled(kIdentity), kIdentity).find("as expected"), std::string::npos);
}

}  // namespace
}  // namespace flashmob::media
