// One die: reads of hosts in the order they come; programs, erases and the reads of garbage collection, its
// *operations*, in the order in which they are ready, one at a time.
//
// A read of a host goes before every operation that has not begun. A running program or erase lets it pass after
// suspend_ns and ends later by what that took; without suspension, or where its end is nearer, the read waits for it,
// as it does for a read of garbage collection. Operations begin by themselves as time passes, so a die is brought up to
// date by whoever looks at it; nothing needs an event. What is asked about the future is what comes to pass if no more
// is asked of the die.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "timing/nand/params.h"

namespace flashmob::timing::nand {

class Die {
 public:
  static constexpr std::uint32_t kNoRow = ~0u;

  // An operation that was given; `generation` tells it from later ones in the same slot.
  struct Handle {
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
  };

  // Reads pass the last `operations` operations that wait; were there more, the first would be settled as it is.
  Die(const CellTimes& times, std::uint32_t operations)
      : suspend_ns_(times.suspend_ns), resume_ns_(times.resume_ns), slots_(operations + 1) {
    for (std::uint32_t i = 0; i < slots_.size(); ++i) slots_[i].next = i + 1 < slots_.size() ? i + 1 : kNoSlot;
  }

  // Senses a page for read_ns, not before ready_ns; returns when its data lie in the die's register.
  std::uint64_t read(std::uint64_t ready_ns, std::uint32_t read_ns) {
    std::uint64_t start = std::max(ready_ns, read_end_ns_);
    if (first_ != kNoSlot) [[unlikely]]
      start = among_operations(ready_ns, start, read_ns);
    read_end_ns_ = start + read_ns;
    return read_end_ns_;
  }

  // A program of a row, begun to be filled at buffered_ns; or with kNoRow an erase or a read of garbage collection, of
  // which only what may be suspended is. Not before ready_ns.
  Handle give(std::uint64_t ready_ns, std::uint32_t duration_ns, std::uint32_t row = kNoRow,
              std::uint64_t buffered_ns = 0, bool yields = true) {
    // So many writes came at one time that more waits than there are slots: the first is settled.
    if (free_ == kNoSlot) [[unlikely]]
      run_to(expected_end_ns({first_, slots_[first_].generation}));
    // The row may be written anew before its last program has begun, where nothing of that was valid any more when its
    // superblock was collected: whoever asks for the row means the new one.
    if (const std::uint32_t old = row == kNoRow ? kNoSlot : find(row); old != kNoSlot) slots_[old].row = kNoRow;
    const std::uint32_t slot = free_;
    Operation& one = slots_[slot];
    free_ = one.next;
    one.ready_ns = ready_ns;
    one.buffered_ns = buffered_ns;
    one.duration_ns = duration_ns;
    one.row = row;
    one.yields = yields;
    // Behind all that are ready at the same time; the one that runs stays first.
    std::uint32_t before = last_;
    while (before != kNoSlot && slots_[before].ready_ns > ready_ns && !(running_ && before == first_))
      before = slots_[before].previous;
    one.previous = before;
    one.next = before == kNoSlot ? first_ : slots_[before].next;
    (before == kNoSlot ? first_ : slots_[before].next) = slot;
    (one.next == kNoSlot ? last_ : slots_[one.next].previous) = slot;
    return {slot, one.generation};
  }

  bool has_ended(const Handle& handle, std::uint64_t now_ns) {
    run_to(now_ns);
    return is_over(handle);
  }

  // When an operation ends; 0 if it is known to have ended.
  std::uint64_t expected_end_ns(const Handle& handle) const {
    if (is_over(handle)) return 0;
    std::uint64_t end = free_ns();
    for (std::uint32_t slot = first_;; slot = slots_[slot].next) {
      const Operation& one = slots_[slot];
      const bool runs = running_ && slot == first_;
      const std::uint64_t one_end = runs ? running_end_ns_ : std::max(end, one.ready_ns) + one.duration_ns;
      if (slot == handle.slot) return one_end;
      // Reads that wait for the running one go before the next.
      end = runs ? std::max(one_end, read_end_ns_) : one_end;
    }
  }

  // Whether a row's program has not ended by now_ns; was it never given, no.
  bool holds(std::uint32_t row, std::uint64_t now_ns) {
    if (first_ == kNoSlot) return false;
    run_to(now_ns);
    return find(row) != kNoSlot;
  }

