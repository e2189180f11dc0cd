// Caches over fake SSDs, for the cache's tests.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cache/fake_ssd.h"
#include "flashmob/gpu/audit.h"
#include "flashmob/gpu/cache.h"
#include "flashmob/gpu/cache_policy/clock.h"
#include "flashmob/gpu/cache_policy/direct_mapped.h"
#include "flashmob/gpu/cache_policy/fifo.h"
#include "flashmob/gpu/cache_policy/lru.h"
#include "flashmob/gpu/cache_policy/s3_fifo.h"
#include "flashmob/gpu/simt/fibre.h"
#include "on_backend.h"
#include "weak_memory.h"

namespace flashmob::gpu::test {

inline simt::FibreOptions fibres(std::uint64_t seed) {
  simt::FibreOptions options;
  options.seed = seed;
  options.stack_bytes = 32 << 10;
  options.weak_memory = weak_memory;
  return options;
}

// Zeroed and aligned.
struct Bytes {
  explicit Bytes(std::size_t size) : words((size + sizeof(Chunk) - 1) / sizeof(Chunk) + 1) {}
  void* get() { return words.data(); }
  struct alignas(128) Chunk {
    std::byte bytes[128];
  };
  std::vector<Chunk> words;
};

// Memory of one cache of one tier.
template <class Policy, class Chain = NoLockChain>
struct TierMemory {
  using Sets = CacheSets<Policy, Chain>;

  explicit TierMemory(const CacheGeometry& geometry, Chain chain = {})
      : metadata(Sets::metadata_bytes(geometry)),
        data(geometry.data_bytes()),
        shards(2),
        sets(Sets::place(geometry, metadata.get(), data.get(), chain)),
        counters(shards.data(), 2) {}

  Bytes metadata;
  Bytes data;
  std::vector<CacheShard> shards;
  Sets sets;
  CacheCounters counters;
};

template <class Policy, class Chain = NoLockChain>
struct CacheFixture {
  using Ref = CacheRef<Policy, FakeSsd, NoSecondTier, Chain>;

  CacheFixture(const CacheGeometry& geometry, const FakeOptions& options, Chain chain = {})
      : devices(options), memory(geometry, chain) {
    for (std::uint32_t i = 0; i < options.ssds; ++i) ssds.emplace_back(devices, i);
  }
  Ref ref() { return Ref(memory.sets, ssds.data(), static_cast<std::uint32_t>(ssds.size()), memory.counters); }
  CacheStatistics statistics() const { return memory.counters.sum(); }
  CacheAudit audit() { return audit_cache(memory.sets); }

  FakeDevices devices;
  std::vector<FakeSsd> ssds;
  TierMemory<Policy, Chain> memory;
};

template <class Policy, class LowerPolicy>
struct TwoTierFixture {
  using Lower = CacheRef<LowerPolicy, FakeSsd, NoSecondTier, NoLockChain>;
  using Ref = CacheRef<Policy, FakeSsd, SecondTier<Lower>, NoLockChain>;

  TwoTierFixture(const CacheGeometry& geometry, const CacheGeometry& lower, const FakeOptions& options)
      : devices(options), memory(geometry), lower_memory(lower) {
    for (std::uint32_t i = 0; i < options.ssds; ++i) ssds.emplace_back(devices, i);
  }
  Ref ref() {
    const auto count = static_cast<std::uint32_t>(ssds.size());
    return Ref(memory.sets, ssds.data(), count, memory.counters,
               SecondTier<Lower>(Lower(lower_memory.sets, ssds.data(), count, lower_memory.counters)));
  }
  CacheStatistics statistics() const { return memory.counters.sum(); }
  CacheAudit audit() {
    CacheAudit both = audit_cache(memory.sets);
    both += audit_cache(lower_memory.sets);
    return both;
  }

  FakeDevices devices;
  std::vector<FakeSsd> ssds;
  TierMemory<Policy> memory;
  TierMemory<LowerPolicy> lower_memory;
};

// Runs one lane's function: for tests that look at one thing at a time.
struct OneLane {
  template <class Lane, class Function>
  void operator()(Lane& t, Function* function) const {
    (*function)(t);
  }
};
template <class Device, class Function>
void run_one(Device& device, Function function) {
  device.run({.blocks = 1, .block_threads = 1}, OneLane{}, &function);
}

// Fills every block with words that tell which one it is: (ssd, ns, block) in the first, the rest 0.
inline std::uint64_t block_mark(const BlockKey& key) { return tag_of(key) ^ 0x5EED'0000'0000'0000ull; }
inline void mark_media(FakeDevices& devices, std::uint32_t line_bytes) {
  for (std::uint32_t s = 0; s < devices.options().ssds; ++s) {
    for (std::uint32_t n = 0; n < devices.options().namespaces; ++n) {
      auto& media = devices.media(s, n);
      for (std::uint64_t b = 0; (b + 1) * line_bytes <= media.size(); ++b) {
        const std::uint64_t mark = block_mark({s, n, b});
        std::memcpy(media.data() + b * line_bytes, &mark, sizeof mark);
      }
    }
  }
}

}  // namespace flashmob::gpu::test
