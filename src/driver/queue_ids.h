// Identifiers of a controller's I/O queue pairs: a pool from which all take that create some, because two owners that
// count for themselves take the same. Identifier 0 is the admin queue's. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/check.h"

namespace flashmob::driver {

class QueueIds {
 public:
  static constexpr std::uint32_t kAll = 65535;

  // The lowest one that is free; nothing if none is.
  std::optional<std::uint16_t> take() {
    const auto at = std::find(used_.begin() + lowest_, used_.end(), false);
    const auto index = static_cast<std::uint32_t>(at - used_.begin());
    if (index == kAll) return std::nullopt;
    if (at == used_.end()) used_.push_back(false);
    used_[index] = true;
    lowest_ = index + 1;
    ++taken_;
    return static_cast<std::uint16_t>(index + 1);
  }
  void give_back(std::uint16_t id) {
    FLASHMOB_CHECK(id != 0 && id <= used_.size() && used_[id - 1u]);
    used_[id - 1u] = false;
    lowest_ = std::min(lowest_, id - std::uint32_t{1});
    --taken_;
  }
  // After a reset, when there are no queues.
  void clear() { *this = {}; }
  std::uint32_t taken() const { return taken_; }

 private:
  std::vector<bool> used_;    // index: identifier - 1
  std::uint32_t lowest_ = 0;  // none below is free
  std::uint32_t taken_ = 0;
};

}  // namespace flashmob::driver
