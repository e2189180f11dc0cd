// The cache of one bit a cell, work in idle time, and wear.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "timing/nand/drive.h"

namespace flashmob::timing::nand {
namespace {

// Two dies with rows of 12 units, 4 of them where a cell holds one bit; superblocks of 192 units, or 64.
Params client_drive() {
  Params params;
  params.geometry = {.channels = 2,
                     .dies_per_channel = 1,
                     .planes = 1,
                     .superblocks = 64,
                     .word_lines = 8,
                     .bits_per_cell = 3,
                     .page_bytes = 16'384,
                     .unit_bytes = 4'096};
  params.cells = {.read_ns = {60'000, 60'000, 60'000},
                  .program_ns = 1'200'000,
                  .erase_ns = 1'000'000,
                  .suspend_ns = 0,
                  .resume_ns = 0,
                  .slc_read_ns = 20'000,
                  .slc_program_ns = 100'000};
  params.ways = {.channel_bytes_per_s = 100'000'000'000,
                 .program_share = 1,
                 .cores = 1,
                 .firmware_ns = 0,
                 .correction_ns = 0,
                 .link_bytes_per_s = 1'000'000'000'000};
  params.buffer_rows = 8;
  params.buffer_write_ns = 0;
  params.capacity_units = 48 * 192;
  params.slc.dynamic_superblocks = 20;
  return params;
}

// Writes `units` units one after another as fast as the drive takes them; returns units a second.
double write_rate(Drive& drive, Unit first, std::uint32_t units, std::uint64_t& now_ns) {
  const std::uint64_t begun_ns = now_ns;
  for (Unit unit = first; unit < first + units; ++unit) now_ns = std::max(now_ns, drive.write(unit, 1, 4'096, now_ns));
  return units * 1e9 / static_cast<double>(now_ns - begun_ns);
}

constexpr double kCacheRate = 2 * 4 / 100e-6;
constexpr double kCellRate = 2 * 12 / 1.2e-3;

TEST(SlcCache, WritesAreFastUntilItIsFull) {
  Drive drive(client_drive());
  std::uint64_t now = 1;
  EXPECT_NEAR(write_rate(drive, 0, 20 * 64, now), kCacheRate, 0.1 * kCacheRate);
  EXPECT_EQ(drive.ftl().counters().cached_units, 20u * 64);
  EXPECT_NEAR(write_rate(drive, 20 * 64, 2'000, now), kCellRate, 0.1 * kCellRate);
  EXPECT_EQ(drive.ftl().counters().cached_units, 20u * 64);
  EXPECT_EQ(drive.ftl().counters().moved_units, 0u);
  // What is in the cache is read faster.
  now += 1'000'000'000;
  EXPECT_EQ(drive.read(100, 1, 4'096, now) - now, 20'000u + 40 + 4);
  EXPECT_EQ(drive.read(2'000, 1, 4'096, now) - now, 60'000u + 40 + 4);
}

// The emptier the drive, the larger is the dynamic cache.
TEST(SlcCache, ADynamicOneIsAsLargeAsThereIsRoom) {
  std::uint64_t cached = UINT64_MAX;
  for (const std::uint32_t filled : {0u, 24u, 40u, 48u}) {
    Params params = client_drive();
    params.slc.dynamic_superblocks = 60;
    Drive drive(params);
    drive.assume_written(0, filled * 192);
    std::uint64_t now = 1;
    write_rate(drive, 0, 6'000, now);
    EXPECT_LT(drive.ftl().counters().cached_units, cached) << filled;
    cached = drive.ftl().counters().cached_units;
  }
  EXPECT_LT(cached, 16u * 64);
}

TEST(SlcCache, AFixedOneIsThereOnAFullDrive) {
  Params params = client_drive();
  params.slc = {.fixed_superblocks = 6, .dynamic_superblocks = 0, .bypass = true};
  params.idle_ns = 10'000'000;
  Drive drive(params);
  drive.assume_written(0, 48 * 192);
  std::uint64_t now = 1;
  Rng rng(3);
  for (int round = 0; round < 30; ++round) {
    const std::uint64_t before = drive.ftl().counters().cached_units;
    write_rate(drive, static_cast<Unit>(rng.below(47 * 192)), 6 * 64, now);
    EXPECT_NEAR(static_cast<double>(drive.ftl().counters().cached_units - before), 6 * 64, 64) << round;
    now += 10'000'000'000;
    for (int i = 0; i < 30; ++i) drive.read(0, 1, 4'096, now);
  }
  EXPECT_GT(drive.ftl().counters().idle_moved_units, 1'000u);
}

TEST(SlcCache, IsFoldedInIdleTimeAndFastAgain) {
  Params params = client_drive();
  params.idle_ns = 50'000'000;
  Drive drive(params);
  std::uint64_t now = 1;
  write_rate(drive, 0, 20 * 64 + 500, now);
  const auto folded_after = [&](std::uint64_t pause_ns) {
    Drive copy(drive);
    std::uint64_t then = now + pause_ns;
    for (int i = 0; i < 100; ++i) copy.read(0, 1, 4'096, then);
    EXPECT_EQ(copy.ftl().counters().idle_moved_units, copy.ftl().counters().moved_units);
    return copy.ftl().counters().idle_moved_units;
  };
  EXPECT_EQ(folded_after(49'999'999), 0u);
  // 12 units take three sensings of 60 us and a program on one of two dies.
  const double units = 2 * 12 * 30e-3 / (1.2e-3 + 3 * 60e-6);
  EXPECT_NEAR(static_cast<double>(folded_after(80'000'000)), units, 0.2 * units);
  EXPECT_EQ(folded_after(10'000'000'000), 20u * 64);
  now += 10'000'000'000;
  for (int i = 0; i < 100; ++i) drive.read(0, 1, 4'096, now);
  now += 20'000'000;  // those reads have gone
  EXPECT_NEAR(write_rate(drive, 4'000, 19 * 64, now), kCacheRate, 0.1 * kCacheRate);
}

// Writes go as fast as what they push out is folded: three programs of a cache's row and the program of its data.
TEST(SlcCache, WithoutAWayPastItIsFoldedUnderPressure) {
  Params params = client_drive();
  params.slc.bypass = false;
  Drive drive(params);
  std::uint64_t now = 1;
  write_rate(drive, 0, 20 * 64, now);
  const std::uint64_t cached = drive.ftl().counters().cached_units;
  const double rate = write_rate(drive, 2'000, 4'000, now);
  EXPECT_EQ(drive.ftl().counters().cached_units - cached, 4'000u);
  const double bound = 2 * 12 / (3 * 100e-6 + 1.2e-3 + 3 * 20e-6 + 1e-3 * 12 / 64);
  EXPECT_NEAR(rate, bound, 0.1 * bound);
}

// However writes, pauses and trims come, units and places agree, and the drive never runs out of superblocks.
TEST(SlcCache, MapAndSuperblocksAgreeWhateverComes) {
  for (int seed = 1; seed <= 6; ++seed) {
    Params params = client_drive();
    params.slc = {.fixed_superblocks = static_cast<std::uint32_t>(seed % 3) * 3,
                  .dynamic_superblocks = static_cast<std::uint32_t>(seed % 4) * 7,
                  .bypass = seed % 2 == 0};
    params.idle_ns = seed % 3 == 0 ? 0 : 1'000'000;
    params.idle_free_superblocks = 6;
    params.wear_spread = seed % 2 == 0 ? 3 : 0;
    params.capacity_units = (48 - params.slc.fixed_superblocks) * 192;
    Drive drive(params);
    Rng rng(static_cast<std::uint64_t>(seed));
    std::uint64_t now = 1;
    for (int i = 0; i < 60'000; ++i) {
      const auto unit = static_cast<Unit>(rng.below(params.capacity_units));
      const std::uint64_t what = rng.below(100);
      if (what < 70)
        now = std::max(now, drive.write(unit, 1, 4'096, now));
      else if (what < 97)
        drive.read(unit, 1, 4'096, now);
      else
        drive.deallocate(unit, 1);
      if (rng.below(500) == 0) now += rng.below(30'000'000);
    }
    const Ftl& ftl = drive.ftl();
    std::vector<std::uint32_t> valid(params.geometry.superblocks);
    for (Unit unit = 0; unit < params.capacity_units; ++unit) {
      const Place place = ftl.place_of(unit);
      if (place == Ftl::kNowhere) continue;
      ASSERT_EQ(ftl.unit_at(place), unit);
      ++valid[place / 192];
    }
    for (std::uint32_t i = 0; i < valid.size(); ++i) ASSERT_EQ(ftl.superblocks().valid(i), valid[i]) << i;
  }
}

// Superblocks that hosts need are there when they come back.
TEST(IdleTime, CollectsGarbageForWhatComes) {
  Params params = client_drive();
  params.slc = {};
  params.capacity_units = 50 * 192;
  params.idle_free_superblocks = 8;
  for (const std::uint64_t idle_ns : {0ull, 5'000'000ull}) {
    params.idle_ns = idle_ns;
    Drive drive(params);
    drive.assume_written(0, 50 * 192);
    Rng rng(5);
    std::uint64_t now = 1;
    for (int i = 0; i < 30'000; ++i)
      now = std::max(now, drive.write(static_cast<Unit>(rng.below(50 * 192)), 1, 4'096, now));
    now += 20'000'000'000;
    for (int i = 0; i < 100; ++i) drive.read(0, 1, 4'096, now);
    const Counters before = drive.ftl().counters();
    EXPECT_EQ(drive.ftl().superblocks().free_count() >= 8, idle_ns != 0);
    for (int i = 0; i < 5 * 192; ++i)
      now = std::max(now, drive.write(static_cast<Unit>(rng.below(50 * 192)), 1, 4'096, now));
    EXPECT_EQ(drive.ftl().counters().moved_units == before.moved_units, idle_ns != 0);
  }
}

// Half of the drive is never written again: its superblocks are erased all the same.
TEST(Wear, DataThatStayAreMovedWhereOthersAreErasedFarMoreOften) {
  for (const std::uint32_t spread : {0u, 10u}) {
    Params params = client_drive();
    params.slc = {};
    params.wear_spread = spread;
    Drive drive(params);
    drive.assume_written(0, 48 * 192);
    Rng rng(7);
    std::uint64_t now = 1, longest_ns = 0;
    for (int i = 0; i < 400'000; ++i) {
      const std::uint64_t done = drive.write(static_cast<Unit>(rng.below(24 * 192)), 1, 4'096, now);
      longest_ns = std::max(longest_ns, done - now);
      now = std::max(now, done);
    }
    const Wear wear = drive.ftl().superblocks().wear();
    EXPECT_GT(wear.mean, 20);
    EXPECT_LE(wear.fewest, wear.mean);
    EXPECT_GE(wear.most, wear.mean);
    if (spread == 0) {
      EXPECT_EQ(wear.fewest, 0u);
      EXPECT_EQ(drive.ftl().counters().levelled_superblocks, 0u);
    } else {
      EXPECT_LE(wear.most - wear.fewest, 3 * spread);
      EXPECT_GT(drive.ftl().counters().levelled_superblocks, 20u);
    }
    EXPECT_LT(longest_ns, 30'000'000u) << spread;
  }
}

}  // namespace
}  // namespace flashmob::timing::nand
