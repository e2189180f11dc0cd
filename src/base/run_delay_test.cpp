// What the kernel says of a thread's waits for a processor.
#include "base/run_delay.h"

#include <gtest/gtest.h>

#include <thread>

namespace flashmob {
namespace {

TEST(RunDelay, GrowsOnlyAndIsOfTheThreadThatReads) {
  RunDelay delay;
  const auto first = delay.read_ns();
  if (!first) GTEST_SKIP() << "this kernel does not count";
  for (int i = 0; i < 20; ++i) std::this_thread::yield();
  const auto second = delay.read_ns();
  ASSERT_TRUE(second);
  EXPECT_GE(*second, *first);
}

}  // namespace
}  // namespace flashmob
