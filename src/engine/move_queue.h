// Requests whose data waits to be moved, in order of arrival.
//
// A ring that grows in place: a short queue goes round in the few cache lines of its beginning, while room for every
// slot of the slab is only reserved. For the worker's thread only.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/slab.h"
#include "memory/host_memory.h"

namespace flashmob::engine {

// Half a cache line. A plain transfer is described here and nowhere else: a Read or Write of one memory page by PRP,
// to directly addressable media, without FUA. Everything else has its ColdRequest, and here only its slot.
struct alignas(32) Move {
  std::uint64_t iova;   // host memory
  std::byte* media;
  command_set::Namespace* ns;
  Slot slot;
  std::uint32_t bytes;  // 0: not a plain transfer

  static constexpr std::uint32_t kWrite = 1u << 31;  // in `bytes`
  bool is_plain() const { return bytes != 0; }
  bool is_write() const { return (bytes & kWrite) != 0; }
  std::uint32_t size() const { return bytes & ~kWrite; }
};
static_assert(sizeof(Move) == 32);

class MoveQueue {
 public:
  MoveQueue() : memory_(sizeof(Move) * Slab::kCapacity), ring_(reinterpret_cast<Move*>(memory_.data())) {}

  bool empty() const { return head_ == tail_; }
  std::uint32_t size() const { return tail_ - head_; }
  const Move& front() const { return at(0); }
  // The `n`-th from the front.
  const Move& at(std::uint32_t n) const { return ring_[(head_ + n) & mask_]; }
  void push(const Move& move) {
    if (size() > mask_) [[unlikely]]
      grow();
    ring_[tail_++ & mask_] = move;
  }
  void pop() {
    if (++head_ == tail_) mask_ = kSmallest - 1;
  }

 private:
  static constexpr std::uint32_t kSmallest = 1024;

  // Doubles the ring: an entry whose place in the larger ring lies in its new half moves there.
  void grow() {
    const std::uint32_t added = mask_ + 1;
    for (std::uint32_t n = head_; n != tail_; ++n)
      if ((n & added) != 0) ring_[n & (mask_ | added)] = ring_[n & mask_];
    mask_ |= added;
  }

  memory::HostMemory memory_;
  Move* ring_;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
  std::uint32_t mask_ = kSmallest - 1;
};

}  // namespace flashmob::engine
