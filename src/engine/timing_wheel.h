// Holds requests until their target time: a hierarchical timing wheel.
//
// Four levels of 2,048 ticks; level 0 resolves 2^shift ns, each level above 2,048 times more. Ticks decide only how
// much is looked at: of the tick that is going on, each request is released when its own target has come. insert() and
// releasing are O(1); a request far away moves down a level at most three times. A tick keeps its requests' numbers in
// a cache line, and what does not fit in a chain of such lines. For the worker's thread only.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "engine/slab.h"

namespace flashmob::engine {

class TimingWheel {
 public:
  explicit TimingWheel(unsigned shift)
      : line_memory_(sizeof(Line) * kLines), lines_(reinterpret_cast<Line*>(line_memory_.data())), shift_(shift) {
    for (auto& level : levels_) level.chains.fill(kNone);
    for (Line& line : near_) line.next = kNone;
  }

  // Sets the time from which the wheel turns; before the first insert.
  void start(std::uint64_t now_ns) { cursor_ = now_ns >> shift_; }
  bool empty() const { return count_ == 0; }
  std::uint32_t size() const { return count_; }

  void insert(Slot slot, std::uint64_t target_ns) {
    earliest_ns_ = std::min(earliest_ns_, target_ns);
    ++count_;
    place(slot, std::max(target_ns >> shift_, cursor_));
  }

  // insert() of each of `count` requests. Targets of a batch scatter over some ticks, so nothing here depends on
  // neighbours being of one tick; but where they are, each waits for the count that the one before has stored, so the
  // batch is taken from its beginning and from its middle by turns.
  void insert_batch(const Slot* slots, const std::uint64_t* targets_ns, std::size_t count) {
    std::uint64_t earliest_ns = earliest_ns_;
    for (std::size_t i = 0; i < count; ++i) earliest_ns = std::min(earliest_ns, targets_ns[i]);
    earliest_ns_ = earliest_ns;
    const std::uint64_t cursor = cursor_;
    const unsigned shift = shift_;
    Marks first, second;
    const std::size_t half = count / 2;
    for (std::size_t i = 0; i < half; ++i) {
      insert_near(slots[i], targets_ns[i] >> shift, cursor, first);
      insert_near(slots[half + i], targets_ns[half + i] >> shift, cursor, second);
    }
    if (count % 2 != 0) insert_near(slots[count - 1], targets_ns[count - 1] >> shift, cursor, second);
    ticks_.mark(first.word, first.bits);
    ticks_.mark(second.word, second.bits);
    count_ += static_cast<std::uint32_t>(count);
  }

  // Takes up to `limit` requests whose target is at or before now_ns, in order of ticks; writes their slots to `due`
  // and returns how many. Fewer than `limit` means that nothing else is due; but where kMany come, those of the tick
  // that is going on are left for the next call.
  std::uint32_t collect(const HotRequest* hot, std::uint64_t now_ns, Slot* due, std::uint32_t limit) {
    if (now_ns < earliest_ns_) return 0;
    const std::uint32_t taken = take_until(hot, now_ns, due, limit);
    for (std::uint32_t i = 0; i < taken; ++i) __builtin_prefetch(&hot[due[i]], 1, 3);
    count_ -= taken;
    return taken;
  }

  // Takes out the requests for which gone(slot) holds.
  template <class Gone>
  void remove_if(Gone&& gone) {
    if (count_ == 0) return;
    for (std::uint32_t at = ticks_.next_used(0); at <= kMask; at = ticks_.next_used(at + 1)) {
      Line line = std::exchange(near_[at], Line{});
      ticks_.unmark(at);
      sift(line, gone, [&](Slot slot) { place_near(slot, at); });
    }
    for (unsigned level = 1; level < kLevels; ++level) {
      Level& of = levels_[level - 1];
      for (std::uint32_t at = of.ticks.next_used(0); at <= kMask; at = of.ticks.next_used(at + 1)) {
        Line line = release_line(std::exchange(of.chains[at], kNone));
        of.ticks.unmark(at);
        sift(line, gone, [&](Slot slot) { place_far(of, slot, at); });
      }
    }
  }

  // A lower bound of the next release time, exact where that tick is going on; UINT64_MAX when empty.
  std::uint64_t next_deadline_ns() const {
    if (count_ == 0) return UINT64_MAX;
    const std::uint32_t at = ticks_.next_used(static_cast<std::uint32_t>(cursor_ & kMask));
    std::uint64_t best = (cursor_ & ~kMask) | at;
    if (at > kMask) {
      // Level 0 may also hold the beginning of the next rotation; levels above turn at rotation ends.
      best = (cursor_ | kMask) + 1;
      // Where level 1 turns too, what is above it comes down and may be due before anything that level 1 holds.
      if (ticks_.summary == 0 && ((best >> kBits) & kMask) != 0) {
        const Ticks& above = levels_[0].ticks;
        const std::uint32_t up = above.next_used(static_cast<std::uint32_t>((best >> kBits) & kMask));
        if (up <= kMask)
          best = (best & ~((std::uint64_t{1} << (2 * kBits)) - 1)) | (std::uint64_t{up} << kBits);
        else if (above.summary == 0)
          best = ((cursor_ >> (2 * kBits)) + 1) << (2 * kBits);
      }
    }
    return std::max(best << shift_, earliest_ns_);
  }

