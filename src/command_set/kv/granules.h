// The room of a store, in granules of equal size: handed out in any number, wherever they lie, so that what is free can
// always be used. Granules of one value form a ring, of which its owner keeps the last; freed rings are joined to the
// ring of free ones, of which the next value gets those that were freed last, in their order.
//
// Its owner keeps threads apart, but the granules of a ring that has been handed out are its holder's to look at.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "command_set/kv/lazy_array.h"

namespace flashmob::command_set::kv {

class Granules {
 public:
  explicit Granules(std::uint32_t count) : count_(count), next_(count) {}

  std::uint32_t count() const { return count_; }
  std::uint32_t free() const { return free_ + (count_ - fresh_); }

  // A ring of so many, one at least: its last granule. None: there is no room.
  std::optional<std::uint32_t> take(std::uint32_t wanted);
  // Gives back a ring of so many.
  void give_back(std::uint32_t last, std::uint32_t taken);
  void clear();

  std::uint32_t first(std::uint32_t last) const { return next_[last]; }
  // Calls visit(granule, count) for each run of neighbours of a ring, in the ring's order, until it says false; whether
  // all were visited.
  template <class Visit>
  bool for_each_run(std::uint32_t last, const Visit& visit) const {
    for (std::uint32_t at = next_[last];;) {
      const std::uint32_t begin = at;
      while (at != last && next_[at] == at + 1) ++at;
      if (!visit(begin, at - begin + 1)) return false;
      if (at == last) return true;
      at = next_[at];
    }
  }
  bool is_one_run(std::uint32_t last, std::uint32_t taken) const;

 private:
  std::uint32_t count_;
  std::uint32_t fresh_ = 0;  // those from here on were never handed out
  std::uint32_t free_ = 0;  // in the ring of those that were
  std::uint32_t free_last_ = 0;  // of that ring, where it has any
  LazyArray<std::uint32_t> next_;
};

}  // namespace flashmob::command_set::kv
