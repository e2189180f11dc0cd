// Where the completer keeps requests until their target time: buckets of 128 ns for the next 131 us, and, for what lies
// beyond, lists of 65 us each. One warp's; 32 lanes walk 32 buckets at a time.
//
// Each of those lists is 32 lists, one for each lane: a drive that is asked for more than it can give has thousands of
// requests that wait for milliseconds, and one lane alone would walk them while the others stand by. Compiles as CUDA
// device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/engine/layout.h"
#include "flashmob/gpu/simt/word.h"

namespace flashmob::gpu::engine {

template <class Lane>
class Wheel {
 public:
  FLASHMOB_HD Wheel(Request* requests, UnitShared& shared) : requests_(requests), shared_(shared) {}

  // All lanes call this and advance().
  FLASHMOB_HD void begin(Lane& t, std::uint64_t tick) {
    for (std::uint32_t i = t.lane(); i < kWheelBuckets; i += simt::kWarpLanes) shared_.wheel[i] = kNoSlot;
    for (Slot(&list)[simt::kWarpLanes] : shared_.later) list[t.lane()] = kNoSlot;
    tick_ = tick;
    near_ = (tick >> kLaterShift) + 1;
    t.sync(t.lanes());
  }

  // The first bucket that may hold something.
  FLASHMOB_HD std::uint64_t tick() const { return tick_; }

  // Puts a request into the bucket of `tick`, which is tick() or later, or to what lies beyond. Any lanes.
  FLASHMOB_HD void insert(Lane& t, Slot slot, std::uint64_t tick) {
    if (tick - tick_ >= kWheelBuckets) {
      const std::uint64_t list = tick >> kLaterShift;
      put_later(t, slot, list - near_ <= kLaterLists ? list : near_ + kLaterLists);
      return;
    }
    put_back(t, slot, tick);
  }
  // Whatever its target is.
  FLASHMOB_HD void put_back(Lane& t, Slot slot, std::uint64_t bucket) {
    Slot& head = shared_.wheel[bucket % kWheelBuckets];
    requests_[slot].next = simt::WordRef<Slot, simt::Scope::block>(head).exchange(t, slot, simt::Order::relaxed);
  }
  // This lane's part of a list of what lies beyond.
  FLASHMOB_HD void put_later(Lane& t, Slot slot, std::uint64_t list) {
    Slot& head = shared_.later[list % kLaterLists][t.lane()];
    requests_[slot].next = head;
    head = slot;
  }

  // Everything in a bucket, or in this lane's part of a list: the first of a chain by Request::next.
  FLASHMOB_HD Slot take(std::uint64_t tick) { return take_from(shared_.wheel[tick % kWheelBuckets]); }
  FLASHMOB_HD Slot take_later(Lane& t, std::uint64_t list) {
    return take_from(shared_.later[list % kLaterLists][t.lane()]);
  }

  // Buckets before `tick` are empty: what lay beyond the buckets and does not any more gets into them.
  FLASHMOB_HD void advance(Lane& t, std::uint64_t tick) {
    tick_ = tick;
    const std::uint64_t near = (tick >> kLaterShift) + 1;
    if (near - near_ > kLaterLists) near_ = near - kLaterLists;
    while (near_ != near) {
      ++near_;
      for (Slot slot = take_later(t, near_); slot != kNoSlot;) {
        const Request& request = requests_[slot];
        const std::uint64_t due = request.target_ns >> kWheelShift;
        const Slot moved = slot;
        slot = request.next;
        insert(t, moved, due < tick_ ? tick_ : due);
      }
    }
    t.sync(t.lanes());  // other lanes may take what this one has put there
  }

 private:
  static_assert(kWheelBuckets == 2u << kLaterShift, "the buckets hold this list's time and the next one's");

  FLASHMOB_HD static Slot take_from(Slot& head) {
    const Slot first = head;
    head = kNoSlot;
    return first;
  }

  Request* requests_;
  UnitShared& shared_;
  std::uint64_t tick_ = 0;
  std::uint64_t near_ = 0;  // the last list whose time lies within the buckets
};

}  // namespace flashmob::gpu::engine
