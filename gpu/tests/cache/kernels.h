// Kernels of the cache suite that CPU backends and GPUs run alike (gpu/cuda/tests/cache.cu).
#pragma once

#include <cstdint>

#include "base/rng.h"
#include "flashmob/gpu/cache_owner.h"
#include "flashmob/gpu/cache_policy/clock.h"
#include "flashmob/gpu/share_table.h"

namespace flashmob::gpu::test {

// A block's first word says which it is; the word behind that of thread i is counted up by thread i alone.
FLASHMOB_HD constexpr std::uint64_t marked(const BlockKey& key) { return tag_of(key) ^ 0x5EED'0000'0000'0000ull; }

// What a run of the kernels below is given. Every thread counts in blocks drawn at random; what it has counted stands
// in own[thread * blocks + block].
struct Counting {
  std::uint32_t ssds = 1;
  std::uint64_t blocks = 8;  // of each SSD
  std::uint32_t rounds = 8;
  std::uint32_t line_bytes = 4096;
  std::uint64_t* own = nullptr;
  std::byte* buffers = nullptr;  // a line for each thread
  simt::Word<std::uint64_t>* wrong = nullptr;

  FLASHMOB_HD BlockKey draw(std::uint64_t random) const {
    return {static_cast<std::uint32_t>(random % ssds), 0, (random >> 8) % blocks};
  }
  FLASHMOB_HD std::uint64_t& count(std::uint32_t thread, const BlockKey& key) const {
    return own[(thread * ssds + key.ssd) * blocks + key.block];
  }
  template <class Lane>
  FLASHMOB_HD void look(Lane& t, const BlockKey& key, const std::uint64_t* words) const {
    if (words[0] != marked(key) || words[1 + t.thread()] != count(t.thread(), key)) wrong->fetch_add(t, 1);
  }
};

// Through a cache that is far too small, by single threads and by whole warps in turn.
template <class Cache>
struct CountInLines {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Cache cache, Counting run) const {
    for (std::uint32_t round = 0; round < run.rounds; ++round) {
      const std::uint64_t random = splitmix64(t.thread() * 1'000 + round);
      const BlockKey key = run.draw(random);
      const bool together = round % 3 == 0;
      if (round % 5 == 0) cache.prefetch(t, run.draw(splitmix64(random)));
      const Pin pin = together ? cache.acquire(t, t.lanes(), key, Access::write) : cache.acquire(t, key, Access::write);
      if (!pin.ok()) {
        run.wrong->fetch_add(t, 1);
        continue;
      }
      auto* const words = reinterpret_cast<std::uint64_t*>(pin.data);
      run.look(t, key, words);
      words[1 + t.thread()] = ++run.count(t.thread(), key);
      if (together)
        cache.release(t, t.lanes(), pin);
      else
        cache.release(t, pin);
    }
  }
};

// Through buffers of the threads, which they share.
template <class Table>
struct CountInBuffers {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Table table, Counting run) const {
    for (std::uint32_t round = 0; round < run.rounds; ++round) {
      const BlockKey key = run.draw(splitmix64(t.thread() * 1'000 + round));
      Share share = table.open(t, key, run.buffers + std::uint64_t{t.thread()} * run.line_bytes);
      if (!share.open() || !table.wait(t, share).ok()) {
        run.wrong->fetch_add(t, 1);
      } else {
        auto* const words = reinterpret_cast<std::uint64_t*>(share.data);
        run.look(t, key, words);
        words[1 + t.thread()] = ++run.count(t.thread(), key);
        table.modified(t, share);
      }
      if (!table.close(t, share).ok()) run.wrong->fetch_add(t, 1);
    }
  }
};

using TightCache = Cache<ClockPolicy>;
using TightTwoTierCache = TwoTierCache<ClockPolicy>;
using SsdTable = ShareTable<DirectBlocks<SsdRef>>;

}  // namespace flashmob::gpu::test
