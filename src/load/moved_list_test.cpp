#include "load/moved_list.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace flashmob::load {
namespace {

TEST(MovedList, SaysWhatWasNoted) {
  Rng rng(7);
  std::vector<MovedIo> noted;
  MovedList list;
  list.reserve(10'000 * MovedList::kMostBytesEach);
  std::uint64_t turn = 0;
  for (int i = 0; i < 10'000; ++i) {
    // The first one may be the queue's first; numbers of every length.
    turn += i == 0 ? 0 : 1 + (rng.next() >> (24 + rng.below(40)));
    noted.push_back({turn, rng.next() >> rng.below(64)});
    ASSERT_TRUE(list.note(noted.back()));
  }
  for (int replay = 0; replay < 2; ++replay) {
    MovedList::Reader reader(&list);
    for (const MovedIo& io : noted) {
      std::uint64_t slba = 0;
      ASSERT_TRUE(reader.take(io.turn, slba));
      ASSERT_EQ(slba, io.slba);
      ASSERT_FALSE(reader.take(io.turn, slba)) << "there is one request a turn";
    }
  }
}

TEST(MovedList, IsNeverLongerThanItsRoom) {
  MovedList list;
  EXPECT_FALSE(list.note({0, 0}));
  list.reserve(100'000);
  std::uint64_t turns = 0;
  while (list.note({turns, turns % 100'000})) ++turns;
  // The old list had sixteen bytes for each.
  EXPECT_GT(turns, 100'000u / 5);
  std::uint64_t slba = 0, taken = 0;
  MovedList::Reader reader(&list);
  for (std::uint64_t turn = 0; turn < turns + 10; ++turn) taken += reader.take(turn, slba);
  EXPECT_EQ(taken, turns);
  EXPECT_FALSE(MovedList::Reader().take(0, slba));
}

}  // namespace
}  // namespace flashmob::load
