// The share table: who shares, what a buffer's state is, who writes back, over the cache and over bare SSDs; and the
// whole protocol over seeds against a plain model.
#include <gtest/gtest.h>

#include "cache/cache_fixture.h"
#include "flashmob/gpu/share_table.h"

namespace flashmob::gpu::test {
namespace {

constexpr std::uint32_t kLineBytes = 512;

// A table over the SSDs, or over a cache of two lines.
struct Direct {
  static constexpr bool kMayChangeMeanwhile = false;  // the SSDs here mind if data change while they are written
  using Blocks = DirectBlocks<FakeSsd>;
  static Blocks blocks(CacheFixture<Lru>& fixture) {
    return Blocks(fixture.ssds.data(), static_cast<std::uint32_t>(fixture.ssds.size()), kLineBytes);
  }
};
struct Cached {
  static constexpr bool kMayChangeMeanwhile = true;
  using Blocks = CachedBlocks<CacheFixture<Lru>::Ref>;
  static Blocks blocks(CacheFixture<Lru>& fixture) { return Blocks(fixture.ref()); }
};

template <class Kind>
struct TableFixture {
  using Table = ShareTable<typename Kind::Blocks, NoLockChain>;

  explicit TableFixture(const FakeOptions& options, std::uint32_t sets = 4, std::uint32_t ways = 8)
      : caches({kLineBytes, 1, 2}, options),
        memory(Table::bytes(sets, ways)),
        table(Table::place(sets, ways, memory.get(), Kind::blocks(caches))) {
    mark_media(caches.devices, kLineBytes);
  }
  CacheFixture<Lru> caches;
  Bytes memory;
  Table table;
};

template <class Kind>
class ShareTables : public testing::Test {};
using Kinds = testing::Types<Direct, Cached>;
TYPED_TEST_SUITE(ShareTables, Kinds);

std::uint64_t* words(const Share& share) { return reinterpret_cast<std::uint64_t*>(share.data); }

TYPED_TEST(ShareTables, StatesFollowUsersAndChanges) {
  TableFixture<TypeParam> fixture({});
  simt::FibreDevice device(fixture.caches.devices, fibres(1));
  Bytes memory(2 * kLineBytes);
  auto* first = static_cast<std::byte*>(memory.get());
  run_one(device, [&](auto& t) {
    const auto& table = fixture.table;
    const BlockKey key{0, 0, 3};
    Share a = table.open(t, key, first);
    ASSERT_TRUE(table.wait(t, a).ok());
    EXPECT_TRUE(a.owner);
    EXPECT_EQ(table.state(t, a), ShareState::exclusive);
    EXPECT_EQ(words(a)[0], block_mark(key));
    Share b = table.open(t, key, first + kLineBytes);
    EXPECT_TRUE(table.test(t, b));
    ASSERT_TRUE(table.wait(t, b).ok());
    EXPECT_FALSE(b.owner);
    EXPECT_EQ(b.data, a.data);
    EXPECT_EQ(table.state(t, b), ShareState::shared);
    EXPECT_EQ(table.users(t, a), 2u);
    words(b)[4] = 21;
    table.modified(t, b);
    EXPECT_EQ(table.state(t, a), ShareState::owned);
    EXPECT_EQ(words(a)[4], 21u);
    EXPECT_EQ(table.write_back(t, b).kind, IoKind::bad_request);  // the owner's business
    EXPECT_TRUE(table.write_back(t, a).ok());
    EXPECT_EQ(table.state(t, a), ShareState::shared);
    words(a)[5] = 22;
    table.modified(t, a);
    EXPECT_TRUE(table.close(t, b).ok());
    EXPECT_EQ(table.state(t, b), ShareState::none);
    EXPECT_EQ(table.state(t, a), ShareState::modified);
    EXPECT_TRUE(table.close(t, a).ok());
    // Whoever opens it now reads what was written.
    Share c = table.open(t, key, first + kLineBytes);
    ASSERT_TRUE(table.wait(t, c).ok());
    EXPECT_TRUE(c.owner);
    EXPECT_EQ(words(c)[4], 21u);
    EXPECT_EQ(words(c)[5], 22u);
    EXPECT_TRUE(table.close(t, c).ok());
    EXPECT_TRUE(fixture.caches.ref().flush(t).ok());
  });
  EXPECT_TRUE(audit_shares(fixture.table).clean());
  const auto* on_media = reinterpret_cast<std::uint64_t*>(fixture.caches.devices.media(0, 0).data() + 3 * kLineBytes);
  EXPECT_EQ(on_media[4], 21u);
  EXPECT_EQ(on_media[5], 22u);
}

TYPED_TEST(ShareTables, AnOwnerWaitsForTheOthersUntilItsDeadline) {
  TableFixture<TypeParam> fixture({});
  simt::FibreDevice device(fixture.caches.devices, fibres(1));
  Bytes memory(kLineBytes);
  run_one(device, [&](auto& t) {
    const auto& table = fixture.table;
    Share a = table.open(t, {0, 0, 1}, memory.get());
    Share b = table.open(t, {0, 0, 1}, nullptr);
    EXPECT_EQ(table.close(t, a, {.timeout_ns = 10'000}).kind, IoKind::deadline);
    EXPECT_TRUE(a.open());  // as before: others may join
    Share c = table.open(t, {0, 0, 1}, nullptr);
    EXPECT_EQ(c.data, a.data);
    EXPECT_TRUE(table.close(t, c).ok());
    EXPECT_TRUE(table.close(t, b).ok());
    EXPECT_TRUE(table.close(t, a).ok());
  });
  EXPECT_TRUE(audit_shares(fixture.table).clean());
}

TYPED_TEST(ShareTables, AFailedReadIsToldToAllAndLeavesNothing) {
  TableFixture<TypeParam> fixture({.read_error_one_in = 1});
  simt::FibreDevice device(fixture.caches.devices, fibres(1));
  Bytes memory(kLineBytes);
  run_one(device, [&](auto& t) {
    const auto& table = fixture.table;
    Share a = table.open(t, {0, 0, 1}, memory.get());
    Share b = table.open(t, {0, 0, 1}, nullptr);
    EXPECT_EQ(table.wait(t, a), kReadError);
    EXPECT_EQ(table.wait(t, b), kReadError);
    EXPECT_EQ(table.state(t, b), ShareState::failed);
    EXPECT_TRUE(table.close(t, b).ok());
    EXPECT_TRUE(table.close(t, a).ok());
    fixture.caches.devices.options().read_error_one_in = 0;
    Share c = table.open(t, {0, 0, 1}, memory.get());
    EXPECT_TRUE(table.wait(t, c).ok());
    EXPECT_TRUE(table.close(t, c).ok());
    EXPECT_EQ(table.open(t, {7, 0, 1}, memory.get()).status.kind, IoKind::bad_request);
  });
  EXPECT_TRUE(audit_shares(fixture.table).clean());
}

TEST(ShareTable, AFailedWriteBackLeavesTheShareOpenAndModified) {
  TableFixture<Direct> fixture({.write_error_one_in = 1});
  simt::FibreDevice device(fixture.caches.devices, fibres(1));
  Bytes memory(kLineBytes);
  run_one(device, [&](auto& t) {
    const auto& table = fixture.table;
    Share a = table.open(t, {0, 0, 2}, memory.get());
    ASSERT_TRUE(table.wait(t, a).ok());
    words(a)[1] = 5;
    table.modified(t, a);
    EXPECT_EQ(table.close(t, a), kWriteError);
    EXPECT_EQ(table.state(t, a), ShareState::modified);
    fixture.caches.devices.options().write_error_one_in = 0;
    EXPECT_TRUE(table.close(t, a).ok());
  });
  EXPECT_EQ(reinterpret_cast<std::uint64_t*>(fixture.caches.devices.media(0, 0).data() + 2 * kLineBytes)[1], 5u);
}

// Two commands for one block would be in flight, and the second one's end mistaken for the first one's.
TEST(ShareTable, AWriteBackWaitsForAnEarlierOneWhoseWaitEndedEarly) {
  TableFixture<Direct> fixture({.latency_ns = 1'000'000});
  simt::FibreDevice device(fixture.caches.devices, fibres(1));
  Bytes memory(kLineBytes);
  run_one(device, [&](auto& t) {
    const auto& table = fixture.table;
    Share a = table.open(t, {0, 0, 2}, memory.get());
    ASSERT_TRUE(table.wait(t, a).ok());
    words(a)[1] = 5;
    table.modified(t, a);
    EXPECT_EQ(table.write_back(t, a, {.timeout_ns = 100}).kind, IoKind::deadline);
    EXPECT_EQ(table.state(t, a), ShareState::modified);
    EXPECT_EQ(table.write_back(t, a, {.timeout_ns = 100}).kind, IoKind::deadline);
    EXPECT_EQ(fixture.caches.devices.writes(), 1u);
    EXPECT_TRUE(table.close(t, a).ok());
  });
  EXPECT_EQ(fixture.caches.devices.fault(), "");
  EXPECT_EQ(fixture.caches.devices.writes(), 2u);
  EXPECT_EQ(reinterpret_cast<std::uint64_t*>(fixture.caches.devices.media(0, 0).data() + 2 * kLineBytes)[1], 5u);
}

// Each thread counts a word of its own up in blocks that it opens in a buffer of its own, or shares.
// `kWriteBack`: owners also write back while others go on.
template <class Table, bool kWriteBack>
struct SharedCounting {
  Table table;
  std::byte* buffers;
  std::uint64_t* own;  // thread * 4 + block
  std::uint64_t* wrong;

  template <class Lane>
  void operator()(Lane& t) const {
    Rng rng(t.thread() + 100 * t.threads());
    for (std::uint32_t round = 0; round < 10; ++round) {
      const BlockKey key{0, 0, rng.below(4)};
      std::uint64_t& count = own[t.thread() * 4 + key.block];
      Share share = table.open(t, key, buffers + t.thread() * kLineBytes);
      if (!share.open()) continue;
      if (table.wait(t, share).ok()) {
        *wrong += words(share)[0] != block_mark(key) || words(share)[1 + t.thread()] != count;
        if (rng.below(2) == 0) {
          words(share)[1 + t.thread()] = ++count;
          table.modified(t, share);
        }
        if (kWriteBack && share.owner && rng.below(2) == 0) table.write_back(t, share);
        t.pause(1);
        *wrong += words(share)[0] != block_mark(key) || words(share)[1 + t.thread()] != count;
      }
      while (!table.close(t, share).ok()) t.pause(100);
    }
  }
};

TYPED_TEST(ShareTables, KeepEveryChange) {
  for (std::uint64_t seed = 1; seed <= seeds(400); ++seed) {
    FakeOptions options{.seed = seed};
    options.reads_may_race = true;
    if (seed % 2 == 0) options.read_error_one_in = options.write_error_one_in = 4;
    TableFixture<TypeParam> fixture(options, 1, 3);
    simt::FibreDevice device(fixture.caches.devices, fibres(seed));
    Bytes buffers(8 * kLineBytes);
    std::vector<std::uint64_t> own(8 * 4);
    std::uint64_t wrong = 0;
    device.run({.blocks = 2, .block_threads = 4},
               SharedCounting<decltype(fixture.table), TypeParam::kMayChangeMeanwhile>{
                   fixture.table, static_cast<std::byte*>(buffers.get()), own.data(), &wrong});
    ASSERT_EQ(wrong, 0u) << "seed " << seed;
    ASSERT_TRUE(audit_shares(fixture.table).clean()) << "seed " << seed;
    ASSERT_EQ(fixture.caches.devices.fault(), "") << "seed " << seed;
    fixture.caches.devices.options().write_error_one_in = 0;
    run_one(device, [&](auto& t) { ASSERT_TRUE(fixture.caches.ref().flush(t).ok()); });
    for (std::uint64_t block = 0; block < 4; ++block) {
      const auto* on_media =
          reinterpret_cast<std::uint64_t*>(fixture.caches.devices.media(0, 0).data() + block * kLineBytes);
      for (std::uint32_t i = 0; i < 8; ++i) ASSERT_EQ(on_media[1 + i], own[i * 4 + block]) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace flashmob::gpu::test
