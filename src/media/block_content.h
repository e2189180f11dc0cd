// Self-describing content: every 512-byte sector carries its address, a generation and a checksum, so a reader can tell
// right data from misplaced, stale or torn data without a second copy.
//
// The unit is the 512-byte sector on every namespace, whatever its LBA size: an LBA of 4096 bytes is eight sectors,
// and sector number = byte offset / 512. So the content of a byte does not change when a namespace is formatted.
//
// Layout of a sector, little-endian 64-bit words w[0...63]:
//   w[0] sector number     w[1] nsid in bits 31:0, generation in bits 63:32     w[2] seed     w[3] checksum
//   w[4...63] the body: a mix of a key made of (seed, nsid, generation, sector number) with the word's index
// The checksum covers all 64 words, w[3] counted as zero. It is what a check trusts: a body that belongs to another
// identity fails it, so checking reads every byte once but need not make the body again. It is a function of integers
// only and the same on every machine; AVX2 and AVX-512 merely compute it faster.
// Generation 0 is what `generated` media answers and what a filled store starts from.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace flashmob::media {

inline constexpr std::size_t kSectorBytes = 512;
inline constexpr unsigned kSectorShift = 9;

struct BlockIdentity {
  std::uint64_t lba;  // the sector number
  std::uint32_t nsid;
  std::uint32_t generation;
  std::uint64_t seed;
  friend bool operator==(const BlockIdentity&, const BlockIdentity&) = default;
};

// Writes one sector's content. `block` is exactly one sector; any alignment.
void fill_block(std::span<std::byte> block, const BlockIdentity& identity);

// The verdicts in the order in which they are decided: a sector whose checksum is wrong is corrupt, whatever its
// header says; one that was written for another address, namespace or seed has the wrong address; then generation.
enum class BlockVerdict : std::uint8_t { ok, wrong_address, wrong_generation, corrupt };

// Checks one sector against the identity it should have. Reads every byte.
BlockVerdict check_block(std::span<const std::byte> block, const BlockIdentity& expected);

// Who the sector says it is, if its checksum is right: for readers that accept more than one generation.
std::optional<BlockIdentity> identify_block(std::span<const std::byte> block);

// Fills whole sectors; the first has number `first_sector`. bytes.size() is a multiple of 512.
void fill_sectors(std::span<std::byte> bytes, std::uint64_t first_sector, std::uint32_t nsid, std::uint32_t generation,
                  std::uint64_t seed);

inline constexpr std::uint64_t kNoBadSector = ~std::uint64_t{0};
// Checks whole sectors and returns the number of the first that is not as expected, or kNoBadSector.
std::uint64_t check_sectors(std::span<const std::byte> bytes, std::uint64_t first_sector, std::uint32_t nsid,
                            std::uint32_t generation, std::uint64_t seed);

// "sector 17: expected generation 3, found generation 2 (stale)": for reports, not for the hot path.
std::string explain_mismatch(std::span<const std::byte> block, const BlockIdentity& expected);

}  // namespace flashmob::media
