// Coalescing, and the bulk forms over ranges and index lists.
#include "flashmob/gpu/bulk.h"

#include <gtest/gtest.h>

#include <map>

#include "array/rig.h"
#include "base/rng.h"
#include "flashmob/gpu/coalesce.h"

namespace flashmob::gpu {
namespace {

using namespace suite;

TEST(Coalesce, LanesWithEqualKeysFormAGroupWithOneLeader) {
  for (std::uint64_t seed = 1; seed <= seeds(40); ++seed) {
    Rig rig(seed);
    auto* groups = rig.array<Group>(32);
    auto* shared = rig.array<std::uint32_t>(32);
    const auto mask = static_cast<std::uint32_t>(splitmix64(seed) | 1);
    rig.gpu->run({}, GroupUp{}, seed, mask, groups, shared);
    std::map<std::uint64_t, std::uint32_t> expected;
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      if ((mask >> lane & 1) != 0) expected[splitmix64(seed + lane) % 5] |= 1u << lane;
    }
    for (const auto& [key, lanes] : expected) {
      const std::uint32_t leader = simt::first_lane(lanes);
      for (std::uint32_t lane = 0; lane < 32; ++lane) {
        if ((lanes >> lane & 1) == 0) continue;
        ASSERT_EQ(groups[lane].mask, lanes);
        ASSERT_EQ(groups[lane].leader, leader);
        ASSERT_EQ(groups[lane].leads, lane == leader);
        ASSERT_EQ(shared[lane], 1000 + leader);
      }
    }
  }
}

struct Range {
  std::uint64_t first;
  std::uint64_t count;
};
// Inside a line, a whole line, over borders, nothing at all.
constexpr Range kRanges[] = {{5, 3}, {256, 256}, {250, 20}, {1, 2000}, {512, 0}, {0, 1}, {255, 1}, {768, 769}};

TEST(Bulk, RangesComeFromTheSsd) {
  for (std::uint64_t seed = 1; seed <= seeds(2); ++seed) {
    for (const Range& range : kRanges) {
      for (const std::uint32_t mask : {0xFFFFFFFFu, 0x00000100u, 0x0F0F0001u, 0u}) {  // 0: by a block
        Rig rig(seed, 1, 4096);
        const auto cache = rig.cache(4, 2);
        auto* memory = rig.array<std::uint32_t>(range.count + 2);
        auto* failed = rig.array<std::uint32_t>(1);
        const Row row(cache->ref(), rig.fault, RowMap{});
        if (mask != 0)
          rig.gpu->run({}, CopyRange{}, row, range.first, range.count, mask, memory + 1, false, failed);
        else
          rig.gpu->run({.block_threads = 96}, CopyRangeByBlock{}, row, range.first, range.count, memory + 1, false,
                       failed);
        ASSERT_EQ(*failed, 0u);
        for (std::uint64_t i = 0; i < range.count; ++i) ASSERT_EQ(memory[i + 1], content(0, range.first + i));
        ASSERT_EQ(memory[0], 0u);
        ASSERT_EQ(memory[range.count + 1], 0u);
      }
    }
  }
}

TEST(Bulk, RangesGoToTheSsdAndNothingBesideThemChanges) {
  for (std::uint64_t seed = 1; seed <= seeds(2); ++seed) {
    for (const Range& range : kRanges) {
      for (const std::uint32_t mask : {0xFFFFFFFFu, 0x0F0F0001u, 0u}) {
        Rig rig(seed, 1, 4096);
        const auto cache = rig.cache(4, 2);
        auto* memory = rig.array<std::uint32_t>(range.count + 1);
        auto* failed = rig.array<std::uint32_t>(1);
        for (std::uint64_t i = 0; i < range.count; ++i) memory[i] = static_cast<std::uint32_t>(i + 77);
        const Row row(cache->ref(), rig.fault, RowMap{});
        const std::uint64_t before = rig.gpu->stats().submitted;
        if (mask != 0)
          rig.gpu->run({}, CopyRange{}, row, range.first, range.count, mask, memory, true, failed);
        else
          rig.gpu->run({.block_threads = 96}, CopyRangeByBlock{}, row, range.first, range.count, memory, true, failed);
        // Whole lines are not fetched.
        if (range.first == 256) {
          ASSERT_EQ(rig.gpu->stats().submitted, before);
        }
        ASSERT_TRUE(cache->flush().ok());
        ASSERT_EQ(*failed, 0u);
        ASSERT_EQ(rig.fault->count.value, 0u);
        const std::vector<std::uint32_t> got = rig.on_ssd(0, 4096);
        for (std::uint64_t i = 0; i < got.size(); ++i) {
          const bool inside = i >= range.first && i < range.first + range.count;
          ASSERT_EQ(got[i], inside ? i - range.first + 77 : content(0, i)) << "element " << i;
        }
      }
    }
  }
}

TEST(Bulk, AFailedLineIsReportedToAllLanesAndTheRestIsCopied) {
  Rig rig(1, 1, 1 << 14);
  const auto cache = rig.cache(4, 2);
  const std::uint64_t end = rig.gpu->ssd_info(0).namespace_bytes[0] / 4;
  auto* memory = rig.array<std::uint32_t>(600);
  auto* failed = rig.array<std::uint32_t>(1);
  memory[0] = 99;
  const Row row(cache->ref(), rig.fault, RowMap{});
  rig.gpu->run({}, CopyRange{}, row, end - 256, std::uint64_t{512}, 0xFFFFFFFFu, memory, false, failed);
  EXPECT_EQ(*failed, 32u);
  EXPECT_EQ(rig.fault->count.value, 1u);
  EXPECT_EQ(memory[0], 0u);  // the last line of the namespace was never written
}

TEST(Bulk, GatherAndScatter) {
  for (std::uint64_t seed = 1; seed <= seeds(4); ++seed) {
    for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{31}, std::uint64_t{33}, std::uint64_t{100}}) {
      Rig rig(seed, 1, 4096);
      const auto cache = rig.cache(4, 4);
      auto* indices = rig.array<std::uint64_t>(count);
      auto* memory = rig.array<std::uint32_t>(count + 1);
      for (std::uint64_t k = 0; k < count; ++k) indices[k] = k * 37 % 4096;
      const Row row(cache->ref(), rig.fault, RowMap{});
      rig.gpu->run({.block_threads = 27}, GatherScatter{}, row, indices, count, memory, false);
      for (std::uint64_t k = 0; k < count; ++k) ASSERT_EQ(memory[k], content(0, indices[k]));
      ASSERT_EQ(memory[count], 0u);
      for (std::uint64_t k = 0; k < count; ++k) memory[k] = static_cast<std::uint32_t>(k + 5);
      rig.gpu->run({.block_threads = 32}, GatherScatter{}, row, indices, count, memory, true);
      ASSERT_TRUE(cache->flush().ok());
      const std::vector<std::uint32_t> got = rig.on_ssd(0, 4096);
      for (std::uint64_t k = 0; k < count; ++k) ASSERT_EQ(got[indices[k]], k + 5);
      ASSERT_EQ(rig.fault->count.value, 0u);
    }
  }
}

TEST(Bulk, APrefetchedRangeIsThereWhenItIsRead) {
  Rig rig(1, 1, 4096);
  const auto cache = rig.cache(16, 16);
  auto* memory = rig.array<std::uint32_t>(2000);
  auto* failed = rig.array<std::uint32_t>(1);
  const Row row(cache->ref(), rig.fault, RowMap{});
  rig.gpu->run({}, AskAhead{}, row, std::uint64_t{10}, std::uint64_t{2000});
  rig.gpu->pass(1'000'000);
  const std::uint64_t before = rig.gpu->stats().submitted;
  rig.gpu->run({}, CopyRange{}, row, std::uint64_t{10}, std::uint64_t{2000}, 0xFFFFFFFFu, memory, false, failed);
  EXPECT_EQ(rig.gpu->stats().submitted, before);
  EXPECT_EQ(cache->statistics()[CacheCount::prefetches], 8u);
  for (std::uint64_t i = 0; i < 2000; ++i) ASSERT_EQ(memory[i], content(0, 10 + i));
}

}  // namespace
}  // namespace flashmob::gpu
