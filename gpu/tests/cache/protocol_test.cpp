// The cache's protocol over thousands of seeds: every way of access, every policy, tight caches, two SSDs, errors, lost
// commands, a second tier, a stop in mid-flight. Whatever the schedule, no lane may see wrong data, what the SSDs hold
// after a flush is what was written, and nothing leaks. A failure names its seed, which replays it.
#include <gtest/gtest.h>

#include "cache/protocol_run.h"

namespace flashmob::gpu::test {
namespace {

constexpr std::uint32_t kLineBytes = kProtocolLineBytes;

template <class Policy>
void run_seeds(const Scenario& run, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    FakeOptions options = run.device;
    options.seed = seed;
    CacheFixture<Policy> fixture(run.geometry, options);
    const std::string fault = run_seed(fixture, run, seed);
    ASSERT_EQ(fault, "") << "seed " << seed;
  }
}

template <class Policy>
class EveryPolicy : public testing::Test {};
using Policies = testing::Types<DirectMapped, Lru, ClockPolicy, Fifo, S3Fifo>;
TYPED_TEST_SUITE(EveryPolicy, Policies);

TYPED_TEST(EveryPolicy, KeepsEveryWrite) {
  const std::uint32_t ways = std::min(4u, TypeParam::kMaxWays);
  run_seeds<TypeParam>(small_scenario(8 / ways, ways), 1, seeds(500));
}

TYPED_TEST(EveryPolicy, KeepsEveryWriteOfAOneLineCache) {
  // Twelve threads, one line: everybody waits for everybody's pins and write-backs.
  Scenario run = small_scenario(1, 1);
  run.blocks = 2;
  run.block_threads = 3;
  run.traffic.rounds = 6;
  run.traffic.shared = 3;
  run_seeds<TypeParam>(run, 1'001, seeds(200));
}

TYPED_TEST(EveryPolicy, NeverMixesUpTwoSsdsWithEqualBlockNumbers) {
  const std::uint32_t ways = std::min(4u, TypeParam::kMaxWays);
  Scenario run = small_scenario(8 / ways, ways);
  run.device.ssds = run.traffic.ssds = 2;
  run.device.namespaces = run.traffic.namespaces = 2;
  run.traffic.shared = 2;
  run_seeds<TypeParam>(run, 2'001, seeds(200));
}

TYPED_TEST(EveryPolicy, LosesNothingWhenCommandsFail) {
  const std::uint32_t ways = std::min(4u, TypeParam::kMaxWays);
  Scenario run = small_scenario(8 / ways, ways);
  run.device.read_error_one_in = 4;
  run.device.write_error_one_in = 3;
  run.device.refuse_one_in = 10;
  run_seeds<TypeParam>(run, 3'001, seeds(300));
}

TYPED_TEST(EveryPolicy, OutlivesLostCommands) {
  const std::uint32_t ways = std::min(4u, TypeParam::kMaxWays);
  Scenario run = small_scenario(8 / ways, ways);
  run.device.lose_one_in = 20;
  run.device.timeout_ns = run.traffic.timeout_ns = 100'000;
  run.traffic.buffers = false;  // a lost token's buffer is the SSD's for good
  run_seeds<TypeParam>(run, 4'001, seeds(100));
}

template <class Policy, class LowerPolicy>
void run_two_tiers(const Scenario& run, const CacheGeometry& lower, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    FakeOptions options = run.device;
    options.seed = seed;
    TwoTierFixture<Policy, LowerPolicy> fixture(run.geometry, lower, options);
    const std::string fault = run_seed(fixture, run, seed);
    ASSERT_EQ(fault, "") << "seed " << seed;
  }
}

TEST(SecondTier, KeepsEveryWrite) {
  run_two_tiers<Lru, Fifo>(small_scenario(1, 4), {kLineBytes, 2, 4}, 5'001, seeds(500));
  run_two_tiers<ClockPolicy, Lru>(small_scenario(2, 4), {kLineBytes, 1, 2}, 5'501, seeds(300));
}

TEST(SecondTier, LosesNothingWhenCommandsFail) {
  Scenario run = small_scenario(1, 4);
  run.device.read_error_one_in = 4;
  run.device.write_error_one_in = 3;
  run_two_tiers<Lru, Lru>(run, {kLineBytes, 1, 3}, 6'001, seeds(400));
}

}  // namespace
}  // namespace flashmob::gpu::test
