// Submission queues' tail doorbells, looked at a cache line at a time: thousands of queues are mostly idle, and a pass
// over them must not cost more than reading what their hosts may have changed.
//
// Doorbells of one controller are contiguous, a queue pair's tail and head in turn (Base 2.0c, 3.1.3 with DSTRD 0), so
// a line holds the tails of eight queues. What was seen of a line's tails, packed, and when it was last seen unchanged
// lie in arrays of their own: a pass over idle lines touches nothing else. For the dispatcher's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/platform.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace flashmob::engine {

class DoorbellLines {
 public:
  static constexpr std::uint32_t kTails = kCacheLineBytes / (2 * sizeof(std::uint32_t));  // of a line

  // Where a queue's doorbell is.
  struct Place {
    std::uint32_t line;
    std::uint32_t lane;
  };

  void clear() {
    line_at_.clear();
    at_.clear();
    lanes_.clear();
    unchanged_ns_.clear();
    seen_.clear();
  }
  // Lines are looked at in the order in which the first doorbell of each was added. A doorbell that is not where tails
  // are (a host's shadow of odd alignment) is for ever changed.
  Place add(const std::uint32_t* doorbell, std::uint32_t tail) {
    const auto address = reinterpret_cast<std::uintptr_t>(doorbell);
    const auto* const line = reinterpret_cast<const std::uint32_t*>(address / kCacheLineBytes * kCacheLineBytes);
    const auto lane = static_cast<std::uint32_t>(address % kCacheLineBytes / (2 * sizeof(std::uint32_t)));
    const auto [known, is_new] = line_at_.try_emplace(line, static_cast<std::uint32_t>(at_.size()));
    // Two queues at one place, as of a host whose shadow doorbells overlap: the second has a line of its own.
    if (is_new || (lanes_[known->second] & (1u << lane)) != 0) {
      known->second = static_cast<std::uint32_t>(at_.size());
      at_.push_back(line);
      lanes_.push_back(0);
      unchanged_ns_.push_back(0);
      seen_.emplace_back();
    }
    const std::uint32_t found = known->second;
    lanes_[found] = static_cast<std::uint8_t>(lanes_[found] | (1u << lane));
    seen_[found].tails[lane] = address % (2 * sizeof(std::uint32_t)) == 0 ? tail : kNever;
    return {found, lane};
  }

  std::size_t lines() const { return at_.size(); }
  // The queue's entries have been fetched up to this tail.
  void saw(Place place, std::uint32_t tail) {
    std::uint32_t& seen = seen_[place.line].tails[place.lane];
    if (seen != kNever) seen = tail;
  }
  // A look no earlier than this showed nothing new in the whole line; 0: none yet.
  std::uint64_t unchanged_ns(std::uint32_t line) const { return unchanged_ns_[line]; }

  void prefetch(std::size_t line) const {
    if (line < at_.size()) __builtin_prefetch(at_[line]);
  }
  // From `line` on, the first that has changed, and dates those before it; lines(), or `to`, if none has.
  std::size_t next_changed(std::size_t line, std::size_t to, std::uint64_t now_ns) {
    for (; line < to; ++line) {
      if (is_changed(line)) break;
      unchanged_ns_[line] = now_ns;
    }
    return line;
  }

 private:
  static constexpr std::uint32_t kNever = 0xFFFFFFFFu;  // no ring is so long

  struct alignas(kCacheLineBytes / 2) Seen {
    std::uint32_t tails[kTails] = {};
  };

  bool is_changed(std::size_t line) const {
    const std::uint32_t* const at = at_[line];
    const std::uint32_t* const seen = seen_[line].tails;
    std::atomic_signal_fence(std::memory_order_seq_cst);
#if defined(__x86_64__) && !FLASHMOB_TSAN
    // Each tail is read whole; between two of them a host may have rung, as between two looks.
    const auto quarter = [at](int n) { return _mm_load_ps(reinterpret_cast<const float*>(at + 4 * n)); };
    const auto same = [&](int half) {
      const __m128 tails = _mm_shuffle_ps(quarter(2 * half), quarter(2 * half + 1), _MM_SHUFFLE(2, 0, 2, 0));
      return _mm_cmpeq_epi32(_mm_castps_si128(tails), _mm_load_si128(reinterpret_cast<const __m128i*>(seen) + half));
    };
    const __m128i lanes = _mm_packs_epi16(_mm_packs_epi32(same(0), same(1)), _mm_setzero_si128());
    return (~_mm_movemask_epi8(lanes) & lanes_[line]) != 0;
#else
    std::uint32_t changed = 0;
    for (std::uint32_t lane = 0; lane < kTails; ++lane) {
      if ((lanes_[line] & (1u << lane)) == 0) continue;
      auto& tail = const_cast<std::uint32_t&>(at[2 * lane]);
      changed |= std::atomic_ref<std::uint32_t>(tail).load(std::memory_order_relaxed) ^ seen[lane];
    }
    return changed != 0;
#endif
  }

  std::unordered_map<const std::uint32_t*, std::uint32_t> line_at_;
  std::vector<const std::uint32_t*> at_;
  std::vector<std::uint8_t> lanes_;
  std::vector<std::uint64_t> unchanged_ns_;
  std::vector<Seen> seen_;
};

}  // namespace flashmob::engine
