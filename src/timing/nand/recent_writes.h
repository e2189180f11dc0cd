// Which units the last writes have written: a Deallocate that was fetched before them and is carried out after them
// must not take them away. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "timing/nand/ftl.h"

namespace flashmob::timing::nand {

class RecentWrites {
 public:
  void note(Unit first, std::uint32_t units) { ring_[count_++ % kKept] = {first, units}; }
  // Of all writes that there were.
  std::uint64_t count() const { return count_; }

  // Calls f(first, units) for each stretch of [first, first + units) that no write beyond the first `writes` has
  // written, as far as that is known: those that were too long ago are forgotten.
  template <class F>
  void each_untouched(Unit first, std::uint32_t units, std::uint64_t writes, F&& f) const {
    const std::uint64_t end = std::uint64_t{first} + units;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> touched;
    const std::uint64_t oldest = count_ < kKept ? 0 : count_ - kKept;
    for (std::uint64_t i = std::max(writes, oldest); i < count_; ++i) {
      const Write& one = ring_[i % kKept];
      const std::uint64_t from = std::max<std::uint64_t>(one.first, first);
      const std::uint64_t until = std::min(std::uint64_t{one.first} + one.units, end);
      if (from < until) touched.emplace_back(from, until);
    }
    std::ranges::sort(touched);
    std::uint64_t at = first;
    for (const auto& [from, until] : touched) {
      if (at < from) f(static_cast<Unit>(at), static_cast<std::uint32_t>(from - at));
      at = std::max(at, until);
    }
    if (at < end) f(static_cast<Unit>(at), static_cast<std::uint32_t>(end - at));
  }

 private:
  struct Write {
    Unit first;
    std::uint32_t units;
  };
  // More than are fetched while a command waits to be carried out.
  static constexpr std::uint64_t kKept = 1 << 16;

  std::vector<Write> ring_ = std::vector<Write>(kKept);
  std::uint64_t count_ = 0;
};

}  // namespace flashmob::timing::nand
