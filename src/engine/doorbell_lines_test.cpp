#include "engine/doorbell_lines.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace flashmob::engine {
namespace {

struct alignas(kCacheLineBytes) Doorbells {
  std::array<std::uint32_t, 16 * 8> words{};  // eight lines
  std::uint32_t* tail(std::uint32_t queue) { return &words[2 * queue]; }
};

TEST(DoorbellLines, ALineIsFoundWhenOneOfItsTailsMovesAndNotForAHead) {
  Doorbells doorbells;
  DoorbellLines lines;
  std::vector<DoorbellLines::Place> places;
  for (std::uint32_t queue = 0; queue < 64; ++queue) places.push_back(lines.add(doorbells.tail(queue), 0));
  ASSERT_EQ(lines.lines(), 8u);
  EXPECT_EQ(lines.next_changed(0, 8, 5), 8u);
  for (std::uint32_t queue = 0; queue < 64; ++queue) {
    doorbells.tail(queue)[1] = 7;  // a completion queue's head
    EXPECT_EQ(lines.next_changed(0, 8, 6), 8u) << queue;
    *doorbells.tail(queue) = 9;
    EXPECT_EQ(lines.next_changed(0, 8, 7), queue / 8) << queue;
    EXPECT_EQ(places[queue].line, queue / 8);
    EXPECT_EQ(places[queue].lane, queue % 8);
    lines.saw(places[queue], 9);
    EXPECT_EQ(lines.next_changed(0, 8, 8), 8u) << queue;
  }
}

TEST(DoorbellLines, ATailThatNobodyServesIsNotLookedAt) {
  Doorbells doorbells;
  DoorbellLines lines;
  for (const std::uint32_t queue : {1u, 3u, 6u}) lines.add(doorbells.tail(queue), 0);
  for (std::uint32_t queue = 0; queue < 8; ++queue) {
    *doorbells.tail(queue) = 1;
    const bool is_served = queue == 1 || queue == 3 || queue == 6;
    EXPECT_EQ(lines.next_changed(0, 1, 1), is_served ? 0u : 1u) << queue;
    *doorbells.tail(queue) = 0;
  }
}

TEST(DoorbellLines, LooksThatShowedNothingAreDated) {
  Doorbells doorbells;
  DoorbellLines lines;
  for (std::uint32_t queue = 0; queue < 24; ++queue) lines.add(doorbells.tail(queue), 0);
  EXPECT_EQ(lines.unchanged_ns(1), 0u);
  lines.next_changed(0, 3, 100);
  *doorbells.tail(9) = 1;
  EXPECT_EQ(lines.next_changed(0, 3, 200), 1u);
  EXPECT_EQ(lines.next_changed(2, 3, 210), 3u);
  EXPECT_EQ(lines.unchanged_ns(0), 200u);
  EXPECT_EQ(lines.unchanged_ns(1), 100u) << "the line that changed";
  EXPECT_EQ(lines.unchanged_ns(2), 210u);
  EXPECT_EQ(lines.next_changed(1, 1, 300), 1u) << "an empty stretch";
}

TEST(DoorbellLines, TwoQueuesAtOnePlaceAndOddPlacesAreFound) {
  Doorbells doorbells;
  DoorbellLines lines;
  const auto first = lines.add(doorbells.tail(2), 0);
  const auto second = lines.add(doorbells.tail(2), 0);
  EXPECT_NE(first.line, second.line);
  EXPECT_EQ(lines.next_changed(0, 2, 1), 2u);
  *doorbells.tail(2) = 4;
  lines.saw(first, 4);
  EXPECT_EQ(lines.next_changed(0, 2, 1), 1u);
  // Between two tails: whoever polls it looks for himself.
  const auto odd = lines.add(doorbells.tail(12) + 1, 0);
  EXPECT_EQ(lines.next_changed(2, 3, 1), 2u);
  lines.saw(odd, 0);
  EXPECT_EQ(lines.next_changed(2, 3, 1), 2u);
  lines.clear();
  EXPECT_EQ(lines.lines(), 0u);
}

}  // namespace
}  // namespace flashmob::engine
