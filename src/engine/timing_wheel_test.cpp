// The wheel against a plain list: never early, never late, everything exactly once.
#include "engine/timing_wheel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <vector>

#include "base/rng.h"

namespace flashmob::engine {
namespace {

constexpr std::uint64_t kRotation = 2048;

// A wheel beside the list of what it should hold.
class CheckedWheel {
 public:
  CheckedWheel(unsigned shift, std::uint32_t slots, std::uint64_t start_ns)
      : shift_(shift), hot_(slots), wheel_(std::make_unique<TimingWheel>(shift)), now_ns_(start_ns), due_(slots) {
    for (Slot slot = 0; slot < slots; ++slot) free_.push_back(slot);
    wheel_->start(start_ns);
  }

  bool full() const { return free_.empty(); }
  std::uint64_t now_ns() const { return now_ns_; }
  std::uint64_t tick_ns() const { return std::uint64_t{1} << shift_; }
  std::size_t pending() const { return pending_.size(); }
  std::uint64_t next_deadline_ns() const { return wheel_->next_deadline_ns(); }

  void insert(std::uint64_t target_ns) {
    const Slot slot = free_.back();
    free_.pop_back();
    hot_[slot].target_ns = target_ns;
    pending_[slot] = {target_ns, target_ns >> shift_, target_ns > now_ns_};
    wheel_->insert(slot, target_ns);
    ASSERT_EQ(wheel_->size(), pending_.size());
  }

  // Takes out every other request.
  void remove_odd() {
    wheel_->remove_if([this](Slot slot) {
      if (slot % 2 == 0) return false;
      EXPECT_EQ(pending_.erase(slot), 1u);
      free_.push_back(slot);
      return true;
    });
    ASSERT_EQ(wheel_->size(), pending_.size());
    for (const auto& [slot, item] : pending_) ASSERT_EQ(slot % 2, 0u);
  }

  // Advances to now_ns and collects once; returns how many came.
  std::uint32_t collect(std::uint64_t now_ns, std::uint32_t limit) {
    now_ns_ = now_ns;
    const std::uint32_t taken = wheel_->collect(hot_.data(), now_ns, due_.data(), limit);
    EXPECT_LE(taken, limit);
    std::uint64_t previous_tick = 0;
    for (std::uint32_t i = 0; i < taken; ++i) {
      const auto at = pending_.find(due_[i]);
      EXPECT_NE(at, pending_.end()) << "released twice, or never inserted: " << due_[i];
      if (at == pending_.end()) return taken;
      EXPECT_LE(at->second.target_ns, now_ns) << "early";
      if (at->second.was_ahead) {
        EXPECT_LE(previous_tick, at->second.tick) << "out of order";
        previous_tick = at->second.tick;
      }
      pending_.erase(at);
      free_.push_back(due_[i]);
    }
    EXPECT_EQ(wheel_->size(), pending_.size());
    EXPECT_EQ(wheel_->empty(), pending_.empty());
    if (taken < limit) {
      for (const auto& [slot, item] : pending_) EXPECT_GT(item.target_ns, now_ns) << "late";
    }
    return taken;
  }

  std::uint64_t earliest_target_ns() const {
    std::uint64_t target_ns = UINT64_MAX;
    for (const auto& [slot, item] : pending_) target_ns = std::min(target_ns, item.target_ns);
    return target_ns;
  }

 private:
  struct Item {
    std::uint64_t target_ns;
    std::uint64_t tick;
    bool was_ahead;
  };

