// One test for each defect of earlier GPU caches that ours must not have, and planted ones that the seeds must find.
#include <gtest/gtest.h>

#include "cache/traffic.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace flashmob::gpu::test {
namespace {

constexpr std::uint32_t kLineBytes = 512;

// Three lanes with two blocks in turn through one line, and others that only take time, so that a lane can be left
// behind for as long as a fetch lasts. `Hit` says how a block that is found is pinned.
template <class Ref, class Hit>
struct TwoBlocksOneLine {
  Ref cache;
  std::uint64_t* wrong;

  template <class Lane>
  void operator()(Lane& t) const {
    if (t.thread() >= 3) {
      simt::Word<std::uint32_t> idle;
      for (std::uint32_t i = 0; i < 300; ++i) idle.fetch_add(t, 1);
      return;
    }
    for (std::uint64_t round = 0; round < 24; ++round) {
      const BlockKey key{0, 0, (t.thread() + round / 4) % 2};
      const Pin pin = Hit{}(t, cache, key);
      if (!pin.ok()) continue;
      *wrong += *reinterpret_cast<const std::uint64_t*>(pin.data) != block_mark(key);
      t.pause(1);
      *wrong += *reinterpret_cast<const std::uint64_t*>(pin.data) != block_mark(key);
      cache.release(t, pin);
    }
  }
};
struct OurHit {
  template <class Lane, class Ref>
  Pin operator()(Lane& t, const Ref& cache, const BlockKey& key) const {
    return cache.acquire(t, key);
  }
};
// Planted: pins the line that was found, and does not look whether it still is that block's.
struct HitWithoutSecondLook {
  template <class Lane, class Ref>
  Pin operator()(Lane& t, const Ref& cache, const BlockKey& key) const {
    const std::uint64_t index = cache.sets().find(t, tag_of(key));
    if (index != kNoLine) {
      if (line::holds_data(cache.sets().pin(t, index, line::users(1, false))))
        return {cache.sets().data(index), index, {}, false, false, 0};
      cache.sets().unpin(t, index, line::users(1, false));
    }
    return cache.acquire(t, key);
  }
};

template <class Hit>
std::uint64_t wrong_reads(std::uint64_t seed) {
  CacheFixture<DirectMapped> fixture({kLineBytes, 1, 1}, {.seed = seed, .blocks = 4, .latency_ns = 20});
  mark_media(fixture.devices, kLineBytes);
  simt::FibreDevice device(fixture.devices, fibres(seed));
  std::uint64_t wrong = 0;
  using Ref = decltype(fixture.ref());
  device.run({.blocks = 6, .block_threads = 1}, TwoBlocksOneLine<Ref, Hit>{fixture.ref(), &wrong});
  return wrong;
}

TEST(CacheDefects, HitPathNeverReadsALineAfterEviction) {
  for (std::uint64_t seed = 1; seed <= seeds(600); ++seed) ASSERT_EQ(wrong_reads<OurHit>(seed), 0u) << "seed " << seed;
}

TEST(CacheDefects, APlantedHitWithoutSecondLookIsFoundWithinAThousandSeeds) {
  std::uint64_t seed = 1;
  while (seed <= 1'000 && wrong_reads<HitWithoutSecondLook>(seed) == 0) ++seed;
  ASSERT_LE(seed, 1'000u);
  // And its seed replays it.
  EXPECT_EQ(wrong_reads<HitWithoutSecondLook>(seed), wrong_reads<HitWithoutSecondLook>(seed));
  EXPECT_NE(wrong_reads<HitWithoutSecondLook>(seed), 0u);
}

// Planted: takes a set's lock and keeps it while it waits for a block of the other set.
template <class Ref>
struct LockHeldWhileWaiting {
  Ref cache;

  template <class Lane>
  void operator()(Lane& t) const {
    std::uint64_t block = 0;  // of the set that this lane does not lock
    while (cache.sets().set_of(tag_of({0, 0, block})) != (t.thread() + 1) % 2) ++block;
    t.busy(1 + t.thread() * 30);
    auto& lock = cache.sets().lock(t.thread() % 2);
    while (lock.exchange(t, 1) != 0) t.pause(100);
    cache.release(t, cache.acquire(t, {0, 0, block}, Access::read, {.timeout_ns = 1'000'000'000'000}));
    lock.store(t, 0);
  }
};
std::string stuck_report(std::uint64_t seed) {
  CacheFixture<Lru> fixture({kLineBytes, 2, 2}, {.seed = seed, .latency_ns = 1'000});
  auto options = fibres(seed);
  options.patience_ns = 100'000;
  simt::FibreDevice device(fixture.devices, options);
  try {
    device.run({.blocks = 1, .block_threads = 2}, LockHeldWhileWaiting<decltype(fixture.ref())>{fixture.ref()});
  } catch (const simt::StuckError& error) {
    return error.what();
  }
  return "";
}
TEST(CacheDefects, APlantedLockHeldWhileWaitingIsFoundWithinAThousandSeeds) {
  std::uint64_t seed = 1;
  std::string report;
  while (seed <= 1'000 && (report = stuck_report(seed)).empty()) ++seed;
  ASSERT_LE(seed, 1'000u);
  EXPECT_NE(report.find("livelock"), std::string::npos) << report;
  EXPECT_NE(report.find("seed " + std::to_string(seed)), std::string::npos) << report;
  EXPECT_EQ(stuck_report(seed), report);
}

TEST(CacheDefects, TwoSsdsWithEqualBlockNumbersDoNotAlias) {
  CacheFixture<ClockPolicy> fixture({kLineBytes, 1, 8}, {.ssds = 2, .namespaces = 2});
  mark_media(fixture.devices, kLineBytes);
  simt::FibreDevice device(fixture.devices, fibres(1));
  run_one(device, [&](auto& t) {
    auto cache = fixture.ref();
    std::vector<Pin> pins;
    for (std::uint32_t i = 0; i < 4; ++i) pins.push_back(cache.acquire(t, {i / 2, i % 2, 7}));
    for (std::uint32_t i = 0; i < 4; ++i) {
      EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(pins[i].data), block_mark({i / 2, i % 2, 7}));
      for (std::uint32_t j = 0; j < i; ++j) EXPECT_NE(pins[i].data, pins[j].data);
      cache.release(t, pins[i]);
    }
  });
}

TEST(CacheDefects, BlockNumbersAbove32BitsAreNotCut) {
  EXPECT_NE(tag_of({0, 0, 5}), tag_of({0, 0, 5 + (std::uint64_t{1} << 32)}));
  for (const BlockKey& key : {BlockKey{3, 7, 5 + (std::uint64_t{1} << 32)}, BlockKey{254, 255, (1ull << 48) - 1}})
    EXPECT_EQ(key_of(tag_of(key)), key);
  EXPECT_FALSE(has_tag({0, 0, 1ull << 48}));
  EXPECT_FALSE(has_tag({255, 0, 0}));
  EXPECT_FALSE(has_tag({0, 256, 0}));
  CacheFixture<Lru> fixture({kLineBytes, 1, 4}, {});
  mark_media(fixture.devices, kLineBytes);
  simt::FibreDevice device(fixture.devices, fibres(1));
  run_one(device, [&](auto& t) {
    auto cache = fixture.ref();
    cache.release(t, cache.acquire(t, {0, 0, 5}));
    // The SSD has no such block; block 5 must not be given instead.
    const Pin far = cache.acquire(t, {0, 0, 5 + (std::uint64_t{1} << 32)});
    EXPECT_FALSE(far.ok());
    EXPECT_EQ(far.status.code(), 0x80);
    const Pin beyond = cache.acquire(t, {0, 0, std::uint64_t{1} << 48});
    EXPECT_EQ(beyond.status.kind, IoKind::bad_request);
  });
}

TEST(CacheDefects, ACacheMayBeLargerThan4GiB) {
  const CacheGeometry geometry{.line_bytes = 1 << 20, .sets = 4096, .ways = 2};
  ASSERT_EQ(geometry.data_bytes(), std::uint64_t{8} << 30);
  void* data =
      mmap(nullptr, geometry.data_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  using Sets = CacheSets<Lru, NoLockChain>;
  Bytes metadata(Sets::metadata_bytes(geometry));
  const Sets sets = Sets::place(geometry, metadata.get(), data);
  FakeDevices devices({.blocks = 4096});
  mark_media(devices, 1 << 20);
  const FakeSsd ssd(devices, 0);
  const CacheRef<Lru, FakeSsd, NoSecondTier, NoLockChain> cache(sets, &ssd, 1);
  simt::FibreDevice device(devices, fibres(1));
  run_one(device, [&](auto& t) {
    EXPECT_EQ(sets.data(geometry.lines() - 1) - sets.data(0), std::ptrdiff_t{8191} << 20);
    // Makes the lines beyond 4 GiB the only free ones, in the set of each block.
    std::uint64_t far = 0;
    for (std::uint64_t block = 0; block < 2; ++block) {
      const Pin pin = cache.acquire(t, {0, 0, block}, Access::write);
      ASSERT_TRUE(pin.ok());
      EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(pin.data), block_mark({0, 0, block}));
      EXPECT_EQ(static_cast<void*>(pin.data), static_cast<std::byte*>(data) + (pin.line << 20));
      pin.data[100] = std::byte{1};
      far = std::max(far, pin.line);
      cache.release(t, pin);
    }
    EXPECT_TRUE(cache.write_back(t, 0, 1).ok());
    EXPECT_GT(far, 0u);
  });
  munmap(data, geometry.data_bytes());
}

// Every status of an SSD but success is an error, whatever its bits, and everyone who waits for the fetch is told.
template <class Ref>
struct AllWantOneBlock {
  Ref cache;
  IoStatus* told;

  template <class Lane>
  void operator()(Lane& t) const {
    const Pin pin = cache.acquire(t, {0, 0, 3});
    told[t.thread()] = pin.status;
    if (pin.ok()) told[t.thread()] = {};
    cache.release(t, pin);
  }
};
TEST(CacheDefects, EveryErrorReachesEveryWaiterWithTypeAndCode) {
  for (std::uint64_t seed = 1; seed <= seeds(100); ++seed) {
    CacheFixture<Lru> fixture({kLineBytes, 1, 2}, {.seed = seed, .read_error_one_in = 1});
    simt::FibreDevice device(fixture.devices, fibres(seed));
    std::vector<IoStatus> told(12);
    device.run({.blocks = 3, .block_threads = 4}, AllWantOneBlock<decltype(fixture.ref())>{fixture.ref(), told.data()});
    for (const IoStatus& status : told) {
      ASSERT_EQ(status, kReadError) << "seed " << seed;
      ASSERT_EQ(status.type(), 2u);
      ASSERT_EQ(status.code(), 0x81u);
    }
    // Who came together was told of one fetch; nobody is told of an error that was before his time.
    ASSERT_LE(fixture.devices.reads(), 12u);
    ASSERT_EQ(fixture.audit().text(), "");
  }
}

TEST(CacheDefects, OneFetchServesAllWhoAsk) {
  for (std::uint64_t seed = 1; seed <= seeds(100); ++seed) {
    CacheFixture<ClockPolicy> fixture({kLineBytes, 1, 4}, {.seed = seed});
    simt::FibreDevice device(fixture.devices, fibres(seed));
    std::vector<IoStatus> told(24, kReadError);
    device.run({.blocks = 3, .block_threads = 8}, AllWantOneBlock<decltype(fixture.ref())>{fixture.ref(), told.data()});
    for (const IoStatus& status : told) ASSERT_TRUE(status.ok());
    ASSERT_EQ(fixture.devices.reads(), 1u) << "seed " << seed;
  }
}

TEST(CacheDefects, AWriteBackStopsNobodyElse) {
  // One line is being written for a long time; its readers and other lines go on meanwhile.
  CacheFixture<Lru> fixture({kLineBytes, 1, 2}, {.latency_ns = 10'000'000});
  simt::FibreDevice device(fixture.devices, fibres(1));
  run_one(device, [&](auto& t) {
    auto cache = fixture.ref();
    for (std::uint64_t block = 0; block < 2; ++block)
      cache.release(t, cache.acquire(t, {0, 0, block}, Access::overwrite));
    const std::uint64_t before_ns = t.now_ns();
    ASSERT_TRUE(cache.start_store(t, cache.sets().find(t, tag_of({0, 0, 0}))));
    for (std::uint64_t i = 0; i < 10; ++i) {
      const Pin pin = cache.acquire(t, {0, 0, i % 2}, i % 2 == 0 ? Access::read : Access::write);
      EXPECT_TRUE(pin.ok());
      cache.release(t, pin);
    }
    EXPECT_EQ(fixture.devices.in_flight(), 1u);
    EXPECT_LT(t.now_ns() - before_ns, 100'000u);
    EXPECT_TRUE(cache.drain(t).ok());
  });
}

TEST(CacheDefects, MoreIsPrefetchedThanQueuesHold) {
  // Nobody waits for prefetches, and yet all of them end: 64 lines with commands that nobody asks for.
  CacheFixture<Lru> fixture({kLineBytes, 4, 16}, {.blocks = 256});
  mark_media(fixture.devices, kLineBytes);
  simt::FibreDevice device(fixture.devices, fibres(1));
  run_one(device, [&](auto& t) {
    auto cache = fixture.ref();
    for (std::uint64_t block = 0; block < 200; ++block) cache.prefetch(t, {0, 0, block});
    for (std::uint64_t block = 0; block < 200; ++block) {
      const Pin pin = cache.acquire(t, {0, 0, block});
      ASSERT_TRUE(pin.ok());
      ASSERT_EQ(*reinterpret_cast<std::uint64_t*>(pin.data), block_mark({0, 0, block}));
      cache.release(t, pin);
    }
  });
  EXPECT_EQ(fixture.audit().text(), "");
}

TEST(CacheDefects, AStopInMidFlightLosesNothing) {
  for (std::uint64_t seed = 1; seed <= seeds(300); ++seed) {
    CacheFixture<S3Fifo> fixture({kLineBytes, 2, 3}, {.seed = seed, .reads_may_race = true});
    mark_media(fixture.devices, kLineBytes);
    TrafficOptions traffic;
    traffic.rounds = 40;
    traffic.buffers = false;
    TrafficModel model(traffic, 8, kLineBytes, seed);
    simt::FibreDevice device(fixture.devices, fibres(seed));
    auto cache = fixture.ref();
    const auto kernel = device.launch({.blocks = 2, .block_threads = 4}, Traffic<decltype(cache)>{cache, &model});
    device.pass(Rng(seed).below(40'000));
    fixture.devices.abort(true);
    device.wait(kernel);  // nobody waits for long
    ASSERT_EQ(model.fault(), "") << "seed " << seed;
    // As a host does that resets the controller: every command ends, then the cache is at rest.
    fixture.devices.reset();
    run_one(device, [&](auto& t) { ASSERT_TRUE(cache.drain(t).ok()); });
    ASSERT_EQ(fixture.audit().text(), "") << "seed " << seed;
    fixture.devices.abort(false);
    run_one(device, [&](auto& t) { ASSERT_TRUE(cache.flush(t).ok()); });
    ASSERT_EQ(model.compare(fixture.devices, kLineBytes), "") << "seed " << seed;
  }
}

// Half of a warp uses the warp's form while the other half does something else: no lockstep, no active mask.
template <class Ref>
struct HalfAWarp {
  Ref cache;
  std::uint64_t* wrong;

  template <class Lane>
  void operator()(Lane& t) const {
    const std::uint32_t odd = t.lanes() & 0xAAAAAAAAu;
    if (t.lane() % 2 == 0) {
      t.busy(3'000);
      cache.release(t, cache.acquire(t, {0, 0, t.lane() % 5}));
      return;
    }
    for (std::uint64_t round = 0; round < 4; ++round) {
      const BlockKey key{0, 0, (t.lane() / 8 + round) % 3};
      const Pin pin = cache.acquire(t, odd, key);
      *wrong += !pin.ok() || *reinterpret_cast<const std::uint64_t*>(pin.data) != block_mark(key);
      cache.release(t, odd, pin);
    }
  }
};
TEST(CacheDefects, LockstepIsNotAssumed) {
  for (std::uint64_t seed = 1; seed <= seeds(50); ++seed) {
    CacheFixture<Fifo> fixture({kLineBytes, 1, 4}, {.seed = seed});
    mark_media(fixture.devices, kLineBytes);
    simt::FibreDevice device(fixture.devices, fibres(seed));
    std::uint64_t wrong = 0;
    device.run({.blocks = 1, .block_threads = 32}, HalfAWarp<decltype(fixture.ref())>{fixture.ref(), &wrong});
    ASSERT_EQ(wrong, 0u) << "seed " << seed;
    ASSERT_EQ(fixture.audit().text(), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace flashmob::gpu::test
