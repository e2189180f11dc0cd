// Requests that stand in a line, the oldest first, linked by ColdRequest::partner: each has its cold part, and is no
// half of a fused pair. For the thread that owns their cold parts.
#pragma once

#include <cstdint>

#include "engine/slab.h"

namespace flashmob::engine {

class SlotLine {
 public:
  bool empty() const { return size_ == 0; }
  std::uint32_t size() const { return size_; }
  void push(Slab& slab, Slot slot) {
    slab.cold(slot).partner = kNoSlot;
    if (size_++ == 0)
      first_ = slot;
    else
      slab.cold(last_).partner = slot;
    last_ = slot;
  }
  // There is one.
  Slot pop(Slab& slab) {
    const Slot slot = first_;
    first_ = slab.cold(slot).partner;
    slab.cold(slot).partner = kNoSlot;
    --size_;
    return slot;
  }

 private:
  Slot first_ = kNoSlot, last_ = kNoSlot;
  std::uint32_t size_ = 0;
};

}  // namespace flashmob::engine
