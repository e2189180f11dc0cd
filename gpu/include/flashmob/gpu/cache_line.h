// One line of the software cache: which block it holds, what state it is in, who uses it. Compiles as CUDA device code.
//
// Everything that decides about a line is one 64-bit word, so that one atomic operation pins it, marks it or takes it:
//
//   bits 0-1   INVALID  nothing of worth in it; `error` says why, if a fetch has failed
//              BUSY     being filled; nobody may look at the data but the one that fills it
//              READY    equal to what lies below (SSD or second tier)
//              MODIFIED newer than what lies below
//   bit 2      writing: a write-back is in flight; data is stable meanwhile, readers welcome, writers wait
//   bit 3      kept: the second tier was offered this content
//   bit 4      write failed: the last write-back of this MODIFIED line ended with `error`
//   bits 8-31  writers: pins that may change the data
//   bits 32-63 pins, writers included
//
// A line is taken for another block only from (INVALID or READY, no pins, not writing), under its set's lock, and its
// tag changes only then: whoever has a pin on a READY or MODIFIED line and has then seen its tag can rely on both.
// Thread rule: any lane at once.
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "flashmob/gpu/simt/word.h"
#include "flashmob/gpu/status.h"

namespace flashmob::gpu {

// A block of a namespace of an SSD; blocks are as long as the cache's lines and counted from the namespace's start.
struct BlockKey {
  std::uint32_t ssd = 0;
  std::uint32_t ns = 0;
  std::uint64_t block = 0;

  friend FLASHMOB_HD constexpr bool operator==(const BlockKey& a, const BlockKey& b) {
    return a.ssd == b.ssd && a.ns == b.ns && a.block == b.block;
  }
};

// The key in one word: two SSDs, or two namespaces of one, never share a tag.
inline constexpr std::uint32_t kTagBlockBits = 48;
inline constexpr std::uint32_t kMaxTagSsds = 255;
inline constexpr std::uint32_t kMaxTagNamespaces = 256;
inline constexpr std::uint64_t kNoTag = ~std::uint64_t{0};

FLASHMOB_HD constexpr bool has_tag(const BlockKey& key) {
  return key.ssd < kMaxTagSsds && key.ns < kMaxTagNamespaces && key.block >> kTagBlockBits == 0;
}
FLASHMOB_HD constexpr std::uint64_t tag_of(const BlockKey& key) {
  return std::uint64_t{key.ssd} << 56 | std::uint64_t{key.ns} << kTagBlockBits | key.block;
}
FLASHMOB_HD constexpr BlockKey key_of(std::uint64_t tag) {
  return {static_cast<std::uint32_t>(tag >> 56), static_cast<std::uint32_t>(tag >> kTagBlockBits & 0xFF),
          tag & ((std::uint64_t{1} << kTagBlockBits) - 1)};
}
// Spreads tags over sets: neighbouring blocks, and equal blocks of two SSDs, go to sets that have nothing in common.
FLASHMOB_HD constexpr std::uint64_t mix_tag(std::uint64_t tag) {
  tag ^= tag >> 32;
  tag *= 0xD6E8FEB86659FD93ull;
  tag ^= tag >> 32;
  tag *= 0xD6E8FEB86659FD93ull;
  return tag ^ tag >> 32;
}

// Where a block lies on its SSD, in logical blocks. The last block of a namespace may be shorter than a line.
struct Extent {
  std::uint64_t lba = 0;
  std::uint32_t blocks = 0;
};
template <class Namespace>
FLASHMOB_HD constexpr Extent extent_of(const Namespace& ns, const BlockKey& key, std::uint32_t line_bytes) {
  const std::uint32_t blocks = line_bytes >> ns.lba_shift;
  const std::uint64_t lba = key.block * blocks;
  const std::uint64_t left = lba < ns.blocks ? ns.blocks - lba : blocks;
  return {lba, left < blocks ? static_cast<std::uint32_t>(left) : blocks};
}

enum class LineState : std::uint8_t { invalid = 0, busy = 1, ready = 2, modified = 3 };

namespace line {

inline constexpr std::uint64_t kStateMask = 3;
inline constexpr std::uint64_t kWriting = 1u << 2;
inline constexpr std::uint64_t kKept = 1u << 3;
inline constexpr std::uint64_t kWriteFailed = 1u << 4;
inline constexpr std::uint64_t kWriter = 1u << 8;
inline constexpr std::uint64_t kPin = std::uint64_t{1} << 32;

FLASHMOB_HD constexpr LineState state(std::uint64_t word) { return static_cast<LineState>(word & kStateMask); }
FLASHMOB_HD constexpr std::uint32_t pins(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
FLASHMOB_HD constexpr std::uint32_t writers(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 8) & 0xFFFFFFu;
}
FLASHMOB_HD constexpr bool holds_data(std::uint64_t word) { return (word & 2) != 0; }
FLASHMOB_HD constexpr bool writing(std::uint64_t word) { return (word & kWriting) != 0; }
FLASHMOB_HD constexpr std::uint64_t with_state(std::uint64_t word, LineState to) {
  return (word & ~kStateMask) | static_cast<std::uint64_t>(to);
}
// What one access adds to the word: a pin, and a writer if it may change the data.
FLASHMOB_HD constexpr std::uint64_t users(std::uint32_t count, bool write) {
  return count * (kPin + (write ? kWriter : 0));
}

}  // namespace line

// The part of a line that accesses share; its tag and data lie in arrays of their own, where a warp reads many at once.
struct alignas(32) CacheLine {
  // In `io.word`, beside Completion::kFinished: somebody has drawn the consequences; nothing is in flight.
  static constexpr std::uint32_t kTaken = 2;

  simt::Word<std::uint64_t> state;
  Completion io{{Completion::kFinished | kTaken}};  // of the command in flight for this line
  simt::Word<std::uint32_t> error;  // IoStatus of the last command that failed
  simt::Word<std::uint32_t> policy;  // the policy's own
};
static_assert(sizeof(CacheLine) == 32);

}  // namespace flashmob::gpu
