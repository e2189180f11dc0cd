#include "vfio/shared_budget.h"

#include <gtest/gtest.h>

namespace flashmob::vfio {
namespace {

TEST(SharedBudget, EachGetsAsMuchAsIsThenLeft) {
  SharedBudget budget(1000);
  const auto take_all = [&] {
    std::size_t held = 0;
    while (budget.take(held)) ++held;
    return held;
  };
  EXPECT_EQ(take_all(), 500u);
  EXPECT_EQ(take_all(), 250u);
  EXPECT_EQ(take_all(), 125u);
  budget.give_back(500);
  EXPECT_EQ(take_all(), 313u);
}

}  // namespace
}  // namespace flashmob::vfio
