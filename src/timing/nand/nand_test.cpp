// The parts of a NAND drive against closed forms and against the times of single operations.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <queue>
#include <vector>

#include "base/rng.h"
#include "timing/nand/drive.h"

namespace flashmob::timing::nand {
namespace {

TEST(Divider, IsExact) {
  Rng rng(7);
  for (const std::uint32_t divisor : {1u, 2u, 3u, 48u, 1000u, 65'537u, 0x8000'0001u, 0xFFFF'FFFFu}) {
    const Divider by(divisor);
    for (int i = 0; i < 10'000; ++i) {
      const auto n = static_cast<std::uint32_t>(rng.next());
      ASSERT_EQ(by.quotient(n), n / divisor);
      ASSERT_EQ(by.remainder(n), n % divisor);
    }
    EXPECT_EQ(by.quotient(0xFFFF'FFFFu), 0xFFFF'FFFFu / divisor);
  }
}

TEST(Calendar, AnIdleResourceIsExact) {
  Calendar calendar;
  EXPECT_EQ(calendar.reserve(1'000'100, 100 * Calendar::kTicksPerNs, 100), 1'000'200u);
  EXPECT_EQ(calendar.reserve(9'000'255, 700 * Calendar::kTicksPerNs, 700), 9'000'955u);
}

TEST(Calendar, WhatComesLaterButIsReadyEarlierGoesBefore) {
  Calendar calendar;
  EXPECT_EQ(calendar.reserve(100'096, 2'560 * Calendar::kTicksPerNs, 2'560), 102'656u);
  EXPECT_LE(calendar.reserve(50'000, 2'560 * Calendar::kTicksPerNs, 2'560), 52'816u);
}

// Whatever order they come in, and also beyond the calendar's horizon, no more is served than the time allows, and the
// resource never idles while something waits.
TEST(Calendar, ServesItsRateAndNoMore) {
  for (const std::uint32_t buckets : {64u, 1024u, 16384u}) {
    Calendar calendar(buckets);
    Rng rng(buckets);
    constexpr std::uint64_t kTicks = 1'003 * Calendar::kTicksPerNs / 10;
    constexpr std::uint64_t kCount = 50'000;
    std::uint64_t last = 0;
    for (std::uint64_t i = 0; i < kCount; ++i)
      last = std::max(last, calendar.reserve(i * 90 + rng.below(3'000), kTicks, 0));
    const double expected = static_cast<double>(kCount * kTicks) / Calendar::kTicksPerNs;
    EXPECT_NEAR(static_cast<double>(last), expected, expected * 0.002 + 4'000) << buckets;
  }
}

// Short ways over full buckets lead where looking at each of them leads, for those within the share, too.
TEST(Calendar, JumpsOverFullBucketsAlone) {
  constexpr std::uint32_t kShare = Calendar::kBucketTicks / 4;
  Calendar calendar(16384, kShare);
  std::map<std::uint64_t, std::uint32_t> used;
  Rng rng(5);
  std::uint64_t now_ns = 0;
  for (int i = 0; i < 20'000; ++i) {
    now_ns += rng.below(200);
    const bool within = rng.below(5) == 0;
    const std::uint64_t ready_ns = now_ns + rng.below(40'000), ticks = 1 + rng.below(12'600);
    const std::uint32_t limit = within ? kShare : Calendar::kBucketTicks;
    std::uint64_t left = ticks, bucket = ready_ns >> Calendar::kBucketShift;
    while (true) {
      const auto part =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(left, limit - std::min(limit, used[bucket])));
      used[bucket] += part;
      left -= part;
      if (left == 0) break;
      ++bucket;
    }
    const std::uint64_t end_ns = (bucket << Calendar::kBucketShift) + used[bucket] / Calendar::kTicksPerNs;
    ASSERT_EQ(within ? calendar.reserve_share(ready_ns, ticks, 0) : calendar.reserve(ready_ns, ticks, 0),
              std::max(end_ns, ready_ns))
        << i;
  }
}

// A backlog within the share, longer than the calendar: it goes on at the share, and what may have all of the resource
// waits for none of it.
TEST(Calendar, ABacklogWithinTheShareStaysInItAndLetsOthersPass) {
  constexpr std::uint32_t kShare = Calendar::kBucketTicks / 4;
  Calendar calendar(1'024, kShare);
  constexpr std::uint64_t kTicks = 4'000 * Calendar::kTicksPerNs;
  for (std::uint64_t i = 1; i <= 200; ++i)
    EXPECT_NEAR(static_cast<double>(calendar.reserve_share(0, kTicks, 0)), static_cast<double>(i * 16'000), 256) << i;
  EXPECT_LE(calendar.reserve(1'024, kTicks, 4'000), 1'024u + 4'000 * 4 / 3 + 256);
  // Where the backlog lies, it leaves three quarters to others, also when that time comes.
  for (std::uint64_t now_ns = 1'000'000; now_ns < 3'000'000; now_ns += 100'000) {
    std::uint64_t last_ns = 0;
    for (int i = 0; i < 8; ++i) last_ns = calendar.reserve(now_ns, kTicks, 0);
    EXPECT_NEAR(static_cast<double>(last_ns - now_ns), 8 * 4'000 * 4.0 / 3, 512) << now_ns;
  }
  // And it ends where it ended.
  EXPECT_NEAR(static_cast<double>(calendar.reserve_share(3'190'000, kTicks, 0)), 3'216'000, 512);
}

// Both kinds come faster than they are served, or the share's alone, in any order of when they are ready: each is
// served at its rate and no faster, for what lies beyond the calendar is promised once.
TEST(Calendar, PromisesNothingTwiceBeyondItsHorizon) {
  constexpr std::uint32_t kShare = Calendar::kBucketTicks / 4;
  for (const double load : {0.5, 1.5}) {
    Calendar calendar(256, kShare);
    Rng rng(3);
    double share_ns = 0, others_ns = 0;  // of the resource
    std::uint64_t share_end_ns = 0, others_end_ns = 0, longest_ns = 0, now_ns = 0;
    for (int i = 0; i < 50'000; ++i) {
      now_ns += 2'000;
      const std::uint64_t ready_ns = now_ns + rng.below(15'000), ns = 500 + rng.below(1'000);
      share_end_ns = std::max(share_end_ns, calendar.reserve_share(ready_ns, ns * Calendar::kTicksPerNs, 0));
      share_ns += static_cast<double>(ns);
      const auto other_ns = static_cast<std::uint64_t>(load * static_cast<double>(ns) * 2);
      const std::uint64_t end_ns = calendar.reserve(now_ns, other_ns * Calendar::kTicksPerNs, 0);
      others_end_ns = std::max(others_end_ns, end_ns);
      longest_ns = std::max(longest_ns, end_ns - now_ns);
      others_ns += static_cast<double>(other_ns);
    }
    EXPECT_NEAR(static_cast<double>(share_end_ns), share_ns * 4, share_ns * 0.04) << load;
    if (load < 0.75)
      EXPECT_LT(longest_ns, 20'000u);
    else
      EXPECT_NEAR(static_cast<double>(others_end_ns), others_ns / 0.75, others_ns * 0.02);
  }
}

CellTimes cells(std::uint32_t suspend_ns) {
  CellTimes times;
  times.suspend_ns = suspend_ns;
  times.resume_ns = suspend_ns;
  return times;
}

TEST(Die, AReadWaitsForTheRunningProgramAndGoesBeforeTheNext) {
  Die die(cells(0), 4);
  const Die::Handle first = die.give(1'000, 500'000);
  const Die::Handle second = die.give(1'000, 500'000);
  EXPECT_EQ(die.read(2'000, 40'000), 541'000u);
  EXPECT_TRUE(die.has_ended(first, 501'000));
  EXPECT_FALSE(die.has_ended(second, 1'040'999));
  EXPECT_TRUE(die.has_ended(second, 1'041'000));
}

TEST(Die, ASuspendedProgramEndsLaterByTheReads) {
  Die die(cells(10'000), 4);
  const Die::Handle program = die.give(0, 500'000);
  EXPECT_EQ(die.read(100'000, 40'000), 150'000u);
  EXPECT_EQ(die.read(120'000, 40'000), 190'000u);  // the same suspension
  EXPECT_EQ(die.expected_end_ns(program), 500'000u + 10'000 + 40'000 + 10'000 + 40'000);
  EXPECT_FALSE(die.has_ended(program, 599'999));
  EXPECT_TRUE(die.has_ended(program, 600'000));
}

TEST(Die, AReadInFrontOfAProgramThatIsNotReadyGoesFirst) {
  Die die(cells(0), 4);
  const Die::Handle program = die.give(100'000, 500'000);
  EXPECT_EQ(die.read(50'000, 40'000), 90'000u);
  EXPECT_EQ(die.read(80'000, 40'000), 130'000u);
  EXPECT_FALSE(die.has_ended(program, 629'999));
  EXPECT_TRUE(die.has_ended(program, 630'000));
}

TEST(Die, ARowThatIsWrittenAnewIsTheNewOne) {
  Die die(cells(0), 4);
  die.give(0, 500'000, 7, 0);
  die.give(0, 500'000, 7, 200);
  std::uint64_t buffered_ns = 0;
  EXPECT_TRUE(die.waits(7, 1'000, buffered_ns));
  EXPECT_EQ(buffered_ns, 200u);
  EXPECT_EQ(die.expected_end_of_row_ns(7), 1'000'000u);
  EXPECT_FALSE(die.waits(7, 500'001, buffered_ns));
  EXPECT_TRUE(die.holds(7, 999'999));
  EXPECT_FALSE(die.holds(7, 1'000'000));
}

TEST(Die, OperationsRunInTheOrderInWhichTheyAreReady) {
  Die die(cells(0), 4);
  const Die::Handle late = die.give(100'000, 500'000, 7);
  const Die::Handle moved = die.give(20'000, 40'000, Die::kNoRow, 20'000, false);
  const Die::Handle row = die.give(20'000, 500'000, 8);
  EXPECT_EQ(die.expected_end_ns(moved), 60'000u);
  EXPECT_EQ(die.expected_end_ns(row), 560'000u);
  EXPECT_EQ(die.expected_end_ns(late), 1'060'000u);
  // A read passes all that wait; one of garbage collection that runs it waits for, it is never suspended.
  EXPECT_EQ(die.read(10'000, 30'000), 40'000u);
  EXPECT_EQ(die.read(50'000, 30'000), 110'000u);
  EXPECT_TRUE(die.holds(8, 609'999));
  EXPECT_FALSE(die.holds(8, 610'000));
  EXPECT_FALSE(die.has_ended(late, 1'109'999));
  EXPECT_TRUE(die.has_ended(late, 1'110'000));
}

// Reads that wait for a running program do not end it before its time, and go before what waits behind it.
TEST(Die, ReadsThatWaitForAProgramLeaveItAsItIs) {
  Die die(cells(0), 4);
  die.give(1'000, 500'000, 7);
  const Die::Handle next = die.give(1'000, 500'000, 8);
  EXPECT_EQ(die.read(2'000, 40'000), 541'000u);
  EXPECT_EQ(die.read(3'000, 40'000), 581'000u);
  EXPECT_TRUE(die.holds(7, 500'999));
  EXPECT_EQ(die.expected_end_ns(next), 1'081'000u);
  EXPECT_FALSE(die.holds(7, 501'000));
  EXPECT_EQ(die.expected_end_ns(next), 1'081'000u);
}

TEST(Die, NoSuspensionWhereTheEndIsNearer) {
  Die die(cells(10'000), 4);
  const Die::Handle program = die.give(0, 500'000);
  EXPECT_EQ(die.read(490'000, 40'000), 540'000u);
  EXPECT_TRUE(die.has_ended(program, 500'000));
}

// Superblocks of 256 units on one die: as in the simulation whose figures stand beside the closed form.
Params waf_drive(double spare, Victim victim) {
  Params params;
  params.geometry = {.channels = 1,
                     .dies_per_channel = 1,
                     .planes = 1,
                     .superblocks = 500,
                     .word_lines = 64,
                     .bits_per_cell = 1,
                     .page_bytes = 16'384,
                     .unit_bytes = 4'096};
  params.victim = victim;
  // Two open superblocks and those kept free are no spare space.
  params.capacity_units = static_cast<std::uint64_t>((500 - 4) * 256 / (1 + spare));
  return params;
}

void expect_consistent(const Ftl& ftl, std::uint64_t capacity_units, std::uint32_t superblocks, std::uint32_t units) {
  std::vector<std::uint32_t> valid(superblocks);
  for (Unit unit = 0; unit < capacity_units; ++unit) {
    const Place place = ftl.place_of(unit);
    if (place == Ftl::kNowhere) continue;
    ASSERT_EQ(ftl.unit_at(place), unit);
    ++valid[place / units];
  }
  for (std::uint32_t i = 0; i < superblocks; ++i) ASSERT_EQ(ftl.superblocks().valid(i), valid[i]) << i;
}

double steady_write_amplification(const Params& params) {
  Ftl ftl(params);
  const auto capacity = static_cast<std::uint32_t>(params.capacity_units);
  Rng rng(3);
  // What comes before the steady state takes no time: dies and channels are no part of what is looked for.
  ftl.assume(true);
  for (Unit unit = 0; unit < capacity; ++unit) ftl.write(unit, 0);
  for (std::uint32_t i = 0; i < 3 * capacity; ++i) ftl.write(static_cast<Unit>(rng.below(capacity)), 0);
  ftl.assume(false);
  std::uint64_t now = 1;
  const Counters before = ftl.counters();
  for (std::uint32_t i = 0; i < capacity; ++i) now = ftl.write(static_cast<Unit>(rng.below(capacity)), now);
  expect_consistent(ftl, capacity, params.geometry.superblocks,
                    static_cast<std::uint32_t>(params.geometry.units_per_superblock()));
  const Counters after = ftl.counters();
  return 1.0 + static_cast<double>(after.moved_units - before.moved_units) /
                   static_cast<double>(after.written_units - before.written_units);
}

// alpha / (alpha + W0(-alpha exp(-alpha))), Desnoyers' form for cleaning in the order of writing.
double closed_form_fifo(double spare) {
  const double alpha = 1 + spare;
  double w = -0.5;
  for (int i = 0; i < 200; ++i) w = -alpha * std::exp(-alpha) / std::exp(w);
  return alpha / (alpha + w);
}

TEST(WriteAmplification, OfFifoMeetsTheClosedForm) {
  for (const double spare : {0.15, 0.5}) {
    const double expected = closed_form_fifo(spare);
    EXPECT_NEAR(steady_write_amplification(waf_drive(spare, Victim::fifo)), expected, 0.03 * expected) << spare;
  }
}

TEST(WriteAmplification, OfGreedyMeetsTheSimulation) {
  const std::pair<double, double> points[] = {{0.15, 3.962}, {0.5, 1.706}};
  for (const auto& [spare, expected] : points)
    EXPECT_NEAR(steady_write_amplification(waf_drive(spare, Victim::greedy)), expected, 0.03 * expected) << spare;
}

// A drive of 4 channels with 4 dies each, written in order; one resource at a time is made the narrow one.
Params wide_drive() {
  Params params;
  params.geometry = {.channels = 4,
                     .dies_per_channel = 4,
                     .planes = 2,
                     .superblocks = 16,
                     .word_lines = 16,
                     .bits_per_cell = 3,
                     .page_bytes = 16'384,
                     .unit_bytes = 4'096};
  params.cells.read_ns = {1'000, 1'000, 1'000, 0};
  params.ways = {.channel_bytes_per_s = 100'000'000'000,
                 .program_share = 0.5,
                 .cores = 8,
                 .firmware_ns = 10,
                 .correction_ns = 0,
                 .link_bytes_per_s = 1'000'000'000'000};
  params.capacity_units = 8 * params.geometry.units_per_superblock();
  return params;
}

std::uint64_t fill(Drive& drive, const Params& params) {
  std::uint64_t now = 1;
  for (Unit unit = 0; unit < params.capacity_units; ++unit)
    now = std::max(now, drive.write(unit, 1, params.geometry.unit_bytes, now));
  return now + 1'000'000'000;  // everything that can be programmed is
}

// Random reads of a unit each with `depth` in flight; returns reads a second.
double closed_loop_iops(Drive& drive, const Params& params, std::uint32_t depth, std::uint64_t start_ns) {
  constexpr std::uint64_t kReads = 100'000;
  // The last superblock is still in the buffer.
  const std::uint64_t units = params.capacity_units - params.geometry.units_per_superblock();
  Rng rng(11);
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> due;
  for (std::uint32_t i = 0; i < depth; ++i) due.push(start_ns);
  std::uint64_t now = start_ns;
  for (std::uint64_t i = 0; i < kReads; ++i) {
    now = due.top();
    due.pop();
    due.push(drive.read(static_cast<Unit>(rng.below(units)), 1, params.geometry.unit_bytes, now));
  }
  // What is in flight at the end has not been served.
  return static_cast<double>(kReads - depth) * 1e9 / static_cast<double>(now - start_ns);
}

double saturated_iops(const Params& params) {
  Drive drive(params);
  const std::uint64_t start = fill(drive, params);
  return closed_loop_iops(drive, params, 4'096, start);
}

TEST(Bounds, OfTheDiesAreMetByTheMeanOfThePages) {
  Params params = wide_drive();
  params.cells.read_ns = {40'000, 60'000, 80'000, 0};
  const double bound = 16 / 60e-6;
  EXPECT_NEAR(saturated_iops(params), bound, 0.01 * bound);
}

TEST(Bounds, OfTheChannelsAreMet) {
  Params params = wide_drive();
  params.ways.channel_bytes_per_s = 400'000'000;
  const double bound = 4 * 400e6 / 4'096;
  EXPECT_NEAR(saturated_iops(params), bound, 0.01 * bound);
}

TEST(Bounds, OfTheFirmwareAreMet) {
  Params params = wide_drive();
  params.ways.cores = 3;
  params.ways.firmware_ns = 4'000;
  const double bound = 3 / 4e-6;
  EXPECT_NEAR(saturated_iops(params), bound, 0.01 * bound);
}

TEST(Bounds, OfTheLinkAreMet) {
  Params params = wide_drive();
  params.ways.link_bytes_per_s = 3'500'000'000;
  const double bound = 3.5e9 / 4'096;
  EXPECT_NEAR(saturated_iops(params), bound, 0.01 * bound);
}

TEST(Bounds, OfProgramsAreMetBySequentialWrites) {
  Params params = wide_drive();
  params.cells.program_ns = 1'000'000;
  params.buffer_write_ns = 0;
  params.capacity_units = 11 * params.geometry.units_per_superblock();
  Drive drive(params);
  std::uint64_t now = 1;
  for (Unit unit = 0; unit < params.capacity_units; ++unit) now = std::max(now, drive.write(unit, 1, 4'096, now));
  const double bound = 16.0 * params.geometry.units_per_row() / 1e-3;
  // The buffer's rows are taken at once.
  const double rate = static_cast<double>(params.capacity_units - 64 * params.geometry.units_per_row()) * 1e9 /
                      static_cast<double>(now);
  EXPECT_NEAR(rate, bound, 0.02 * bound);
}

// Poisson arrivals at one die whose reads all take the same time: Pollaczek and Khinchine's mean.
TEST(Queueing, OfOneDieIsThatOfMD1) {
  Params params = wide_drive();
  params.geometry.channels = 1;
  params.geometry.dies_per_channel = 1;
  params.cells.read_ns = {50'000, 50'000, 50'000, 0};
  params.capacity_units = 8 * params.geometry.units_per_superblock();
  for (const double load : {0.3, 0.7}) {
    Drive drive(params);
    double now = static_cast<double>(fill(drive, params));
    Rng rng(5);
    double waited = 0;
    constexpr int kReads = 100'000;
    const std::uint64_t units = params.capacity_units - params.geometry.units_per_superblock();
    for (int i = 0; i < kReads; ++i) {
      now += -std::log1p(-rng.unit()) * 50'000 / load;
      const auto at = static_cast<std::uint64_t>(now);
      waited += static_cast<double>(drive.read(static_cast<Unit>(rng.below(units)), 1, 4'096, at) - at);
    }
    const double expected = 50'000 * (1 + load / (2 * (1 - load))) + 10 + 41;
    EXPECT_NEAR(waited / kReads, expected, 0.02 * expected) << load;
  }
}

TEST(Drive, TellsApartUnwrittenBufferedAndProgrammedBlocks) {
  const Params params = wide_drive();
  Drive drive(params);
  EXPECT_EQ(drive.read(3, 1, 4'096, 1'000'000), 1'000'014u);
  const std::uint64_t written = drive.write(3, 1, 4'096, 2'000'000);
  EXPECT_EQ(drive.read(3, 1, 4'096, written) - written, 14u);
  EXPECT_EQ(drive.ftl().counters().unwritten_reads, 1u);
  EXPECT_EQ(drive.ftl().counters().buffer_reads, 1u);
  drive.deallocate(3, 1);
  drive.read(3, 1, 4'096, written + 1'000);
  EXPECT_EQ(drive.ftl().counters().unwritten_reads, 2u);
}

TEST(Drive, DeallocatesManyUnitsAsItDoesEach) {
  const Params params = wide_drive();
  Drive whole(params);
  Drive single(params);
  Rng rng(11);
  for (std::uint64_t i = 1; i <= 4'000; ++i) {
    const auto unit = static_cast<Unit>(rng.below(2'000));
    ASSERT_EQ(whole.write(unit, 1, 4'096, i * 1'000'000), single.write(unit, 1, 4'096, i * 1'000'000));
  }
  whole.deallocate(100, 1'500);
  for (Unit unit = 100; unit < 1'600; ++unit) single.deallocate(unit, 1);
  for (std::uint32_t i = 0; i < params.geometry.superblocks; ++i)
    ASSERT_EQ(whole.ftl().superblocks().valid(i), single.ftl().superblocks().valid(i)) << i;
  for (Unit unit = 0; unit < 2'000; ++unit) ASSERT_EQ(whole.ftl().place_of(unit), single.ftl().place_of(unit)) << unit;
}

TEST(Drive, AFlushWithoutProtectionWaitsForTheMedium) {
  Params params = wide_drive();
  params.protected_buffer = false;
  Drive drive(params);
  const std::uint64_t written = drive.write(3, 1, 4'096, 1'000'000);
  const std::uint64_t flushed = drive.flush(written);
  EXPECT_GE(flushed, written + params.cells.program_ns);
  EXPECT_EQ(drive.flush(flushed + 1), flushed + 1 + params.ways.firmware_ns);
  EXPECT_GT(drive.read(3, 1, 4'096, flushed + 1'000), flushed + 2'000);
  EXPECT_EQ(drive.ftl().counters().padded_units, params.geometry.units_per_row() - 1);
}

// Each Flush pads two rows, which collection has to make up for, too.
TEST(Drive, WritesThatAreFlushedOneByOneNeverRunOutOfSpace) {
  Params params = waf_drive(0.1, Victim::greedy);
  params.protected_buffer = false;
  Drive drive(params);
  drive.assume_written(0, static_cast<std::uint32_t>(params.capacity_units));
  std::uint64_t now = 1;
  Rng rng(3);
  for (int i = 0; i < 20'000; ++i) {
    now = drive.write(static_cast<Unit>(rng.below(params.capacity_units)), 1, 4'096, now);
    now = drive.flush(now);
  }
  EXPECT_GT(drive.ftl().counters().padded_units, 20'000u);
}

// However long the way of the buffer to the dies is, programs take no more of a channel than their share.
TEST(Bounds, OfTheChannelsShareAreMetByABufferOfAnySize) {
  for (const std::uint32_t rows : {64u, 2'048u}) {
    Params params = wide_drive();
    params.buffer_rows = rows;
    params.cells.program_ns = 1'000;
    params.ways.channel_bytes_per_s = 2'000'000'000;
    params.ways.program_share = 0.25;
    params.buffer_write_ns = 0;
    params.capacity_units = 11 * params.geometry.units_per_superblock();
    Drive drive(params);
    std::uint64_t now = 1;
    for (Unit unit = 0; unit < params.capacity_units; ++unit) now = std::max(now, drive.write(unit, 1, 4'096, now));
    const double bound = params.geometry.channels * 0.25 * 2e9 / 4'096;
    const double rate = (static_cast<double>(params.capacity_units) - rows * params.geometry.units_per_row()) * 1e9 /
                        static_cast<double>(now);
    EXPECT_NEAR(rate, bound, 0.05 * bound) << rows;
  }
}

}  // namespace
}  // namespace flashmob::timing::nand