  // Whether a row's program waits and has not begun by now_ns; buffered_ns is then since when it was filled.
  bool waits(std::uint32_t row, std::uint64_t now_ns, std::uint64_t& buffered_ns) {
    if (first_ == kNoSlot) return false;
    run_to(now_ns);
    const std::uint32_t slot = find(row);
    if (slot == kNoSlot || (running_ && slot == first_ && running_start_ns_ <= now_ns)) return false;
    buffered_ns = slots_[slot].buffered_ns;
    return true;
  }

  // When a row's program ends; 0 if it has, or was never given.
  std::uint64_t expected_end_of_row_ns(std::uint32_t row) const {
    const std::uint32_t slot = find(row);
    return slot == kNoSlot ? 0 : expected_end_ns({slot, slots_[slot].generation});
  }

  // When the last program that was given ends; 0 if all have.
  std::uint64_t all_programmed_ns() const {
    std::uint32_t slot = last_;
    while (slot != kNoSlot && slots_[slot].row == kNoRow) slot = slots_[slot].previous;
    return slot == kNoSlot ? 0 : expected_end_ns({slot, slots_[slot].generation});
  }

  // All that was given has ended, and time may begin anew.
  void forget_load() {
    while (first_ != kNoSlot) remove_first();
    running_ = false;
    read_end_ns_ = operation_end_ns_ = running_start_ns_ = running_end_ns_ = 0;
  }

 private:
  static constexpr std::uint32_t kNoSlot = ~0u;

  struct Operation {
    std::uint64_t ready_ns = 0;
    std::uint64_t buffered_ns = 0;
    std::uint32_t duration_ns = 0;
    std::uint32_t row = kNoRow;
    std::uint32_t generation = 0;
    std::uint32_t next = kNoSlot;  // to begin; of a free slot the next that is free
    std::uint32_t previous = kNoSlot;
    bool yields = true;
  };

  std::uint64_t free_ns() const { return std::max(read_end_ns_, operation_end_ns_); }
  bool is_over(const Handle& handle) const { return slots_[handle.slot].generation != handle.generation; }

  std::uint32_t find(std::uint32_t row) const {
    std::uint32_t slot = first_;
    while (slot != kNoSlot && slots_[slot].row != row) slot = slots_[slot].next;
    return slot;
  }

  void remove_first() {
    const std::uint32_t slot = first_;
    Operation& one = slots_[slot];
    first_ = one.next;
    (first_ == kNoSlot ? last_ : slots_[first_].previous) = kNoSlot;
    ++one.generation;
    one.next = free_;
    free_ = slot;
  }

  // Begins and ends what is due by now_ns.
  void run_to(std::uint64_t now_ns) {
    while (first_ != kNoSlot) {
      if (!running_) {
        const Operation& next = slots_[first_];
        const std::uint64_t start = std::max(next.ready_ns, free_ns());
        if (start > now_ns) return;
        running_ = true;
        running_start_ns_ = start;
        running_end_ns_ = start + next.duration_ns;
      }
      if (running_end_ns_ > now_ns) return;
      running_ = false;
      operation_end_ns_ = running_end_ns_;
      remove_first();
    }
  }

  std::uint64_t among_operations(std::uint64_t ready_ns, std::uint64_t start, std::uint32_t read_ns) {
    // What would begin at the very time of the read begins after it. Until other reads have gone, nothing begins.
    if (ready_ns > 0) run_to(ready_ns - 1);
    if (!running_ || running_end_ns_ <= start) return start;
    // It was looked at from later than this read comes.
    if (running_start_ns_ >= start) {
      const std::uint64_t later_ns = std::max(running_start_ns_, start + read_ns) - running_start_ns_;
      running_start_ns_ += later_ns;
      running_end_ns_ += later_ns;
      return start;
    }
    // Reads that come while the operation is suspended for another share that suspension.
    if (ready_ns < read_end_ns_) {
      running_end_ns_ += read_ns;
      return start;
    }
    if (suspend_ns_ == 0 || !slots_[first_].yields || running_end_ns_ - start <= suspend_ns_) return running_end_ns_;
    running_end_ns_ += suspend_ns_ + read_ns + resume_ns_;
    return start + suspend_ns_;
  }

  std::uint64_t read_end_ns_ = 0;
  std::uint64_t operation_end_ns_ = 0;
  std::uint64_t running_start_ns_ = 0;
  std::uint64_t running_end_ns_ = 0;
  std::uint32_t suspend_ns_;
  std::uint32_t resume_ns_;
  std::uint32_t first_ = kNoSlot;
  std::uint32_t last_ = kNoSlot;
  std::uint32_t free_ = 0;
  bool running_ = false;  // the first has begun
  std::vector<Operation> slots_;
};

}  // namespace flashmob::timing::nand
