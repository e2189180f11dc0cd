#include "initiator/nvme_tcp/tcp_slot.h"

#include <algorithm>

namespace flashmob::initiator {
namespace {

constexpr memory::DataPointerLimits kLimits{.page_bytes = 4096, .max_sgl_descriptors = kMaxSegments};

}  // namespace

nvme::Status TcpSlot::resolve(memory::AddressSpace::Reader& reader) {
  segment_ = 0;
  segment_start_ = 0;
  list_.clear();
  if (local != nullptr) {
    list_.append({local, data.bytes});
    return nvme::Status::success;
  }
  generation_ = reader.generation();
  const auto direction = data.way == DataWay::to_device ? memory::Direction::from_host : memory::Direction::to_host;
  std::byte* single = nullptr;
  if (memory::resolve_single(reader, sqe, data.bytes, direction, kLimits.page_bytes, single)) {
    list_.append({single, data.bytes});
    return nvme::Status::success;
  }
  const nvme::Status status = memory::resolve(reader, sqe, data.bytes, direction, kLimits, list_);
  // A bit bucket would need memory of ours to receive into; no driver of ours uses one.
  for (const memory::Segment& segment : list_.segments()) {
    if (status == nvme::Status::success && segment.host == nullptr) return nvme::Status::sgl_descriptor_type_invalid;
  }
  // More pieces than a command of the longest transfer has: the command is too long, the controller is not at fault.
  return status == nvme::Status::internal_error ? nvme::Status::invalid_field : status;
}

bool TcpSlot::refresh(memory::AddressSpace::Reader& reader) {
  if (memory_lost) return false;
  if (local != nullptr || generation_ == reader.generation()) return true;
  memory_lost = resolve(reader) != nvme::Status::success;
  return !memory_lost;
}

void TcpSlot::seek(std::uint64_t offset) {
  if (offset < segment_start_) {
    segment_ = 0;
    segment_start_ = 0;
  }
  const auto segments = list_.segments();
  while (offset - segment_start_ >= segments[segment_].bytes) segment_start_ += segments[segment_++].bytes;
}

std::size_t TcpSlot::pieces(memory::AddressSpace::Reader& reader, std::uint64_t offset, std::uint64_t bytes, iovec* out,
                            std::size_t limit) {
  if (bytes == 0 || !refresh(reader)) return 0;
  seek(offset);
  const auto segments = list_.segments();
  std::uint64_t inside = offset - segment_start_;
  std::size_t count = 0;
  for (std::size_t i = segment_; bytes > 0 && count < limit; ++i) {
    const std::uint64_t length = std::min(bytes, segments[i].bytes - inside);
    out[count++] = {segments[i].host + inside, length};
    bytes -= length;
    inside = 0;
  }
  return count;
}

}  // namespace flashmob::initiator
