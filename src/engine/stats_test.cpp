// How the records of threads and of intervals are joined.
#include "engine/stats.h"

#include <gtest/gtest.h>

#include <memory>

namespace flashmob::engine {
namespace {

TEST(FidelityStats, CountsAreAddedAndExtremesKept) {
  const auto a = std::make_unique<FidelityStats>();
  const auto b = std::make_unique<FidelityStats>();
  a->target_ns.record(10);
  b->target_ns.record(20);
  b->write_target_ns.record(20);
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
  a->wait_ns.record(100, 5);
  b->wait_ns.record(300, 5);
  a->wait_sum_ns = 500;
  b->wait_sum_ns = 1'500;
  a->left_behind = 1;
  b->fetches = 7;
  a->gaps = {3, 100, 40};
  b->gaps = {4, 90, 50};
  const auto later = std::make_unique<FidelityStats>(*a);
  a->join(*b);
  EXPECT_EQ(a->write_target_ns.count(), 1u);
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
  EXPECT_EQ(a->wait_ns.count(), 10u);
  EXPECT_EQ(a->wait_sum_ns, 2'000u);
  EXPECT_EQ(a->left_behind, 1u);
  EXPECT_EQ(a->fetches, 7u);
  EXPECT_EQ(a->gaps.count, 7u);
  EXPECT_EQ(a->gaps.total_ns, 100u) << "threads beside each other";
  EXPECT_EQ(a->gaps.longest_ns, 50u);
  // 40 ms of gaps a second, for a hundred seconds, are four seconds.
  later->gaps = {1, 40'000'000, 40'000'000};
  const auto sum = std::make_unique<FidelityStats>();
  for (int second = 0; second < 100; ++second) sum->append(*later);
  EXPECT_EQ(sum->gaps.total_ns, 4'000'000'000u);
}

// One that is saturated is no less so for another that idles; and what it did at one time is not added to another's.
TEST(FidelityStats, TheBusiestUnitCounts) {
  const auto all = std::make_unique<FidelityStats>();
  EXPECT_EQ(all->busy_share(), 0);
  const auto idle = std::make_unique<FidelityStats>();
  const auto busy = std::make_unique<FidelityStats>();
  idle->units[0] = {1'000, 10};
  busy->units[1] = {1'000, 990};
  all->join(*idle);
  all->join(*busy);
  EXPECT_EQ(all->busy_share(), 0.99);
  const auto later = std::make_unique<FidelityStats>();
  later->units[0] = {1'000, 990};
  later->units[1] = {1'000, 10};
  all->append(*later);
  EXPECT_EQ(all->busy_share(), 0.5);
}

}  // namespace
}  // namespace flashmob::engine