 private:
  static constexpr unsigned kBits = 11;
  static constexpr unsigned kLevels = 4;
  static constexpr std::uint64_t kMask = (std::uint64_t{1} << kBits) - 1;

  // Requests of one tick. Level 0 has a line for each tick, to which full ones are chained; the others have chains.
  static constexpr std::uint32_t kLineSlots = 14;
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  static constexpr std::uint32_t kMany = 32;
  struct alignas(kCacheLineBytes) Line {
    std::uint32_t next = kNone;
    std::uint32_t count = 0;
    std::array<Slot, kLineSlots> slots;
  };
  static_assert(sizeof(Line) == kCacheLineBytes);
  // Full lines for every slot of the slab, and one that is not full for every chain.
  static constexpr std::uint32_t kLines = Slab::kCapacity / kLineSlots + ((kLevels - 1) << kBits) + 1;

  // Which ticks of a level hold anything.
  struct Ticks {
    std::array<std::uint64_t, (kMask + 1) / 64> used{};
    std::uint64_t summary = 0;  // bit w: used[w] != 0

    // The first used tick at or after `from`; kMask + 1 or more if there is none.
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
    void mark(std::uint32_t at) { mark(at / 64, std::uint64_t{1} << (at % 64)); }
    void mark(std::uint32_t word, std::uint64_t marks) {
      used[word] |= marks;
      summary |= std::uint64_t{marks != 0} << word;
    }
    void unmark(std::uint32_t at) {
      used[at / 64] &= ~(std::uint64_t{1} << (at % 64));
      if (used[at / 64] == 0) summary &= ~(std::uint64_t{1} << (at / 64));
    }
  };

  struct Level {
    std::array<std::uint32_t, kMask + 1> chains;
    Ticks ticks;
  };

  // Ticks to be marked, of one word: one after the other in memory, each would wait for the one before.
  struct Marks {
    std::uint32_t word = 0;
    std::uint64_t bits = 0;
  };

  [[gnu::always_inline]] void insert_near(Slot slot, std::uint64_t tick, std::uint64_t cursor, Marks& marks) {
    tick = std::max(tick, cursor);
    const auto at = static_cast<std::uint32_t>(tick & kMask);
    Line& line = near_[at];
    const std::uint32_t held = line.count;
    if (tick - cursor > kMask || held == kLineSlots) [[unlikely]]
      return place_apart(slot, tick);
    line.slots[held] = slot;
    line.count = held + 1;
    if (at / 64 != marks.word) [[unlikely]] {
      ticks_.mark(marks.word, marks.bits);
      marks = {at / 64, 0};
    }
    marks.bits |= std::uint64_t{1} << (at % 64);
  }

  // place() out of line: inside insert_batch()'s loop it would take that loop's registers.
  [[gnu::noinline]] void place_apart(Slot slot, std::uint64_t tick) { place(slot, tick); }

  void place(Slot slot, std::uint64_t tick) {
    std::uint64_t delta = tick - cursor_;
    if (delta <= kMask) [[likely]]
      return place_near(slot, static_cast<std::uint32_t>(tick & kMask));
    constexpr std::uint64_t kHorizon = (std::uint64_t{1} << (kBits * kLevels)) - 1;
    if (delta > kHorizon) {
      tick = cursor_ + kHorizon;
      delta = kHorizon;
    }
    const unsigned level = static_cast<unsigned>(63 - std::countl_zero(delta)) / kBits;
    place_far(levels_[level - 1], slot, static_cast<std::uint32_t>((tick >> (kBits * level)) & kMask));
  }

  void place_near(Slot slot, std::uint32_t at) {
    Line& line = near_[at];
    if (line.count == kLineSlots) [[unlikely]] {
      const std::uint32_t full = take_line();
      lines_[full] = line;
      line.next = full;
      line.count = 0;
    }
    line.slots[line.count++] = slot;
    ticks_.mark(at);
  }

  void place_far(Level& level, Slot slot, std::uint32_t at) {
    std::uint32_t head = level.chains[at];
    if (head == kNone || lines_[head].count == kLineSlots) {
      const std::uint32_t fresh = take_line();
      lines_[fresh].next = head;
      lines_[fresh].count = 0;
      level.chains[at] = head = fresh;
      level.ticks.mark(at);
    }
    lines_[head].slots[lines_[head].count++] = slot;
  }

  std::uint32_t take_line() {
    const std::uint32_t free = free_line_;
    if (free == kNone) return fresh_lines_++;
    free_line_ = lines_[free].next;
    return free;
  }
  // What the line held, which is given back.
  Line release_line(std::uint32_t line) {
    const Line held = lines_[line];
    lines_[line].next = free_line_;
    free_line_ = line;
    return held;
  }

