// Numbered places for what commands that take long keep between their parts, made when first needed and kept, and
// shared so that no controller can have all of them for as long as its commands last.
//
// For one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/fair_share.h"

namespace flashmob::engine {

// Places first...first + count - 1.
template <class Thing>
class Places {
 public:
  Places(std::uint32_t first, std::uint32_t count) : first_(first), share_(count, kMost) { free_.reserve(count); }

  // The number of a place for a controller, whose view holds `holder`; 0: it has its share, or there is none.
  std::uint32_t take(FairShare::Holder& holder) {
    if (share_.take(holder, 1) != FairShare::Answer::given) return 0;
    if (free_.empty()) {
      things_.push_back(std::make_unique<Thing>());
      return first_ + static_cast<std::uint32_t>(things_.size()) - 1;
    }
    const std::uint32_t number = free_.back();
    free_.pop_back();
    return number;
  }
  void give(FairShare::Holder& holder, std::uint32_t number) {
    share_.give(holder, 1);
    free_.push_back(number);
  }
  bool has(std::uint32_t number) const { return number - first_ < things_.size(); }
  Thing& at(std::uint32_t number) { return *things_[number - first_]; }

 private:
  // A controller may have so many times what is then left for all others.
  static constexpr std::uint64_t kMost = 3;

  const std::uint32_t first_;
  FairShare share_;
  std::vector<std::unique_ptr<Thing>> things_;
  std::vector<std::uint32_t> free_;  // numbers
};

}  // namespace flashmob::engine
