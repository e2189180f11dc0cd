// Reads and writes of media through Media::read() and Media::write(), block by whole block: no LBA is seen or left
// half-written, whatever pieces of host memory it comes from or goes to.
//
// Any thread. `locks` are those of the engine; nullptr: one thread copies, or the caller holds the range's.
#pragma once

#include <cstdint>
#include <span>

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

}  // namespace flashmob::command_set
