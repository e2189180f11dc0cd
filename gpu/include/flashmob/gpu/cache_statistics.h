// What a cache has done, counted by its lanes. Counters are spread over shards, one per group of warps, so that lanes
// do not meet on one address; the host adds the shards up. Compiles as CUDA device code.
// Thread rule: any lane adds; sum() is for the host and exact when no lane is at work.
#pragma once

#include <cstdint>

#include "flashmob/gpu/simt/word.h"

namespace flashmob::gpu {

enum class CacheCount : std::uint32_t {
  hits,            // accesses that found their data
  misses,          // accesses that began a fetch (or took a line to overwrite)
  joined,          // accesses that found the fetch under way and shared it
  prefetches,      // fetches that were begun ahead
  evictions,       // blocks that had to go
  write_backs,     // writes to the SSD, or to the second tier, that were begun
  waits,           // accesses that had to wait
  fetch_errors,    // accesses that were told of an error
  write_errors,    // writes that failed
  second_hits,     // misses that the second tier could serve
  kNumber,
};

inline constexpr std::uint32_t kCacheCounts = static_cast<std::uint32_t>(CacheCount::kNumber);
inline constexpr std::uint32_t kLatencyBuckets = 40;

// Bucket b holds waits of 2^b up to 2^(b+1) ns; the first also those of 0, the last all that are longer.
FLASHMOB_HD constexpr std::uint32_t latency_bucket(std::uint64_t ns) {
  std::uint32_t bucket = 0;
  while (ns > 1 && bucket + 1 < kLatencyBuckets) {
    ns >>= 1;
    ++bucket;
  }
  return bucket;
}

struct alignas(128) CacheShard {
  simt::Word<std::uint64_t> counts[kCacheCounts];
  simt::Word<std::uint64_t> latency[kLatencyBuckets];
};

struct CacheStatistics {
  std::uint64_t counts[kCacheCounts] = {};
  std::uint64_t latency[kLatencyBuckets] = {};

  std::uint64_t operator[](CacheCount what) const { return counts[static_cast<std::uint32_t>(what)]; }

  // The upper end of the bucket that the given part (0...1) of all waits lies in; 0 without waits.
  std::uint64_t latency_ns(double part) const {
    std::uint64_t all = 0;
    for (const std::uint64_t n : latency) all += n;
    std::uint64_t below = 0;
    for (std::uint32_t b = 0; b < kLatencyBuckets && all != 0; ++b) {
      below += latency[b];
      if (static_cast<double>(below) >= part * static_cast<double>(all)) return std::uint64_t{2} << b;
    }
    return 0;
  }
};

// Where lanes count; without shards they do not.
class CacheCounters {
 public:
  CacheCounters() = default;
  FLASHMOB_HD CacheCounters(CacheShard* shards, std::uint32_t count) : shards_(shards), count_(count) {}

  template <class Lane>
  FLASHMOB_HD void add(Lane& t, CacheCount what, std::uint64_t n = 1) const {
    if (count_ != 0) shard(t).counts[static_cast<std::uint32_t>(what)].fetch_add(t, n, simt::Order::relaxed);
  }
  template <class Lane>
  FLASHMOB_HD void add_latency(Lane& t, std::uint64_t ns) const {
    if (count_ != 0) shard(t).latency[latency_bucket(ns)].fetch_add(t, 1, simt::Order::relaxed);
  }

  CacheStatistics sum() const {
    CacheStatistics sum;
    for (std::uint32_t s = 0; s < count_; ++s) {
      for (std::uint32_t i = 0; i < kCacheCounts; ++i) sum.counts[i] += shards_[s].counts[i].value;
      for (std::uint32_t i = 0; i < kLatencyBuckets; ++i) sum.latency[i] += shards_[s].latency[i].value;
    }
    return sum;
  }

 private:
  template <class Lane>
  FLASHMOB_HD CacheShard& shard(Lane& t) const {
    return shards_[t.warp() % count_];
  }

  CacheShard* shards_ = nullptr;
  std::uint32_t count_ = 0;
};

}  // namespace flashmob::gpu
