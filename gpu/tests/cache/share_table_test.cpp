// The share table: who shares, what a buffer's state is, who writes back, over the cache and over bare SSDs; and the
// whole protocol over seeds against a plain model.
#include <gtest/gtest.h>

#include "cache/share_run.h"

namespace flashmob::gpu::test {
namespace {

constexpr std::uint32_t kLineBytes = kShareLineBytes;

template <class Kind>
class ShareTables : public testing::Test {};
using Kinds = testing::Types<Direct, Cached>;
TYPED_TEST_SUITE(ShareTables, Kinds);

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

TYPED_TEST(ShareTables, KeepEveryChange) {
  for (std::uint64_t seed = 1; seed <= seeds(400); ++seed)
    ASSERT_EQ(run_share_seed<TypeParam>(seed), "") << "seed " << seed;
}

}  // namespace
}  // namespace flashmob::gpu::test
