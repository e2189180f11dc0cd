#include "flashmob/gpu/simt/threads.h"

#include <gtest/gtest.h>

#include "flashmob/gpu/simt/word.h"

namespace flashmob::gpu::simt {
namespace {

struct AddOne {
  template <class Lane>
  void operator()(Lane& t, Word<std::uint64_t>* sum) const {
    for (int i = 0; i < 100; ++i) sum->fetch_add(t, 1);
  }
};

TEST(Threads, EveryThreadOfTheGridRunsOnce) {
  ThreadDevice device(Clock::real());
  Word<std::uint64_t> sum;
  device.run({.blocks = 3, .block_threads = 40}, AddOne{}, &sum);
  EXPECT_EQ(sum.value, 12'000u);
}

struct Collectives {
  template <class Lane>
  void operator()(Lane& t, Word<std::uint32_t>* wrong) const {
    const std::uint32_t lanes = t.lanes();
    for (std::uint32_t i = 0; i < 20; ++i) {
      const std::uint32_t odd = t.ballot(lanes, t.lane() % 2 == 1);
      if (odd != (lanes & 0xAAAAAAAAu)) wrong->fetch_add(t, 1);
      if (t.shuffle(lanes, t.lane() + i, i % 4) != i % 4 + i) wrong->fetch_add(t, 1);
      const std::uint32_t half = t.lane() % 2 == 1 ? odd : lanes & ~odd;
      if (t.match(half, t.lane() % 2) != half) wrong->fetch_add(t, 1);
    }
  }
};

TEST(Threads, CollectivesMeetWholeAndPartialWarps) {
  ThreadDevice device(Clock::real());
  Word<std::uint32_t> wrong;
  device.run({.blocks = 1, .block_threads = 40}, Collectives{}, &wrong);
  EXPECT_EQ(wrong.value, 0u);
}

struct Neighbours {
  template <class Lane>
  void operator()(Lane& t, Word<std::uint32_t>* wrong) const {
    auto* slots = reinterpret_cast<std::uint32_t*>(t.shared());
    for (std::uint32_t round = 0; round < 20; ++round) {
      slots[t.thread_in_block()] = round;
      t.sync_block();
      if (slots[(t.thread_in_block() + 1) % t.block_threads()] != round) wrong->fetch_add(t, 1);
      t.sync_block();
    }
  }
};

TEST(Threads, TheBarrierOrdersSharedMemory) {
  ThreadDevice device(Clock::real());
  Word<std::uint32_t> wrong;
  device.run({.blocks = 2, .block_threads = 33, .shared_bytes = 256}, Neighbours{}, &wrong);
  EXPECT_EQ(wrong.value, 0u);
}

struct HalfMeets {
  template <class Lane>
  void operator()(Lane& t) const {
    if (t.lane() != 0) t.sync(t.lanes());
  }
};

TEST(Threads, AWaitWithoutEndIsReported) {
  ThreadDevice device(Clock::real(), {.patience_ns = 20'000'000});
  EXPECT_THROW(device.run({.blocks = 1, .block_threads = 4}, HalfMeets{}), StuckError);
}

}  // namespace
}  // namespace flashmob::gpu::simt
