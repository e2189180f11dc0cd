// The atomic words through which threads of this machine share a timing model: the policy that simple.h asks for.
// Thread rule: any thread, any time.
#pragma once

#include <atomic>
#include <cstdint>

namespace flashmob::timing {

struct HostAtomics {
  using Word = std::atomic<std::uint64_t>;
  static std::uint64_t load(const Word& word) { return word.load(std::memory_order_relaxed); }
  // May fail spuriously; then `expected` holds the present value.
  static bool compare_exchange(Word& word, std::uint64_t& expected, std::uint64_t desired) {
    return word.compare_exchange_weak(expected, desired, std::memory_order_relaxed, std::memory_order_relaxed);
  }
};

}  // namespace flashmob::timing
