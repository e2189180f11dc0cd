// Caches as hosts make them: memory, options, flush, figures.
#include "flashmob/gpu/cache_owner.h"

#include <gtest/gtest.h>

#include <vector>

#include "flashmob/gpu/cache_policy/direct_mapped.h"
#include "flashmob/gpu/cache_policy/lru.h"
#include "flashmob/gpu/cache_policy/s3_fifo.h"
#include "host/attach/virtual_ssd.h"

namespace flashmob::gpu {
namespace {

// Every thread adds 1 to the first word of a block of its own, on both SSDs.
template <class Ref>
struct AddOne {
  template <class Lane>
  void operator()(Lane& t, Ref cache, std::uint64_t* failures) const {
    for (std::uint32_t ssd = 0; ssd < 2; ++ssd) {
      const Pin pin = cache.acquire(t, {ssd, 0, t.thread()}, Access::write);
      if (!pin.ok()) {
        ++*failures;
        continue;
      }
      ++*reinterpret_cast<std::uint64_t*>(pin.data);
      cache.release(t, pin);
    }
  }
};

// Asks for blocks and waits for none.
template <class Ref>
struct AskAhead {
  template <class Lane>
  void operator()(Lane& t, Ref cache) const {
    cache.prefetch(t, {0, 0, t.thread()});
  }
};

template <class Owner>
void count(Gpu& gpu, Owner& cache, std::uint64_t expected) {
  std::uint64_t failures = 0;
  gpu.run({.blocks = 2, .block_threads = 32}, AddOne<typename Owner::Ref>{}, cache.ref(), &failures);
  EXPECT_EQ(failures, 0u);
  EXPECT_TRUE(cache.flush().ok());
  EXPECT_TRUE(cache.drain().ok());
  EXPECT_EQ(cache.audit().text(), "");
  EXPECT_EQ(cache.lock_report(), "");
  std::vector<std::uint64_t> block(512);
  for (std::uint32_t ssd = 0; ssd < 2; ++ssd) {
    for (const std::uint64_t thread : {0, 31, 63}) {
      gpu.read(ssd, 0, thread * 8, block.data(), 4096);
      EXPECT_EQ(block[0], expected);
    }
  }
}

TEST(CacheOwner, WritesWhatKernelsWrote) {
  const auto gpu = attach({small_ssd(), small_ssd()}, {.backend = "fibres"});
  Cache<Lru> cache(*gpu, {.lines = 33, .ways = 8});
  EXPECT_EQ(cache.ref().sets().lines(), 40u);
  count(*gpu, cache, 1);
  EXPECT_EQ(cache.statistics()[CacheCount::misses], 128u);
  EXPECT_GE(cache.statistics()[CacheCount::write_backs], 128u);
  Cache<DirectMapped> other(*gpu, {.lines = 16, .ways = 1, .statistics = false});
  count(*gpu, other, 2);
  EXPECT_EQ(other.statistics()[CacheCount::misses], 0u);
}

TEST(CacheOwner, HasTwoTiersIfAsked) {
  const auto gpu = attach({small_ssd(), small_ssd()}, {.backend = "fibres"});
  TwoTierCache<S3Fifo, Lru> cache(*gpu, {.lines = 16, .ways = 8, .host_lines = 256});
  count(*gpu, cache, 1);
  const std::uint64_t reads = cache.statistics()[CacheCount::misses] - cache.statistics()[CacheCount::second_hits];
  count(*gpu, cache, 2);
  EXPECT_EQ(cache.statistics()[CacheCount::misses] - cache.statistics()[CacheCount::second_hits], reads);
  EXPECT_GE(cache.host_statistics()[CacheCount::write_backs], 128u);
}

// A command that ends after its cache would write to memory that is somebody else's by then.
TEST(CacheOwner, ItsEndWaitsForPrefetchesThatNobodyWaitedFor) {
  const auto gpu = attach({small_ssd()}, {.backend = "fibres"});
  {
    Cache<Lru> cache(*gpu, {.lines = 64, .ways = 16});
    gpu->run({.blocks = 1, .block_threads = 32}, AskAhead<Cache<Lru>::Ref>{}, cache.ref());
    EXPECT_GT(gpu->stats().in_flight, 0u);
  }
  EXPECT_EQ(gpu->stats().in_flight, 0u);
  {
    TwoTierCache<Lru> cache(*gpu, {.lines = 64, .ways = 16, .host_lines = 64});
    gpu->run({.blocks = 1, .block_threads = 32}, AskAhead<TwoTierCache<Lru>::Ref>{}, cache.ref());
    EXPECT_GT(gpu->stats().in_flight, 0u);
  }
  EXPECT_EQ(gpu->stats().in_flight, 0u);
}

TEST(CacheOwner, RefusesWhatCannotBeWithKeyAndFix) {
  const auto gpu = attach({small_ssd()}, {.backend = "fibres"});
  const auto refusal = [&](const CacheOptions& options) -> std::string {
    try {
      Cache<Lru> cache(*gpu, options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal({.ways = 65}).find("cache.ways"), std::string::npos);
  EXPECT_NE(refusal({.ways = 0}).find("cache.ways"), std::string::npos);
  EXPECT_NE(refusal({.lines = 0}).find("cache.lines"), std::string::npos);
  EXPECT_NE(refusal({.line_bytes = 2048}).find("cache.line_bytes"), std::string::npos);  // blocks of 4096
  EXPECT_NE(refusal({.line_bytes = 256 << 10}).find("131072"), std::string::npos);
  EXPECT_EQ(refusal({.line_bytes = 8192}), "");
  EXPECT_THROW(Cache<DirectMapped>(*gpu, {.ways = 2}), ConfigError);
  EXPECT_THROW((TwoTierCache<Lru>(*gpu, {.lines = 16, .host_lines = 0})), ConfigError);
}

}  // namespace
}  // namespace flashmob::gpu
