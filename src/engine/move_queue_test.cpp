#include "engine/move_queue.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace flashmob::engine {
namespace {

Move numbered(std::uint32_t number) { return {number * 512ull, nullptr, nullptr, number, 512}; }

TEST(MoveQueue, KeepsOrderWhileItGrowsAndShrinks) {
  MoveQueue queue;
  std::uint32_t pushed = 0, popped = 0;
  // Grown at every offset of its head, emptied in between, and grown again.
  for (const std::uint32_t burst : {1u, 1023u, 1024u, 1025u, 3000u, 700u, 9000u}) {
    for (std::uint32_t i = 0; i < burst; ++i) queue.push(numbered(pushed++));
    for (std::uint32_t i = 0; i < burst / 3; ++i, queue.pop()) ASSERT_EQ(queue.front().slot, popped++);
    for (std::uint32_t i = 0; i < burst; ++i) queue.push(numbered(pushed++));
    ASSERT_EQ(queue.size(), pushed - popped);
    for (std::uint32_t n = 0; n < queue.size(); n += 97) ASSERT_EQ(queue.at(n).slot, popped + n);
    for (; !queue.empty(); queue.pop()) ASSERT_EQ(queue.front().slot, popped++);
  }
  EXPECT_EQ(pushed, popped);
}

TEST(Move, TellsDirectionAndSizeApart) {
  const Move read{0, nullptr, nullptr, 1, 4096};
  const Move write{0, nullptr, nullptr, 1, 512 | Move::kWrite};
  const Move other{0, nullptr, nullptr, 1, 0};
  EXPECT_TRUE(read.is_plain() && !read.is_write());
  EXPECT_TRUE(write.is_plain() && write.is_write());
  EXPECT_FALSE(other.is_plain());
  EXPECT_EQ(read.size(), 4096u);
  EXPECT_EQ(write.size(), 512u);
}

}  // namespace
}  // namespace flashmob::engine
