#include "media/block_content.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"
#include "media/lanes.h"

namespace flashmob::media {
namespace {

static_assert(std::endian::native == std::endian::little, "sector words are little-endian");

constexpr std::size_t kWords = kSectorBytes / 8;
constexpr std::size_t kLanes = 8;
constexpr std::size_t kChecksumWord = 3;

// Two tables of constants, one entry per word: what is added to the key to make the body, and what the checksum mixes
// each word with. Any fixed random numbers would do.
constexpr std::array<std::uint64_t, kWords> make_table(std::uint64_t seed) {
  std::array<std::uint64_t, kWords> table{};
  for (auto& entry : table) entry = seed = splitmix64(seed);
  return table;
}
alignas(64) constexpr auto kBodyTable = make_table(0x666C617368);
alignas(64) constexpr auto kSumTable = make_table(0x6D6F62);

// The checksum's accumulation step, in eight independent lanes. The product makes every bit of a word reach many; the
// neighbour's plain word is added because a product whose other half happens to be zero would hide a change.
inline Lanes accumulate(Lanes sum, Lanes words, std::size_t first_word) {
  const Lanes mixed = words ^ Lanes::load(&kSumTable[first_word]);
  return sum + mixed.product_of_halves() + words.swap_neighbours();
}

inline std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Four independent 128-bit products, then one mixing step.
inline std::uint64_t finish(Lanes sum) {
  alignas(64) std::uint64_t s[kLanes];
  sum.store(s);
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < kLanes; i += 2) out += fold(s[i] ^ kBodyTable[i], s[i + 1] ^ kBodyTable[i + 1]);
  return splitmix64(out);
}

inline std::uint64_t checksum_of(const std::byte* sector) {
  Lanes sum = accumulate(Lanes::zero(), Lanes::load(sector).without_lane3(), 0);
  for (std::size_t word = kLanes; word < kWords; word += kLanes) {
    sum = accumulate(sum, Lanes::load(sector + word * 8), word);
  }
  return finish(sum);
}

inline std::uint64_t word_at(const std::byte* sector, std::size_t word) {
  std::uint64_t value;
  std::memcpy(&value, sector + word * 8, 8);
  return value;
}

inline std::uint64_t pack_ids(std::uint32_t nsid, std::uint32_t generation) {
  return nsid | (static_cast<std::uint64_t>(generation) << 32);
}

// The part of the key that all sectors of one call share.
inline std::uint64_t key_base(std::uint64_t ids, std::uint64_t seed) { return splitmix64(splitmix64(seed) ^ ids); }

inline Lanes body_words(Lanes key, std::size_t first_word) {
  const Lanes mixed = key + Lanes::load(&kBodyTable[first_word]);
  return mixed.product_of_halves() ^ mixed.swap_halves();
}

inline void fill_one(std::byte* sector, std::uint64_t number, std::uint64_t ids, std::uint64_t seed,
                     std::uint64_t base) {
  const Lanes key = Lanes::all(splitmix64(base ^ number));
  const Lanes head = body_words(key, 0).with_front(number, ids, seed);
  head.store(sector);
  Lanes sum = accumulate(Lanes::zero(), head, 0);
  for (std::size_t word = kLanes; word < kWords; word += kLanes) {
    const Lanes words = body_words(key, word);
    words.store(sector + word * 8);
    sum = accumulate(sum, words, word);
  }
  const std::uint64_t checksum = finish(sum);
  std::memcpy(sector + kChecksumWord * 8, &checksum, 8);
}

inline bool checksum_is_right(const std::byte* sector) { return checksum_of(sector) == word_at(sector, kChecksumWord); }

BlockIdentity stated_identity(const std::byte* sector) {
  const std::uint64_t ids = word_at(sector, 1);
  return {word_at(sector, 0), static_cast<std::uint32_t>(ids), static_cast<std::uint32_t>(ids >> 32),
          word_at(sector, 2)};
}

}  // namespace

void fill_block(std::span<std::byte> block, const BlockIdentity& identity) {
  FLASHMOB_CHECK(block.size() == kSectorBytes);
  fill_sectors(block, identity.lba, identity.nsid, identity.generation, identity.seed);
}

