// The simple model's arithmetic: worked examples, and the three forms against a walk unit by unit.
#include "timing/simple.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "timing/host_atomics.h"
#include "timing/simple_params.h"
#include "timing/simple_test_support.h"

namespace flashmob::timing {
namespace {

TEST(SimpleTiming, OneInstanceServesInOrderAndMinLatencyDoesNotOccupy) {
  // d = 100 ns, Lmin = 900 ns: three requests at once leave 100 ns apart; an idle device answers after d + Lmin.
  Forms forms(make_params(1, {100 * kNs, 900 * kNs}, {200 * kNs, 50 * kNs}));
  EXPECT_EQ(forms.schedule({read_of(0), read_of(7), read_of(3)}, 10'000), (Targets{11'000, 11'100, 11'200}));
  // The instance is free at 10'300, long before the last of them is done.
  EXPECT_EQ(forms.schedule({read_of(1)}, 10'300), (Targets{11'300}));
  EXPECT_EQ(forms.schedule({read_of(1)}, 10'350), (Targets{11'400}));  // busy until 10'400
  EXPECT_EQ(forms.schedule({read_of(1)}, 20'000), (Targets{21'000}));  // idle again
}

TEST(SimpleTiming, ReadsAndWritesHaveTheirOwnCostOnTheSameInstances) {
  Forms forms(make_params(1, {100 * kNs, 900 * kNs}, {200 * kNs, 50 * kNs}));
  EXPECT_EQ(forms.schedule({write_of(0), read_of(0), write_of(0)}, 0), (Targets{250, 1'200, 550}));
}

TEST(SimpleTiming, UnitsSpreadOverInstancesFromTheFirstUnitOn) {
  Forms forms(make_params(4, {100 * kNs, 0}, {100 * kNs, 0}));
  // Units 3, 4, 5 lie on instances 3, 0, 1: all parallel.
  EXPECT_EQ(forms.schedule({read_of(3, 3)}, 0), (Targets{100}));
  // Instance 2 is idle, instance 1 is busy until 100.
  EXPECT_EQ(forms.schedule({read_of(2), read_of(1)}, 0), (Targets{100, 200}));
  // Nine units from instance 0: instance 0 serves three of them, after what it holds (100).
  EXPECT_EQ(forms.schedule({read_of(8, 9)}, 0), (Targets{400}));
}

TEST(SimpleTiming, TheLastUnitDecidesEvenWhenTheFirstInstanceIsIdle) {
  Forms forms(make_params(2, {100 * kNs, 0}, {100 * kNs, 0}));
  EXPECT_EQ(forms.schedule({read_of(1), read_of(1), read_of(0, 2)}, 0), (Targets{100, 200, 300}));
}

TEST(SimpleTiming, FlushWaitsForAllThatWasScheduledBeforeItAndForNothingAfter) {
  for (const std::uint32_t instances : {1u, 2u, 8u}) {
    Forms forms(make_params(instances, {100 * kNs, 0}, {300 * kNs, 5'000 * kNs}));
    EXPECT_EQ(forms.schedule({flush()}, 50), (Targets{50}));
    EXPECT_EQ(forms.schedule({read_of(0), flush(), write_of(0), flush()}, 1'000),
              (Targets{1'100, 1'100, 6'400, 1'400}));
    // The instances stay busy until 1'400 for a later batch, and a flush never ends in the past.
    EXPECT_EQ(forms.schedule({flush(), immediate()}, 1'200), (Targets{1'400, 1'200}));
    EXPECT_EQ(forms.schedule({flush()}, 9'000), (Targets{9'000}));
  }
}

TEST(SimpleTiming, FlushSeesInstancesThatItsOwnBatchDoesNotTouch) {
  Forms forms(make_params(4, {100 * kNs, 0}, {100 * kNs, 0}));
  EXPECT_EQ(forms.schedule({read_of(2, 16)}, 0), (Targets{400}));
  EXPECT_EQ(forms.schedule({read_of(2)}, 0), (Targets{500}));
  EXPECT_EQ(forms.schedule({flush(), read_of(0), flush()}, 0), (Targets{500, 500, 500}));
}

TEST(SimpleTiming, TimeZeroIsATimeLikeAnyOther) {
  // An instance that was never used and one that was reserved at time 0 look alike; a flush must still tell them apart.
  Forms forms(make_params(2, {100 * kNs, 0}, {100 * kNs, 0}));
  EXPECT_EQ(forms.schedule({flush(), read_of(0), flush(), read_of(1), read_of(1)}, 0),
            (Targets{0, 100, 100, 100, 200}));
}

TEST(SimpleTiming, ImmediateOccupiesNothing) {
  Forms forms(make_params(2, {100 * kNs, 10 * kNs}, {100 * kNs, 0}));
  Demand odd = immediate();
  odd.first_unit = 1;
  odd.units = 77;
  EXPECT_EQ(forms.schedule({odd, read_of(1)}, 500), (Targets{500, 610}));
}

TEST(SimpleTiming, TargetsAreNeverEarlierThanTheExactTime) {
  // d = 1 ns and one tick: exactly ready at 1 + 1/1024 ns, hence not at 1 but at 2.
  Forms forms(make_params(1, {kNs + kTick, 0}, {kNs, 0}));
  EXPECT_EQ(forms.schedule({read_of(0)}, 0), (Targets{2}));
  Forms exact(make_params(1, {kNs, 0}, {kNs, 0}));
  EXPECT_EQ(exact.schedule({read_of(0)}, 0), (Targets{1}));
}

TEST(SimpleTiming, ThreeFormsEqualTheUnitByUnitWalk) {
  for (std::uint32_t instances = 1; instances <= kMaxInstances; instances *= 2) {
    Rng rng(instances);
    const SimpleParams params = make_params(instances, {1 + rng.below(9'999'999), rng.below(99'999'999)},
                                            {1 + rng.below(9'999'999), rng.below(99'999'999)});
    Oracle oracle(params);
    Forms forms(params);
    std::uint64_t now_ns = rng.below(2) == 0 ? 0 : rng.below(std::uint64_t{1} << 50);
    for (int round = 0; round < 25; ++round) {
      std::vector<Demand> batch(rng.below(4) == 0 ? 1024 : rng.below(40));
      for (Demand& demand : batch) {
        const std::uint64_t dice = rng.below(100);
        const std::uint64_t shape = rng.below(20);
        const std::uint32_t units = shape < 14   ? 1
                                    : shape < 19 ? static_cast<std::uint32_t>(1 + rng.below(9))
                                                 : static_cast<std::uint32_t>(1 + rng.below(3ull * instances));
        const std::uint64_t first = dice % 2 == 0 ? rng.below(4) : rng.next();
        demand = dice < 2    ? flush()
                 : dice < 4  ? immediate()
                 : dice < 60 ? read_of(first, units)
                             : write_of(first, units);
      }
      ASSERT_EQ(forms.schedule(batch, now_ns), oracle.schedule(batch, now_ns)) << instances << " instances";
      forms.expect_state(oracle.free_at());
      now_ns += rng.below(3) == 0 ? rng.below(100'000'000) : rng.below(1'000);
    }
  }
}

TEST(SimpleTiming, TheLargestRequestEqualsItsUnits) {
  // 65'536 blocks of 4 KiB in units of 512 bytes, the most a command can ask for.
  for (const std::uint32_t instances : {1u, 32u, kMaxInstances}) {
    const SimpleParams params = make_params(instances, {3 * kNs, 0}, {3 * kNs, 7 * kNs});
    Oracle oracle(params);
    Forms forms(params);
    const std::vector<Demand> batch{write_of(5, 524'288), write_of(6, 524'287), read_of(9, instances)};
    EXPECT_EQ(forms.schedule(batch, 1), oracle.schedule(batch, 1));
    forms.expect_state(oracle.free_at());
  }
}

TEST(SimpleTiming, SummingPaysWhenABatchHasManyUnitsForItsInstances) {
  const SimpleParams params = make_params(32, {kNs, 0}, {kNs, 0});
  const std::vector<Demand> singles(9, read_of(0));
  EXPECT_FALSE(is_worth_aggregating(params, singles.data(), 0));
  EXPECT_FALSE(is_worth_aggregating(params, singles.data(), 8));
  EXPECT_TRUE(is_worth_aggregating(params, singles.data(), 9));
  const Demand large[] = {read_of(0, 8), read_of(0, 1)};
  EXPECT_FALSE(is_worth_aggregating(params, large, 1));
  EXPECT_TRUE(is_worth_aggregating(params, large, 2));
  const Demand flushes[] = {immediate(), flush()};  // looks at every instance
  EXPECT_TRUE(is_worth_aggregating(params, flushes, 2));
  EXPECT_TRUE(is_worth_aggregating(make_params(1, {kNs, 0}, {kNs, 0}), singles.data(), 2));
}

TEST(SimpleTiming, AnotherAtomicPolicyServesTheSameCode) {
  // What a device would bring: a plain word and its own compare-and-swap, here one that fails spuriously.
  struct Flaky {
    struct Word {
      std::uint64_t value;
      int failures;
    };
    static std::uint64_t load(const Word& word) { return word.value; }
    static bool compare_exchange(Word& word, std::uint64_t& expected, std::uint64_t desired) {
      if (word.failures++ % 3 != 2 || word.value != expected) {
        expected = word.value;
        return false;
      }
      word.value = desired;
      return true;
    }
  };
  const SimpleParams params = make_params(2, {100 * kNs, 0}, {100 * kNs, 0});
  SimpleInstance<Flaky> instances[2 + kLinkDirections];
  auto scratch = std::make_unique<SimpleScratch>();
  const Demand batch[] = {read_of(0), read_of(1), read_of(1, 3)};
  std::uint64_t targets[3];
  simple_schedule_shared(params, instances, *scratch, batch, 3, 0, targets);
  EXPECT_EQ(targets[0], 100u);
  EXPECT_EQ(targets[1], 100u);
  EXPECT_EQ(targets[2], 300u);
  EXPECT_EQ(instances[1].free_at.value, 300 * kNs);
}

// Gives the processor away between looking at an instance and updating it, so that updates collide on any machine.
struct YieldingAtomics : HostAtomics {
  static std::uint64_t load(const Word& word) {
    const std::uint64_t seen = HostAtomics::load(word);
    std::this_thread::yield();
    return seen;
  }
};

TEST(SimpleTiming, CollidingUpdatesLoseNothing) {
  constexpr int kRounds = 500;
  const SimpleParams params = make_params(2, {10 * kNs, 0}, {10 * kNs, 0});
  SimpleInstance<YieldingAtomics> instances[2 + kLinkDirections];
  const std::vector<Demand> batch{read_of(0), read_of(1), read_of(0, 5), read_of(1)};  // 4 units for each instance
  auto dispatcher = [&](bool one_by_one) {
    auto scratch = std::make_unique<SimpleScratch>();
    std::vector<std::uint64_t> targets(batch.size());
    for (int round = 0; round < kRounds; ++round) {
      if (one_by_one) {
        simple_schedule_one_by_one(params, instances, batch.data(), batch.size(), 3, targets.data());
      } else {
        simple_schedule_shared(params, instances, *scratch, batch.data(), batch.size(), 3, targets.data());
      }
    }
  };
  std::thread other(dispatcher, true);
  dispatcher(false);
  other.join();
  for (const std::uint32_t u : {0u, 1u})
    EXPECT_EQ(instances[u].free_at.load(), 3 * kNs + std::uint64_t{2} * kRounds * 4 * 10 * kNs);
}

TEST(SimpleParams, ServiceTimeIsExactToOnePartIn100000) {
  TimingConfig config;
  config.read_iops = 2.47e6;
  config.read_latency_ns = 50'000;
  for (std::uint32_t instances = 1; instances <= kMaxInstances; instances *= 2) {
    config.instances = instances;
    config.read_latency_ns = 500'000;
    const SimpleParams params = simple_params(config);
    const SimpleCost cost = cost_of(params, DemandKind::read);
    EXPECT_EQ(instances_of(params), instances);
    EXPECT_EQ(1u << params.shift, instances);
    const double rate = instances * 1e9 * static_cast<double>(kNs) / static_cast<double>(cost.service);
    EXPECT_NEAR(rate / 2.47e6, 1.0, 1e-5);
    EXPECT_EQ(cost.service + cost.min_latency, 500'000 * kNs);
  }
}

TEST(SimpleParams, ExtremesStayInRange) {
  TimingConfig config;
  config.read_iops = 1e18;  // below one tick a unit
  config.write_iops = 1e-9;
  config.write_latency_ns = 1;
  const SimpleParams params = simple_params(config);
  EXPECT_EQ(cost_of(params, DemandKind::read).service, 1u);
  EXPECT_EQ(cost_of(params, DemandKind::write).service, std::uint64_t{1} << 50);
  // One nanosecond after a service of 18 minutes has begun.
  EXPECT_EQ(cost_of(params, DemandKind::write).service + cost_of(params, DemandKind::write).min_latency, kNs);
}

}  // namespace
}  // namespace flashmob::timing