  unsigned shift_;
  std::vector<HotRequest> hot_;
  std::unique_ptr<TimingWheel> wheel_;
  std::uint64_t now_ns_;
  std::vector<Slot> due_;
  std::vector<Slot> free_;
  std::map<Slot, Item> pending_;
};

// Log-uniform, so that every level sees work.
std::uint64_t any_distance(Rng& rng, unsigned max_bits) { return rng.next() >> (64 - 1 - rng.below(max_bits)); }

class TimingWheelTest : public testing::TestWithParam<unsigned> {};

TEST_P(TimingWheelTest, NothingIsEarlyLateOrLost) {
  const unsigned shift = GetParam();
  Rng rng(7 + shift);
  CheckedWheel wheel(shift, 300, 1'000'000'007);
  for (int step = 0; step < 20'000; ++step) {
    for (std::uint64_t i = rng.below(8); i > 0 && !wheel.full(); --i) {
      const std::uint64_t ahead = any_distance(rng, 18 + shift);
      const bool due = rng.below(8) == 0;
      wheel.insert(due ? wheel.now_ns() - std::min(ahead, wheel.now_ns()) : wheel.now_ns() + ahead);
    }
    const std::uint64_t now_ns = wheel.now_ns() + any_distance(rng, 14 + shift);
    const auto limit = static_cast<std::uint32_t>(1 + rng.below(20));
    while (wheel.collect(now_ns, limit) == limit) {
    }
    if (HasFailure()) return;
  }
}

TEST_P(TimingWheelTest, WhatIsTakenOutLeavesTheOthersWhereTheyWere) {
  const unsigned shift = GetParam();
  Rng rng(13 + shift);
  CheckedWheel wheel(shift, 300, 1'000'000'007);
  for (int step = 0; step < 2'000; ++step) {
    // Many in one tick, too, for lines that are chained.
    const std::uint64_t together_ns = wheel.now_ns() + any_distance(rng, 30 + shift);
    for (std::uint64_t i = rng.below(80); i > 0 && !wheel.full(); --i)
      wheel.insert(rng.below(2) == 0 ? together_ns : wheel.now_ns() + any_distance(rng, 30 + shift));
    wheel.remove_odd();
    const std::uint64_t now_ns = wheel.now_ns() + any_distance(rng, 26 + shift);
    while (wheel.collect(now_ns, 64) == 64) {
    }
    if (HasFailure()) return;
  }
}

TEST_P(TimingWheelTest, JumpingFromDeadlineToDeadlineReleasesEachAtItsTarget) {
  const unsigned shift = GetParam();
  Rng rng(11 + shift);
  // The crossing of a third-level rotation lies close ahead: there one cascade moves three levels at once.
  const std::uint64_t boundary = (std::uint64_t{1} << 33) + (std::uint64_t{3} << 22);
  CheckedWheel wheel(shift, 3, (boundary - 3 * kRotation) << shift);
  for (int step = 0; step < 30'000; ++step) {
    while (!wheel.full() && rng.below(3) != 0)
      wheel.insert(wheel.now_ns() + wheel.tick_ns() + any_distance(rng, 24 + shift));
    if (wheel.pending() == 0) continue;
    const std::uint64_t deadline_ns = wheel.next_deadline_ns();
    ASSERT_LE(deadline_ns, wheel.earliest_target_ns()) << "this deadline skips a release";
    ASSERT_GE(deadline_ns, wheel.now_ns() >> shift << shift);
    wheel.collect(std::max(deadline_ns, wheel.now_ns()), 64);
    // Asking again without progress would spin a simulator forever: each deadline lies beyond the last one.
    if (wheel.pending() != 0) {
      ASSERT_GT(wheel.next_deadline_ns(), deadline_ns);
    }
    if (HasFailure()) return;
  }
  while (wheel.pending() != 0 && !HasFailure()) wheel.collect(wheel.next_deadline_ns(), 64);
  EXPECT_EQ(wheel.next_deadline_ns(), UINT64_MAX);
}

TEST_P(TimingWheelTest, AllLevelsReleaseAtTheTarget) {
  const unsigned shift = GetParam();
  for (const std::uint64_t ticks :
       {std::uint64_t{1}, kRotation - 1, kRotation, kRotation + 1, kRotation * kRotation - 1, kRotation * kRotation,
        kRotation * kRotation + 1, kRotation * kRotation * 5 + 77, (std::uint64_t{1} << 33) + 12345}) {
    for (const std::uint64_t start : {std::uint64_t{1}, kRotation * 9 - 1, kRotation * kRotation * 3 - 1}) {
      CheckedWheel wheel(shift, 4, start << shift);
      const std::uint64_t target_ns = (start + ticks) << shift;
      wheel.insert(target_ns);
      wheel.insert(target_ns + wheel.tick_ns() - 1);  // the same tick
      EXPECT_EQ(wheel.collect(target_ns - 1, 4), 0u) << start << " + " << ticks;
      EXPECT_EQ(wheel.collect(target_ns, 4), shift == 0 ? 2u : 1u) << start << " + " << ticks;
      EXPECT_EQ(wheel.collect(target_ns + wheel.tick_ns() - 1, 4), shift == 0 ? 0u : 1u) << start << " + " << ticks;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shifts, TimingWheelTest, testing::Values(0u, 4u, 10u));

TEST(TimingWheel, DeadlineSeesAThirdLevelRequestBeforeASecondLevelOne) {
  // Both lie behind the next rotation of the second level; the request that was far away when it came is due first.
  const std::uint64_t boundary = kRotation * kRotation;
  CheckedWheel wheel(0, 4, 1);
  wheel.insert(boundary + 2 * kRotation + 5);
  EXPECT_EQ(wheel.collect(boundary - 10, 4), 0u);
  wheel.insert(boundary + 5 * kRotation + 5);
  EXPECT_LE(wheel.next_deadline_ns(), boundary + 2 * kRotation + 5);
}

TEST(TimingWheel, ManyInOneTickComeInPieces) {
  CheckedWheel wheel(4, 1000, 1);
  for (int i = 0; i < 1000; ++i) wheel.insert(16 * 100);
  EXPECT_EQ(wheel.next_deadline_ns(), 1600u);
  EXPECT_EQ(wheel.collect(1599, 7), 0u);
  std::uint32_t total = 0;
  while (const std::uint32_t taken = wheel.collect(1600, 7)) total += taken;
  EXPECT_EQ(total, 1000u);
}

TEST(TimingWheel, OfATickThatGoesOnOnlyWhatIsDueComes) {
  // Far more than a line of requests in one tick, taken at every few ns of it, with others coming meanwhile.
  Rng rng(3);
  CheckedWheel wheel(10, 400, 1);
  for (int tick = 1; tick < 200; ++tick) {
    const std::uint64_t begin_ns = std::uint64_t(tick) << 10;
    for (std::uint64_t i = rng.below(100); i > 0; --i) wheel.insert(begin_ns + rng.below(1024));
    for (std::uint64_t now_ns = begin_ns; now_ns < begin_ns + 1024; now_ns += 1 + rng.below(90)) {
      while (wheel.collect(now_ns, 20) == 20) {
      }
      if (rng.below(4) == 0 && !wheel.full()) wheel.insert(begin_ns + rng.below(2048));
      if (HasFailure()) return;
    }
  }
}

TEST(TimingWheel, ManyThatCameLeaveTheTickThatGoesOnForTheNextTime) {
  TimingWheel wheel(6);
  std::vector<HotRequest> hot(41);
  for (Slot slot = 0; slot < 41; ++slot) {
    hot[slot].target_ns = slot < 40 ? 640 + slot : 705;
    wheel.insert(slot, hot[slot].target_ns);
  }
  std::array<Slot, 64> due;
  ASSERT_EQ(wheel.collect(hot.data(), 710, due.data(), 64), 40u);
  EXPECT_LE(wheel.next_deadline_ns(), 710u) << "there is more, at once";
  ASSERT_EQ(wheel.collect(hot.data(), 710, due.data(), 64), 1u);
  EXPECT_EQ(due[0], 40u);
}

TEST(TimingWheel, ABatchIsInsertedLikeItsRequests) {
  Rng rng(12);
  for (int round = 0; round < 200; ++round) {
    const auto one = std::make_unique<TimingWheel>(6);
    const auto batch = std::make_unique<TimingWheel>(6);
    std::vector<HotRequest> hot(rng.below(300));
    std::vector<Slot> slots;
    std::vector<std::uint64_t> targets_ns;
    const unsigned spread = 1 + static_cast<unsigned>(rng.below(30));
    for (Slot slot = 0; slot < hot.size(); ++slot) {
      slots.push_back(slot);
      targets_ns.push_back(hot[slot].target_ns = 5'000 + any_distance(rng, spread));
      one->insert(slot, targets_ns.back());
    }
    batch->insert_batch(slots.data(), targets_ns.data(), slots.size());
    ASSERT_EQ(batch->size(), one->size());
    for (std::uint64_t now_ns = 5'000; !one->empty(); now_ns += 1 + any_distance(rng, spread)) {
      std::vector<Slot> a(hot.size()), b(hot.size());
      a.resize(one->collect(hot.data(), now_ns, a.data(), static_cast<std::uint32_t>(a.size())));
      b.resize(batch->collect(hot.data(), now_ns, b.data(), static_cast<std::uint32_t>(b.size())));
      std::sort(a.begin(), a.end());
      std::sort(b.begin(), b.end());
      ASSERT_EQ(a, b) << now_ns;
    }
    ASSERT_TRUE(batch->empty());
  }
}

TEST(TimingWheel, BeyondTheHorizonIsHeldNotDropped) {
  CheckedWheel wheel(0, 4, 1);
  wheel.insert(std::uint64_t{1} << 60);
  wheel.insert(5);
  EXPECT_EQ(wheel.next_deadline_ns(), 5u);
  EXPECT_EQ(wheel.collect(std::uint64_t{1} << 26, 4), 1u);
  EXPECT_EQ(wheel.pending(), 1u);
  EXPECT_GT(wheel.next_deadline_ns(), std::uint64_t{1} << 26);
}

TEST(TimingWheel, AnEmptyWheelFollowsTheClock) {
  CheckedWheel wheel(4, 4, 1);
  EXPECT_EQ(wheel.next_deadline_ns(), UINT64_MAX);
  EXPECT_EQ(wheel.collect(std::uint64_t{1} << 50, 4), 0u);
  wheel.insert((std::uint64_t{1} << 50) + 16);
  EXPECT_EQ(wheel.next_deadline_ns(), (std::uint64_t{1} << 50) + 16);
  EXPECT_EQ(wheel.collect((std::uint64_t{1} << 50) + 16, 4), 1u);
}

}  // namespace
}  // namespace flashmob::engine