BlockVerdict check_block(std::span<const std::byte> block, const BlockIdentity& expected) {
  FLASHMOB_CHECK(block.size() == kSectorBytes);
  if (!checksum_is_right(block.data())) return BlockVerdict::corrupt;
  const BlockIdentity found = stated_identity(block.data());
  if (found.lba != expected.lba || found.nsid != expected.nsid || found.seed != expected.seed) {
    return BlockVerdict::wrong_address;
  }
  return found.generation == expected.generation ? BlockVerdict::ok : BlockVerdict::wrong_generation;
}

std::optional<BlockIdentity> identify_block(std::span<const std::byte> block) {
  FLASHMOB_CHECK(block.size() == kSectorBytes);
  if (!checksum_is_right(block.data())) return std::nullopt;
  return stated_identity(block.data());
}

void fill_sectors(std::span<std::byte> bytes, std::uint64_t first_sector, std::uint32_t nsid, std::uint32_t generation,
                  std::uint64_t seed) {
  FLASHMOB_CHECK(bytes.size() % kSectorBytes == 0);
  const std::uint64_t ids = pack_ids(nsid, generation);
  const std::uint64_t base = key_base(ids, seed);
  for (std::size_t at = 0; at < bytes.size(); at += kSectorBytes, ++first_sector) {
    fill_one(bytes.data() + at, first_sector, ids, seed, base);
  }
}

std::uint64_t check_sectors(std::span<const std::byte> bytes, std::uint64_t first_sector, std::uint32_t nsid,
                            std::uint32_t generation, std::uint64_t seed) {
  FLASHMOB_CHECK(bytes.size() % kSectorBytes == 0);
  const std::uint64_t ids = pack_ids(nsid, generation);
  const std::byte* end = bytes.data() + bytes.size();
  for (const std::byte* sector = bytes.data(); sector != end; sector += kSectorBytes, ++first_sector) {
    const std::uint64_t wrong = (word_at(sector, 0) ^ first_sector) | (word_at(sector, 1) ^ ids) |
                                (word_at(sector, 2) ^ seed) | (word_at(sector, kChecksumWord) ^ checksum_of(sector));
    if (wrong != 0) [[unlikely]]
      return first_sector;
  }
  return kNoBadSector;
}

std::string explain_mismatch(std::span<const std::byte> block, const BlockIdentity& expected) {
  const BlockVerdict verdict = check_block(block, expected);
  const BlockIdentity found = stated_identity(block.data());
  const std::string where = "sector " + std::to_string(expected.lba) + ": ";
  switch (verdict) {
    case BlockVerdict::ok:
      return where + "as expected";
    case BlockVerdict::wrong_generation:
      return where + "expected generation " + std::to_string(expected.generation) + ", found generation " +
             std::to_string(found.generation) + (found.generation < expected.generation ? " (stale)" : " (too new)");
    case BlockVerdict::wrong_address:
      return where + "expected sector " + std::to_string(expected.lba) + " of namespace " +
             std::to_string(expected.nsid) + " with seed " + std::to_string(expected.seed) + ", found sector " +
             std::to_string(found.lba) + " of namespace " + std::to_string(found.nsid) + " with seed " +
             std::to_string(found.seed) + " (misplaced)";
    case BlockVerdict::corrupt:
      break;
  }
  bool zeroes = true;
  for (const std::byte byte : block) zeroes = zeroes && byte == std::byte{0};
  if (zeroes) return where + "expected generation " + std::to_string(expected.generation) + ", found zeroes";
  // The first word that differs from what was expected tells torn data (some words right) from foreign data.
  std::array<std::byte, kSectorBytes> wanted;
  fill_block(wanted, expected);
  std::size_t wrong_words = 0, first_wrong = kWords;
  for (std::size_t word = kWords; word-- > 0;) {
    if (word_at(block.data(), word) == word_at(wanted.data(), word)) continue;
    ++wrong_words;
    first_wrong = word;
  }
  return where + "expected generation " + std::to_string(expected.generation) + ", found a wrong checksum; " +
         std::to_string(wrong_words) + " of 64 words differ, the first at byte " + std::to_string(first_wrong * 8) +
         (wrong_words < kWords / 2 ? " (torn or damaged)" : " (foreign data)");
}

}  // namespace flashmob::media
