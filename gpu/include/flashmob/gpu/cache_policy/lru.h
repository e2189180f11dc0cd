// Least recently used, within a set. A line's word is the set's clock at its last use; a hit on the line used last
// changes nothing, so that a block that all lanes read costs two loads.
#pragma once

#include "flashmob/gpu/cache_policy/policy.h"

namespace flashmob::gpu {

struct Lru {
  static constexpr const char* kName = "lru";
  static constexpr std::uint32_t kMaxWays = policy::kMaxWays;
  FLASHMOB_HD static constexpr std::uint32_t set_words(std::uint32_t) { return 1; }

  template <class Lane>
  FLASHMOB_HD static void hit(Lane& t, const PolicySet& set, std::uint32_t way) {
    const std::uint32_t now = policy::get(t, set.words[0]);
    if (policy::get(t, set.of_line(way)) == now) return;
    stamp(t, set, way);
  }
  template <class Lane>
  FLASHMOB_HD static void insert(Lane& t, const PolicySet& set, std::uint32_t way, std::uint64_t) {
    stamp(t, set, way);
  }
  template <class Lane>
  FLASHMOB_HD static void evict(Lane&, const PolicySet&, std::uint32_t, std::uint64_t) {}
  template <class Lane>
  FLASHMOB_HD static std::uint32_t victim(Lane& t, const PolicySet& set, std::uint64_t usable) {
    return policy::oldest(t, set, usable, policy::get(t, set.words[0]));
  }

 private:
  template <class Lane>
  FLASHMOB_HD static void stamp(Lane& t, const PolicySet& set, std::uint32_t way) {
    const std::uint32_t now = set.words[0].fetch_add(t, 1, simt::Order::relaxed) + 1;
    policy::set(t, set.of_line(way), now);
  }
};

}  // namespace flashmob::gpu
