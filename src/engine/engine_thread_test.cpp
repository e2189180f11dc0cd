// Engine threads: parking gives exclusive access, sleeping costs nothing, waking is never lost for long.
#include "engine/engine_thread.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace flashmob::engine {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kNever = UINT64_MAX;

// Waits for something another thread does; false after a time that no healthy machine needs.
template <class Condition>
bool eventually(Condition&& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

struct EngineThreadTest : testing::Test {
  Clock clock = Clock::real();
  ThreadClock time{clock, 1'000'000'000};
  std::atomic<std::uint32_t> sleepers{0};
};

TEST_F(EngineThreadTest, ParkingUnderLoadIsExclusive) {
  // A plain number that both threads count: only exclusion keeps it right, and ThreadSanitizer watches.
  std::uint64_t rounds = 0;
  EngineThread thread(
      "busy", time, {1'000'000, 1'000'000}, sleepers,
      [&] {
        time.refresh();
        ++rounds;
        return true;
      },
      [] { return kNever; });
  thread.start(-1);
  EXPECT_TRUE(thread.running());
  EXPECT_FALSE(thread.is_current());
  std::uint64_t last = 0;
  for (int i = 0; i < 300; ++i) {
    thread.park();
    const std::uint64_t seen = rounds;
    ASSERT_GE(seen, last);
    if (i % 50 == 0) std::this_thread::sleep_for(milliseconds(1));
    ASSERT_EQ(rounds, seen) << "it ran while parked";
    last = ++rounds;
    thread.unpark();
  }
  EXPECT_TRUE(eventually([&] {
    thread.park();
    const bool moved = rounds > last;
    thread.unpark();
    return moved;
  }));
  thread.stop();
  EXPECT_FALSE(thread.running());
  EXPECT_EQ(thread.cpu_time_ns(), 0u);
}

TEST_F(EngineThreadTest, ParkingASleeperWakesIt) {
  std::atomic<std::uint64_t> rounds{0};
  EngineThread thread(
      "sleepy", time, {0, 10'000'000'000}, sleepers,
      [&] {
        time.refresh();
        ++rounds;
        return false;
      },
      [] { return kNever; });
  thread.start(-1);
  ASSERT_TRUE(eventually([&] { return thread.asleep(); }));
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    thread.park();
    EXPECT_EQ(sleepers.load(), 0u);
    const std::uint64_t seen = rounds;
    std::this_thread::yield();
    EXPECT_EQ(rounds, seen);
    thread.unpark();
    if (i % 2 == 0) {
      ASSERT_TRUE(eventually([&] { return thread.asleep(); }));
    }
  }
  thread.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8)) << "it slept through a wake-up";
  EXPECT_EQ(sleepers.load(), 0u);
}

// Rounds and queue operations may wait for a disk, and others have work meanwhile.
TEST_F(EngineThreadTest, NobodyUsesTheProcessorWhileHeWaitsForTheOther) {
  std::atomic<bool> in_round{false}, is_long{true};
  EngineThread thread(
      "long", time, {1'000'000, 1'000'000}, sleepers,
      [&] {
        in_round = true;
        if (is_long.exchange(false)) std::this_thread::sleep_for(milliseconds(300));
        time.refresh();
        return true;
      },
      [] { return kNever; });
  const auto own_ns = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
  };
  thread.start(-1);
  ASSERT_TRUE(eventually([&] { return in_round.load(); }));
  const std::uint64_t parkers_ns = own_ns();
  thread.park();
  EXPECT_LT(own_ns() - parkers_ns, 10'000'000u) << "of the 300 ms until the round was over";
  const std::uint64_t parked_ns = thread.cpu_time_ns();
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LT(thread.cpu_time_ns() - parked_ns, 10'000'000u) << "it stood parked for 300 ms";
  thread.unpark();
}

