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
  const Slot a = slab.alloc(1);
  const Slot b = slab.alloc(1);
  EXPECT_NE(a, b);
  EXPECT_EQ(slab.in_use(), 2u);
  slab.hot(a).cold = slab.hot(b).cold = kNoSlot;
  slab.release(b);
  slab.release(a);
  EXPECT_EQ(slab.in_use(), 0u);
  EXPECT_EQ(slab.alloc(1), a);
  EXPECT_EQ(slab.alloc(1), b);
  EXPECT_EQ(slab.fresh(), 2u);
}

TEST(Slab, ReleaseGivesBackTheColdPartToo) {
  Slab slab;
  const Slot slot = slab.alloc(1);
  ColdRequest* const cold = &slab.alloc_cold(slot);
  EXPECT_EQ(&slab.cold(slot), cold);
  slab.release(slot);
  const Slot other = slab.alloc(1);
  slab.hot(other).cold = kNoSlot;
  EXPECT_EQ(&slab.alloc_cold(other), cold);
  slab.release_cold(other);
  EXPECT_EQ(slab.hot(other).cold, kNoSlot);
  slab.release(other);  // its cold part went before: nothing may be given back twice
  const Slot first = slab.alloc(1);
  const Slot second = slab.alloc(1);
  EXPECT_NE(&slab.alloc_cold(first), &slab.alloc_cold(second));
}

TEST(Slab, PartsNeverOverlapUnderChurn) {
  Slab slab;
  Rng rng(3);
  std::vector<Slot> live;
  const auto mark = [](Slot slot) { return std::uint64_t{slot} * 0x9E3779B97F4A7C15u; };
  for (int step = 0; step < 50'000; ++step) {
    if (live.size() < 500 && rng.below(2) == 0) {
      const Slot slot = slab.alloc(1);
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
  for (std::uint32_t i = 0; i < Slab::kCapacity; ++i) slab->alloc(1);
  EXPECT_EQ(slab->available(), 0u);
  EXPECT_EQ(slab->in_use(), Slab::kCapacity);
  slab->hot(Slab::kCapacity - 1).cold = kNoSlot;
  slab->release(Slab::kCapacity - 1);
  EXPECT_EQ(slab->available(), 1u);
  EXPECT_EQ(slab->alloc(1), Slab::kCapacity - 1);
}

TEST(Slab, HoldsNoMoreThanItWasMadeFor) {
  Slab slab(64);
  EXPECT_EQ(slab.available(), 64u);
  std::array<Slot, 64> slots;
  slab.alloc_batch(slots.data(), 63, 1);
  slots[63] = slab.alloc(1);
  EXPECT_EQ(slab.available(), 0u);
  slab.hot(slots[5]).cold = kNoSlot;
  slab.release(slots[5]);
  EXPECT_EQ(slab.available(), 1u);
  EXPECT_EQ(slab.alloc(1), slots[5]);
}

// A host that ends commands in a loop, or deletes queues, must not have us look at what others had, or had once.
TEST(Slab, FindsTheRequestsOfAQueueWithoutLookingAtThoseOfOthers) {
  const auto made = std::make_unique<Slab>();
  Slab& slab = *made;
  const auto request_of = [&](std::uint16_t sq) {
    const Slot slot = slab.alloc(sq);
    slab.hot(slot).fill(0, 0, sq, 0, kLive, kNoSlot);
    return slot;
  };
  const auto end = [&](Slot slot) {
    slab.hot(slot).flags = 0;
    slab.release(slot);
  };
  std::vector<Slot> found;
  const auto look = [&](std::uint16_t sq) {
    found.clear();
    return slab.for_each_of([sq](std::uint16_t owner) { return owner == sq; },
                            [&](Slot slot, const HotRequest&) { found.push_back(slot); });
  };
  std::vector<Slot> once;
  for (int i = 0; i < 500'000; ++i) once.push_back(request_of(1));
  std::vector<Slot> few;
  for (int i = 0; i < 3; ++i) few.push_back(request_of(2));
  EXPECT_EQ(look(2), 3u);
  EXPECT_EQ(found, few);
  for (const Slot slot : once) end(slot);
  end(few[1]);
  EXPECT_EQ(look(2), 3u) << "one is gone";
  EXPECT_EQ(found, (std::vector<Slot>{few[0], few[2]}));
  EXPECT_EQ(look(2), 2u);
  look(1);
  EXPECT_TRUE(found.empty());
  EXPECT_EQ(look(1), 0u) << "what it had once is found gone once";
  // What changes hands is its new owner's, and one whose queue is gone is nobody's.
  const Slot handed_on = request_of(1);
  EXPECT_EQ(handed_on, few[1]);
  EXPECT_EQ(look(1), 1u);
  slab.hot(handed_on).sq = 0;
  look(1);
  EXPECT_TRUE(found.empty());
}

}  // namespace
}  // namespace flashmob::engine
