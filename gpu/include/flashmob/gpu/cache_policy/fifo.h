// First in, first out, within a set. A line's word is its place in the order of arrival; hits cost nothing.
#pragma once

#include "flashmob/gpu/cache_policy/policy.h"

namespace flashmob::gpu {

struct Fifo {
  static constexpr const char* kName = "fifo";
  static constexpr std::uint32_t kMaxWays = policy::kMaxWays;
  FLASHMOB_HD static constexpr std::uint32_t set_words(std::uint32_t) { return 1; }

  template <class Lane>
  FLASHMOB_HD static void hit(Lane&, const PolicySet&, std::uint32_t) {}
  template <class Lane>
  FLASHMOB_HD static void insert(Lane& t, const PolicySet& set, std::uint32_t way, std::uint64_t) {
    const std::uint32_t now = policy::get(t, set.words[0]) + 1;
    policy::set(t, set.words[0], now);
    policy::set(t, set.of_line(way), now);
  }
  template <class Lane>
  FLASHMOB_HD static void evict(Lane&, const PolicySet&, std::uint32_t, std::uint64_t) {}
  template <class Lane>
  FLASHMOB_HD static std::uint32_t victim(Lane& t, const PolicySet& set, std::uint64_t usable) {
    return policy::oldest(t, set, usable, policy::get(t, set.words[0]));
  }
};

}  // namespace flashmob::gpu
