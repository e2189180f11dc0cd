// The room of a store, in granules of equal size: handed out in any number, wherever they lie, so that what is free can
// always be used. Granules of one value form a ring, of which its owner keeps the last; freed rings are joined to the
// ring of free ones, from which the next value gets those that have been free for longest.
//
// Groups of neighbours are what a timing model can be told of. Which of them nothing lies in any more is found by
// sweeping: freed granules are looked at some at a time, in the order in which they were freed.
//
// No call looks at more granules than it is told to. Its owner keeps threads apart, but the granules of a ring that has
// been handed out are its holder's to look at.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "command_set/kv/lazy_array.h"

namespace flashmob::command_set::kv {

class Granules {
 public:
  // Some of one owner, who has been handed them one after another.
  struct Ring {
    std::uint32_t last = 0;
    std::uint32_t count = 0;
  };

  // A group has 2^group_shift of them.
  explicit Granules(std::uint32_t count, unsigned group_shift = 0)
      : count_(count), group_shift_(group_shift), next_(count), in_use_((count >> group_shift) + 1) {}

  std::uint32_t count() const { return count_; }
  // Neither handed out nor promised.
  std::uint32_t free() const { return free_ + (count_ - fresh_) - promised_; }
  // So many will be there when they are taken. False: there is no room.
  bool promise(std::uint32_t wanted);
  void take_back_promise(std::uint32_t wanted) { promised_ -= wanted; }
  // Hands out so many of those that were promised.
  void take(std::uint32_t wanted, Ring& ring);
  // Both at once, of a new ring: its last granule.
  std::optional<std::uint32_t> take(std::uint32_t wanted);
  void give_back(Ring ring);
  void clear();

  std::uint32_t unswept() const { return free_ - swept_; }
  // Looks at so many that were freed, and calls visit(first granule, count) for those of groups that are empty now.
  template <class Visit>
  void sweep(std::uint32_t most, const Visit& visit) {
    std::uint32_t first = 0, count = 0;
    for (std::uint32_t left = std::min(most, unswept()); left != 0; --left) {
      const std::uint32_t granule = next_[swept_ == 0 ? free_last_ : swept_last_];
      swept_last_ = granule;
      ++swept_;
      if (--in_use_[granule >> group_shift_] != 0) continue;
      const std::uint32_t group = granule >> group_shift_ << group_shift_;
      if (count != 0 && group != first + count) {
        visit(first, count);
        count = 0;
      }
      if (count == 0) first = group;
      count += std::min(1u << group_shift_, count_ - group);
    }
    if (count != 0) visit(first, count);
  }

  std::uint32_t first(std::uint32_t last) const { return next_[last]; }
  std::uint32_t next(std::uint32_t granule) const { return next_[granule]; }
  // How many neighbours lie in a row from this granule of a ring on, of those that are looked at.
  std::uint32_t run_from(std::uint32_t granule, std::uint32_t last, std::uint32_t most) const {
    std::uint32_t count = 1;
    for (; count < most && granule != last && next_[granule] == granule + 1; ++granule) ++count;
    return count;
  }
  // Calls visit(granule, count) for each run of neighbours of a ring, in the ring's order, until it says false; whether
  // all were visited.
  template <class Visit>
  bool for_each_run(std::uint32_t last, const Visit& visit) const {
    for (std::uint32_t at = next_[last];;) {
      const std::uint32_t count = run_from(at, last, count_);
      if (!visit(at, count)) return false;
      at += count - 1;
      if (at == last) return true;
      at = next_[at];
    }
  }

 private:
  void note_use(std::uint32_t granule) { ++in_use_[granule >> group_shift_]; }

  std::uint32_t count_;
  unsigned group_shift_;
  std::uint32_t fresh_ = 0;  // those from here on were never handed out
  std::uint32_t free_ = 0;  // in the ring of those that were
  std::uint32_t free_last_ = 0;  // of that ring, where it has any
  std::uint32_t swept_ = 0;  // so many of its first
  std::uint32_t swept_last_ = 0;  // of those, where there are any
  std::uint32_t promised_ = 0;
  LazyArray<std::uint32_t> next_;
  LazyArray<std::uint32_t> in_use_;  // of each group: handed out, or not yet swept
};

}  // namespace flashmob::command_set::kv
