// The policy of a cache whose blocks have one place each: nothing to choose, nothing to remember.
#pragma once

#include "flashmob/gpu/cache_policy/policy.h"

namespace flashmob::gpu {

struct DirectMapped {
  static constexpr const char* kName = "direct_mapped";
  static constexpr std::uint32_t kMaxWays = 1;
  FLASHMOB_HD static constexpr std::uint32_t set_words(std::uint32_t) { return 0; }

  template <class Lane>
  FLASHMOB_HD static void hit(Lane&, const PolicySet&, std::uint32_t) {}
  template <class Lane>
  FLASHMOB_HD static void insert(Lane&, const PolicySet&, std::uint32_t, std::uint64_t) {}
  template <class Lane>
  FLASHMOB_HD static void evict(Lane&, const PolicySet&, std::uint32_t, std::uint64_t) {}
  template <class Lane>
  FLASHMOB_HD static std::uint32_t victim(Lane&, const PolicySet&, std::uint64_t) {
    return 0;
  }
};

}  // namespace flashmob::gpu
