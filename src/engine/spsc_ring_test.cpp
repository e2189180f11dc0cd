// The ring between a worker and its dispatcher: nothing is lost, reordered or seen before it is published.
#include "engine/spsc_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/rng.h"

namespace flashmob::engine {
namespace {

TEST(SlotRing, NothingIsSeenBeforeItIsPublished) {
  SlotRing ring;
  std::vector<Slot> seen;
  const auto take = [&](Slot slot) { seen.push_back(slot); };
  ring.push(1);
  ring.push(2);
  EXPECT_EQ(ring.drain(10, take), 0u);
  ring.publish();
  ring.push(3);
  EXPECT_EQ(ring.drain(1, take), 1u);
  EXPECT_EQ(ring.drain(10, take), 1u);
  EXPECT_EQ(ring.drain(10, take), 0u);
  ring.publish();
  EXPECT_EQ(ring.drain(10, take), 1u);
  EXPECT_EQ(seen, (std::vector<Slot>{1, 2, 3}));
}

TEST(SlotRing, HoldsEverySlotOfASlab) {
  SlotRing ring;
  for (Slot slot = 0; slot < Slab::kCapacity; ++slot) ring.push(slot);
  ring.publish();
  Slot expected = 0;
  std::uint32_t wrong = 0;
  EXPECT_EQ(ring.drain(2 * Slab::kCapacity, [&](Slot slot) { wrong += slot != expected++; }), Slab::kCapacity);
  EXPECT_EQ(wrong, 0u);
}

TEST(SlotRing, TwoThreadsAndManyTurns) {
  constexpr std::uint32_t kTotal = 2 * Slab::kCapacity + 12'345;
  SlotRing ring;
  std::vector<std::uint64_t> payload(4096);  // written by the producer before it publishes: the ring must order it
  std::atomic<std::uint32_t> consumed{0};
  std::thread producer([&] {
    Rng rng(1);
    std::uint32_t next = 0;
    while (next < kTotal) {
      const std::uint32_t batch = std::min<std::uint32_t>(kTotal - next, 1 + static_cast<std::uint32_t>(rng.below(64)));
      while (next + batch - consumed.load(std::memory_order_acquire) > payload.size()) std::this_thread::yield();
      for (std::uint32_t i = 0; i < batch; ++i, ++next) {
        payload[next % payload.size()] = next * 3ull;
        ring.push(next);
      }
      ring.publish();
    }
  });
  Rng rng(2);
  std::uint32_t expected = 0;
  std::uint32_t wrong = 0;
  while (expected < kTotal) {
    const std::uint32_t taken = ring.drain(1 + static_cast<std::uint32_t>(rng.below(100)), [&](Slot slot) {
      wrong += slot != expected || payload[slot % payload.size()] != slot * 3ull;
      ++expected;
    });
    consumed.store(expected, std::memory_order_release);
    if (taken == 0) std::this_thread::yield();
  }
  producer.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(ring.drain(1, [](Slot) {}), 0u);
}

}  // namespace
}  // namespace flashmob::engine
