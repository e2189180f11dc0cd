#include "command_set/kv/granules.h"

#include <utility>

namespace flashmob::command_set::kv {

std::optional<std::uint32_t> Granules::take(std::uint32_t wanted) {
  if (wanted == 0 || wanted > free()) return std::nullopt;
  const std::uint32_t reused = std::min(wanted, free_);
  std::uint32_t first = fresh_, last = fresh_;
  if (reused != 0) {
    first = last = next_[free_last_];
    for (std::uint32_t i = 1; i < reused; ++i) last = next_[last];
    next_[free_last_] = next_[last];
    free_ -= reused;
  } else {
    ++fresh_;
  }
  for (std::uint32_t have = std::max(reused, 1u); have < wanted; ++have, ++fresh_) {
    next_[last] = fresh_;
    last = fresh_;
  }
  next_[last] = first;
  return last;
}

void Granules::give_back(std::uint32_t last, std::uint32_t taken) {
  if (free_ == 0)
    free_last_ = last;
  else
    std::swap(next_[free_last_], next_[last]);
  free_ += taken;
}

void Granules::clear() {
  fresh_ = free_ = free_last_ = 0;
  next_.clear();
}

bool Granules::is_one_run(std::uint32_t last, std::uint32_t taken) const {
  return for_each_run(last, [taken](std::uint32_t, std::uint32_t count) { return count == taken; });
}

}  // namespace flashmob::command_set::kv
