// The atomic words through which the service units of the GPU engine share one timing model: the policy that
// timing/simple.h asks for, as timing/host_atomics.h is for threads. Compiles as CUDA device code.
// Thread rule: any lane of any block.
#pragma once

#include <cstdint>

#include "flashmob/gpu/simt/word.h"

namespace flashmob::gpu::engine {

// No lane takes part: the model's updates are no point where the scheduler of fibres switches. They publish nothing but
// themselves, so relaxed order is enough.
struct DeviceAtomics {
  struct Word {
    std::uint64_t value = 0;
  };
  FLASHMOB_HD static std::uint64_t load(const Word& word) { return ref(word).load(simt::detail::kRelaxed); }
  FLASHMOB_HD static bool compare_exchange(Word& word, std::uint64_t& expected, std::uint64_t desired) {
    return ref(word).compare_exchange_weak(expected, desired, simt::detail::kRelaxed, simt::detail::kRelaxed);
  }
#if defined(__CUDA_ARCH__)
  // Raised to `now`, then added to: neither has to be tried again, so that units which meet at an instance take turns
  // in the memory's own time (1.4 G updates/s of one word on an H200, where swaps that fail held all units to 3 M
  // batches a second). A service may begin at another unit's `now` in place of its own: as if that one had come first.
  FLASHMOB_HD static std::uint64_t reserve(Word& word, std::uint64_t busy, std::uint64_t now) {
    ref(word).fetch_max(now, simt::detail::kRelaxed);
    return ref(word).fetch_add(busy, simt::detail::kRelaxed);
  }
#endif

 private:
  using Ref = simt::detail::AtomicRef<std::uint64_t, simt::Scope::device>;
  FLASHMOB_HD static Ref ref(const Word& word) { return Ref(const_cast<std::uint64_t&>(word.value)); }
};

}  // namespace flashmob::gpu::engine
