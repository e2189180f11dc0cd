// The ideal run, where it is known on paper.
#include "load/yardstick.h"

#include <gtest/gtest.h>

namespace flashmob::load {
namespace {

constexpr double kMillion = 1e6;

TimingConfig timing(double iops, std::uint64_t latency_ns) {
  TimingConfig config;
  config.read_iops = config.write_iops = iops;
  config.read_latency_ns = config.write_latency_ns = latency_ns;
  return config;
}

Pattern pattern(const std::string& rw = "randread", std::uint32_t bytes = 512, std::uint64_t seed = 1) {
  PatternConfig config;
  config.rw = rw;
  config.block_sizes = {{bytes, 1.0}};
  config.namespace_blocks = 1 << 20;
  return Pattern(config, Rng(seed));
}

// Each queue's requesters, in a closed loop.
YardstickLoad closed(std::uint64_t requesters, std::uint32_t depth, const Pattern& requests = pattern(),
                     std::uint64_t ios = 1'000'000) {
  YardstickLoad load;
  load.queue_depth = depth;
  load.ios = ios;
  load.ramp_ios = std::max<std::uint64_t>(50'000, 2 * requesters);
  load.queues.push_back({.pattern = requests, .requesters = requesters});
  return load;
}

double rate(const TimingConfig& config, const YardstickLoad& load) { return measure_model(config, load)->iops; }

TEST(Yardstick, WithoutAModelThereIsNone) {
  TimingConfig config = timing(kMillion, 50'000);
  config.model = "none";
  EXPECT_EQ(measure_model(config, closed(1, 1)), nullptr);
}

TEST(Yardstick, ASaturatedDeviceGivesItsRateAndTheRestWaits) {
  const auto model = measure_model(timing(kMillion, 50'000), closed(512, 512));
  EXPECT_NEAR(model->iops, kMillion, 0.001 * kMillion);
  EXPECT_NEAR(model->latency_ns.mean(), 512'000, 600);
  EXPECT_NEAR(static_cast<double>(model->latency_ns.quantile(0.99)), 512'000, 3'000);
  EXPECT_LT(model->allowance.mean_ns, 500) << "one instance leaves nothing to chance";
  EXPECT_LT(model->allowance.iops_share, 0.002) << "but the edges";
  EXPECT_NEAR(rate(timing(40e6, 50'000), closed(8'192, 8'192)), 40e6, 0.01 * 40e6);
}

TEST(Yardstick, AFewRequestsGiveConcurrencyByLatency) {
  const auto model = measure_model(timing(kMillion, 50'000), closed(1, 1));
  EXPECT_NEAR(model->iops, 20'000, 10);
  EXPECT_EQ(model->latency_ns.min(), 50'000u);
  EXPECT_EQ(model->latency_ns.max(), 50'000u);
  EXPECT_NEAR(rate(timing(kMillion, 50'000), closed(10, 10)), 200'000, 200);
}

// More requesters than slots wait in turn, each for the same time (Little's law).
TEST(Yardstick, RequestersWithoutASlotWaitTheirTurn) {
  const auto model = measure_model(timing(kMillion, 50'000), closed(100, 10));
  EXPECT_NEAR(model->iops, 200'000, 400);
  EXPECT_NEAR(model->latency_ns.mean(), 500'000, 1'500);
  EXPECT_LT(static_cast<double>(model->latency_ns.max()), 560'000);
}

TEST(Yardstick, WritesUseTheirOwnFigures) {
  TimingConfig config = timing(kMillion, 50'000);
  config.write_iops = 200'000;
  config.write_latency_ns = 10'000;
  EXPECT_NEAR(rate(config, closed(1, 1, pattern("randwrite"))), 100'000, 100);
  EXPECT_NEAR(rate(config, closed(512, 512, pattern("randwrite"))), 200'000, 200);
}

TEST(Yardstick, LargeRequestsCostTheirUnits) {
  EXPECT_NEAR(rate(timing(kMillion, 50'000), closed(512, 512, pattern("randread", 4096))), kMillion / 8, 200);
}

TEST(Yardstick, ThinkTimeSlowsARequester) {
  YardstickLoad load = closed(4, 4);
  load.think_time_ns = 150'000;
  const auto model = measure_model(timing(kMillion, 50'000), load);
  EXPECT_NEAR(model->iops, 4 * 5'000, 20);
  EXPECT_NEAR(model->latency_ns.mean(), 50'000, 1'600);
  // Two slots for four: half of the time somebody waits.
  load.queue_depth = 1;
  const auto crowded = measure_model(timing(kMillion, 50'000), load);
  EXPECT_NEAR(crowded->iops, 20'000, 40);
}

TEST(Yardstick, SeveralInstancesLeaveSomethingToChance) {
  TimingConfig config = timing(kMillion, 50'000);
  config.instances = 8;
  const auto model = measure_model(config, closed(64, 64));
  EXPECT_GT(model->allowance.p99_ns, 0);
  EXPECT_LT(model->allowance.p99_ns, 0.1 * static_cast<double>(model->latency_ns.quantile(0.99)));
  EXPECT_LT(model->allowance.iops_share, 0.02);
  const auto brief = measure_model(config, closed(64, 64, pattern(), 300));
  EXPECT_GT(brief->allowance.p99_ns, model->allowance.p99_ns) << "a short run is less certain";
}

// Where a few starts would leave the tail undecided (by 29 % here), the model goes on for as long as the run did.
TEST(Yardstick, ATailOfManyQueuesIsLookedForLonger) {
  TimingConfig config = timing(2 * kMillion, 200'000);
  config.instances = 256;
  config.unit_bytes = 512;
  const auto model = measure_model(config, closed(4'096, 4'096, pattern(), 8'000'000));
  EXPECT_LT(model->allowance.p99_ns, 0.1 * static_cast<double>(model->latency_ns.quantile(0.99)));
}

// An open loop's arrivals, one queue.
YardstickLoad open_loop(double rate_iops, bool poisson, std::uint32_t depth, std::uint64_t until_ns) {
  YardstickLoad load;
  load.loop = LoopKind::open;
  load.poisson = poisson;
  load.queue_depth = depth;
  load.queues.push_back({.pattern = pattern(),
                         .rate_iops = rate_iops,
                         .arrivals_seed = 7,
                         .measured_from_ns = 1'000'000,
                         .measured_until_ns = until_ns});
  return load;
}

TEST(Yardstick, AnOpenLoopGetsWhatArrives) {
  const auto model = measure_model(timing(kMillion, 50'000), open_loop(100'000, false, 512, 101'000'000));
  EXPECT_NEAR(model->iops, 100'000, 20);
  EXPECT_EQ(model->latency_ns.max(), 50'000u);
  EXPECT_EQ(model->allowance.p99_ns, 0);
}

TEST(Yardstick, PoissonArrivalsAreThoseThatWereDrawn) {
  const auto model = measure_model(timing(kMillion, 50'000), open_loop(10'000, true, 512, 101'000'000));
  Arrivals same(7, 0, 10'000, true);
  same.start(0);
  std::uint64_t drawn = 0;
  for (; same.next_ns() < 101'000'000 - 50'000; same.advance()) drawn += same.next_ns() >= 1'000'000 - 50'000;
  EXPECT_NEAR(model->iops * 0.1, static_cast<double>(drawn), 0.5);
}

// M/D/1: at a load of 0.8 a request waits rho / (2 (1 - rho)) services on average (Pollaczek and Khinchine).
TEST(Yardstick, PoissonArrivalsAtOneInstanceQueueAsTheoryHasIt) {
  const auto model = measure_model(timing(kMillion, 1'000), open_loop(800'000, true, 4'096, 2'001'000'000));
  EXPECT_NEAR(model->latency_ns.mean(), 1'000 + 2'000, 60);
}

TEST(Yardstick, WhatOverloadsTheDeviceWaits) {
  const auto model = measure_model(timing(kMillion, 50'000), open_loop(2e6, false, 100, 11'000'000));
  EXPECT_NEAR(model->iops, kMillion, 0.01 * kMillion);
  // At the end every second request of 11 ms is still waiting, the first of them since the middle.
  EXPECT_NEAR(static_cast<double>(model->latency_ns.max()), 5.5e6, 0.3e6);
  EXPECT_NEAR(static_cast<double>(model->latency_ns.count()), 21'000, 200);
}

// Of two servers at eight tenths of their rate, one gets all that is asked for.
TEST(Yardstick, RequestsThatWentElsewhereAreAskedForThere) {
  TimingConfig two = timing(kMillion, 50'000);
  two.instances = 2;
  two.unit_bytes = 512;
  YardstickLoad load = open_loop(800'000, false, 4'096, 11'000'000);
  EXPECT_NEAR(measure_model(two, load)->iops, 800'000, 8'000);
  MovedList moved;
  moved.reserve(8'800 * MovedList::kMostBytesEach);
  for (std::uint64_t turn = 0; turn < 8'800; ++turn) EXPECT_TRUE(moved.note({turn, 2 * turn}));
  load.queues[0].moved = &moved;
  EXPECT_NEAR(measure_model(two, load)->iops, 500'000, 5'000);
}

// A slot that is used again 100 ns late serves 1 in 501 less, of 2 in 100 that it has to spare.
TEST(Yardstick, WhereRequestsWaitForSlotsReactionsAddUp) {
  for (const double rate_iops : {10'000.0, 19'600.0, 30'000.0}) {
    YardstickLoad load = open_loop(rate_iops, false, 1, 1'001'000'000);
    EXPECT_LT(measure_model(timing(kMillion, 50'000), load)->allowance.mean_ns, 1);
    load.reaction_ns = 100;
    const auto model = measure_model(timing(kMillion, 50'000), load);
    if (rate_iops < 20'000) {
      EXPECT_LT(model->allowance.mean_ns, 250) << "nobody waits";
    } else {
      // Half a second's worth of what is missed, and that twice.
      EXPECT_NEAR(model->allowance.mean_ns, 0.5e9 * 0.002 * 2 / 1.5, 0.3e6);
    }
  }
}

TEST(Yardstick, RequestsThatFindNoSlotWaitForTheirOwnJobsEnd) {
  YardstickLoad load = open_loop(30'000, false, 1, 11'000'000);
  load.queues.push_back(load.queues[0]);
  load.queues[1].rate_iops = 30;
  const double together_ns = measure_model(timing(kMillion, 50'000), load)->latency_ns.mean();
  load.queues[1].job = 1;
  EXPECT_LE(measure_model(timing(kMillion, 50'000), load)->latency_ns.mean(), together_ns);
}

TEST(Yardstick, ReadsAndWritesAreToldApart) {
  TimingConfig config = timing(kMillion, 50'000);
  config.write_latency_ns = 10'000;
  PatternConfig mixed;
  mixed.rw = "randrw";
  mixed.read_share = 0.9;
  mixed.namespace_blocks = 1 << 20;
  const auto model = measure_model(config, closed(1, 1, Pattern(mixed, Rng(1))));
  EXPECT_EQ(model->direction_ns[0].min(), 50'000u);
  EXPECT_EQ(model->direction_ns[1].max(), 10'000u);
  EXPECT_EQ(model->direction_ns[0].count() + model->direction_ns[1].count(), model->latency_ns.count());
  EXPECT_NEAR(static_cast<double>(model->direction_ns[1].count()), 0.1 * static_cast<double>(model->latency_ns.count()),
              0.005 * static_cast<double>(model->latency_ns.count()));
  EXPECT_EQ(model->direction_allowance[1].mean_ns, 0);
}

// Sixteen streams that begin at the same of sixteen instances fall in step behind each other, and stay so.
TEST(Yardstick, SequentialStreamsKeepTheOrderInWhichTheyBegan) {
  TimingConfig config = timing(kMillion, 50'000);
  config.instances = 16;
  YardstickLoad load;
  load.queue_depth = 4;
  load.ios = 10'000;
  load.ramp_ios = 128;
  load.sequential = true;
  for (std::uint32_t stream = 0; stream < 16; ++stream) {
    PatternConfig walk;
    walk.rw = "read";
    walk.namespace_blocks = 1 << 20;
    walk.stream_index = stream;
    walk.stream_count = 16;
    load.queues.push_back({.pattern = Pattern(walk, Rng(1)), .requesters = 4});
  }
  const auto model = measure_model(config, load);
  const double once_ns = model->latency_ns.mean();
  load.queues.erase(load.queues.begin() + 8, load.queues.end());
  EXPECT_LT(measure_model(config, load)->latency_ns.mean(), once_ns);
  EXPECT_LT(model->allowance.mean_ns, 0.02 * once_ns) << "what began alike goes on alike";
}

TEST(Yardstick, ATraceIsReplayedInItsTime) {
  YardstickLoad load;
  load.loop = LoopKind::trace;
  load.queue_depth = 1;
  YardstickQueue queue{.pattern = pattern(), .measured_until_ns = 1'000'000'000};
  queue.trace = {{0, 0, 512, TraceKind::read},          // done at 50 us
                 {10'000, 512, 512, TraceKind::read},   // has a slot at 50, done at 100
                 {200'000, 0, 0, TraceKind::flush},     // nothing to wait for
                 {300'000, 0, 4096, TraceKind::write},  // eight units, of which one is in the latency
                 {900'000'000, 0, 4096, TraceKind::trim}};
  load.queues.push_back(queue);
  const auto model = measure_model(timing(kMillion, 50'000), load);
  EXPECT_EQ(model->latency_ns.count(), 5u);
  EXPECT_EQ(model->latency_ns.max(), 90'000u);
  EXPECT_NEAR(model->latency_ns.mean() * 5, 50'000 + 90'000 + 0 + 57'000 + 0, 5);
  EXPECT_NEAR(model->iops, 5 / 0.9, 0.001) << "its last request, at 900 ms, is answered at once";
}

// What was never asked for has no age at the end: it had one of centuries.
TEST(Yardstick, ATraceThatIsCutShortEndsThere) {
  YardstickLoad load;
  load.loop = LoopKind::trace;
  load.queue_depth = 4;
  YardstickQueue queue{.pattern = pattern(), .measured_until_ns = 50'000'000};
  for (std::uint64_t i = 0; i < 1'000; ++i) queue.trace.push_back({i * 100'000, i * 512, 512, TraceKind::read});
  load.queues.push_back(queue);
  const auto model = measure_model(timing(kMillion, 50'000), load);
  EXPECT_EQ(model->latency_ns.count(), 500u);
  EXPECT_EQ(model->latency_ns.max(), 50'000u);
  EXPECT_NEAR(model->iops, 10'000, 20);
}

TEST(Yardstick, ATraceAsFastAsPossibleKeepsItsDepth) {
  YardstickLoad load;
  load.loop = LoopKind::trace_as_fast;
  load.queue_depth = 8;
  YardstickQueue queue{.pattern = pattern(), .measured_until_ns = 5'000'000};
  for (std::uint64_t i = 0; i < 800; ++i) queue.trace.push_back({i * 1'000'000, i * 512, 512, TraceKind::read});
  load.queues.push_back(queue);
  const auto model = measure_model(timing(kMillion, 50'000), load);
  EXPECT_EQ(model->latency_ns.count(), 800u);
  EXPECT_NEAR(model->latency_ns.mean(), 50'000, 100);
}

TEST(Yardstick, IsTheSameEveryTime) {
  const YardstickLoad load = closed(100, 100);
  EXPECT_EQ(rate(timing(3e6, 20'000), load), rate(timing(3e6, 20'000), load));
}

}  // namespace
}  // namespace flashmob::load
