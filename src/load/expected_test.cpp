// The ideal run's rate, where it is known on paper.
#include "load/expected.h"

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

// Uniform single sectors.
double rate(const TimingConfig& config, const ExpectedLoad& load, bool is_write = false, std::uint32_t blocks = 1) {
  std::uint64_t next = 0;
  return expected_iops(config, load, [&] { return Io{(next += blocks) % 100'000, blocks, is_write}; });
}

TEST(Expected, WithoutAModelThereIsNothingToExpect) {
  TimingConfig config = timing(kMillion, 50'000);
  config.model = "none";
  EXPECT_EQ(rate(config, {}), 0);
}

TEST(Expected, ASaturatedDeviceGivesItsRate) {
  ExpectedLoad load;
  load.concurrency = 512;
  EXPECT_NEAR(rate(timing(kMillion, 50'000), load), kMillion, 0.005 * kMillion);
  EXPECT_NEAR(rate(timing(40e6, 50'000), {.concurrency = 8'192}), 40e6, 0.01 * 40e6);
}

TEST(Expected, AFewRequestsGiveConcurrencyByLatency) {
  EXPECT_NEAR(rate(timing(kMillion, 50'000), {.concurrency = 1}), 20'000, 200);
  EXPECT_NEAR(rate(timing(kMillion, 50'000), {.concurrency = 10}), 200'000, 4'000);
}

TEST(Expected, WritesUseTheirOwnFigures) {
  TimingConfig config = timing(kMillion, 50'000);
  config.write_iops = 200'000;
  config.write_latency_ns = 10'000;
  EXPECT_NEAR(rate(config, {.concurrency = 1}, true), 100'000, 1'000);
  EXPECT_NEAR(rate(config, {.concurrency = 512}, true), 200'000, 2'000);
}

TEST(Expected, LargeRequestsCostTheirUnits) {
  ExpectedLoad load;
  load.concurrency = 512;
  EXPECT_NEAR(rate(timing(kMillion, 50'000), load, false, 8), kMillion / 8, 0.01 * kMillion / 8);
}

TEST(Expected, ThinkTimeSlowsARequester) {
  ExpectedLoad load;
  load.concurrency = load.requesters = 4;
  load.think_time_ns = 150'000;
  EXPECT_NEAR(rate(timing(kMillion, 50'000), load), 4 * 5'000, 200);
}

TEST(Expected, AnOpenLoopNeverGetsMoreThanArrives) {
  ExpectedLoad load;
  load.concurrency = 512;
  load.rate_iops = 123'456;
  EXPECT_EQ(rate(timing(kMillion, 50'000), load), 123'456);
  load.rate_iops = 5e6;
  EXPECT_NEAR(rate(timing(kMillion, 50'000), load), kMillion, 0.005 * kMillion);
}

TEST(Expected, IsTheSameEveryTime) {
  ExpectedLoad load;
  load.concurrency = 100;
  EXPECT_EQ(rate(timing(3e6, 20'000), load), rate(timing(3e6, 20'000), load));
}

}  // namespace
}  // namespace flashmob::load
