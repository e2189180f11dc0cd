// Holds requests until their target time: a hierarchical timing wheel.
//
// Four levels of 2,048 slots; level 0 resolves one tick of 2^shift ns, each level above 2,048 times more. A target is
// rounded up to its tick, so a request is never released early and at most one tick late by the grid. insert() and
// releasing are O(1); a request far away moves down a level at most three times. Level 0 keeps a cache line of request
// numbers per tick, so that a whole tick's requests can be prefetched; what does not fit is a list through the
// requests' `next`. The levels above keep chains of such cache lines. For the worker's thread only.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "engine/slab.h"

namespace flashmob::engine {

class TimingWheel {
 public:
  explicit TimingWheel(unsigned shift)
      : chunk_memory_(sizeof(Chunk) * kChunks), chunks_(reinterpret_cast<Chunk*>(chunk_memory_.data())), shift_(shift) {
    for (auto& level : levels_) level.heads.fill(kNoSlot);
    for (auto& bucket : near_) bucket.count = 0;
  }

  // Sets the time from which the wheel turns; before the first insert.
  void start(std::uint64_t now_ns) { cursor_ = now_ns >> shift_; }
  bool empty() const { return count_ == 0; }
  std::uint32_t size() const { return count_; }

  void insert(HotRequest* hot, Slot slot, std::uint64_t target_ns) {
    std::uint64_t tick = (target_ns + ((std::uint64_t{1} << shift_) - 1)) >> shift_;
    if (tick < cursor_) tick = cursor_;
    ++count_;
    place(hot, slot, tick);
  }

  // insert() of each of `count` requests. Targets of a batch scatter over some ticks, so nothing here depends on
  // neighbours being of one tick.
  void insert_batch(HotRequest* hot, const Slot* slots, const std::uint64_t* targets_ns, std::size_t count) {
    const std::uint64_t cursor = cursor_;
    const unsigned shift = shift_;
    const std::uint64_t round_up = (std::uint64_t{1} << shift) - 1;
    Near* const near = near_.data();
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t tick = std::max((targets_ns[i] + round_up) >> shift, cursor);
      const auto at = static_cast<std::uint32_t>(tick & kMask);
      const std::uint32_t held = near[at].count;
      if (tick - cursor > kMask || held == kNearSlots) [[unlikely]] {
        place_apart(hot, slots[i], tick);
        continue;
      }
      near[at].slots[held] = slots[i];
      near[at].count = held + 1;
      // The tick is marked already if its bucket holds anything, but a look costs more than marking it again.
      levels_[0].mark(at);
    }
    count_ += static_cast<std::uint32_t>(count);
  }

  // Takes up to `limit` requests whose target is at or before now_ns, in order of ticks; writes their slots to `due`
  // and returns how many. Fewer than `limit` means that nothing else is due.
  std::uint32_t collect(HotRequest* hot, std::uint64_t now_ns, Slot* due, std::uint32_t limit) {
    const std::uint64_t now_tick = now_ns >> shift_;
    if (count_ == 0) {
      if (now_tick > cursor_) cursor_ = now_tick;
      return 0;
    }
    std::uint32_t taken = 0;
    while (cursor_ <= now_tick) {
      // Walk level 0 to now or to the end of its rotation, whichever is first.
      const std::uint64_t rotation_end = cursor_ | kMask;
      const std::uint64_t last = now_tick < rotation_end ? now_tick : rotation_end;
      const std::uint32_t to = static_cast<std::uint32_t>(last & kMask);
      std::uint32_t at = levels_[0].next_used(static_cast<std::uint32_t>(cursor_ & kMask));
      while (at <= to) {
        cursor_ = (rotation_end & ~kMask) | at;
        taken += take_tick(hot, at, due + taken, limit - taken);
        if (taken == limit) {
          count_ -= taken;
          return taken;
        }
        at = levels_[0].next_used(at + 1);
      }
      if (last != rotation_end) {
        cursor_ = last;
        break;
      }
      cursor_ = rotation_end + 1;
      cascade(hot);
    }
    count_ -= taken;
    return taken;
  }

