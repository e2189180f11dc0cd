// What a process does to an SSD on files until it is killed, and what must be true of the files afterwards.
//
// One process writes by all the ways there are, each on a queue and a thread of its own, and keeps a ledger, in memory
// that its parent has, too, of what it has asked for and what was acknowledged. Three namespaces: one for blocks, whose
// last block is fought for by fused pairs and plain writes; one that is formatted with writes in flight; one whose
// write protection changes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace flashmob::atomicity {

inline constexpr std::uint32_t kLbaBytes = 4096;
inline constexpr std::uint64_t kBlocks = 2048;
inline constexpr std::uint64_t kContested = kBlocks;  // the block after those
inline constexpr std::uint64_t kFormatted = 64;  // pages of the namespace that is formatted

// What is asked for is counted before it is, what is done when the drive says so.
struct Pair {
  std::atomic<std::uint32_t> asked, done;
};

struct Ledger {
  std::atomic<std::uint64_t> steps;  // commands that were completed
  std::array<std::atomic<std::uint32_t>, kBlocks> asked;  // generations
  std::array<std::atomic<std::uint32_t>, kBlocks> written;  // ... that were acknowledged
  std::array<std::atomic<std::uint32_t>, kBlocks> durable;  // ... by a write with FUA, or before a Flush began
  Pair plain;  // plain writes of the contested block
  Pair formats;  // odd: blocks of 512 bytes
  Pair feature;  // changes of a saved feature
  Pair protect;  // odd: write-protected
  Pair guarded;  // generations of the block that is write-protected now and then
  std::atomic<std::uint64_t> fua_writes, flushes, fused_done, fused_failed, cut_by_format;
  std::array<char, 256> failure;  // what the process itself found wrong, before it aborted
};

// The media of the namespaces: "file" or "direct". On "direct" what was not flushed may be lost: it was in a cache.
struct Scene {
  std::string media;
  std::string folder;
  std::uint32_t units = 2;
  bool keeps_what_is_written() const { return media == "file"; }
};

[[noreturn]] void write_until_killed(const Scene& scene, Ledger& ledger, std::uint64_t seed);

// So many plain writes of one block, and fused pairs beside them on a queue of another unit. Ends the process.
[[noreturn]] void fight_over_a_block(const Scene& scene, Ledger& ledger, std::uint32_t writes);

// Opens the drive again. What is not as the ledger says, in words.
std::vector<std::string> what_is_wrong(const Scene& scene, const Ledger& ledger);

}  // namespace flashmob::atomicity
