#include "base/rate_gate.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace flashmob {
namespace {

// Somebody who always wants more, asking every step_ns.
std::uint64_t greedy(RateGate& gate, std::uint64_t from_ns, std::uint64_t to_ns, std::uint64_t step_ns,
                     std::uint32_t wanted, std::uint64_t bytes_each = 0) {
  std::uint64_t granted = 0;
  for (std::uint64_t now_ns = from_ns; now_ns < to_ns; now_ns += step_ns) {
    const std::uint32_t now = gate.take(now_ns, wanted);
    gate.pay(now_ns, now * bytes_each);
    granted += now;
  }
  return granted;
}

TEST(RateGate, WithoutRatesItIsOpen) {
  RateGate gate(0, 0);
  EXPECT_FALSE(gate.limits());
  EXPECT_EQ(gate.take(1, 1024), 1024u);
  EXPECT_EQ(gate.opens_ns(), 0u);
}

TEST(RateGate, CommandsKeepToTheirRateHoweverTheyAsk) {
  for (const std::uint64_t rate : {1u, 7u, 1'000u, 333'333u, 3'000'000u}) {
    for (const std::uint64_t step_ns : {100u, 1'777u, 999'999u}) {
      RateGate gate(rate, 0);
      const std::uint64_t span_ns = 100'000'000;
      const std::uint64_t granted = greedy(gate, 50'000'000, 50'000'000 + span_ns, step_ns, 256);
      const std::uint64_t most = rate * (span_ns + RateGate::kBurstNs) / 1'000'000'000 + 1;
      EXPECT_LE(granted, most) << rate << " a second, asked every " << step_ns << " ns";
      // Rounding costs less than a nanosecond a grant, and a step is not caught up with.
      if (step_ns < 10'000) {
        EXPECT_GE(granted, rate * span_ns / 1'000'000'000 * 99 / 100) << rate;
      }
    }
  }
}

TEST(RateGate, NothingIsSavedUp) {
  RateGate gate(1'000, 0);
  EXPECT_LE(gate.take(3'600'000'000'000, 1'000), 1'000 * RateGate::kBurstNs / 1'000'000'000 + 1);
}

TEST(RateGate, WhatIsTakenInAdvanceIsWaitedForLater) {
  RateGate gate(1'000, 0);
  EXPECT_GT(gate.take(10'000'000, 10), 0u);
  for (int i = 0; i < 100; ++i) gate.take_in_advance(10'000'000);
  EXPECT_EQ(gate.take(100'000'000, 1), 0u);
  EXPECT_EQ(gate.take(111'000'000, 1), 1u);
}

TEST(RateGate, BytesArePaidForBeforeMoreComes) {
  RateGate gate(0, 1 << 20);
  EXPECT_EQ(gate.take(10'000'000, 256), RateGate::kWhilePaying);
  gate.pay(10'000'000, 8 << 20);
  EXPECT_EQ(gate.take(10'000'001, 1), 0u);
  EXPECT_EQ(gate.opens_ns(), 8'000'000'000u + 10'000'000 - RateGate::kBurstNs);
  EXPECT_EQ(gate.take(gate.opens_ns() - 1, 1), 0u);
  EXPECT_EQ(gate.take(gate.opens_ns(), 1), 1u);
}

TEST(RateGate, BytesKeepToTheirRate) {
  RateGate gate(0, 100 << 20);
  const std::uint64_t granted = greedy(gate, 5'000'000, 1'005'000'000, 1'000, 256, 4096);
  EXPECT_LE(granted * 4096, (100 << 20) + (100 << 20) / 500 + RateGate::kWhilePaying * 4096u);
  EXPECT_GE(granted * 4096, (100 << 20) * 0.99);
}

TEST(RateGate, TheLargestRatesAndAmountsFit) {
  RateGate gate(RateGate::kMaxRate, RateGate::kMaxRate);
  EXPECT_GT(gate.take(10'000'000'000, 1024), 0u);
  gate.pay(10'000'000'000, std::uint64_t{16} << 30);
  EXPECT_LT(gate.opens_ns(), 11'000'000'000u);
}

TEST(RateGate, SeveralThreadsShareOneRate) {
  RateGate gate(1'000'000, 0);
  std::atomic<std::uint64_t> granted{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { granted += greedy(gate, 10'000'000, 20'000'000, 500, 64); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(granted, 1'000'000u * 12 / 1'000 + 1);
  EXPECT_GE(granted, 9'900u);
}

}  // namespace
}  // namespace flashmob
