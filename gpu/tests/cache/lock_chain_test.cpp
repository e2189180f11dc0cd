// Circular waits are reported with who waits for what; waits that end by themselves are not; and the audit sees leaks.
#include <gtest/gtest.h>

#include "cache/cache_fixture.h"
#include "flashmob/gpu/share_table.h"

namespace flashmob::gpu::test {
namespace {

constexpr std::uint32_t kLineBytes = 512;

struct ChainFixture {
  explicit ChainFixture(const CacheGeometry& geometry, std::uint32_t threads = 8, const FakeOptions& options = {})
      : memory(LockChain::bytes(threads)),
        chain(LockChain::place(threads, memory.get())),
        cache(geometry, options, chain) {}
  std::string report() const { return describe(chain.report()); }

  Bytes memory;
  LockChain chain;
  CacheFixture<Lru, LockChain> cache;
};

// Thread i holds line i of a two-line set and wants a third.
template <class Ref>
struct EverybodyWantsOneMore {
  Ref cache;
  template <class Lane>
  void operator()(Lane& t) const {
    const Pin mine = cache.acquire(t, {0, 0, t.thread()});
    t.sync(t.lanes());
    const Pin more = cache.acquire(t, {0, 0, 8 + t.thread()}, Access::read, {.timeout_ns = 20'000});
    cache.release(t, more);
    cache.release(t, mine);
  }
};
TEST(LockChain, ReportsPinsThatWaitForEachOther) {
  ChainFixture fixture({kLineBytes, 1, 2});
  simt::FibreDevice device(fixture.cache.devices, fibres(1));
  using Ref = decltype(fixture.cache.ref());
  device.run({.blocks = 1, .block_threads = 2}, EverybodyWantsOneMore<Ref>{fixture.cache.ref()});
  const std::string report = fixture.report();
  EXPECT_NE(report.find("circular wait: thread"), std::string::npos) << report;
  EXPECT_NE(report.find("waits for a line of set 0"), std::string::npos) << report;
  EXPECT_EQ(report.find("lock held"), std::string::npos) << report;
  run_one(device, [&](auto& t) { EXPECT_TRUE(fixture.cache.ref().drain(t).ok()); });
  EXPECT_EQ(fixture.cache.audit().text(), "");
}

// Two threads, each filling a line, each wanting the other's.
template <class Ref>
struct FillersThatWait {
  Ref cache;
  template <class Lane>
  void operator()(Lane& t) const {
    const Pin mine = cache.acquire(t, {0, 0, t.thread()}, Access::overwrite);
    t.sync(t.lanes());
    const Pin other = cache.acquire(t, {0, 0, 1 - t.thread()}, Access::read, {.timeout_ns = 20'000});
    cache.release(t, other);
    cache.release(t, mine);
  }
};
TEST(LockChain, ReportsFillersThatWaitForEachOther) {
  ChainFixture fixture({kLineBytes, 1, 4});
  simt::FibreDevice device(fixture.cache.devices, fibres(2));
  using Ref = decltype(fixture.cache.ref());
  device.run({.blocks = 1, .block_threads = 2}, FillersThatWait<Ref>{fixture.cache.ref()});
  const std::string report = fixture.report();
  EXPECT_NE(report.find("thread 0 waits for the filling of line"), std::string::npos) << report;
  EXPECT_NE(report.find("thread 1 waits for the filling of line"), std::string::npos) << report;
}

// Two threads that own a buffer each, share the other's, and close their own first.
template <class Table>
struct OwnersThatWait {
  Table table;
  std::byte* buffers;
  template <class Lane>
  void operator()(Lane& t) const {
    Share mine = table.open(t, {0, 0, t.thread()}, buffers + t.thread() * kLineBytes);
    t.sync(t.lanes());
    Share other = table.open(t, {0, 0, 1 - t.thread()}, nullptr);
    t.sync(t.lanes());
    const IoStatus status = table.close(t, mine, {.timeout_ns = 20'000});
    table.close(t, other);
    if (!status.ok()) table.close(t, mine);
  }
};
TEST(LockChain, ReportsOwnersThatCloseBeforeWhatTheyShare) {
  ChainFixture fixture({kLineBytes, 1, 2});
  simt::FibreDevice device(fixture.cache.devices, fibres(3));
  using Table = ShareTable<DirectBlocks<FakeSsd>, LockChain>;
  Bytes memory(Table::bytes(1, 4));
  Bytes buffers(2 * kLineBytes);
  const Table table =
      Table::place(1, 4, memory.get(), DirectBlocks<FakeSsd>(fixture.cache.ssds.data(), 1, kLineBytes), fixture.chain);
  device.run({.blocks = 1, .block_threads = 2}, OwnersThatWait<Table>{table, static_cast<std::byte*>(buffers.get())});
  const std::string report = fixture.report();
  EXPECT_NE(report.find("waits for the shared buffer"), std::string::npos) << report;
  EXPECT_TRUE(audit_shares(table).clean());
}

// Contention of every kind, but nobody holds anything while waiting.
template <class Ref>
struct OneAtATime {
  Ref cache;
  template <class Lane>
  void operator()(Lane& t) const {
    for (std::uint64_t i = 0; i < 4; ++i) {
      const Access access = i == 1 ? Access::overwrite : i == 2 ? Access::write : Access::read;
      cache.release(t, cache.acquire(t, {0, 0, (t.thread() + i) % 3}, access));
    }
  }
};
TEST(LockChain, SaysNothingWhereEveryWaitEnds) {
  for (std::uint64_t seed = 1; seed <= seeds(30); ++seed) {
    ChainFixture fixture({kLineBytes, 1, 1}, 4, {.seed = seed});
    simt::FibreDevice device(fixture.cache.devices, fibres(seed));
    device.run({.blocks = 1, .block_threads = 4}, OneAtATime<decltype(fixture.cache.ref())>{fixture.cache.ref()});
    ASSERT_EQ(fixture.report(), "") << "seed " << seed;
  }
}

TEST(LockChain, ReportsALockThatIsHeldWhileWaiting) {
  ChainFixture fixture({kLineBytes, 1, 2});
  simt::FibreDevice device(fixture.cache.devices, fibres(1));
  run_one(device, [&](auto& t) {
    auto cache = fixture.cache.ref();
    fixture.chain.took(t, held_thing(HeldKind::lock, 5));
    cache.release(t, cache.acquire(t, {0, 0, 0}));
    fixture.chain.left(t, held_thing(HeldKind::lock, 5));
  });
  EXPECT_NE(fixture.report().find("waits with a lock held"), std::string::npos) << fixture.report();
}

TEST(LockChain, IsNothingWhereItIsOff) {
  using Off = CacheSets<Lru, NoLockChain>;
  using On = CacheSets<Lru, LockChain>;
  EXPECT_LT(sizeof(Off), sizeof(On));
  EXPECT_FALSE(NoLockChain::kOn);
}

TEST(Audit, SeesPinsBusyLinesLocksAndDoubles) {
  CacheFixture<Lru> fixture({kLineBytes, 2, 4}, {});
  simt::FibreDevice device(fixture.devices, fibres(1));
  auto cache = fixture.ref();
  run_one(device, [&](auto& t) {
    EXPECT_EQ(fixture.audit().text(), "");
    const Pin forgotten = cache.acquire(t, {0, 0, 0}, Access::write);
    const Pin filling = cache.acquire(t, {0, 0, 1}, Access::overwrite);
    cache.prefetch(t, {0, 0, 2});
    cache.sets().lock(1).store(t, 7);
    const CacheAudit leaks = fixture.audit();
    EXPECT_EQ(leaks.pins, 2u);
    EXPECT_EQ(leaks.busy, 2u);
    EXPECT_EQ(leaks.commands, 1u);
    EXPECT_EQ(leaks.locked_sets, 1u);
    EXPECT_EQ(leaks.modified, 1u);
    EXPECT_FALSE(leaks.clean());
    EXPECT_NE(leaks.text().find("2 pins not released"), std::string::npos) << leaks.text();
    cache.sets().lock(1).store(t, 0);
    cache.release(t, forgotten);
    cache.release(t, filling);
    EXPECT_TRUE(cache.drain(t).ok());
    EXPECT_EQ(fixture.audit().text(), "");
    // A block in two lines, one of them of a set that is not its own.
    cache.sets().tag((forgotten.line + 4) % 8).store(t, tag_of({0, 0, 0}));
    EXPECT_EQ(fixture.audit().doubles, 1u);
    EXPECT_EQ(fixture.audit().misplaced, 1u);
  });
}

}  // namespace
}  // namespace flashmob::gpu::test
