// Knows what every sector of a namespace should hold, at full queue depth, and checks reads against it.
//
// Three sources of truth: generated content (with a generation per sector once there are writes), a file (for file: and
// cow: media that existed before the run), or none. A read that is to be verified holds its sectors against writers
// while it is in flight, and a write holds them against everyone, so an answer is never ambiguous; the load generator
// draws another address when it cannot have them. Thread-safe; lock-free.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "memory/host_memory.h"

namespace flashmob::load {

enum class TruthSource : std::uint8_t { none, content, file };

class Verifier {
 public:
  // `with_writes`: the workload writes, so generations are tracked (4 bytes per sector, committed when used).
  // `file`: the bytes to compare with when source is file; outlives the verifier.
  Verifier(TruthSource source, std::uint64_t bytes, std::uint32_t nsid, std::uint64_t seed, bool with_writes,
           std::span<const std::byte> file);

  TruthSource source() const { return source_; }
  bool tracks_writes() const { return table_ != nullptr; }

  // Holds sectors for a read or write; false if somebody else's hold forbids it. Without writes always true.
  bool hold_read(std::uint64_t first_sector, std::uint32_t sectors);
  void release_read(std::uint64_t first_sector, std::uint32_t sectors);
  bool hold_write(std::uint64_t first_sector, std::uint32_t sectors);
  // Fills the buffer of a held write with the sectors' next generation.
  void fill_write(std::span<std::byte> buffer, std::uint64_t first_sector) const;
  // The held write completed: `stored` says whether the device reported success. A failed write leaves the sectors
  // unknown, because the device may have stored any part of it.
  void release_write(std::uint64_t first_sector, std::uint32_t sectors, bool stored);
  // A write or deallocation that could not hold its sectors starts: what they hold is unknown until a held write that
  // begins after its release. Until then readers and held writes stay away. Always succeeds; released as a read is.
  void hold_unverified(std::uint64_t first_sector, std::uint32_t sectors);
  void release_unverified(std::uint64_t first_sector, std::uint32_t sectors) { release_read(first_sector, sectors); }

  // Checks the data of a held read; std::nullopt if right, else the explanation of the first mismatch.
  std::optional<std::string> check(std::span<const std::byte> data, std::uint64_t first_sector) const;

 private:
  // Entry of the table: generation in 19:0, three flags, holds of readers and unverified writes in 31:23. A count that
  // reaches its maximum stays there: nothing is known of such a sector any more.
  static constexpr std::uint32_t kGenerationMask = 0x000FFFFF;
  static constexpr std::uint32_t kUnknown = 1u << 20;
  static constexpr std::uint32_t kWriting = 1u << 21;
  static constexpr std::uint32_t kSpoiled = 1u << 22;  // an unverified write began during the present held write
  static constexpr std::uint32_t kReader = 1u << 23;
  static constexpr std::uint32_t kReaderMask = 0xFF800000;

  // Generation 0 is what was there before the run, so it never comes back.
  static std::uint32_t generation_after(std::uint32_t generation) {
    return generation == kGenerationMask ? 1 : generation + 1;
  }
  std::atomic_ref<std::uint32_t> entry(std::uint64_t sector) const {
    return std::atomic_ref<std::uint32_t>(table_[sector]);
  }

  TruthSource source_;
  std::uint32_t nsid_;
  std::uint64_t seed_;
  memory::HostMemory table_memory_;
  std::uint32_t* table_ = nullptr;
  std::span<const std::byte> file_;
};

}  // namespace flashmob::load
