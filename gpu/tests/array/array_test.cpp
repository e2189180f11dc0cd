// ArrayRef, StripedRef and ReplicatedRef on fibres with random schedules and caches that are far too small.
#include "flashmob/gpu/array.h"

#include <gtest/gtest.h>

#include <set>

#include "array/rig.h"

namespace flashmob::gpu {
namespace {

using namespace suite;

void read_at_random(std::uint64_t seed, std::uint32_t ssds, std::uint32_t lines, const simt::Shape& shape) {
  Rig rig(seed, ssds);
  const auto cache = rig.cache(lines, std::min(lines, 4u));
  auto* wrong = rig.array<std::uint64_t>(1);
  rig.gpu->run(shape, ReadAtRandom{}, Array(cache->ref(), rig.fault), ssds, std::uint64_t{1} << 14, wrong);
  ASSERT_EQ(*wrong, 0u) << "seed " << seed;
  ASSERT_EQ(rig.fault->count.value, 0u);
}

TEST(Array, TwoSsdsWithEqualBlockNumbersAreTwoArrays) {
  for (std::uint64_t seed = 1; seed <= seeds(4); ++seed) read_at_random(seed, 2, 8, {.blocks = 2, .block_threads = 48});
}

TEST(Array, AOneLineCacheServesAWarpThatWants32Lines) {
  for (std::uint64_t seed = 1; seed <= seeds(5); ++seed) read_at_random(seed, 1, 1, {.blocks = 1, .block_threads = 64});
}

// AGILE's writes to arrays do not compile.
TEST(Array, WritesOfManyLanesIntoOneLineReachTheSsd) {
  constexpr std::uint64_t kElements = 64 * 24;
  for (std::uint64_t seed = 1; seed <= seeds(5); ++seed) {
    Rig rig(seed);
    const auto cache = rig.cache(3, 3, 512);
    rig.gpu->run({.blocks = 2, .block_threads = 32}, WriteNeighbours{}, Array(cache->ref(), rig.fault), kElements);
    ASSERT_TRUE(cache->flush().ok());
    ASSERT_EQ(rig.fault->count.value, 0u);
    const std::vector<std::uint32_t> got = rig.on_ssd(0, kElements + 1);
    for (std::uint64_t i = 0; i < kElements; ++i) ASSERT_EQ(got[i], i * 7 + 1) << "seed " << seed;
    ASSERT_EQ(got[kElements], content(0, kElements));
  }
}

TEST(Array, AtomicsLoseNothingThoughTheirLinesComeAndGo) {
  constexpr std::uint32_t kCounters = 12;
  constexpr std::uint32_t kStride = 200;  // more than a line, beyond the elements used alone
  for (std::uint64_t seed = 1; seed <= seeds(6); ++seed) {
    Rig rig(seed);
    std::vector<std::uint32_t> zero(4096, 0);
    zero[3] = zero[5] = ~0u;
    rig.gpu->write(0, 0, 0, zero.data(), zero.size() * 4);
    const auto cache = rig.cache(2, 2, 512);
    const Array array(cache->ref(), rig.fault);
    rig.gpu->run({.blocks = 2, .block_threads = 32}, CountUp{}, array, kCounters, kStride);
    rig.gpu->run({.blocks = 2, .block_threads = 32}, CompareAndSwap{}, array);
    ASSERT_TRUE(cache->flush().ok());
    ASSERT_EQ(rig.fault->count.value, 0u);
    const std::vector<std::uint32_t> got = rig.on_ssd(0, 4096);
    std::uint32_t sum = 0;
    for (std::uint32_t c = 0; c < kCounters; ++c) sum += got[c * kStride];
    ASSERT_EQ(sum, 64u * 8) << "seed " << seed;
    ASSERT_EQ(got[1], 64u * 2);
    ASSERT_EQ(got[2], ~0u);
    ASSERT_EQ(got[3], 0u);
    ASSERT_EQ(got[4], 63u);
    ASSERT_LT(got[5], 64u);
    ASSERT_EQ(got[6], 0x100u);  // exactly one lane found what was there before
  }
}

TEST(Array, AFailedReadIsZeroAndIsNotedWithTypeAndCode) {
  Rig rig(1);
  const auto cache = rig.cache(4, 4);
  auto* got = rig.array<std::uint32_t>(8);
  const std::uint64_t beyond = rig.gpu->ssd_info(0).namespace_bytes[0] / 4;
  rig.gpu->run({.blocks = 1, .block_threads = 8}, ReadOneFar{}, Array(cache->ref(), rig.fault), 0u, beyond, got);
  EXPECT_EQ(rig.fault->count.value, 8u);
  const IoStatus status = IoStatus::from_bits(rig.fault->first.value);
  EXPECT_EQ(status.kind, IoKind::completed);
  EXPECT_EQ(status.type(), 0);
  EXPECT_EQ(status.code(), 0x80);  // LBA out of range
  for (int i = 0; i < 8; ++i) EXPECT_EQ(got[i], 0u);
  // There is no such SSD at all.
  rig.fault->count.value = 0;
  rig.gpu->run({.blocks = 1, .block_threads = 8}, ReadOneFar{}, Array(cache->ref(), rig.fault), 5u, std::uint64_t{0},
               got);
  EXPECT_EQ(rig.fault->count.value, 8u);
}

TEST(Array, AWarpAsksForALineOnce) {
  Rig rig(3);
  const auto cache = rig.cache(4, 4);
  auto* wrong = rig.array<std::uint32_t>(1);
  const std::uint64_t before = rig.gpu->stats().submitted;
  rig.gpu->run({.blocks = 1, .block_threads = 32}, ReadWarpWide{}, Array(cache->ref(), rig.fault), wrong);
  EXPECT_EQ(*wrong, 0u);
  EXPECT_EQ(rig.gpu->stats().submitted - before, 1u);
  const CacheStatistics statistics = cache->statistics();
  EXPECT_EQ(statistics[CacheCount::misses], 1u);
  EXPECT_EQ(statistics[CacheCount::joined], 0u);
}

TEST(Striped, LinesLieOnTheSsdsInTurn) {
  constexpr std::uint64_t kElements = 5000;
  for (const std::uint32_t line_bytes : {512u, 1536u}) {  // 1536: no power of two
    for (std::uint64_t seed = 1; seed <= seeds(3); ++seed) {
      Rig rig(seed, 3);
      const auto cache = rig.cache(8, 4, line_bytes);
      auto* wrong = rig.array<std::uint64_t>(1);
      const StripeMap map{3, 0, 7};
      const Striped array(cache->ref(), rig.fault, map);
      rig.gpu->run({.blocks = 1, .block_threads = 64}, WriteFlat<Striped>{}, array, kElements);
      ASSERT_TRUE(cache->flush().ok());
      rig.gpu->run({.blocks = 1, .block_threads = 64}, CompareFlat<Striped>{}, array, kElements, wrong);
      ASSERT_EQ(*wrong, 0u) << "seed " << seed;
      ASSERT_EQ(rig.fault->count.value, 0u);
      const std::uint64_t per_line = line_bytes / 4;
      std::vector<std::uint32_t> ssds[3];
      for (std::uint32_t s = 0; s < 3; ++s) ssds[s] = rig.on_ssd(s, (kElements / per_line / 3 + 9) * per_line);
      for (std::uint64_t i = 0; i < kElements; ++i) {
        const std::uint64_t line = i / per_line;
        ASSERT_EQ(ssds[line % 3][(7 + line / 3) * per_line + i % per_line], i * 3);
      }
      for (std::uint32_t s = 0; s < 3; ++s) ASSERT_EQ(ssds[s][7 * per_line - 1], content(s, 7 * per_line - 1));
    }
  }
}

TEST(Replicated, EverySsdHasAllOfItAndReadsSpread) {
  constexpr std::uint64_t kElements = 3000;
  Rig rig(1, 2);
  const auto cache = rig.cache(8, 4, 512);
  auto* wrong = rig.array<std::uint64_t>(1);
  const Replicated array(cache->ref(), rig.fault, StripeMap{2, 0, 0});
  rig.gpu->run({.blocks = 1, .block_threads = 32}, WriteFlat<Replicated>{}, array, kElements);
  ASSERT_TRUE(cache->flush().ok());
  rig.gpu->run({.blocks = 1, .block_threads = 64}, CompareFlat<Replicated>{}, array, kElements, wrong);
  EXPECT_EQ(*wrong, 0u);
  EXPECT_EQ(rig.fault->count.value, 0u);
  for (std::uint32_t s = 0; s < 2; ++s) {
    const std::vector<std::uint32_t> got = rig.on_ssd(s, kElements);
    for (std::uint64_t i = 0; i < kElements; ++i) ASSERT_EQ(got[i], i * 3);
  }
}

TEST(Replicated, ReadsGoOnWhereOneSsdFails) {
  constexpr std::uint64_t kElements = 4096;
  // The second SSD is too small: every read of the array's upper half fails there.
  Rig rig(2, {suite::quick_ssd(), suite::quick_ssd(kElements * 2)}, 1024, 64);
  std::vector<std::uint32_t> values(kElements);
  for (std::uint64_t i = 0; i < kElements; ++i) values[i] = static_cast<std::uint32_t>(i * 3);
  rig.gpu->write(0, 0, 0, values.data(), kElements * 4);
  rig.gpu->write(1, 0, 0, values.data(), kElements * 2);
  const auto cache = rig.cache(8, 4, 512);
  auto* wrong = rig.array<std::uint64_t>(1);
  const Replicated array(cache->ref(), rig.fault, StripeMap{2, 0, 0});
  rig.gpu->run({.blocks = 1, .block_threads = 64}, CompareFlat<Replicated>{}, array, kElements, wrong);
  EXPECT_EQ(*wrong, 0u);
  EXPECT_EQ(rig.fault->count.value, 0u);
}

}  // namespace
}  // namespace flashmob::gpu
