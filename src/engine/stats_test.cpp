// What counts as a gap, and how the records of threads are joined.
#include "engine/stats.h"

#include <gtest/gtest.h>

#include <memory>

namespace flashmob::engine {
namespace {

TEST(GapMonitor, OnlySpansAboveTheThresholdAreGaps) {
  GapMonitor gaps(5'000);
  EXPECT_FALSE(gaps.tick(1'000'000));  // the first reading ends nothing
  EXPECT_FALSE(gaps.tick(1'005'000));
  EXPECT_TRUE(gaps.tick(1'010'001));
  EXPECT_EQ(gaps.gap_end_ns(), 1'010'001u);
  EXPECT_TRUE(gaps.tick(1'030'001));
  EXPECT_FALSE(gaps.tick(1'030'001));
  EXPECT_EQ(gaps.count(), 2u);
  EXPECT_EQ(gaps.total_ns(), 25'001u);
  EXPECT_EQ(gaps.longest_ns(), 20'000u);
  EXPECT_EQ(gaps.last_ns(), 1'030'001u);
}

TEST(GapMonitor, AnIntendedPauseIsNoGap) {
  GapMonitor gaps(5'000);
  gaps.tick(1'000);
  gaps.restart(1'000'000);
  EXPECT_FALSE(gaps.tick(1'005'000));
  EXPECT_EQ(gaps.count(), 0u);
}

TEST(GapMonitor, ClearKeepsThePlaceInTime) {
  GapMonitor gaps(10);
  gaps.tick(100);
  gaps.tick(200);
  gaps.clear();
  EXPECT_EQ(gaps.count(), 0u);
  EXPECT_EQ(gaps.total_ns(), 0u);
  EXPECT_EQ(gaps.longest_ns(), 0u);
  EXPECT_TRUE(gaps.tick(300));
  EXPECT_EQ(gaps.total_ns(), 100u);
}

TEST(FidelityStats, MergeAddsCountsAndKeepsExtremes) {
  const auto a = std::make_unique<FidelityStats>();
  const auto b = std::make_unique<FidelityStats>();
  a->target_ns.record(10);
  b->target_ns.record(20);
  b->processing_ns.record(30);
  b->lateness_ns.record(1, 2);
  b->lateness_gap_ns.record(7, 3);
  a->completions = 1;
  b->completions = 2;
  a->target_sum_ns = 10;
  b->target_sum_ns = 20;
  a->lateness_sum_ns = 3;
  b->lateness_sum_ns = 4;
  a->lateness_max_ns = 9;
  b->lateness_max_ns = 8;
  a->late_by_copy = 1;
  b->late_by_copy = 1;
  a->max_poll_gap_ns = 5;
  b->max_poll_gap_ns = 6;
  a->busy_polls = 1;
  b->busy_polls = 10;
  a->idle_polls = 2;
  b->idle_polls = 20;
  a->gap_count = 3;
  b->gap_count = 4;
  a->gap_total_ns = 100;
  b->gap_total_ns = 90;
  a->gap_longest_ns = 40;
  b->gap_longest_ns = 50;
  a->merge(*b);
  EXPECT_EQ(a->target_ns.count(), 2u);
  EXPECT_EQ(a->target_ns.max(), 20u);
  EXPECT_EQ(a->processing_ns.count(), 1u);
  EXPECT_EQ(a->lateness_ns.count(), 2u);
  EXPECT_EQ(a->lateness_gap_ns.count(), 3u);
  EXPECT_EQ(a->completions, 3u);
  EXPECT_EQ(a->target_sum_ns, 30u);
  EXPECT_EQ(a->lateness_sum_ns, 7u);
  EXPECT_EQ(a->lateness_max_ns, 9u);
  EXPECT_EQ(a->late_by_copy, 2u);
  EXPECT_EQ(a->max_poll_gap_ns, 6u);
  EXPECT_EQ(a->busy_polls, 11u);
  EXPECT_EQ(a->idle_polls, 22u);
  EXPECT_EQ(a->gap_count, 7u);
  EXPECT_EQ(a->gap_total_ns, 100u);
  EXPECT_EQ(a->gap_longest_ns, 50u);
}

}  // namespace
}  // namespace flashmob::engine