  // Of a line and those chained to it, whose lines are given back: keeps every slot that is not gone.
  template <class Gone, class Keep>
  void sift(Line& line, Gone& gone, const Keep& keep) {
    for (;;) {
      for (std::uint32_t i = 0; i < line.count; ++i) {
        if (gone(line.slots[i]))
          --count_;
        else
          keep(line.slots[i]);
      }
      if (line.next == kNone) return;
      line = release_line(line.next);
    }
  }

  // The cursor entered a new rotation: bring down what the upper levels hold for it.
  void cascade(const HotRequest* hot) {
    for (unsigned level = 1; level < kLevels; ++level) {
      const auto at = static_cast<std::uint32_t>((cursor_ >> (kBits * level)) & kMask);
      Level& from = levels_[level - 1];
      std::uint32_t chain = std::exchange(from.chains[at], kNone);
      from.ticks.unmark(at);
      while (chain != kNone) {
        // Placing may reuse the line. Its requests are far apart in memory: ask for all at once.
        const Line line = release_line(chain);
        chain = line.next;
        if (chain != kNone) __builtin_prefetch(&lines_[chain]);
        for (std::uint32_t i = 0; i < line.count; ++i) __builtin_prefetch(&hot[line.slots[i]], 1, 3);
        for (std::uint32_t i = 0; i < line.count; ++i)
          place(line.slots[i], std::max(hot[line.slots[i]].target_ns >> shift_, cursor_));
      }
      if (at != 0) break;
    }
  }

  // Moves the cursor to now_ns and takes what is due, but no more than `limit`.
  std::uint32_t take_until(const HotRequest* hot, std::uint64_t now_ns, Slot* due, std::uint32_t limit) {
    const std::uint64_t now_tick = now_ns >> shift_;
    std::uint32_t taken = 0;
    while (cursor_ < now_tick) {
      if (count_ == taken) {
        cursor_ = now_tick;
        break;
      }
      // Ticks that are over, to now or to the end of this rotation, whichever is first.
      const std::uint64_t last = std::min(now_tick - 1, cursor_ | kMask);
      const auto to = static_cast<std::uint32_t>(last & kMask);
      std::uint32_t at = ticks_.next_used(static_cast<std::uint32_t>(cursor_ & kMask));
      while (at <= to) {
        taken += take_tick(at, due + taken, limit - taken);
        if (taken == limit) {
          cursor_ = (last & ~kMask) | at;
          return taken;
        }
        at = ticks_.next_used(at + 1);
      }
      cursor_ = last + 1;
      if (to == kMask) cascade(hot);
    }
    // Where so many come at once, those of the tick that is going on can wait for the next time, which is soon: looking
    // at each of them would cost more than it gives.
    if (taken >= kMany) {
      earliest_ns_ = std::min(earliest_ns_, now_ns);
      return taken;
    }
    return taken + take_due(hot, now_ns, due + taken, limit - taken);
  }

  // Takes up to `limit` requests of one tick.
  std::uint32_t take_tick(std::uint32_t at, Slot* due, std::uint32_t limit) {
    Line& line = near_[at];
    std::uint32_t taken = 0;
    for (;;) {
      if (limit - taken >= kLineSlots) [[likely]] {
        // All that it may hold, because a loop over few would be mispredicted.
        std::memcpy(due + taken, line.slots.data(), sizeof(line.slots));
        taken += line.count;
        line.count = 0;
      } else {
        while (line.count != 0 && taken < limit) due[taken++] = line.slots[--line.count];
        if (line.count != 0) return taken;
      }
      if (line.next == kNone) [[likely]]
        break;
      line = release_line(line.next);
    }
    ticks_.unmark(at);
    return taken;
  }

  // Takes up to `limit` requests of the tick that is going on, those whose target has come.
  std::uint32_t take_due(const HotRequest* hot, std::uint64_t now_ns, Slot* due, std::uint32_t limit) {
    const auto at = static_cast<std::uint32_t>(cursor_ & kMask);
    Line line = near_[at];
    earliest_ns_ = (cursor_ + 1) << shift_;
    if (line.count == 0) return 0;
    near_[at].count = 0;
    near_[at].next = kNone;
    ticks_.unmark(at);
    std::uint32_t taken = 0;
    for (;;) {
      for (std::uint32_t i = 0; i < line.count; ++i) {
        const Slot slot = line.slots[i];
        const std::uint64_t target_ns = hot[slot].target_ns;
        if (target_ns <= now_ns && taken < limit) {
          due[taken++] = slot;
        } else {
          earliest_ns_ = std::min(earliest_ns_, target_ns);
          place_near(slot, at);
        }
      }
      if (line.next == kNone) return taken;
      line = release_line(line.next);
    }
  }

  std::array<Line, kMask + 1> near_;
  memory::HostMemory line_memory_;
  Line* lines_;
  std::uint32_t free_line_ = kNone;
  std::uint32_t fresh_lines_ = 0;
  Ticks ticks_;                             // of level 0
  std::array<Level, kLevels - 1> levels_;  // the others
  std::uint64_t cursor_ = 0;                // the tick up to which everything has been taken
  // Nothing is due before; not always the first target itself.
  std::uint64_t earliest_ns_ = 0;
  std::uint32_t count_ = 0;
  unsigned shift_;
};

}  // namespace flashmob::engine
