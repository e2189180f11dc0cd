#include "engine/places.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace flashmob::engine {
namespace {

TEST(Places, NobodyHasAllOfThem) {
  for (const std::uint32_t count : {8u, 256u}) {
    Places<int> places(5, count);
    FairShare::Holder greedy, second, third;
    std::set<std::uint32_t> numbers;
    while (const std::uint32_t number = places.take(greedy)) numbers.insert(number);
    EXPECT_GE(numbers.size(), count / 2) << "alone, one has most of them";
    EXPECT_EQ(numbers.size(), greedy.held) << "each has a place of its own";
    for (FairShare::Holder* const other : {&second, &third}) {
      const std::uint32_t number = places.take(*other);
      EXPECT_NE(number, 0u);
      EXPECT_TRUE(numbers.insert(number).second);
    }
    EXPECT_EQ(places.take(greedy), 0u);
    for (const std::uint32_t number : numbers) {
      EXPECT_GE(number, 5u);
      EXPECT_LT(number, 5u + count);
      EXPECT_TRUE(places.has(number));
    }
    EXPECT_FALSE(places.has(4));
    EXPECT_FALSE(places.has(0));
  }
}

TEST(Places, WhatIsGivenBackIsTakenAgain) {
  Places<std::vector<int>> places(1, 8);
  FairShare::Holder holder;
  const std::uint32_t first = places.take(holder);
  places.at(first).assign(1'000, 7);
  places.give(holder, first);
  EXPECT_EQ(holder.held, 0u);
  EXPECT_EQ(places.take(holder), first);
  EXPECT_EQ(places.at(first).size(), 1'000u) << "memory is kept";
}

}  // namespace
}  // namespace flashmob::engine