  // A lower bound of the next release time, exact within level 0; UINT64_MAX when empty.
  std::uint64_t next_deadline_ns() const {
    if (count_ == 0) return UINT64_MAX;
    const std::uint32_t at = levels_[0].next_used(static_cast<std::uint32_t>(cursor_ & kMask));
    std::uint64_t best = UINT64_MAX;
    if (at <= kMask) best = (cursor_ & ~kMask) | at;
    // Level 0 may also hold the beginning of the next rotation; levels above turn at rotation ends.
    if (best == UINT64_MAX) {
      std::uint64_t bound = (cursor_ | kMask) + 1;
      // Where level 1 turns too, what is above it comes down and may be due before anything that level 1 holds.
      if (levels_[0].summary == 0 && ((bound >> kBits) & kMask) != 0) {
        const std::uint32_t up = levels_[1].next_used(static_cast<std::uint32_t>((bound >> kBits) & kMask));
        if (up <= kMask)
          bound = (bound & ~((std::uint64_t{1} << (2 * kBits)) - 1)) | (std::uint64_t{up} << kBits);
        else if (levels_[1].summary == 0)
          bound = ((cursor_ >> (2 * kBits)) + 1) << (2 * kBits);
      }
      best = bound;
    }
    return best << shift_;
  }

 private:
  static constexpr unsigned kBits = 11;
  static constexpr unsigned kLevels = 4;
  static constexpr std::uint64_t kMask = (std::uint64_t{1} << kBits) - 1;

  static constexpr std::uint32_t kNearSlots = 15;
  struct alignas(kCacheLineBytes) Near {
    std::uint32_t count;
    std::array<Slot, kNearSlots> slots;
  };
  static_assert(sizeof(Near) == kCacheLineBytes);

  struct alignas(kCacheLineBytes) Chunk {
    std::uint32_t next;
    std::uint32_t count;
    std::array<Slot, 14> slots;
  };
  static_assert(sizeof(Chunk) == kCacheLineBytes);
  // Full chunks for every slot of the slab, and one that is not full for every list.
  static constexpr std::uint32_t kChunks = Slab::kCapacity / 14 + (kLevels << kBits) + 1;

  struct Level {
    std::array<std::uint32_t, kMask + 1> heads;  // level 0: overflow lists of slots; above: chains of chunks
    std::array<std::uint64_t, (kMask + 1) / 64> used{};
    std::uint64_t summary = 0;  // bit w: used[w] != 0

    // The first used slot at or after `from`; kMask + 1 or more if there is none.
    std::uint32_t next_used(std::uint32_t from) const {
      if (from > kMask) return static_cast<std::uint32_t>(kMask + 1);
      const std::uint32_t word = from / 64;
      const std::uint64_t here = used[word] >> (from % 64);
      if (here != 0) return from + static_cast<std::uint32_t>(std::countr_zero(here));
      const std::uint64_t later = summary & (~std::uint64_t{0} << (word + 1));
      if (later == 0) return static_cast<std::uint32_t>(kMask + 1);
      const auto next = static_cast<std::uint32_t>(std::countr_zero(later));
      return next * 64 + static_cast<std::uint32_t>(std::countr_zero(used[next]));
    }
    void push(HotRequest* hot, Slot slot, std::uint32_t at) {
      hot[slot].next = heads[at];
      heads[at] = slot;
      mark(at);
    }
    void mark(std::uint32_t at) {
      used[at / 64] |= std::uint64_t{1} << (at % 64);
      summary |= std::uint64_t{1} << (at / 64);
    }
    Slot take(std::uint32_t at) {
      const Slot head = heads[at];
      heads[at] = kNoSlot;
      unmark(at);
      return head;
    }
    void unmark(std::uint32_t at) {
      used[at / 64] &= ~(std::uint64_t{1} << (at % 64));
      if (used[at / 64] == 0) summary &= ~(std::uint64_t{1} << (at / 64));
    }
  };

  // place() out of line: inside insert_batch()'s loop it would take that loop's registers.
  [[gnu::noinline]] void place_apart(HotRequest* hot, Slot slot, std::uint64_t tick) { place(hot, slot, tick); }

