// How a driver's thread waits: what it expects, and when it sleeps.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <thread>

#include "base/rng.h"
#include "load/completion_predictor.h"
#include "load/completion_waiter.h"

namespace flashmob::load {
namespace {

constexpr std::size_t kRead = 0, kWrite = 1;

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

// Requests one after the other that take so long.
void feed(CompletionPredictor& predictor, std::size_t kind, std::uint32_t sectors, std::uint64_t takes_ns, int count) {
  for (int i = 0; i < count; ++i) {
    predictor.submitted(kind, sectors, 1'000'000u * static_cast<std::uint64_t>(i));
    predictor.completed(kind, sectors, 1'000'000u * static_cast<std::uint64_t>(i) + takes_ns);
  }
}

TEST(RunningQuantile, FindsThatOfAStream) {
  Rng rng(1);
  for (const double quantile : {0.2, 0.5, 0.75}) {
    RunningQuantile found(quantile);
    for (int i = 0; i < 20'000; ++i) found.note(10'000 + rng.below(10'000));
    EXPECT_NEAR(static_cast<double>(found.estimate_ns()), 10'000 + quantile * 10'000, 2'500) << quantile;
  }
}

TEST(RunningQuantile, StandsStillWhereTheStreamDoesAndFollowsIt) {
  RunningQuantile found(0.2);
  for (int i = 0; i < 100; ++i) found.note(50'000);
  EXPECT_EQ(found.estimate_ns(), 50'000u);
  found.note(5'000'000'000);
  EXPECT_LT(found.estimate_ns(), 60'000u) << "one stall";
  for (int i = 0; i < 200; ++i) found.note(50'000);
  EXPECT_NEAR(static_cast<double>(found.estimate_ns()), 50'000, 500);
  for (int i = 0; i < 200; ++i) found.note(90'000);
  EXPECT_NEAR(static_cast<double>(found.estimate_ns()), 90'000, 900);
  for (int i = 0; i < 200; ++i) found.note(8'000);
  EXPECT_NEAR(static_cast<double>(found.estimate_ns()), 8'000, 200);
}

TEST(CompletionPredictor, ExpectsTheOldestOfEachClass) {
  CompletionPredictor predictor(64);
  EXPECT_EQ(predictor.next().due_ns, CompletionPredictor::kNever);
  predictor.submitted(kRead, 8, 5);
  EXPECT_EQ(predictor.next().due_ns, 0u) << "nothing is known yet";
  predictor.completed(kRead, 8, 10'005);
  feed(predictor, kRead, 8, 10'000, 100);
  feed(predictor, kWrite, 256, 80'000, 100);
  const std::uint64_t at = 1'000'000'000;
  predictor.submitted(kWrite, 256, at);
  EXPECT_NEAR(static_cast<double>(predictor.next().due_ns - at), 80'000, 800);
  predictor.submitted(kRead, 8, at + 20'000);
  predictor.submitted(kRead, 8, at + 25'000);
  EXPECT_NEAR(static_cast<double>(predictor.next().due_ns - at), 30'000, 300);
  predictor.completed(kRead, 8, at + 30'000);
  EXPECT_NEAR(static_cast<double>(predictor.next().due_ns - at), 35'000, 300);
  predictor.completed(kRead, 8, at + 35'000);
  EXPECT_NEAR(static_cast<double>(predictor.next().due_ns - at), 80'000, 800);
  predictor.completed(kWrite, 256, at + 80'000);
  EXPECT_EQ(predictor.next().due_ns, CompletionPredictor::kNever);
}

TEST(CompletionPredictor, KeepsAsManyAsMayBeInFlight) {
  for (const std::uint64_t most : {1u, 3u, 4096u}) {
    CompletionPredictor predictor(most);
    for (std::uint64_t round = 0; round < 40; ++round) {
      for (std::uint64_t i = 0; i < most; ++i) predictor.submitted(kRead, 1, 1'000'000 * round + i);
      for (std::uint64_t i = 0; i < most; ++i) predictor.completed(kRead, 1, 1'000'000 * round + i + 7'000);
      EXPECT_EQ(predictor.next().due_ns, CompletionPredictor::kNever);
    }
    predictor.submitted(kRead, 1, 0);
    EXPECT_NEAR(static_cast<double>(predictor.next().due_ns), 7'000, 70) << most;
  }
  CompletionPredictor crowded(CompletionPredictor::kMostInFlight + 1);
  crowded.submitted(kRead, 1, 0);
  EXPECT_EQ(crowded.next().due_ns, 0u) << "something completes all the time";
}

TEST(CompletionWaiter, SleepsAsItsKindSays) {
  CompletionPredictor predictor(1);
  feed(predictor, kRead, 8, 100'000, 100);
  const std::uint64_t now = 1'000'000'000, never = UINT64_MAX;
  predictor.submitted(kRead, 8, now);
  const CompletionWaiter poll(Completion::poll), interrupt(Completion::interrupt), hybrid(Completion::hybrid);
  EXPECT_EQ(poll.sleep_until_ns(now, nullptr, never), 0u);
  EXPECT_GT(interrupt.sleep_until_ns(now, nullptr, never), now + 1'000'000);
  EXPECT_NEAR(static_cast<double>(hybrid.sleep_until_ns(now, &predictor, never) - now), 100'000, 1'000);
  EXPECT_EQ(hybrid.sleep_until_ns(now + 99'000, &predictor, never), 0u) << "it is worth no sleep";
  EXPECT_EQ(hybrid.sleep_until_ns(now + 101'000, &predictor, never), 0u) << "it polls";
  EXPECT_GT(hybrid.sleep_until_ns(now + 300'000, &predictor, never), now + 1'000'000) << "and gives up polling";
  EXPECT_EQ(interrupt.sleep_until_ns(now, nullptr, now + 50'000), now + 50'000) << "something else is to be done then";
  EXPECT_EQ(hybrid.sleep_until_ns(now, &predictor, now + 50'000), now + 50'000);
}

TEST(CompletionWaiter, AnInterruptEndsASleepAndNoneIsLost) {
  CompletionWaiter waiter(Completion::interrupt);
  std::atomic<int> there{0}, taken{0};
  constexpr int kMany = 2'000;
  std::thread device([&] {
    for (int i = 0; i < kMany; ++i) {
      there.fetch_add(1, std::memory_order_release);
      waiter.interrupt(now_ns);
      while (taken.load(std::memory_order_acquire) != i + 1) std::this_thread::yield();
    }
  });
  const std::uint64_t begun_ns = now_ns();
  while (taken < kMany) {
    if (there.load(std::memory_order_acquire) > taken) {
      taken.fetch_add(1, std::memory_order_release);
      continue;
    }
    waiter.arm();
    if (there.load(std::memory_order_acquire) > taken)
      waiter.disarm();
    else
      // Whoever loses an interrupt sleeps for ten minutes.
      waiter.sleep(now_ns() + 600'000'000'000, now_ns);
  }
  device.join();
  EXPECT_LT(now_ns() - begun_ns, 300'000'000'000u);
  EXPECT_LE(waiter.counts().woken, waiter.counts().sleeps);
}

TEST(CompletionWaiter, WakesAtItsTimeAndLearnsHowLateThatIs) {
  CompletionWaiter waiter(Completion::hybrid);
  for (int i = 0; i < 40; ++i) {
    const std::uint64_t until = now_ns() + 50'000;
    waiter.arm();
    EXPECT_EQ(waiter.sleep(until, now_ns), until);
    EXPECT_GE(now_ns(), until);
  }
  EXPECT_EQ(waiter.counts().sleeps, 40u);
  EXPECT_EQ(waiter.counts().woken, 0u);
  const std::uint64_t now = now_ns();
  EXPECT_LT(waiter.sleep_until_ns(now, nullptr, now + 10'000'000), now + 10'000'000) << "it asks to be woken earlier";
}

}  // namespace
}  // namespace flashmob::load
