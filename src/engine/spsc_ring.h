// A ring of slots from one thread to one other. Large enough for every slot of a slab, so push never fails.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/platform.h"
#include "engine/slab.h"
#include "memory/host_memory.h"

namespace flashmob::engine {

class SlotRing {
 public:
  SlotRing() : memory_(sizeof(Slot) * Slab::kCapacity), slots_(reinterpret_cast<Slot*>(memory_.data())) {}

  // Producer. push() several, then publish() once: one line changes hands per batch.
  void push(Slot slot) { slots_[tail_local_++ & kMask] = slot; }
  void publish() { tail_.store(tail_local_, std::memory_order_release); }

  // Consumer: calls take(slot) for up to `limit` published slots.
  template <class F>
  std::uint32_t drain(std::uint32_t limit, F&& take) {
    if (tail_seen_ == head_) {
      tail_seen_ = tail_.load(std::memory_order_acquire);
      if (tail_seen_ == head_) return 0;
    }
    std::uint32_t count = 0;
    while (head_ != tail_seen_ && count < limit) {
      take(slots_[head_++ & kMask]);
      ++count;
    }
    return count;
  }

 private:
  static constexpr std::uint32_t kMask = Slab::kCapacity - 1;
  memory::HostMemory memory_;
  Slot* slots_;
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> tail_{0};
  alignas(kCacheLineBytes) std::uint32_t tail_local_ = 0;
  alignas(kCacheLineBytes) std::uint32_t head_ = 0;
  std::uint32_t tail_seen_ = 0;
};

}  // namespace flashmob::engine
