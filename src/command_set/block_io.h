// Reads and writes of media through Media::read() and Media::write(), block by whole block: no LBA is seen or left
// half-written, whatever pieces of host memory it comes from or goes to.
//
// Any thread. `locks` are those of the engine; nullptr: one thread copies, or the caller holds the range's.
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "command_set/namespace.h"
#include "command_set/piece_locks.h"
#include "memory/data_pointer.h"

namespace flashmob::command_set {

// From `skip` bytes into `segments`, `bytes` bytes; both are multiples of the LBA size. False: the media failed.
bool read_blocks(Namespace& ns, PieceLocks* locks, std::uint64_t offset, std::span<const memory::Segment> segments,
                 std::uint64_t skip, std::uint64_t bytes);
bool write_blocks(Namespace& ns, PieceLocks* locks, std::uint64_t offset, std::span<const memory::Segment> segments,
                  std::uint64_t skip, std::uint64_t bytes);
inline bool read_blocks(Namespace& ns, PieceLocks* locks, std::uint64_t offset, std::span<std::byte> out) {
  const memory::Segment whole{out.data(), out.size()};
  return read_blocks(ns, locks, offset, {&whole, 1}, 0, out.size());
}
inline bool write_blocks(Namespace& ns, PieceLocks* locks, std::uint64_t offset, std::span<std::byte> in) {
  const memory::Segment whole{in.data(), in.size()};
  return write_blocks(ns, locks, offset, {&whole, 1}, 0, in.size());
}

// As Media::deallocate() or Media::discard(), in pieces that do not keep others waiting for long.
bool zero_blocks(Namespace& ns, PieceLocks* locks, std::uint64_t offset, std::uint64_t bytes, bool discard);

// As much of it as a slice of copies takes, of media that lies in memory. What the next part takes shows only when it
// is done, for one that nobody has written costs next to nothing: parts grow while they are quick.
class ZeroingSlice {
 public:
  // What is zeroed in one part keeps others from its blocks, and a reset waiting.
  static constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;

  // Without a clock it has no end.
  explicit ZeroingSlice(const Clock* clock);
  bool goes_on() const { return now_ns() - began_ns_ < kSliceNs; }
  // The next part of `left` bytes: how long it was; 0: the media failed.
  std::uint64_t zero(Namespace& ns, PieceLocks* locks, std::uint64_t at, std::uint64_t left, bool discard);

 private:
  static constexpr std::uint64_t kSliceNs = 10'000;
  // Parts that take less may grow.
  static constexpr std::uint64_t kQuickPartNs = kSliceNs / 8;

  std::uint64_t now_ns() const { return clock_ == nullptr ? 0 : clock_->now_ns(); }

  const Clock* const clock_;
  const std::uint64_t began_ns_;
  std::uint64_t most_bytes_;
};

}  // namespace flashmob::command_set
