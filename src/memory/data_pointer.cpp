#include "memory/data_pointer.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace flashmob::memory {
namespace {

using nvme::SglDescriptor;
using nvme::SglType;
using nvme::Status;

// Copies guest words that are then checked and used. The barrier forbids the compiler to read the guest's memory a
// second time in place of the copy, where another value might stand by then.
template <class T, std::size_t N>
void copy_once(std::array<T, N>& to, const std::byte* from, std::size_t count) {
  std::memcpy(to.data(), from, count * sizeof(T));
  asm volatile("" : : "r"(to.data()) : "memory");
}

class PrpWalk {
 public:
  PrpWalk(AddressSpace::Reader& reader, std::uint64_t bytes, bool for_write, std::uint32_t page_bytes, SegmentList& out)
      : reader_(reader), remaining_(bytes), page_bytes_(page_bytes), for_write_(for_write), out_(out) {}

  Status run(std::uint64_t prp1, std::uint64_t prp2) {
    if ((prp1 & 3) != 0) return Status::prp_offset_invalid;
    const std::uint64_t first = std::min(remaining_, page_bytes_ - offset_in_page(prp1));
    if (const Status status = take(prp1, first); status != Status::success || remaining_ == 0) return status;
    if (remaining_ <= page_bytes_) return take_page(prp2);
    return walk_list(prp2);
  }

 private:
  std::uint64_t offset_in_page(std::uint64_t address) const { return address & (page_bytes_ - 1); }

  Status take(std::uint64_t address, std::uint64_t bytes) {
    std::byte* host = reader_.translate(address, bytes, for_write_);
    if (host == nullptr) return Status::data_transfer_error;
    if (!out_.append({host, bytes})) return Status::internal_error;
    remaining_ -= bytes;
    return Status::success;
  }

  // Every entry but PRP1 begins at its page's first byte.
  Status take_page(std::uint64_t address) {
    if (offset_in_page(address) != 0) return Status::prp_offset_invalid;
    return take(address, std::min(remaining_, page_bytes_));
  }

  // The first list may begin anywhere in its page, the following ones begin their pages. A list page's last entry
  // points to the next list if more pages remain than that one entry could name. Loops end because every list page
  // but perhaps the first takes at least one page off the transfer.
  Status walk_list(std::uint64_t list) {
    if ((list & 7) != 0) return Status::prp_offset_invalid;
    for (;;) {
      const std::uint64_t room = (page_bytes_ - offset_in_page(list)) / sizeof(std::uint64_t);
      const std::uint64_t wanted = (remaining_ + page_bytes_ - 1) / page_bytes_;
      const bool chained = wanted > room;
      const std::uint64_t entries = chained ? room : wanted;
      const std::byte* host = reader_.translate(list, entries * sizeof(std::uint64_t), false);
      if (host == nullptr) return Status::data_transfer_error;
      std::uint64_t next = 0;
      if (const Status status = walk_list_page(host, entries, chained, next); status != Status::success) return status;
      if (!chained) return Status::success;
      if (offset_in_page(next) != 0) return Status::prp_offset_invalid;
      list = next;
    }
  }

  Status walk_list_page(const std::byte* host, std::uint64_t entries, bool chained, std::uint64_t& next) {
    std::array<std::uint64_t, 64> chunk;
    for (std::uint64_t done = 0; done < entries;) {
      const std::uint64_t count = std::min<std::uint64_t>(chunk.size(), entries - done);
      copy_once(chunk, host + done * sizeof(std::uint64_t), count);
      done += count;
      const bool ends_with_link = chained && done == entries;
      const std::uint64_t pages = ends_with_link ? count - 1 : count;
      for (std::uint64_t i = 0; i < pages; ++i) {
        if (const Status status = take_page(chunk[i]); status != Status::success) return status;
      }
      if (ends_with_link) next = chunk[count - 1];
    }
    return Status::success;
  }

  AddressSpace::Reader& reader_;
  std::uint64_t remaining_;
  const std::uint64_t page_bytes_;
  const bool for_write_;
  SegmentList& out_;
};

SglType type_of(const SglDescriptor& descriptor) { return static_cast<SglType>(descriptor.identifier >> 4); }

bool is_link(const SglDescriptor& descriptor) {
  return type_of(descriptor) == SglType::segment || type_of(descriptor) == SglType::last_segment;
}

class SglWalk {
 public:
  SglWalk(AddressSpace::Reader& reader, std::uint64_t bytes, Direction direction, const DataPointerLimits& limits,
          SegmentList& out)
      : reader_(reader),
        remaining_(bytes),
        descriptors_left_(limits.max_sgl_descriptors),
        may_be_longer_(limits.sgl_may_be_longer),
        direction_(direction),
        out_(out) {}

  Status run(const SglDescriptor& first) {
    SglDescriptor link = first;
    if (!is_link(first)) {
      if (const Status status = take(first); status != Status::success) return status;
    }
    // The bound on descriptors ends chains that loop.
    while (is_link(link)) {
      if (const Status status = walk_segment(link); status != Status::success) return status;
    }
    return remaining_ == 0 ? Status::success : Status::data_sgl_length_invalid;
  }

