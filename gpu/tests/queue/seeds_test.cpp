#include <gtest/gtest.h>

#include <cstdlib>

#include "queue/seed_run.h"

namespace flashmob::gpu::testing {
namespace {

// Sanitizers make a seed several times slower.
#if defined(FLASHMOB_ASAN)
constexpr std::uint64_t kSeeds = 1'500;
#else
constexpr std::uint64_t kSeeds = 12'000;
#endif

std::uint64_t environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// FLASHMOB_GPU_SEEDS changes how many, FLASHMOB_GPU_SEED replays one.
TEST(QueueSeeds, NoScheduleBreaksTheProtocol) {
  const std::uint64_t only = environment("FLASHMOB_GPU_SEED", 0);
  const std::uint64_t seeds = environment("FLASHMOB_GPU_SEEDS", kSeeds);
  ScriptedSsd ssd;
  SeedResult sum;
  unsigned failures = 0;
  for (std::uint64_t seed = only != 0 ? only : 1; seed <= (only != 0 ? only : seeds) && failures < 3; ++seed) {
    const SeedResult result = run_seed(ssd, seed);
    failures += !result.failure.empty();
    EXPECT_EQ(result.failure, "");
    sum.commands += result.commands;
    sum.turns += result.turns;
    sum.deadlines += result.deadlines;
    sum.aborted += result.aborted;
    sum.lost += result.lost;
    sum.late += result.late;
  }
  RecordProperty("commands", std::to_string(sum.commands));
  RecordProperty("turns", std::to_string(sum.turns));
  if (only != 0 || seeds < 1'000) return;
  // The edges have been there.
  EXPECT_GT(sum.deadlines, seeds / 20);
  EXPECT_GT(sum.aborted, seeds / 20);
  EXPECT_GT(sum.lost, seeds / 20);
  EXPECT_GT(sum.late, seeds / 20);
}

TEST(QueueSeeds, ASeedIsItsOwnReplay) {
  ScriptedSsd ssd;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const SeedResult first = run_seed(ssd, seed);
    run_seed(ssd, seed + 1'000);
    const SeedResult again = run_seed(ssd, seed);
    EXPECT_EQ(first.turns, again.turns);
    EXPECT_EQ(first.commands, again.commands);
  }
}

}  // namespace
}  // namespace flashmob::gpu::testing
