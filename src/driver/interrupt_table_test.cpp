#include "driver/interrupt_table.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/check.h"

namespace flashmob::driver {
namespace {

TEST(InterruptTable, FiresTheHandlerOfItsVectorOnly) {
  InterruptTable table(3);
  int first = 0;
  int last = 0;
  table.fire(0);  // nobody listens: nothing happens
  table.set(0, [&] { ++first; });
  table.set(2, [&] { ++last; });
  table.fire(0);
  table.fire(1);
  table.fire(2);
  table.fire(2);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(last, 2);
  table.set(2, nullptr);
  table.fire(2);
  EXPECT_EQ(last, 2);
  table.set(2, [&] { last = 100; });
  table.fire(2);
  EXPECT_EQ(last, 100);
}

TEST(InterruptTable, AVectorThatDoesNotExistIsAConfigurationMistake) {
  InterruptTable table(3);
  EXPECT_THROW(table.set(3, [] {}), ConfigError);
  EXPECT_DEATH(table.fire(3), "check failed");
}

class InterruptTableOfThreads : public testing::TestWithParam<InterruptTable::Threads> {};
INSTANTIATE_TEST_SUITE_P(AnyAndOne, InterruptTableOfThreads,
                         testing::Values(InterruptTable::Threads::any, InterruptTable::Threads::one));

TEST_P(InterruptTableOfThreads, AHandlerMayReplaceOrMaskItself) {
  InterruptTable table(1, GetParam());
  // The handler owns memory; were it freed while it runs, the sanitizer would say so.
  auto calls = std::make_shared<std::vector<int>>(100);
  table.set(0, [&table, calls] {
    table.set(0, [&table, calls] {
      table.set(0, nullptr);
      calls->push_back(2);
    });
    calls->push_back(1);
  });
  table.fire(0);
  table.fire(0);
  table.fire(0);
  ASSERT_EQ(calls->size(), 102u);
  EXPECT_EQ((*calls)[101], 2);
  EXPECT_EQ(calls.use_count(), 1);
}

TEST_P(InterruptTableOfThreads, AHandlerMayRaiseItsOwnInterrupt) {
  InterruptTable table(1, GetParam());
  auto calls = std::make_shared<std::vector<int>>();
  table.set(0, [&table, calls] {
    if (calls->size() < 3) {
      calls->push_back(1);
      table.fire(0);
      return;
    }
    // The calls around this one still run the function that is replaced here, more than once.
    table.set(0, [calls] { calls->push_back(2); });
    table.set(0, [calls] { calls->push_back(3); });
  });
  table.fire(0);
  EXPECT_EQ(*calls, (std::vector<int>{1, 1, 1}));
  table.fire(0);
  EXPECT_EQ(calls->back(), 3);
  EXPECT_EQ(calls.use_count(), 2) << "of the handlers only the present one is left";
}

TEST(InterruptTable, AMaskedHandlerIsNotRunningAnyMore) {
  InterruptTable table(2);
  std::atomic<bool> stop{false};
  std::vector<std::thread> engines;
  for (int i = 0; i < 3; ++i) {
    engines.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        table.fire(0);
        table.fire(1);
        std::this_thread::yield();
      }
    });
  }
  for (int round = 0; round < 2000; ++round) {
    auto target = std::make_unique<std::atomic<int>>(0);
    std::atomic<int>* plain = target.get();
    const auto vector = static_cast<std::uint16_t>(round & 1);
    table.set(vector, [plain] { plain->fetch_add(1); });
    if (round % 16 == 0) std::this_thread::yield();
    table.set(vector, nullptr);
    target.reset();  // a handler still running would touch freed memory
  }
  stop = true;
  for (auto& thread : engines) thread.join();
}

}  // namespace
}  // namespace flashmob::driver