 private:
  // Walks the segment that `link` names; leaves there the segment's own link, or a data descriptor at the chain's end.
  Status walk_segment(SglDescriptor& link) {
    constexpr std::uint32_t kEntry = sizeof(SglDescriptor);
    const bool last_segment = type_of(link) == SglType::last_segment;
    // The sub type is an address in host memory; offsets belong to fabrics.
    if ((link.identifier & 0x0F) != 0) return Status::sgl_descriptor_type_invalid;
    if (link.length_bytes == 0 || link.length_bytes % kEntry != 0 || (link.address & 7) != 0) {
      return Status::invalid_sgl_segment_descriptor;
    }
    const std::uint32_t entries = link.length_bytes / kEntry;
    if (entries > descriptors_left_) return Status::invalid_number_of_sgl_descriptors;
    descriptors_left_ -= entries;

    std::array<SglDescriptor, 32> chunk;
    std::uint64_t address = link.address;
    for (std::uint32_t done = 0; done < entries;) {
      std::uint64_t contiguous = 0;
      const std::uint64_t wanted = std::min<std::uint64_t>(chunk.size(), entries - done) * kEntry;
      const std::byte* host = reader_.translate_prefix(address, wanted, false, contiguous);
      // A descriptor that straddles two regions is refused like one that is not mapped.
      const auto count = static_cast<std::uint32_t>(contiguous / kEntry);
      if (host == nullptr || count == 0) return Status::data_transfer_error;
      copy_once(chunk, host, count);
      done += count;
      address += count * kEntry;
      for (std::uint32_t i = 0; i < count; ++i) {
        const bool final = done == entries && i + 1 == count;
        const SglDescriptor& descriptor = chunk[i];
        if (is_link(descriptor)) {
          if (last_segment) return Status::invalid_sgl_segment_descriptor;
          if (!final) return Status::invalid_number_of_sgl_descriptors;
        } else if (const Status status = take(descriptor); status != Status::success) {
          return status;
        }
        if (final) link = descriptor;
      }
    }
    // A segment that is not the last one has to lead on.
    return last_segment || is_link(link) ? Status::success : Status::invalid_sgl_segment_descriptor;
  }

  Status take(const SglDescriptor& descriptor) {
    const SglType type = type_of(descriptor);
    if ((type != SglType::data_block && type != SglType::bit_bucket) || (descriptor.identifier & 0x0F) != 0) {
      return Status::sgl_descriptor_type_invalid;
    }
    std::uint64_t length = descriptor.length_bytes;
    if (may_be_longer_) length = std::min(length, remaining_);
    // On the way from the host a bit bucket stands for no bytes at all.
    if (length == 0 || (type == SglType::bit_bucket && direction_ == Direction::from_host)) return Status::success;
    if (length > remaining_) return Status::data_sgl_length_invalid;
    remaining_ -= length;
    if (type == SglType::bit_bucket) {
      return out_.append({nullptr, length}) ? Status::success : Status::invalid_number_of_sgl_descriptors;
    }
    return take_block(descriptor.address, length);
  }

  // A data block may span regions that lie side by side.
  Status take_block(std::uint64_t address, std::uint64_t length) {
    while (length > 0) {
      std::uint64_t contiguous = 0;
      std::byte* host = reader_.translate_prefix(address, length, direction_ == Direction::to_host, contiguous);
      if (host == nullptr) return Status::data_transfer_error;
      if (!out_.append({host, contiguous})) return Status::invalid_number_of_sgl_descriptors;
      address += contiguous;
      length -= contiguous;
    }
    return Status::success;
  }

  AddressSpace::Reader& reader_;
  std::uint64_t remaining_;
  std::uint32_t descriptors_left_;
  const bool may_be_longer_;
  const Direction direction_;
  SegmentList& out_;
};

}  // namespace

bool SegmentList::append(Segment segment) {
  if (!segments_.empty()) {
    Segment& last = segments_.back();
    const bool both_dropped = last.host == nullptr && segment.host == nullptr;
    const bool adjacent = last.host != nullptr && last.host + last.bytes == segment.host;
    if (both_dropped || adjacent) {
      last.bytes += segment.bytes;
      return true;
    }
  }
  if (segments_.size() == segments_.capacity()) return false;
  segments_.push_back(segment);
  return true;
}

Status resolve(AddressSpace::Reader& reader, const nvme::Sqe& sqe, std::uint64_t bytes, Direction direction,
               const DataPointerLimits& limits, SegmentList& out) {
  out.clear();
  const bool for_write = direction == Direction::to_host;
  switch (sqe.flags & nvme::kFlagPsdtMask) {
    case 0:
      if (bytes == 0) return Status::success;
      return PrpWalk(reader, bytes, for_write, limits.page_bytes, out).run(sqe.prp1, sqe.prp2);
    case nvme::kFlagPsdtSglBufferMetadata:
    case nvme::kFlagPsdtSglSegmentMetadata:
      return SglWalk(reader, bytes, direction, limits, out).run(sqe.sgl1);
    default:
      return Status::invalid_field;
  }
}

Status copy_to_host(AddressSpace::Reader& reader, const nvme::Sqe& sqe, std::span<const std::byte> data,
                    const DataPointerLimits& limits, SegmentList& scratch) {
  const Status status = resolve(reader, sqe, data.size(), Direction::to_host, limits, scratch);
  if (status != Status::success) return status;
  const std::byte* from = data.data();
  for (const Segment& segment : scratch.segments()) {
    if (segment.host != nullptr) std::memcpy(segment.host, from, segment.bytes);
    from += segment.bytes;
  }
  return Status::success;
}

Status copy_from_host(AddressSpace::Reader& reader, const nvme::Sqe& sqe, std::span<std::byte> data,
                      const DataPointerLimits& limits, SegmentList& scratch) {
  const Status status = resolve(reader, sqe, data.size(), Direction::from_host, limits, scratch);
  if (status != Status::success) return status;
  std::byte* to = data.data();
  for (const Segment& segment : scratch.segments()) {
    std::memcpy(to, segment.host, segment.bytes);
    to += segment.bytes;
  }
  return Status::success;
}

}  // namespace flashmob::memory
