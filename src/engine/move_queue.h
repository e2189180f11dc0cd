// Requests of one controller whose data waits to be moved, in order of arrival.
//
// A ring that grows in place: a short queue goes round in the few cache lines of its beginning, while room for every
// slot of the slab is only reserved, in small pages: a controller that has little to move takes little. Plain transfers
// lie in it as the copies that they are, so a run of them goes to the copy engine as it is. For the worker's thread
// only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "engine/copy_engine.h"
#include "engine/slab.h"
#include "engine/slot_line.h"
#include "memory/host_memory.h"

namespace flashmob::engine {

// A Read or Write of one memory page by PRP, to directly addressable media, without FUA: all that there is to know
// about it beside its copy. Looked at only when host memory has changed.
struct PlainTransfer {
  std::uint64_t iova_and_direction;  // a data pointer is a multiple of 4: bit 0 says that it is a Write
  command_set::Namespace* ns;

  static PlainTransfer of(std::uint64_t iova, bool is_write, command_set::Namespace* ns) {
    return {iova | (is_write ? 1u : 0u), ns};
  }
  std::uint64_t iova() const { return iova_and_direction & ~std::uint64_t{1}; }
  bool is_write() const { return (iova_and_direction & 1) != 0; }
};

// What a command cannot begin without and others have, each of which has a line of its own; so has, but for chance,
// each room that there is to wait for (CommandSet::room_of()).
enum class Lack : std::uint8_t { step_place, zeroing_place, copying_place, room };
inline constexpr std::size_t kRooms = 16;
inline constexpr std::size_t kLines = static_cast<std::size_t>(Lack::room) + kRooms;

// Those of a controller's commands that lack the same. One of them is in the queue and asks whenever its turn comes;
// the others are nowhere else: were they all asked in vain, what brings them on would hardly have a turn.
struct WaitingLine {
  Slot asks = kNoSlot;
  SlotLine others;
};

class MoveQueue {
 public:
  // A run of copies ends at the ring's end, but sees so many entries beyond it: they are held twice.
  static constexpr std::uint32_t kOverlap = 128;

  // Throws ConfigError.
  MoveQueue();

  bool empty() const { return head_ == tail_ && urgent_.empty(); }
  std::uint32_t size() const { return tail_ - head_; }
  // The oldest entry; its token is its slot. Without bytes it is not a plain transfer, or not any more.
  const Copy& front() const { return ring_[head_ & mask_]; }
  // What comes next; the queue is not empty.
  bool plain_first() const { return !urgent_first() && front().bytes != 0; }
  // The oldest entries that lie side by side: at least kOverlap of them if there are so many.
  CopyRun run() const {
    const std::uint32_t at = head_ & mask_;
    return {{ring_ + at, std::min(size(), mask_ + 1 + kOverlap - at)}, asked_};
  }
  const PlainTransfer& plain(std::uint32_t nth) const { return plain_[(head_ + nth) & mask_]; }
  Slot slot(std::uint32_t nth) const { return ring_[(head_ + nth) & mask_].token; }
  // Of the oldest entries, so many have been asked for.
  std::uint32_t asked() const { return asked_; }
  void set_asked(std::size_t asked) { asked_ = static_cast<std::uint32_t>(asked); }

  // Adds entries. It lives in registers: the compiler must assume that every entry written may change a member.
  class Writer {
   public:
    void push(const Copy& copy, const PlainTransfer& plain) {
      const std::uint32_t at = tail_++ & mask_;
      plain_[at] = plain;
      put(ring_, mask_, at, copy);
    }
    void push_other(Slot slot) { push({nullptr, nullptr, 0, slot}, {0, nullptr}); }

   private:
    friend class MoveQueue;
    Copy* ring_;
    PlainTransfer* plain_;
    std::uint32_t tail_;
    std::uint32_t mask_;
  };
  // For so many entries at most; they are in the queue after finish().
  Writer start(std::uint32_t count) {
    while (size() + count > mask_ + 1) grow();
    Writer writer;
    writer.ring_ = ring_;
    writer.plain_ = plain_;
    writer.tail_ = tail_;
    writer.mask_ = mask_;
    return writer;
  }
  void finish(const Writer& writer) { tail_ = writer.tail_; }

  void push(const Copy& copy, const PlainTransfer& plain) {
    Writer writer = start(1);
    writer.push(copy, plain);
    finish(writer);
  }
  void push_other(Slot slot) { push({nullptr, nullptr, 0, slot}, {0, nullptr}); }
  void pop(std::uint32_t count = 1) {
    urgent_waits_ = false;
    head_ += count;
    asked_ -= std::min(asked_, count);
    if (head_ == tail_) mask_ = kSmallest - 1;
  }

  // What other controllers wait for goes past what this one has brought since, which may be much, but has every second
  // turn alone: a command that holds room they share, or is the one whom it will be promised.
  void push_urgent(Slab& slab, Slot slot) { urgent_.push(slab, slot); }
  // Takes what comes next, which is not a plain transfer.
  Slot pop_first(Slab& slab) {
    const bool is_urgent = urgent_first();
    urgent_waits_ = is_urgent;
    if (is_urgent) return urgent_.pop(slab);
    const Slot slot = front().token;
    pop();
    return slot;
  }
  // Those come after all that is there.
  void end_urgent(Slab& slab) {
    while (!urgent_.empty()) push_other(urgent_.pop(slab));
  }

  // Somebody asks where anybody waits, so whose line is not empty is not empty itself.
  std::array<WaitingLine, kLines> lines;
  std::uint32_t asking = 0;  // lines in which somebody does

  // Calls visit(Copy&, const PlainTransfer&) for every plain transfer, which may change the copy.
  template <typename Visit>
  void for_each_plain(Visit&& visit) {
    for (std::uint32_t n = head_; n != tail_; ++n) {
      Copy copy = ring_[n & mask_];
      if (copy.bytes == 0) continue;
      visit(copy, plain_[n & mask_]);
      put(ring_, mask_, n & mask_, copy);
    }
  }

 private:
  static constexpr std::uint32_t kSmallest = 1024;

  bool urgent_first() const { return !urgent_.empty() && (!urgent_waits_ || head_ == tail_); }

  static void put(Copy* ring, std::uint32_t mask, std::uint32_t at, const Copy& copy) {
    ring[at] = copy;
    if (at < kOverlap) [[unlikely]]
      ring[at + mask + 1] = copy;
  }

  // Doubles the ring: an entry whose place in the larger ring lies in its new half moves there.
  void grow() {
    const std::uint32_t added = mask_ + 1;
    mask_ |= added;
    for (std::uint32_t n = head_; n != tail_; ++n) {
      const std::uint32_t was = n & (mask_ & ~added);
      if ((n & added) != 0) plain_[n & mask_] = plain_[was];
      put(ring_, mask_, n & mask_, ring_[was]);
    }
  }

  memory::HostMemory ring_memory_;
  memory::HostMemory plain_memory_;
  Copy* ring_;
  PlainTransfer* plain_;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
  std::uint32_t asked_ = 0;
  std::uint32_t mask_ = kSmallest - 1;
  SlotLine urgent_;
  bool urgent_waits_ = false;  // one of these has had the latest turn
};

}  // namespace flashmob::engine
