// The host's side of a transfer, walked piece by piece. Reads and writes nothing itself; the thread's whose reader has
// resolved the segments.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/data_pointer.h"

namespace flashmob::command_set {

// Walks the host's side of a transfer.
class HostBytes {
 public:
  HostBytes(std::span<const memory::Segment> segments, std::uint64_t skip) : segments_(segments) { advance(skip); }

  std::byte* here() const { return segments_[0].host == nullptr ? nullptr : segments_[0].host + at_; }
  std::uint64_t contiguous() const { return segments_[0].bytes - at_; }
  void advance(std::uint64_t bytes) {
    at_ += bytes;
    while (!segments_.empty() && at_ >= segments_[0].bytes) {
      at_ -= segments_[0].bytes;
      segments_ = segments_.subspan(1);
    }
  }
  // Visits the next `bytes` bytes, in as many parts as they are in.
  template <class F>
  void take(std::uint64_t bytes, F&& visit) {
    for (std::uint64_t done = 0; done < bytes;) {
      const std::uint64_t part = std::min(bytes - done, contiguous());
      visit(here(), done, part);
      done += part;
      advance(part);
    }
  }

 private:
  std::span<const memory::Segment> segments_;
  std::uint64_t at_ = 0;
};

}  // namespace flashmob::command_set
