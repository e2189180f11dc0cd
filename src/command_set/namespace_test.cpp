// The set of LBA ranges: examples at the edges, and random operations against one flag per block.
#include "command_set/namespace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <vector>

#include "base/rng.h"

namespace flashmob::command_set {
namespace {

TEST(LbaRangeSet, StartsEmptyAndIsEmptyAgainWhenAllIsErased) {
  LbaRangeSet set;
  EXPECT_TRUE(set.empty());
  EXPECT_FALSE(set.intersects(0, std::numeric_limits<std::uint64_t>::max()));
  EXPECT_TRUE(set.insert(5, 3));
  EXPECT_FALSE(set.empty());
  ASSERT_TRUE(set.erase(0, 100));
  EXPECT_TRUE(set.empty());
}

TEST(LbaRangeSet, EdgesBelongToTheRangeAndNeighboursDoNot) {
  LbaRangeSet set;
  ASSERT_TRUE(set.insert(10, 5));
  EXPECT_FALSE(set.intersects(9, 1));
  EXPECT_TRUE(set.intersects(10, 1));
  EXPECT_TRUE(set.intersects(14, 1));
  EXPECT_FALSE(set.intersects(15, 1));
  EXPECT_TRUE(set.intersects(0, 11));
  EXPECT_FALSE(set.intersects(0, 10));
  EXPECT_TRUE(set.intersects(0, 100));
  EXPECT_FALSE(set.intersects(12, 0));
}

TEST(LbaRangeSet, ErasingTheMiddleLeavesBothEnds) {
  LbaRangeSet set;
  ASSERT_TRUE(set.insert(0, 10));
  ASSERT_TRUE(set.erase(4, 2));
  EXPECT_TRUE(set.intersects(3, 1));
  EXPECT_FALSE(set.intersects(4, 2));
  EXPECT_TRUE(set.intersects(6, 1));
}

TEST(LbaRangeSet, NoBlocksChangeNothing) {
  LbaRangeSet set;
  EXPECT_TRUE(set.insert(7, 0));
  EXPECT_TRUE(set.empty());
  ASSERT_TRUE(set.insert(7, 1));
  ASSERT_TRUE(set.erase(7, 0));
  EXPECT_TRUE(set.intersects(7, 1));
  set.clear();
  EXPECT_TRUE(set.empty());
}

TEST(LbaRangeSet, EqualsOneFlagPerBlock) {
  constexpr std::uint64_t kBlocks = 200;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Rng rng(seed);
    LbaRangeSet set;
    std::vector<bool> flags(kBlocks, false);
    for (int step = 0; step < 400; ++step) {
      const std::uint64_t first = rng.below(kBlocks);
      const std::uint64_t blocks = 1 + rng.below(std::min<std::uint64_t>(kBlocks - first, rng.below(4) == 0 ? 80 : 6));
      const std::uint64_t action = rng.below(3);
      if (action == 0) {
        ASSERT_TRUE(set.insert(first, blocks));
      } else if (action == 1) {
        ASSERT_TRUE(set.erase(first, blocks));
      }
      bool any = false;
      for (std::uint64_t i = first; i < first + blocks; ++i) {
        if (action != 2) flags[i] = action == 0;
        any = any || flags[i];
      }
      ASSERT_EQ(set.intersects(first, blocks), any) << "seed " << seed << ", step " << step;
      ASSERT_EQ(set.empty(), std::find(flags.begin(), flags.end(), true) == flags.end());
    }
    for (std::uint64_t i = 0; i < kBlocks; ++i) ASSERT_EQ(set.intersects(i, 1), flags[i]);
  }
}

TEST(LbaRangeSet, IsBoundedAndTakesWhatJoinsEvenWhenFull) {
  LbaRangeSet set(2);
  ASSERT_TRUE(set.insert(0, 10));
  ASSERT_TRUE(set.insert(100, 10));
  EXPECT_FALSE(set.insert(200, 1));
  EXPECT_FALSE(set.intersects(200, 1));
  EXPECT_TRUE(set.insert(110, 5));  // joins the second
  EXPECT_TRUE(set.intersects(114, 1));
  EXPECT_TRUE(set.insert(10, 90));  // joins both
  EXPECT_TRUE(set.insert(200, 1));
}

TEST(LbaRangeSet, AFullSetForgetsNothingThatWasNotAsked) {
  LbaRangeSet set(1);
  ASSERT_TRUE(set.insert(0, 100));
  EXPECT_FALSE(set.erase(10, 5)) << "no room for two";
  EXPECT_TRUE(set.intersects(10, 5));
  EXPECT_TRUE(set.erase(0, 15));
  EXPECT_TRUE(set.erase(90, 20));
  EXPECT_FALSE(set.intersects(0, 15));
  EXPECT_FALSE(set.intersects(90, 10));
  EXPECT_TRUE(set.intersects(15, 1));
  EXPECT_TRUE(set.intersects(89, 1));
  EXPECT_TRUE(set.erase(0, 1000));
  EXPECT_TRUE(set.empty());
}

TEST(LbaRangeSet, TheLastBlockOfTheLargestNamespaceIsABlockLikeAnyOther) {
  LbaRangeSet set;
  const std::uint64_t last = (std::uint64_t{64} << 40) / 512 - 1;
  ASSERT_TRUE(set.insert(last, 1));
  EXPECT_TRUE(set.intersects(last, 1));
  EXPECT_FALSE(set.intersects(last - 1, 1));
}

TEST(LbaRangeSet, ThreadsMayMarkAndReadAtOnce) {
  LbaRangeSet set;
  auto worker = [&](std::uint64_t base) {
    for (std::uint64_t round = 0; round < 2000; ++round) {
      ASSERT_TRUE(set.insert(base + round % 50, 2));
      ASSERT_TRUE(set.intersects(base + round % 50, 1));
      ASSERT_TRUE(set.erase(base, 60));
      ASSERT_FALSE(set.intersects(base, 60));
    }
  };
  std::thread other(worker, 1000);
  worker(0);
  other.join();
  EXPECT_TRUE(set.empty());
}

}  // namespace
}  // namespace flashmob::command_set
