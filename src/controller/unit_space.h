// The timing model's units, as namespaces take them: each has one stretch, the first that is long enough. What a
// deleted one had is given away again, so that a device whose hosts create and delete for ever stays as large as it is.
// Thread rule: the owner's; the subsystem's mutex.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace flashmob::controller {

class UnitSpace {
 public:
  // Nothing is given away before `begin`.
  explicit UnitSpace(std::uint64_t begin = 0) : begin_(begin) {}

  // Returns the first of so many units. There is always room: the space has no end.
  std::uint64_t take(std::uint64_t units) {
    std::uint64_t first = begin_;
    auto next = taken_.begin();
    for (; next != taken_.end() && next->first - first < units; ++next) first = next->first + next->units;
    taken_.insert(next, {first, units});
    return first;
  }
  // What take() returned.
  void give_back(std::uint64_t first) {
    const auto found = std::find_if(taken_.begin(), taken_.end(), [&](const auto& one) { return one.first == first; });
    FLASHMOB_CHECK(found != taken_.end());
    taken_.erase(found);
  }

 private:
  struct Stretch {
    std::uint64_t first;
    std::uint64_t units;
  };
  std::uint64_t begin_;
  std::vector<Stretch> taken_;  // in order, at most one for each namespace
};

}  // namespace flashmob::controller
