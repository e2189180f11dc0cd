// CLOCK, within a set: a hand goes round; a line that was used since the hand last passed is spared once. A line's word
// is its reference mark; a hit on a marked line is one load.
#pragma once

#include "flashmob/gpu/cache_policy/policy.h"

namespace flashmob::gpu {

struct ClockPolicy {
  static constexpr const char* kName = "clock";
  static constexpr std::uint32_t kMaxWays = policy::kMaxWays;
  FLASHMOB_HD static constexpr std::uint32_t set_words(std::uint32_t) { return 1; }

  template <class Lane>
  FLASHMOB_HD static void hit(Lane& t, const PolicySet& set, std::uint32_t way) {
    if (policy::get(t, set.of_line(way)) == 0) policy::set(t, set.of_line(way), 1);
  }
  template <class Lane>
  FLASHMOB_HD static void insert(Lane& t, const PolicySet& set, std::uint32_t way, std::uint64_t) {
    policy::set(t, set.of_line(way), 0);
  }
  template <class Lane>
  FLASHMOB_HD static void evict(Lane&, const PolicySet&, std::uint32_t, std::uint64_t) {}
  template <class Lane>
  FLASHMOB_HD static std::uint32_t victim(Lane& t, const PolicySet& set, std::uint64_t usable) {
    std::uint32_t hand = policy::get(t, set.words[0]) % set.ways;
    // Two rounds clear every mark; hits may set them again meanwhile, and then the hand's place is as good as any.
    std::uint32_t chosen = policy::first(usable);
    for (std::uint32_t step = 0; step < 2 * set.ways; ++step, hand = hand + 1 == set.ways ? 0 : hand + 1) {
      if (!policy::has(usable, hand)) continue;
      if (policy::get(t, set.of_line(hand)) == 0) {
        chosen = hand;
        break;
      }
      policy::set(t, set.of_line(hand), 0);
    }
    policy::set(t, set.words[0], (chosen + 1) % set.ways);
    return chosen;
  }
};

}  // namespace flashmob::gpu
