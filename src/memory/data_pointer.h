// The one implementation of PRP and SGL walking (NVMe Base 2.0c, 4.1.1 and 4.1.2).
//
// resolve() turns a command's data pointer into host memory segments after checking everything: alignment, every
// list entry, every length, every address against the address space. List pages and SGL segments are guest memory;
// each entry is copied once and the copy is trusted. Nothing is transferred before the whole list was found right.
// All functions work on the calling thread's reader, which must be inside its guard, and on its own scratch list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/address_space.h"
#include "nvme/command.h"
#include "nvme/status.h"

namespace flashmob::memory {

// Where a piece of the transfer lies. `host` is nullptr for an SGL bit bucket (bytes to be dropped on a read).
struct Segment {
  std::byte* host;
  std::uint64_t bytes;
};

enum class Direction : std::uint8_t {
  to_host,    // the controller writes guest memory (Read, Identify)
  from_host,  // the controller reads guest memory (Write, Compare)
};

struct DataPointerLimits {
  std::uint32_t page_bytes = 4096;          // CC.MPS
  std::uint32_t max_sgl_descriptors = 4096;  // MSDBD-like bound on all descriptors of one command
  bool sgl_may_be_longer = false;            // than the transfer (SGLS bit 18): the rest is not used
};

// A thread's scratch list; the capacity is allocated once, so the hot path does not allocate. A command of n pages
// whose buffer is one PRP list needs up to n + 1 segments; SGLs need as many as they have pieces.
class SegmentList {
 public:
  explicit SegmentList(std::size_t capacity) { segments_.reserve(capacity); }
  std::span<const Segment> segments() const { return segments_; }
  void clear() { segments_.clear(); }
  // False when the capacity given at construction is used up (never reallocates). Adjacent segments are merged.
  bool append(Segment segment);

 private:
  std::vector<Segment> segments_;
};

// Resolves `bytes` bytes of the command's data pointer. On success `out` covers exactly `bytes` bytes.
// PSDT (flags 7:6) chooses PRP or SGL. Statuses: prp_offset_invalid, invalid_field, data_sgl_length_invalid,
// sgl_descriptor_type_invalid, invalid_sgl_segment_descriptor, invalid_number_of_sgl_descriptors (also when an SGL
// has more pieces than `out` can hold), data_transfer_error (address not mapped), internal_error (a PRP transfer has
// more pieces than `out` can hold: the caller's limits do not fit together). On failure `out` is unspecified.
nvme::Status resolve(AddressSpace::Reader& reader, const nvme::Sqe& sqe, std::uint64_t bytes, Direction direction,
                     const DataPointerLimits& limits, SegmentList& out);

// The fast path: a PRP transfer inside one memory page, which is most of them. True with the host address in `out`;
// false when resolve() has to look (more pages, an SGL, or any error).
inline bool resolve_single(AddressSpace::Reader& reader, const nvme::Sqe& sqe, std::uint64_t bytes, Direction direction,
                           std::uint32_t page_bytes, std::byte*& out) {
  const std::uint64_t offset = sqe.prp1 & (page_bytes - 1);
  if ((sqe.flags & nvme::kFlagPsdtMask) != 0 || bytes > page_bytes - offset || (offset & 3) != 0) return false;
  out = reader.translate(sqe.prp1, bytes, direction == Direction::to_host);
  return out != nullptr;
}

// Copies a small structure to or from the command's buffer (Identify, log pages, ranges). Same statuses as resolve().
nvme::Status copy_to_host(AddressSpace::Reader& reader, const nvme::Sqe& sqe, std::span<const std::byte> data,
                          const DataPointerLimits& limits, SegmentList& scratch);
nvme::Status copy_from_host(AddressSpace::Reader& reader, const nvme::Sqe& sqe, std::span<std::byte> data,
                            const DataPointerLimits& limits, SegmentList& scratch);

}  // namespace flashmob::memory
