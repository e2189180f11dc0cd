#include "cache/protocol_run.h"
#include "weak/protocols.h"

namespace flashmob::gpu::test {
namespace {

Scenario scenario(std::uint64_t seed, std::uint32_t ways) {
  Scenario run = small_scenario(8 / ways, ways);
  if (seed % 3 == 1) {  // everybody waits for everybody's pins and write-backs
    run = small_scenario(1, 1);
    run.blocks = 2;
    run.block_threads = 3;
    run.traffic.rounds = 6;
    run.traffic.shared = 3;
  } else if (seed % 3 == 2) {
    run.device.read_error_one_in = 4;
    run.device.write_error_one_in = 3;
    run.device.refuse_one_in = 10;
  }
  run.device.seed = seed;
  run.traffic.racing_copies = false;
  return run;
}

template <class Policy>
std::string one_tier(std::uint64_t seed) {
  const Scenario run = scenario(seed, std::min(4u, Policy::kMaxWays));
  CacheFixture<Policy> fixture(run.geometry, run.device);
  return run_seed(fixture, run, seed);
}

std::string two_tiers(std::uint64_t seed) {
  Scenario run = small_scenario(1, 4);
  run.device.seed = seed;
  run.traffic.racing_copies = false;
  if (seed % 3 == 2) run.device.read_error_one_in = run.device.write_error_one_in = 4;
  TwoTierFixture<Lru, Fifo> fixture(run.geometry, {kProtocolLineBytes, 1, 3}, run.device);
  return run_seed(fixture, run, seed);
}

}  // namespace

std::string run_cache_seed(std::uint64_t seed) {
  try {
    switch (seed / 3 % 5) {
      case 0:
        return one_tier<Lru>(seed);
      case 1:
        return one_tier<ClockPolicy>(seed);
      case 2:
        return one_tier<S3Fifo>(seed);
      case 3:
        return one_tier<Fifo>(seed);
      default:
        return two_tiers(seed);
    }
  } catch (const std::runtime_error& e) {  // StuckError, RaceError
    return e.what();
  }
}

}  // namespace flashmob::gpu::test
