// What a replacement policy of the software cache sees: one set of up to 64 ways. Compiles as CUDA device code.
// Writing your own: docs/guide/gpu-cache-policy.md.
//
// A policy is a class without data; all that it remembers lies in words of the cache's memory, one per line and
// kSetWords(ways) per set, zero at first. Its functions are static:
//
//   kName, kMaxWays      what it is called; how many ways a set may have (1...64)
//   set_words(ways)      how many words it keeps per set
//   hit(t, set, way)     the line was found; called by any lane at any time, without a lock: keep it to a load or two
//   insert(t, set, way, tag)   the line was taken for `tag`; called under the set's lock
//   evict(t, set, way, tag)    the line loses `tag`; called under the set's lock, before insert
//   victim(t, set, usable)     the way to give up, one of the bits of `usable`, which is not 0; under the set's lock
//
// What hit() stores may be lost or late against the others: that may cost a wrong choice, never wrong data.
#pragma once

#include <cstdint>

#include "flashmob/gpu/cache_line.h"

namespace flashmob::gpu {

struct PolicySet {
  CacheLine* lines;                  // of this set
  simt::Word<std::uint32_t>* words;  // of this set, Policy::set_words(ways) of them
  std::uint32_t ways;

  FLASHMOB_HD simt::Word<std::uint32_t>& of_line(std::uint32_t way) const { return lines[way].policy; }
};

namespace policy {

inline constexpr std::uint32_t kMaxWays = 64;

FLASHMOB_HD constexpr bool has(std::uint64_t ways, std::uint32_t way) { return (ways >> way & 1) != 0; }

// The lowest way of a set of ways that is not empty.
FLASHMOB_HD constexpr std::uint32_t first(std::uint64_t ways) {
  const auto low = static_cast<std::uint32_t>(ways);
  return low != 0 ? simt::first_lane(low) : 32 + simt::first_lane(static_cast<std::uint32_t>(ways >> 32));
}

// Policy words are hints: relaxed, so that a hit orders nothing that it need not.
template <class Lane>
FLASHMOB_HD std::uint32_t get(Lane& t, const simt::Word<std::uint32_t>& word) {
  return word.load(t, simt::Order::relaxed);
}
template <class Lane>
FLASHMOB_HD void set(Lane& t, simt::Word<std::uint32_t>& word, std::uint32_t value) {
  word.store(t, value, simt::Order::relaxed);
}

// The way among `ways` with the oldest stamp, where stamps count up from a clock that may have wrapped to `now`.
template <class Lane>
FLASHMOB_HD std::uint32_t oldest(Lane& t, const PolicySet& set, std::uint64_t ways, std::uint32_t now,
                                 std::uint32_t stamp_mask = ~0u) {
  std::uint32_t best = first(ways);
  std::uint32_t best_age = 0;
  for (std::uint64_t rest = ways; rest != 0; rest &= rest - 1) {
    const std::uint32_t way = first(rest);
    const std::uint32_t age = (now - get(t, set.of_line(way))) & stamp_mask;
    if (age > best_age) {
      best = way;
      best_age = age;
    }
  }
  return best;
}

}  // namespace policy
}  // namespace flashmob::gpu
