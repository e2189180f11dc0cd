#include "engine/move_queue.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace flashmob::engine {
namespace {

std::byte* const kMedia = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 30);

void push_numbered(MoveQueue& queue, std::uint32_t number) {
  queue.push({nullptr, kMedia + number, 512, number}, PlainTransfer::of(number * 512ull, number % 3 == 0, nullptr));
}

TEST(MoveQueue, KeepsOrderWhileItGrowsAndShrinks) {
  MoveQueue queue;
  std::uint32_t pushed = 0, popped = 0;
  // Grown at every offset of its head, emptied in between, and grown again.
  for (const std::uint32_t burst : {1u, 1023u, 1024u, 1025u, 3000u, 700u, 9000u}) {
    for (std::uint32_t i = 0; i < burst; ++i) push_numbered(queue, pushed++);
    for (std::uint32_t i = 0; i < burst / 3; ++i, queue.pop()) ASSERT_EQ(queue.front().token, popped++);
    for (std::uint32_t i = 0; i < burst; ++i) push_numbered(queue, pushed++);
    ASSERT_EQ(queue.size(), pushed - popped);
    std::uint32_t n = popped;
    queue.for_each_plain([&](Copy& copy, const PlainTransfer& plain) {
      ASSERT_EQ(copy.token, n);
      ASSERT_EQ(plain.iova(), n * 512ull);
      ASSERT_EQ(plain.is_write(), n % 3 == 0);
      ++n;
    });
    ASSERT_EQ(n, pushed);
    for (; !queue.empty(); queue.pop()) ASSERT_EQ(queue.front().token, popped++);
  }
  EXPECT_EQ(pushed, popped);
}

TEST(MoveQueue, ARunShowsWhatFollowsAcrossTheRingsEnd) {
  MoveQueue queue;
  std::uint32_t pushed = 0, popped = 0;
  // At every offset of the head, with fewer and with more entries than are held twice; 2,300 at once make it grow.
  for (const std::uint32_t most : {40u, 700u, 2'300u, 700u}) {
    for (std::uint32_t step = 0; step < 3'000; ++step) {
      while (queue.size() < most) push_numbered(queue, pushed++);
      const auto run = queue.run().copies;
      ASSERT_GE(run.size(), std::min(queue.size(), MoveQueue::kOverlap));
      ASSERT_LE(run.size(), queue.size());
      for (std::size_t i = 0; i < run.size(); i += 1 + i / 8) ASSERT_EQ(run[i].token, popped + i);
      ASSERT_EQ(run.back().token, popped + run.size() - 1);
      queue.pop(1 + step % 7);
      popped += 1 + step % 7;
    }
    popped += queue.size();
    queue.pop(queue.size());
  }
}

TEST(MoveQueue, WhatOthersWaitForHasEverySecondTurn) {
  MoveQueue queue;
  Slab slab;
  std::vector<Slot> slots;
  for (int i = 0; i < 5; ++i) {
    slots.push_back(slab.alloc(1));
    slab.hot(slots.back()).cold = kNoSlot;
    slab.alloc_cold(slots.back());
  }
  for (std::uint32_t i = 0; i < 3; ++i) queue.push_other(1000 + i);
  for (int i = 0; i < 4; ++i) queue.push_urgent(slab, slots[i]);
  std::vector<Slot> order;
  for (int turn = 0; turn < 4; ++turn) order.push_back(queue.pop_first(slab));
  EXPECT_EQ(order, (std::vector<Slot>{slots[0], 1000, slots[1], 1001}));
  // Plain transfers have the other turns, a run of them each.
  push_numbered(queue, 2000);
  EXPECT_FALSE(queue.plain_first());
  EXPECT_EQ(queue.pop_first(slab), slots[2]);
  EXPECT_EQ(queue.pop_first(slab), 1002u);
  EXPECT_EQ(queue.pop_first(slab), slots[3]);
  EXPECT_TRUE(queue.plain_first());
  queue.push_urgent(slab, slots[4]);
  EXPECT_TRUE(queue.plain_first());
  queue.pop();
  EXPECT_FALSE(queue.empty());
  queue.end_urgent(slab);
  EXPECT_EQ(queue.pop_first(slab), slots[4]);
  EXPECT_TRUE(queue.empty());
}

TEST(MoveQueue, ChangesOfACopyShowInTheRun) {
  MoveQueue queue;
  for (std::uint32_t i = 0; i < 1'000; ++i) queue.push_other(i);
  queue.pop(1'000);
  for (std::uint32_t i = 0; i < 1'000; ++i) push_numbered(queue, i);
  queue.pop(990);  // the rest begins near the ring's end...
  for (std::uint32_t i = 1'000; i < 1'100; ++i) push_numbered(queue, i);
  queue.for_each_plain([](Copy& copy, const PlainTransfer&) {
    if (copy.token % 2 == 0) copy.bytes = 0;
  });
  const auto run = queue.run().copies;
  ASSERT_EQ(run.size(), 110u);  // ...and goes on beyond it
  for (std::uint32_t i = 0; i < 110; ++i) {
    EXPECT_EQ(run[i].token, 990 + i);
    EXPECT_EQ(run[i].bytes, i % 2 == 0 ? 0u : 512u);
  }
  EXPECT_FALSE(queue.plain_first());
  queue.pop();
  EXPECT_TRUE(queue.plain_first());
}

TEST(MoveQueue, AWriterAddsWhatItIsGivenAndNoMore) {
  MoveQueue queue;
  for (std::uint32_t i = 0; i < 1'000; ++i) push_numbered(queue, i);
  MoveQueue::Writer writer = queue.start(500);
  for (std::uint32_t i = 1'000; i < 1'300; ++i)
    writer.push({nullptr, kMedia, 512, i}, PlainTransfer::of(0, false, nullptr));
  writer.push_other(1'300);
  EXPECT_EQ(queue.size(), 1'000u) << "not before it is finished";
  queue.finish(writer);
  ASSERT_EQ(queue.size(), 1'301u);
  for (std::uint32_t i = 0; i <= 1'300; ++i, queue.pop()) {
    ASSERT_EQ(queue.front().token, i);
    ASSERT_EQ(queue.plain_first(), i != 1'300);
  }
}

}  // namespace
}  // namespace flashmob::engine
