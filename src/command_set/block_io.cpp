#include "command_set/block_io.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "command_set/host_bytes.h"
#include "media/mapped_media.h"

namespace flashmob::command_set {
namespace {

using memory::Segment;

// The next piece: whole blocks, within one lock, in one place of host memory where that holds a block at all.
std::uint64_t piece_bytes(const Namespace& ns, const PieceLocks* locks, std::uint64_t offset, std::uint64_t left,
                          std::uint64_t contiguous) {
  const std::uint64_t in_one_lock =
      locks == nullptr ? left : PieceLocks::kPieceBytes - (offset & (PieceLocks::kPieceBytes - 1));
  const std::uint64_t in_one_place = contiguous & ~(ns.lba_bytes() - 1);
  return std::min({left, in_one_lock, std::max(in_one_place, ns.lba_bytes())});
}

bool read_piece(Namespace& ns, PieceLocks* locks, std::uint64_t offset, std::span<std::byte> out) {
  if (locks == nullptr) return ns.media->read(offset, out);
  const std::uint64_t piece = PieceLocks::piece_of(ns, offset);
  constexpr int kTries = 4;
  for (int tries = 0; tries < kTries; ++tries) {
    const std::uint64_t look = locks->look(piece);
    if (PieceLocks::busy(look)) {
      cpu_pause();
      continue;
    }
    if (!ns.media->read(offset, out)) return false;
    if (locks->unchanged(piece, look)) return true;
  }
  const PieceRangeGuard guard(locks, ns, offset, out.size());
  return ns.media->read(offset, out);
}

bool write_piece(Namespace& ns, PieceLocks* locks, std::uint64_t offset, std::span<const std::byte> in) {
  if (locks == nullptr) return ns.media->write(offset, in);
  const std::uint64_t piece = PieceLocks::piece_of(ns, offset);
  locks->lock(piece, 1);
  const bool good = ns.media->write(offset, in);
  locks->unlock(piece, 1);
  return good;
}

using Block = std::array<std::byte, PieceLocks::kPieceBytes>;

// The largest piece that media gives back only as a whole.
constexpr std::uint64_t kLargePageBytes = media::kHugePageBytes;

// Of so many bytes that are left, the next to zero. Parts meet where large pages do, and each but a command's only one
// holds a whole one: what is given back is the same as in one piece.
std::uint64_t part_bytes(std::uint64_t at, std::uint64_t left, std::uint64_t most_bytes) {
  const std::uint64_t to_page = (kLargePageBytes - at % kLargePageBytes) % kLargePageBytes;
  const std::uint64_t bytes = std::min(left, to_page + most_bytes);
  return left - bytes < kLargePageBytes ? left : bytes;
}

}  // namespace

bool read_blocks(Namespace& ns, PieceLocks* locks, std::uint64_t offset, std::span<const Segment> segments,
                 std::uint64_t skip, std::uint64_t bytes) {
  HostBytes host(segments, skip);
  for (std::uint64_t left = bytes; left != 0;) {
    const std::uint64_t piece = piece_bytes(ns, locks, offset, left, host.contiguous());
    if (piece <= host.contiguous()) {
      // Without a place to go to, the bytes fall into a bit bucket.
      if (host.here() != nullptr && !read_piece(ns, locks, offset, {host.here(), piece})) return false;
      host.advance(piece);
    } else {
      Block block;
      if (!read_piece(ns, locks, offset, std::span(block).first(piece))) return false;
      host.take(piece, [&](std::byte* to, std::uint64_t at, std::uint64_t part) {
        if (to != nullptr) std::memcpy(to, block.data() + at, part);
      });
    }
    offset += piece;
    left -= piece;
  }
  return true;
}

bool write_blocks(Namespace& ns, PieceLocks* locks, std::uint64_t offset, std::span<const Segment> segments,
                  std::uint64_t skip, std::uint64_t bytes) {
  HostBytes host(segments, skip);
  for (std::uint64_t left = bytes; left != 0;) {
    const std::uint64_t piece = piece_bytes(ns, locks, offset, left, host.contiguous());
    if (piece <= host.contiguous()) {
      if (!write_piece(ns, locks, offset, {host.here(), piece})) return false;
      host.advance(piece);
    } else {
      Block block;
      host.take(piece, [&](std::byte* from, std::uint64_t at, std::uint64_t part) {
        std::memcpy(block.data() + at, from, part);
      });
      if (!write_piece(ns, locks, offset, std::span(block).first(piece))) return false;
    }
    offset += piece;
    left -= piece;
  }
  return true;
}

bool zero_blocks(Namespace& ns, PieceLocks* locks, std::uint64_t offset, std::uint64_t bytes, bool discard) {
  constexpr std::uint64_t kChunkBytes = std::uint64_t{16} << 20;
  while (bytes != 0) {
    // Chunks end where the media's large pages do.
    const std::uint64_t part = locks == nullptr ? bytes : std::min(bytes, kChunkBytes - offset % kChunkBytes);
    const PieceRangeGuard guard(locks, ns, offset, part);
    if (!(discard ? ns.media->discard(offset, part) : ns.media->deallocate(offset, part))) return false;
    offset += part;
    bytes -= part;
  }
  return true;
}

ZeroingSlice::ZeroingSlice(const Clock* clock) : clock_(clock), began_ns_(now_ns()), most_bytes_(kLargePageBytes) {}

std::uint64_t ZeroingSlice::zero(Namespace& ns, PieceLocks* locks, std::uint64_t at, std::uint64_t left, bool discard) {
  const std::uint64_t bytes = part_bytes(at, left, most_bytes_);
  const std::uint64_t began_ns = now_ns();
  if (!zero_blocks(ns, locks, at, bytes, discard)) return 0;
  if (now_ns() - began_ns < kQuickPartNs) most_bytes_ = std::min(2 * most_bytes_, kMostBytes);
  return bytes;
}

}  // namespace flashmob::command_set
