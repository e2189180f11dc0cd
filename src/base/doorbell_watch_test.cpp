// The bound on an entry's wait: never less than the truth, whatever is left behind, and exact where nothing is.
#include "base/doorbell_watch.h"

#include <gtest/gtest.h>

#include <deque>

#include "base/rng.h"

namespace flashmob {
namespace {

TEST(DoorbellWatch, AnEntryCountsFromTheLastLookThatDidNotShowIt) {
  DoorbellWatch watch{};
  watch.was_empty(1'000);
  watch.was_empty(1'500);
  watch.shows(4, 2'000);
  std::uint64_t since_ns = 0;
  EXPECT_EQ(watch.oldest(0, 4, 16, since_ns), 4u);
  EXPECT_EQ(since_ns, 1'500u);
  watch.shows(6, 2'500);
  EXPECT_EQ(watch.oldest(4, 2, 16, since_ns), 2u);
  EXPECT_EQ(since_ns, 2'000u) << "the look that showed the first four did not show these";
}

TEST(DoorbellWatch, WhatIsLeftBehindKeepsItsLook) {
  DoorbellWatch watch{};
  watch.was_empty(1'000);
  std::uint64_t since_ns = 0;
  for (std::uint32_t i = 0; i < 4; ++i) {
    watch.shows(4, 2'000 + i * 100);
    EXPECT_EQ(watch.oldest(i, 1, 16, since_ns), 1u);
    EXPECT_EQ(since_ns, 1'000u);
  }
  EXPECT_FALSE(watch.marked);
}

TEST(DoorbellWatch, WhatWaitedForItsHostCountsFromWhenItDidNot) {
  DoorbellWatch watch{};
  watch.was_empty(1'000);
  watch.shows(4, 2'000);
  watch.waits_for_host(3'000);
  watch.shows(4, 3'100);
  std::uint64_t since_ns = 0;
  EXPECT_EQ(watch.oldest(0, 4, 16, since_ns), 4u);
  EXPECT_EQ(since_ns, 3'000u);
}

// A host that rings at random and a dispatcher that fetches some of what it sees.
TEST(DoorbellWatch, IsNeverBelowTheTruth) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    constexpr std::uint32_t kEntries = 32;
    DoorbellWatch watch{};
    std::deque<std::uint64_t> rung_ns;
    std::uint32_t head = 0, tail = 0;
    std::uint64_t now_ns = 1'000;
    watch.was_empty(now_ns);
    for (int step = 0; step < 2'000; ++step) {
      now_ns += 1 + rng.below(100);
      if (rng.below(2) != 0) {
        const std::uint64_t room = kEntries - 1 - rung_ns.size();
        for (std::uint64_t i = rng.below(room + 1); i != 0; --i) {
          rung_ns.push_back(now_ns);
          tail = (tail + 1) % kEntries;
        }
      }
      now_ns += 1 + rng.below(10);
      const std::uint64_t look_ns = now_ns - rng.below(2);  // dated by a clock that was read a little before
      if (rung_ns.empty()) {
        watch.was_empty(look_ns);
        continue;
      }
      watch.shows(tail, look_ns);
      for (auto count = static_cast<std::uint32_t>(rng.below(rung_ns.size() + 1)); count != 0;) {
        std::uint64_t since_ns = 0;
        const std::uint32_t together = watch.oldest(head, count, kEntries, since_ns);
        ASSERT_GE(together, 1u);
        ASSERT_LE(together, count);
        for (std::uint32_t i = 0; i < together; ++i) {
          ASSERT_LE(since_ns, rung_ns.front()) << "seed " << seed << " step " << step;
          rung_ns.pop_front();
        }
        head = (head + together) % kEntries;
        count -= together;
        if (count != 0) watch.shows(tail, look_ns);
      }
    }
  }
}

}  // namespace
}  // namespace flashmob
