// S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023), within a set: newcomers go to a
// small queue of a tenth of the set and leave soon unless they are used again; those that are used, or that come back
// while a ghost of them is remembered, go to the main queue, where every use buys another round.
//
// A line's word: bits 0-1 uses since it was queued (up to 3), bit 2 main queue, bits 3-31 its place in the order of
// arrival. The set's words: the order's clock, the ghosts' hand, and one ghost (half a hash of a tag) per way.
#pragma once

#include "flashmob/gpu/cache_policy/policy.h"

namespace flashmob::gpu {

struct S3Fifo {
  static constexpr const char* kName = "s3_fifo";
  static constexpr std::uint32_t kMaxWays = policy::kMaxWays;
  FLASHMOB_HD static constexpr std::uint32_t set_words(std::uint32_t ways) { return kGhosts + ways; }

  template <class Lane>
  FLASHMOB_HD static void hit(Lane& t, const PolicySet& set, std::uint32_t way) {
    const std::uint32_t word = policy::get(t, set.of_line(way));
    if ((word & kUses) != kUses) policy::set(t, set.of_line(way), word + 1);
  }
  template <class Lane>
  FLASHMOB_HD static void insert(Lane& t, const PolicySet& set, std::uint32_t way, std::uint64_t tag) {
    const std::uint32_t ghost = ghost_of(tag);
    bool came_back = false;
    for (std::uint32_t i = 0; i < set.ways && !came_back; ++i) {
      if (policy::get(t, set.words[kGhosts + i]) != ghost) continue;
      policy::set(t, set.words[kGhosts + i], 0);
      came_back = true;
    }
    queue(t, set, way, came_back ? kMain : 0);
  }
  template <class Lane>
  FLASHMOB_HD static void evict(Lane& t, const PolicySet& set, std::uint32_t way, std::uint64_t tag) {
    if ((policy::get(t, set.of_line(way)) & kMain) != 0) return;
    const std::uint32_t hand = policy::get(t, set.words[kHand]) % set.ways;
    policy::set(t, set.words[kGhosts + hand], ghost_of(tag));
    policy::set(t, set.words[kHand], hand + 1);
  }
  template <class Lane>
  FLASHMOB_HD static std::uint32_t victim(Lane& t, const PolicySet& set, std::uint64_t usable) {
    const std::uint32_t small_target = set.ways < 20 ? 1 : set.ways / 10;
    // A line has at most 3 uses to spend and moves once from small to main.
    for (std::uint32_t step = 0; step < 5 * set.ways; ++step) {
      std::uint64_t small = 0;
      std::uint32_t all_small = 0;
      for (std::uint32_t way = 0; way < set.ways; ++way) {
        if ((policy::get(t, set.of_line(way)) & kMain) != 0) continue;
        ++all_small;
        if (policy::has(usable, way)) small |= std::uint64_t{1} << way;
      }
      const std::uint64_t main = usable & ~small;
      const bool from_small = small != 0 && (all_small > small_target || main == 0);
      const std::uint32_t way = oldest(t, set, from_small ? small : main != 0 ? main : small);
      const std::uint32_t uses = policy::get(t, set.of_line(way)) & kUses;
      if (uses == 0) return way;
      queue(t, set, way, kMain | (from_small ? 0 : uses - 1));
    }
    return policy::first(usable);
  }

 private:
  static constexpr std::uint32_t kUses = 3;
  static constexpr std::uint32_t kMain = 4;
  static constexpr std::uint32_t kOrder = 8;
  static constexpr std::uint32_t kClock = 0;
  static constexpr std::uint32_t kHand = 1;
  static constexpr std::uint32_t kGhosts = 2;

  // Never 0, which is no ghost.
  FLASHMOB_HD static constexpr std::uint32_t ghost_of(std::uint64_t tag) {
    return static_cast<std::uint32_t>(mix_tag(tag) >> 32) | 1;
  }
  template <class Lane>
  FLASHMOB_HD static void queue(Lane& t, const PolicySet& set, std::uint32_t way, std::uint32_t marks) {
    const std::uint32_t now = policy::get(t, set.words[kClock]) + kOrder;
    policy::set(t, set.words[kClock], now);
    policy::set(t, set.of_line(way), now | marks);
  }
  template <class Lane>
  FLASHMOB_HD static std::uint32_t oldest(Lane& t, const PolicySet& set, std::uint64_t ways) {
    return policy::oldest(t, set, ways, policy::get(t, set.words[kClock]) | (kOrder - 1), ~(kOrder - 1));
  }
};

}  // namespace flashmob::gpu