TEST_F(EngineThreadTest, ItMayBeParkedAnewBeforeItHasGoneOn) {
  std::uint64_t rounds = 0;
  EngineThread thread(
      "again", time, {1'000'000, 1'000'000}, sleepers,
      [&] {
        time.refresh();
        ++rounds;
        return true;
      },
      [] { return kNever; });
  thread.start(-1);
  for (int i = 0; i < 2'000; ++i) {
    thread.park();
    ++rounds;
    thread.unpark();
  }
  thread.park();
  EXPECT_GE(rounds, 2'000u);
  thread.unpark();
}

TEST_F(EngineThreadTest, WhoWaitsForOneThatEndsInsteadWaitsNoLonger) {
  std::atomic<bool> in_round{false}, goes_on{false};
  EngineThread thread(
      "ends", time, {1'000'000, 1'000'000}, sleepers,
      [&] {
        in_round = true;
        while (!goes_on) std::this_thread::yield();
        time.refresh();
        return true;
      },
      [] { return kNever; });
  thread.start(-1);
  ASSERT_TRUE(eventually([&] { return in_round.load(); }));
  std::atomic<bool> parks{false}, stops{false}, parked{false};
  std::thread parker([&] {
    parks = true;
    thread.park();
    parked = true;
  });
  ASSERT_TRUE(eventually([&] { return parks.load(); }));
  std::this_thread::sleep_for(milliseconds(20));
  std::thread stopper([&] {
    stops = true;
    thread.stop();
  });
  ASSERT_TRUE(eventually([&] { return stops.load(); }));
  std::this_thread::sleep_for(milliseconds(20));
  goes_on = true;
  stopper.join();
  const bool all_is_well = eventually([&] { return parked.load(); });
  EXPECT_TRUE(all_is_well);
  if (!all_is_well) std::_Exit(1);  // the parker cannot be joined
  parker.join();
}

TEST_F(EngineThreadTest, ItsOwnThreadAndStoppedOnesNeedNoParking) {
  std::atomic<bool> ran{false};
  EngineThread* self = nullptr;
  EngineThread thread(
      "self", time, {1'000'000, 1'000'000}, sleepers,
      [&] {
        time.refresh();
        if (self->is_current()) {
          self->park();
          self->unpark();
          ran = true;
        }
        return true;
      },
      [] { return kNever; });
  self = &thread;
  thread.park();
  thread.unpark();
  thread.wake();
  thread.stop();
  thread.start(-1);
  EXPECT_TRUE(eventually([&] { return ran.load(); }));
  thread.stop();
  ran = false;
  thread.start(-1);  // once more
  EXPECT_TRUE(eventually([&] { return ran.load(); }));
}

TEST_F(EngineThreadTest, ADoorbellWakesASleeper) {
  // As a door does it: store the doorbell, then wake only where somebody sleeps.
  std::atomic<std::uint32_t> doorbell{0};
  std::atomic<std::uint32_t> served{0};
  EngineThread thread(
      "door", time, {20'000, 50'000'000}, sleepers,
      [&] {
        time.refresh();
        const std::uint32_t rung = doorbell.load(std::memory_order_acquire);
        return served.exchange(rung, std::memory_order_release) != rung;
      },
      [] { return kNever; });
  thread.start(-1);
  for (std::uint32_t i = 1; i <= 500; ++i) {
    if (i % 10 == 0) {
      ASSERT_TRUE(eventually([&] { return thread.asleep(); }));
    }
    doorbell.store(i, std::memory_order_release);
    if (sleepers.load(std::memory_order_relaxed) != 0) thread.wake();
    ASSERT_TRUE(eventually([&] { return served.load(std::memory_order_acquire) == i; })) << i;
  }
}

TEST_F(EngineThreadTest, WakesForItsOwnDeadline) {
  std::atomic<std::uint64_t> deadline_ns{time.now_ns + 20'000'000};
  std::atomic<std::uint64_t> served_ns{0};
  EngineThread thread(
      "deadline", time, {0, 60'000'000'000}, sleepers,
      [&] {
        if (time.refresh() < deadline_ns) return false;
        deadline_ns = kNever;
        served_ns = time.now_ns;
        return true;
      },
      [&] { return deadline_ns.load(); });
  const std::uint64_t wanted_ns = deadline_ns;
  thread.start(-1);
  ASSERT_TRUE(eventually([&] { return served_ns != 0; })) << "it slept beyond its deadline";
  EXPECT_GE(served_ns.load(), wanted_ns);
}

TEST_F(EngineThreadTest, AnIdleThreadUsesNoProcessor) {
  EngineThread thread(
      "idle", time, {1'000'000, 20'000'000}, sleepers,
      [&] {
        time.refresh();
        return false;
      },
      [] { return kNever; });
  thread.start(-1);
  ASSERT_TRUE(eventually([&] { return thread.asleep(); }));
  const std::uint64_t before_ns = thread.cpu_time_ns();
  EXPECT_GT(before_ns, 0u);
  std::this_thread::sleep_for(milliseconds(300));
  // CPU time, so a loaded machine does not matter. What is measured is far below; spinning would be 300 ms.
  EXPECT_LT(thread.cpu_time_ns() - before_ns, 10'000'000u);
}

TEST_F(EngineThreadTest, WhereItsCoreIsSharedItSleepsSoonThoughItWouldSpin) {
  ThreadClock watched{clock, 5'000};
  std::uint64_t rounds = 0;
  std::atomic<bool> slept{false};
  EngineThread thread(
      "shared", watched, {3'600'000'000'000, 1'000'000'000}, sleepers,
      [&] {
        // Every so often it loses its core for a while, and finds work when it is back.
        const bool lost = ++rounds % 100'000 == 0;
        if (lost) std::this_thread::sleep_for(milliseconds(2));
        watched.refresh();
        return lost;
      },
      [] { return kNever; });
  thread.set_on_resumed([&](std::uint64_t) { slept = true; });
  thread.start(-1);
  EXPECT_TRUE(eventually([&] { return slept.load(); }));
}

TEST(PinThisThread, RefusesCoresThatDoNotExist) { EXPECT_FALSE(pin_this_thread(1023)); }

}  // namespace
}  // namespace flashmob::engine
