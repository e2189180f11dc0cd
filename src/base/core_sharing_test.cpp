// When a polling thread is taken to share its core with whom it waits for.
#include "base/core_sharing.h"

#include <gtest/gtest.h>

namespace flashmob {
namespace {

constexpr std::uint64_t kTurnNs = 3'000'000;  // of another thread

struct CoreSharingTest : testing::Test {
  // Looks for work in vain, loses its core, and finds work when it gets it back.
  bool found_after_a_turn(std::uint64_t turn_ns = kTurnNs) {
    const std::uint64_t last_work_ns = now_ns;
    const std::uint64_t before_ns = now_ns + 1'000'000;
    now_ns = gap_end_ns = before_ns + turn_ns;
    return sharing.found(now_ns, last_work_ns, before_ns, gap_end_ns);
  }
  // Looks for work for so long, and finds it.
  bool found_by_looking(std::uint64_t for_ns = 1'000'000) {
    const std::uint64_t last_work_ns = now_ns;
    now_ns += for_ns;
    return sharing.found(now_ns, last_work_ns, now_ns - 100, gap_end_ns);
  }
  // For how long from now on it is believed.
  std::uint64_t believed_ns() const {
    std::uint64_t ns = 0;
    while (sharing.is_likely(now_ns + ns)) ns += 1'000'000;
    return ns;
  }

  CoreSharing sharing;
  std::uint64_t now_ns = 10'000'000'000;
  std::uint64_t gap_end_ns = 0;
};

TEST_F(CoreSharingTest, WorkThatWaitedForTheCoreTells) {
  EXPECT_FALSE(sharing.is_likely(now_ns));
  EXPECT_TRUE(found_after_a_turn());
  EXPECT_TRUE(sharing.is_likely(now_ns));
  EXPECT_EQ(believed_ns(), CoreSharing::kFirstNs);
  EXPECT_FALSE(found_after_a_turn()) << "only the first time is a change";
}

TEST_F(CoreSharingTest, WorkThatIsFoundByLookingDoesNot) {
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(found_by_looking());
  EXPECT_FALSE(sharing.is_likely(now_ns));
}

TEST_F(CoreSharingTest, NeitherDoesAnInterruptNorAThreadThatWasBusy) {
  EXPECT_FALSE(found_after_a_turn(CoreSharing::kTurnNs - 1));
  // Busy until it lost its core.
  for (const std::uint64_t idle_ns : {std::uint64_t{0}, CoreSharing::kSpinNs - 1}) {
    const std::uint64_t last_work_ns = now_ns;
    const std::uint64_t before_ns = now_ns + idle_ns;
    now_ns = before_ns + kTurnNs;
    EXPECT_FALSE(sharing.found(now_ns, last_work_ns, before_ns, now_ns));
  }
  EXPECT_FALSE(sharing.is_likely(now_ns));
}

TEST_F(CoreSharingTest, WhatIsSeenAgainAndAgainIsBelievedLonger) {
  found_after_a_turn();
  found_after_a_turn();
  EXPECT_EQ(believed_ns(), 2 * CoreSharing::kFirstNs);
  for (int i = 0; i < 100; ++i) found_after_a_turn();
  EXPECT_EQ(believed_ns(), CoreSharing::kLongestNs);
  now_ns += CoreSharing::kLongestNs;
  found_by_looking();
  EXPECT_FALSE(sharing.is_likely(now_ns));
  found_after_a_turn();
  EXPECT_EQ(believed_ns(), CoreSharing::kFirstNs) << "the two have run at the same time since";
}

TEST_F(CoreSharingTest, WhatIsSeenNowAndThenStaysChance) {
  for (int i = 0; i < 10; ++i) {
    found_after_a_turn();
    EXPECT_EQ(believed_ns(), CoreSharing::kFirstNs);
    now_ns += CoreSharing::kFirstNs + CoreSharing::kForgottenNs;
  }
}

TEST_F(CoreSharingTest, WorkThatIsFoundAfterANapTellsNothingUnlessTheNapTookTooLong) {
  for (int i = 0; i < 3; ++i) found_after_a_turn();
  const std::uint64_t longer_ns = 8 * CoreSharing::kFirstNs;
  now_ns += believed_ns();
  std::uint64_t last_work_ns = now_ns;
  std::uint64_t before_ns = now_ns + CoreSharing::kSpinNs;
  now_ns = before_ns + CoreSharing::kSleepNs;
  sharing.woke(now_ns, 0);
  EXPECT_FALSE(sharing.found(now_ns, last_work_ns, before_ns, gap_end_ns));
  EXPECT_FALSE(sharing.is_likely(now_ns));

  last_work_ns = now_ns;
  before_ns = now_ns + CoreSharing::kSpinNs;
  now_ns = before_ns + CoreSharing::kSleepNs + kTurnNs;
  sharing.woke(now_ns, kTurnNs);
  sharing.found(now_ns, last_work_ns, before_ns, gap_end_ns);
  EXPECT_EQ(believed_ns(), longer_ns) << "nothing spoke against it in between";
}

}  // namespace
}  // namespace flashmob
