// The pools of request slots: hot and cold parts are handed out, linked and given back apart.
#include "engine/slab.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <set>
#include <vector>

#include "base/rng.h"

namespace flashmob::engine {
namespace {

TEST(Slab, HandsOutDistinctSlotsAndReusesTheHottest) {
  Slab slab;
  EXPECT_EQ(slab.available(), Slab::kCapacity);
  const Slot a = slab.alloc();
  const Slot b = slab.alloc();
  EXPECT_NE(a, b);
  EXPECT_EQ(slab.in_use(), 2u);
  slab.hot(a).cold = slab.hot(b).cold = kNoSlot;
  slab.release(b);
  slab.release(a);
  EXPECT_EQ(slab.in_use(), 0u);
  EXPECT_EQ(slab.alloc(), a);
  EXPECT_EQ(slab.alloc(), b);
  EXPECT_EQ(slab.fresh(), 2u);
}

TEST(Slab, ReleaseGivesBackTheColdPartToo) {
  Slab slab;
  const Slot slot = slab.alloc();
  ColdRequest* const cold = &slab.alloc_cold(slot);
  EXPECT_EQ(&slab.cold(slot), cold);
  slab.release(slot);
  const Slot other = slab.alloc();
  slab.hot(other).cold = kNoSlot;
  EXPECT_EQ(&slab.alloc_cold(other), cold);
  slab.release_cold(other);
  EXPECT_EQ(slab.hot(other).cold, kNoSlot);
  slab.release(other);  // its cold part went before: nothing may be given back twice
  const Slot first = slab.alloc();
  const Slot second = slab.alloc();
  EXPECT_NE(&slab.alloc_cold(first), &slab.alloc_cold(second));
}

TEST(Slab, PartsNeverOverlapUnderChurn) {
  Slab slab;
  Rng rng(3);
  std::vector<Slot> live;
  const auto mark = [](Slot slot) { return std::uint64_t{slot} * 0x9E3779B97F4A7C15u; };
  for (int step = 0; step < 50'000; ++step) {
    if (live.size() < 500 && rng.below(2) == 0) {
      const Slot slot = slab.alloc();
      slab.hot(slot).cold = kNoSlot;
      slab.hot(slot).target_ns = mark(slot);
      if (rng.below(2) == 0) slab.alloc_cold(slot).media_offset = mark(slot);
      live.push_back(slot);
    } else if (!live.empty()) {
      const std::size_t at = rng.below(live.size());
      const Slot slot = live[at];
      ASSERT_EQ(slab.hot(slot).target_ns, mark(slot));
      if (slab.hot(slot).cold != kNoSlot) {
        ASSERT_EQ(slab.cold(slot).media_offset, mark(slot));
      }
      slab.release(slot);
      live[at] = live.back();
      live.pop_back();
    }
    ASSERT_EQ(slab.in_use(), live.size());
    ASSERT_EQ(slab.available(), Slab::kCapacity - live.size());
  }
  EXPECT_EQ(std::set<Slot>(live.begin(), live.end()).size(), live.size());
  EXPECT_LE(slab.fresh(), 500u);
}

TEST(Slab, HoldsExactlyItsCapacity) {
  const auto slab = std::make_unique<Slab>();
  for (std::uint32_t i = 0; i < Slab::kCapacity; ++i) slab->alloc();
  EXPECT_EQ(slab->available(), 0u);
  EXPECT_EQ(slab->in_use(), Slab::kCapacity);
  slab->hot(Slab::kCapacity - 1).cold = kNoSlot;
  slab->release(Slab::kCapacity - 1);
  EXPECT_EQ(slab->available(), 1u);
  EXPECT_EQ(slab->alloc(), Slab::kCapacity - 1);
}

TEST(Slab, HoldsNoMoreThanItWasMadeFor) {
  Slab slab(64);
  EXPECT_EQ(slab.available(), 64u);
  std::array<Slot, 64> slots;
  slab.alloc_batch(slots.data(), 63);
  slots[63] = slab.alloc();
  EXPECT_EQ(slab.available(), 0u);
  slab.hot(slots[5]).cold = kNoSlot;
  slab.release(slots[5]);
  EXPECT_EQ(slab.available(), 1u);
  EXPECT_EQ(slab.alloc(), slots[5]);
}

}  // namespace
}  // namespace flashmob::engine
