// What each call of the cache does, one at a time: counts, write-back, transfers, deadlines, the second tier.
#include <gtest/gtest.h>

#include "cache/cache_fixture.h"

namespace flashmob::gpu::test {
namespace {

constexpr std::uint32_t kLineBytes = 512;

std::uint64_t& word(const Pin& pin, std::uint32_t index = 0) {
  return reinterpret_cast<std::uint64_t*>(pin.data)[index];
}
std::uint64_t on_media(FakeDevices& devices, std::uint64_t block, std::uint32_t index = 0) {
  return reinterpret_cast<const std::uint64_t*>(devices.media(0, 0).data() + block * kLineBytes)[index];
}

TEST(CacheAccess, CountsWhatItDoes) {
  CacheFixture<Lru> fixture({kLineBytes, 1, 2}, {});
  simt::FibreDevice device(fixture.devices, fibres(1));
  run_one(device, [&](auto& t) {
    auto cache = fixture.ref();
    for (const std::uint64_t block : {0, 1, 0, 2, 0, 1}) cache.release(t, cache.acquire(t, {0, 0, block}));
  });
  // Least recently used: 0 stays, 1 and 2 displace each other.
  const CacheStatistics s = fixture.statistics();
  EXPECT_EQ(s[CacheCount::hits], 2u);
  EXPECT_EQ(s[CacheCount::misses], 4u);
  EXPECT_EQ(s[CacheCount::evictions], 2u);
  EXPECT_EQ(s[CacheCount::waits], 4u);
  EXPECT_EQ(s[CacheCount::write_backs], 0u);
  EXPECT_EQ(fixture.devices.reads(), 4u);
  std::uint64_t waits = 0;
  for (const std::uint64_t n : s.latency) waits += n;
  EXPECT_EQ(waits, 4u);
  EXPECT_GE(s.latency_ns(1.0), 2u);
  EXPECT_LE(s.latency_ns(0.5), 32'768u);
}

TEST(CacheAccess, LatencyBucketsArePowersOfTwo) {
  EXPECT_EQ(latency_bucket(0), 0u);
  EXPECT_EQ(latency_bucket(1), 0u);
  EXPECT_EQ(latency_bucket(2), 1u);
  EXPECT_EQ(latency_bucket(4095), 11u);
  EXPECT_EQ(latency_bucket(4096), 12u);
  EXPECT_EQ(latency_bucket(~0ull), kLatencyBuckets - 1);
  EXPECT_EQ(CacheStatistics{}.latency_ns(0.99), 0u);
}

TEST(CacheAccess, WritesBackBeforeALineIsGivenAway) {
  CacheFixture<DirectMapped> fixture({kLineBytes, 1, 1}, {});
  simt::FibreDevice device(fixture.devices, fibres(1));
  run_one(device, [&](auto& t) {
    auto cache = fixture.ref();
    Pin pin = cache.acquire(t, {0, 0, 0}, Access::write);
    word(pin, 5) = 77;
    cache.release(t, pin);
    EXPECT_EQ(on_media(fixture.devices, 0, 5), 0u);
    cache.release(t, cache.acquire(t, {0, 0, 1}));
    EXPECT_EQ(on_media(fixture.devices, 0, 5), 77u);
    pin = cache.acquire(t, {0, 0, 0});
    EXPECT_EQ(word(pin, 5), 77u);
    cache.release(t, pin);
  });
  EXPECT_EQ(fixture.statistics()[CacheCount::write_backs], 1u);
}

TEST(CacheAccess, OverwriteFetchesNothingAndIsSeenWhenReleased) {
  CacheFixture<Lru> fixture({kLineBytes, 1, 2}, {});
  simt::FibreDevice device(fixture.devices, fibres(1));
  run_one(device, [&](auto& t) {
    auto cache = fixture.ref();
    const Pin pin = cache.acquire(t, {0, 0, 3}, Access::overwrite);
    ASSERT_TRUE(pin.ok());
    // Half done, nobody sees it.
    const Pin early = cache.acquire(t, {0, 0, 3}, Access::read, {.timeout_ns = 5'000});
    EXPECT_EQ(early.status.kind, IoKind::deadline);
    for (std::uint32_t i = 0; i < kLineBytes / 8; ++i) word(pin, i) = 9;
    cache.release(t, pin);
    const Pin late = cache.acquire(t, {0, 0, 3});
    EXPECT_EQ(word(late, 63), 9u);
    cache.release(t, late);
    EXPECT_EQ(fixture.devices.reads(), 0u);
    EXPECT_TRUE(cache.flush(t).ok());
    EXPECT_EQ(on_media(fixture.devices, 3, 63), 9u);
    EXPECT_EQ(fixture.devices.flushes(), 1u);
  });
}

TEST(CacheAccess, SaysThatNoLineIsFree) {
  CacheFixture<Lru> fixture({kLineBytes, 1, 2}, {});
  simt::FibreDevice device(fixture.devices, fibres(1));
  run_one(device, [&](auto& t) {
    auto cache = fixture.ref();
    const Pin a = cache.acquire(t, {0, 0, 0});
    const Pin b = cache.acquire(t, {0, 0, 1});
    const std::uint64_t start_ns = t.now_ns();
    EXPECT_EQ(cache.acquire(t, {0, 0, 2}, Access::read, {.timeout_ns = 20'000}).status.kind, IoKind::no_line);
    EXPECT_GE(t.now_ns() - start_ns, 20'000u);
    EXPECT_LT(t.now_ns() - start_ns, 60'000u);
    cache.prefetch(t, {0, 0, 2});  // dropped
    cache.release(t, a);
    const Pin c = cache.acquire(t, {0, 0, 2});
    EXPECT_TRUE(c.ok());
    cache.release(t, b);
    cache.release(t, c);
  });
  EXPECT_EQ(fixture.audit().text(), "");
}

// A warp's lanes ask ahead for different blocks of one set: they meet at its lock, and none of them is turned away.
struct AskAhead {
  template <class Lane, class Cache>
  void operator()(Lane& t, const Cache* cache) const {
    cache->prefetch(t, t.lanes(), {0, 0, t.thread()});
  }
};
TEST(CacheAccess, PrefetchesThatMeetAtALockAreAllBegun) {
  for (std::uint64_t seed = 1; seed <= seeds(20); ++seed) {
    for (const simt::Schedule schedule : {simt::Schedule::random, simt::Schedule::timed}) {
      CacheFixture<Lru> fixture({kLineBytes, 1, 64}, {.blocks = 64});
      auto options = fibres(seed);
      options.schedule = schedule;
      simt::FibreDevice device(fixture.devices, options);
      const auto cache = fixture.ref();
      device.run({.blocks = 2, .block_threads = 32}, AskAhead{}, &cache);
      ASSERT_EQ(fixture.statistics()[CacheCount::prefetches], 64u) << "seed " << seed;
      run_one(device, [&](auto& t) { ASSERT_TRUE(fixture.ref().drain(t).ok()); });
      ASSERT_EQ(fixture.devices.reads(), 64u);
    }
  }
}

TEST(CacheAccess, ADeadlineLeavesTheLineToItsCommand) {
  CacheFixture<Lru> fixture({kLineBytes, 1, 1}, {.lose_one_in = 1});
  simt::FibreDevice device(fixture.devices, fibres(1));
  run_one(device, [&](auto& t) {
    auto cache = fixture.ref();
    EXPECT_EQ(cache.acquire(t, {0, 0, 0}, Access::read, {.timeout_ns = 20'000}).status.kind, IoKind::deadline);
    // The SSD may still write there, so nobody else gets the line.
    EXPECT_EQ(cache.acquire(t, {0, 0, 1}, Access::read, {.timeout_ns = 20'000}).status.kind, IoKind::no_line);
    fixture.devices.options().lose_one_in = 0;
    fixture.devices.reset();
    const Pin pin = cache.acquire(t, {0, 0, 1});
    EXPECT_TRUE(pin.ok());
    cache.release(t, pin);
  });
}

TEST(CacheAccess, AFailedWriteBackKeepsTheDataAndIsReported) {
  CacheFixture<Lru> fixture({kLineBytes, 1, 1}, {.write_error_one_in = 1});
  simt::FibreDevice device(fixture.devices, fibres(1));
  run_one(device, [&](auto& t) {
    auto cache = fixture.ref();
    Pin pin = cache.acquire(t, {0, 0, 0}, Access::write);
    word(pin, 1) = 5;
    cache.release(t, pin);
    EXPECT_EQ(cache.flush(t).code(), kWriteError.code());
    EXPECT_EQ(cache.acquire(t, {0, 0, 1}).status, kWriteError);  // the only line cannot be had
    pin = cache.acquire(t, {0, 0, 0});
    EXPECT_EQ(word(pin, 1), 5u);
    cache.release(t, pin);
    fixture.devices.options().write_error_one_in = 0;
    EXPECT_TRUE(cache.flush(t).ok());
    EXPECT_EQ(on_media(fixture.devices, 0, 1), 5u);
  });
}

TEST(CacheAccess, TransfersGoStraightToBuffersAndAgreeWithTheLines) {
  CacheFixture<Lru> fixture({kLineBytes, 1, 4}, {.reads_may_race = true});
  mark_media(fixture.devices, kLineBytes);
  simt::FibreDevice device(fixture.devices, fibres(1));
  Bytes memory(kLineBytes);
  auto* buffer = static_cast<std::uint64_t*>(memory.get());
  run_one(device, [&](auto& t) {
    auto cache = fixture.ref();
    auto read = cache.async_read(t, {0, 0, 4}, buffer);
    while (!cache.test(t, read)) t.pause(100);
    EXPECT_TRUE(cache.wait_for(t, read).ok());
    EXPECT_EQ(buffer[0], block_mark({0, 0, 4}));
    EXPECT_EQ(cache.sets().find(t, tag_of({0, 0, 4})), kNoLine);  // the cache is as it was
    buffer[1] = 11;
    const auto write = cache.async_write(t, {0, 0, 4}, buffer);
    buffer[1] = 0;  // the buffer is the caller's again
    const Pin pin = cache.acquire(t, {0, 0, 4});
    EXPECT_EQ(word(pin, 1), 11u);
    cache.release(t, pin);
    while (!cache.test(t, write)) t.pause(100);
    EXPECT_TRUE(cache.wait_for(t, write).ok());
    EXPECT_EQ(on_media(fixture.devices, 4, 1), 11u);
    // A block that is in the cache, newer than the SSD, comes from there.
    const Pin newer = cache.acquire(t, {0, 0, 4}, Access::write);
    word(newer, 1) = 12;
    cache.release(t, newer);
    EXPECT_TRUE(cache.wait_for(t, cache.async_read(t, {0, 0, 4}, buffer)).ok());
    EXPECT_EQ(buffer[1], 12u);
    EXPECT_EQ(cache.wait_for(t, cache.async_read(t, {9, 0, 4}, buffer)).kind, IoKind::bad_request);
    EXPECT_EQ(cache.wait_for(t, cache.async_read(t, {0, 0, 400}, buffer)).code(), 0x80);
  });
  EXPECT_EQ(fixture.audit().text(), "");
}

// The lanes of `mask` bring one block to memory after another and write them back changed, all of them copying.
template <class Cache>
struct CopyTogether {
  Cache cache;
  std::byte* buffer;
  std::uint64_t* wrong;

  template <class Lane>
  void operator()(Lane& t, std::uint32_t mask) const {
    if ((mask >> t.lane() & 1) == 0) return;
    auto* const words = reinterpret_cast<std::uint64_t*>(buffer);
    for (std::uint64_t i = 0; i < 9; ++i) {
      const BlockKey key{0, 0, i % 3};
      const auto read = cache.async_read(t, mask, key, buffer);
      if (!cache.wait_for(t, read).ok()) ++*wrong;
      t.sync(mask);
      if (words[0] != block_mark(key) || words[63] != i / 3) ++*wrong;
      t.sync(mask);
      words[63] = i / 3 + 1;
      t.sync(mask);
      if (!cache.wait_for(t, cache.async_write(t, mask, key, buffer)).ok()) ++*wrong;
      t.sync(mask);
    }
  }
};
template <class Fixture>
void copy_together(Fixture& fixture, std::uint64_t seed, std::uint32_t mask) {
  mark_media(fixture.devices, kLineBytes);
  Bytes memory(kLineBytes);
  std::uint64_t wrong = 0;
  simt::FibreDevice device(fixture.devices, fibres(seed));
  device.run({}, CopyTogether<decltype(fixture.ref())>{fixture.ref(), static_cast<std::byte*>(memory.get()), &wrong},
             mask);
  ASSERT_EQ(wrong, 0u) << "seed " << seed;
  run_one(device, [&](auto& t) { ASSERT_TRUE(fixture.ref().flush(t).ok()); });
  for (std::uint64_t block = 0; block < 3; ++block) ASSERT_EQ(on_media(fixture.devices, block, 63), 3u);
  ASSERT_EQ(fixture.audit().text(), "");
}
TEST(CacheAccess, AWarpCopiesToAndFromABufferTogether) {
  for (std::uint64_t seed = 1; seed <= seeds(20); ++seed) {
    for (const std::uint32_t mask : {0xFFFF'FFFFu, 0x0F00'0100u, 1u << 31}) {
      const FakeOptions options{.seed = seed, .reads_may_race = true};
      CacheFixture<Lru> one({kLineBytes, 1, 2}, options);
      copy_together(one, seed, mask);
      TwoTierFixture<Lru, Lru> two({kLineBytes, 1, 1}, {kLineBytes, 1, 2}, options);
      copy_together(two, seed, mask);
    }
  }
}

TEST(CacheAccess, TheLastLineOfANamespaceMayBeShort) {
  CacheFixture<Lru> fixture({4096, 1, 2}, {.blocks = 13});  // a line of 8 blocks and one of 5
  simt::FibreDevice device(fixture.devices, fibres(1));
  run_one(device, [&](auto& t) {
    auto cache = fixture.ref();
    const Pin pin = cache.acquire(t, {0, 0, 1}, Access::write);
    ASSERT_TRUE(pin.ok());
    word(pin, 5 * 64 - 1) = 3;
    cache.release(t, pin);
    EXPECT_TRUE(cache.flush(t).ok());
    EXPECT_EQ(reinterpret_cast<std::uint64_t*>(fixture.devices.media(0, 0).data())[13 * 64 - 1], 3u);
    EXPECT_EQ(cache.acquire(t, {0, 0, 2}).status.code(), 0x80);
  });
}

// All lanes of a warp ask, by its form, for blocks that only the second tier has: one block, or several.
template <class Cache>
struct AskBelow {
  Cache cache;
  std::uint64_t blocks;
  std::uint64_t* slowest_ns;

  template <class Lane>
  void operator()(Lane& t) const {
    const BlockKey key{0, 0, t.lane() % blocks};
    const std::uint64_t start_ns = t.now_ns();
    const Pin pin = cache.acquire(t, t.lanes(), key);
    *slowest_ns = std::max(*slowest_ns, t.now_ns() - start_ns);
    EXPECT_TRUE(pin.ok());
    EXPECT_EQ(word(pin), block_mark(key));
    cache.release(t, t.lanes(), pin);
  }
};
std::uint64_t ask_below_ns(std::uint64_t blocks) {
  TwoTierFixture<Lru, Lru> fixture({4096, 16, 8}, {4096, 64, 16}, {.blocks = 256 * 8});
  mark_media(fixture.devices, 4096);
  simt::FibreOptions options = fibres(1);
  options.schedule = simt::Schedule::timed;
  simt::FibreDevice device(fixture.devices, options);
  const auto cache = fixture.ref();
  // Twice, so that the lines of the first tier came from the second and may go without a copy.
  run_one(device, [&](auto& t) {
    for (std::uint64_t i = 0; i < 512; ++i) cache.release(t, cache.acquire(t, {0, 0, i % 256}));
  });
  const std::uint64_t hits = fixture.statistics()[CacheCount::second_hits];
  std::uint64_t slowest_ns = 0;
  device.run({}, AskBelow<decltype(fixture.ref())>{cache, blocks, &slowest_ns});
  EXPECT_EQ(fixture.statistics()[CacheCount::second_hits], hits + blocks);
  EXPECT_EQ(fixture.devices.reads(), 256u);
  EXPECT_EQ(fixture.audit().text(), "");
  return slowest_ns;
}
TEST(SecondTier, AWarpCopiesTogetherWhatOneOfItsLanesFindsThere) {
  // A line has 256 pieces of 16 bytes, each of which takes as long as an atomic: by one lane 5,120 ns, by 32 of them
  // 160.
  EXPECT_LT(ask_below_ns(1), 2'000u);
}

TEST(SecondTier, ServesWhatTheFirstHadToGiveAway) {
  TwoTierFixture<Lru, Lru> fixture({kLineBytes, 1, 2}, {kLineBytes, 1, 8}, {});
  mark_media(fixture.devices, kLineBytes);
  simt::FibreDevice device(fixture.devices, fibres(1));
  run_one(device, [&](auto& t) {
    auto cache = fixture.ref();
    for (std::uint64_t round = 0; round < 3; ++round) {
      for (std::uint64_t block = 0; block < 6; ++block) {
        const Pin pin = cache.acquire(t, {0, 0, block}, Access::write);
        EXPECT_EQ(word(pin), block_mark({0, 0, block}));
        EXPECT_EQ(word(pin, 1), round);
        word(pin, 1) = round + 1;
        cache.release(t, pin);
      }
    }
    // Read once each, written not at all: the second tier holds the rest.
    EXPECT_EQ(fixture.devices.reads(), 6u);
    EXPECT_EQ(fixture.devices.writes(), 0u);
    EXPECT_EQ(fixture.statistics()[CacheCount::second_hits], 12u);
    EXPECT_TRUE(cache.flush(t).ok());
  });
  for (std::uint64_t block = 0; block < 6; ++block) EXPECT_EQ(on_media(fixture.devices, block, 1), 3u);
  EXPECT_EQ(fixture.audit().text(), "");
}

TEST(SecondTier, KeepsCleanBlocksToo) {
  TwoTierFixture<Fifo, Fifo> fixture({kLineBytes, 1, 1}, {kLineBytes, 1, 4}, {});
  simt::FibreDevice device(fixture.devices, fibres(1));
  run_one(device, [&](auto& t) {
    auto cache = fixture.ref();
    for (std::uint64_t i = 0; i < 12; ++i) cache.release(t, cache.acquire(t, {0, 0, i % 4}));
  });
  EXPECT_EQ(fixture.devices.reads(), 4u);
  EXPECT_EQ(fixture.statistics()[CacheCount::second_hits], 8u);
}

}  // namespace
}  // namespace flashmob::gpu::test
