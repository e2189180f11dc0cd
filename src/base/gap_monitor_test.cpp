// What counts as a gap and what as our own long work.
#include "base/gap_monitor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace flashmob {
namespace {

// As the test says.
ThreadUse use;
ThreadUse scripted() { return use; }

struct GapMonitorTest : testing::Test {
  GapMonitorTest() { use = {500, 3}; }
  GapMonitor monitor{5'000, scripted};
};

TEST_F(GapMonitorTest, OnlySpansAboveTheThresholdCount) {
  EXPECT_FALSE(monitor.tick(1'000'000)) << "the first reading ends nothing";
  monitor.restart(1'000'000);
  EXPECT_FALSE(monitor.tick(1'005'000));
  use.cpu_ns += 5'000;
  EXPECT_TRUE(monitor.tick(1'025'000));
  EXPECT_EQ(monitor.gap_end_ns(), 1'025'000u);
  EXPECT_EQ(monitor.gaps().count, 1u);
  EXPECT_EQ(monitor.gaps().total_ns, 20'000u);
  EXPECT_EQ(monitor.long_work().count, 0u);
}

TEST_F(GapMonitorTest, WorkOfOurOwnIsNoGap) {
  monitor.restart(1'000'000);
  use.cpu_ns += 10'000'000;
  monitor.note_work();
  EXPECT_TRUE(monitor.tick(11'000'000));
  EXPECT_EQ(monitor.gaps().count, 0u);
  EXPECT_EQ(monitor.long_work().count, 1u);
  EXPECT_EQ(monitor.long_work().total_ns, 10'000'000u);
  EXPECT_EQ(monitor.gap_end_ns(), 0u);
}

TEST_F(GapMonitorTest, WhatWasTakenOfASpanIsAGapAndTheRestIsOurs) {
  monitor.restart(1'000'000);
  use.cpu_ns += 30'000;
  monitor.note_work();
  monitor.tick(1'100'000);
  EXPECT_EQ(monitor.gaps().total_ns, 70'000u);
  EXPECT_EQ(monitor.long_work().total_ns, 30'000u);
}

// The system is asked nothing about work whose length is known; what goes beyond it was taken.
TEST_F(GapMonitorTest, ExpectedWorkIsNeitherAGapNorAsked) {
  static int asked;
  asked = 0;
  GapMonitor counted(5'000, [] {
    ++asked;
    return use;
  });
  counted.restart(1'000'000);
  asked = 0;
  counted.expect(10'000);
  counted.expect(10'000);
  EXPECT_FALSE(counted.tick(1'025'000));
  EXPECT_EQ(asked, 0);
  counted.expect(20'000);
  EXPECT_TRUE(counted.tick(1'125'000));
  EXPECT_EQ(counted.gaps().total_ns, 80'000u);
  EXPECT_TRUE(counted.tick(1'145'000)) << "what was expected of one span says nothing of the next";
  EXPECT_EQ(asked, 2);
}

TEST_F(GapMonitorTest, PageFaultsAreOurs) {
  monitor.restart(1'000'000);
  use = {use.cpu_ns + 50'000, use.page_faults + 1};
  monitor.tick(1'050'000);
  EXPECT_EQ(monitor.long_work().total_ns, 50'000u);
  EXPECT_EQ(monitor.gaps().count, 0u);
}

// Interrupts are served on this thread's account, and a hypervisor may not tell what it took.
TEST_F(GapMonitorTest, WhatNothingOfOursExplainsWasTaken) {
  monitor.restart(1'000'000);
  monitor.note_work();
  monitor.tick(1'001'000);  // that work was short
  use.cpu_ns += 100'000;
  monitor.tick(1'101'000);
  EXPECT_EQ(monitor.gaps().total_ns, 100'000u);
  EXPECT_EQ(monitor.long_work().count, 0u);
}

TEST_F(GapMonitorTest, AnIntendedPauseIsNeither) {
  monitor.restart(1'000);
  monitor.restart(1'000'000);
  EXPECT_FALSE(monitor.tick(1'005'000));
  EXPECT_EQ(monitor.gaps().count + monitor.long_work().count, 0u);
}

TEST_F(GapMonitorTest, ClearKeepsThePlaceInTime) {
  monitor.restart(100'000);
  monitor.tick(200'000);
  monitor.clear();
  EXPECT_EQ(monitor.gaps().total_ns, 0u);
  monitor.tick(300'000);
  EXPECT_EQ(monitor.gaps().total_ns, 100'000u);
}

// The real thing: the kernel tells sleeping, which looks like being preempted, from working.
TEST(GapMonitorReal, SleepIsTakenAndWorkIsOwn) {
  const Clock clock = Clock::real();
  GapMonitor monitor(1'000'000);
  monitor.restart(clock.now_ns());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  monitor.tick(clock.now_ns());
  EXPECT_EQ(monitor.gaps().count, 1u);
  EXPECT_GE(monitor.gaps().longest_ns, 15'000'000u);
  monitor.clear();
  monitor.restart(clock.now_ns());
  std::vector<char> bytes(1 << 20);
  // By CPU time, so that a busy machine only makes it longer.
  for (const std::uint64_t until_ns = thread_use().cpu_ns + 20'000'000; thread_use().cpu_ns < until_ns;)
    std::memset(bytes.data(), static_cast<int>(until_ns), bytes.size());
  monitor.note_work();
  monitor.tick(clock.now_ns());
  EXPECT_EQ(monitor.long_work().count, 1u);
  EXPECT_GE(monitor.long_work().longest_ns, 15'000'000u);
}

TEST(SpanSums, ThreadsBesideEachOtherAreNotAddedIntervalsAre) {
  SpanSums a{2, 100, 60}, b{3, 90, 70};
  SpanSums beside = a;
  beside.join(b);
  EXPECT_EQ(beside.count, 5u);
  EXPECT_EQ(beside.total_ns, 100u);
  EXPECT_EQ(beside.longest_ns, 70u);
  a.append(b);
  EXPECT_EQ(a.total_ns, 190u);
}

}  // namespace
}  // namespace flashmob