  void place(HotRequest* hot, Slot slot, std::uint64_t tick) {
    std::uint64_t delta = tick - cursor_;
    if (delta <= kMask) [[likely]] {
      const auto at = static_cast<std::uint32_t>(tick & kMask);
      Near& bucket = near_[at];
      if (bucket.count == bucket.slots.size()) [[unlikely]] {
        levels_[0].push(hot, slot, at);
        return;
      }
      if (bucket.count == 0) levels_[0].mark(at);
      bucket.slots[bucket.count++] = slot;
      return;
    }
    constexpr std::uint64_t kHorizon = (std::uint64_t{1} << (kBits * kLevels)) - 1;
    if (delta > kHorizon) {
      tick = cursor_ + kHorizon;
      delta = kHorizon;
    }
    const unsigned level = static_cast<unsigned>(63 - std::countl_zero(delta)) / kBits;
    push_chunk(levels_[level], slot, static_cast<std::uint32_t>((tick >> (kBits * level)) & kMask));
  }

  void push_chunk(Level& level, Slot slot, std::uint32_t at) {
    std::uint32_t head = level.heads[at];
    if (head == kNoSlot || chunks_[head].count == chunks_[head].slots.size()) {
      std::uint32_t fresh = free_chunk_;
      if (fresh != kNoSlot)
        free_chunk_ = chunks_[fresh].next;
      else
        fresh = fresh_chunks_++;
      chunks_[fresh].next = head;
      chunks_[fresh].count = 0;
      level.heads[at] = head = fresh;
      level.mark(at);
    }
    chunks_[head].slots[chunks_[head].count++] = slot;
  }
  void release_chunk(std::uint32_t chunk) {
    chunks_[chunk].next = free_chunk_;
    free_chunk_ = chunk;
  }

  // The cursor entered a new rotation: bring down what the upper levels hold for it.
  void cascade(HotRequest* hot) {
    for (unsigned level = 1; level < kLevels; ++level) {
      const auto at = static_cast<std::uint32_t>((cursor_ >> (kBits * level)) & kMask);
      std::uint32_t chunk = levels_[level].take(at);
      while (chunk != kNoSlot) {
        // A copy, because placing may reuse the chunk. Its requests are far apart in memory: ask for all at once.
        const Chunk taken = chunks_[chunk];
        release_chunk(chunk);
        chunk = taken.next;
        if (chunk != kNoSlot) __builtin_prefetch(&chunks_[chunk]);
        for (std::uint32_t i = 0; i < taken.count; ++i) __builtin_prefetch(&hot[taken.slots[i]], 1, 3);
        for (std::uint32_t i = 0; i < taken.count; ++i) {
          const Slot slot = taken.slots[i];
          const std::uint64_t tick = (hot[slot].target_ns + ((std::uint64_t{1} << shift_) - 1)) >> shift_;
          place(hot, slot, tick < cursor_ ? cursor_ : tick);
        }
      }
      if (at != 0) break;
    }
  }

  // Takes up to `limit` requests of one tick; asks for their lines, because they are looked at soon.
  std::uint32_t take_tick(HotRequest* hot, std::uint32_t at, Slot* due, std::uint32_t limit) {
    Near& bucket = near_[at];
    std::uint32_t taken = std::min(bucket.count, limit);
    for (std::uint32_t i = 0; i < taken; ++i) {
      due[i] = bucket.slots[i];
      __builtin_prefetch(&hot[due[i]], 1, 3);
    }
    bucket.count -= taken;
    for (std::uint32_t i = 0; i < bucket.count; ++i) bucket.slots[i] = bucket.slots[taken + i];
    Level& level = levels_[0];
    while (level.heads[at] != kNoSlot && taken < limit) {
      due[taken++] = level.heads[at];
      level.heads[at] = hot[level.heads[at]].next;
    }
    if (bucket.count == 0 && level.heads[at] == kNoSlot) level.unmark(at);
    return taken;
  }

  std::array<Near, kMask + 1> near_;
  memory::HostMemory chunk_memory_;
  Chunk* chunks_;
  std::uint32_t free_chunk_ = kNoSlot;
  std::uint32_t fresh_chunks_ = 0;
  std::array<Level, kLevels> levels_;
  std::uint64_t cursor_ = 0;
  std::uint32_t count_ = 0;
  unsigned shift_;
};

}  // namespace flashmob::engine
