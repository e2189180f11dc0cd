// Streams of hosts' writes that are kept apart: whose data lies where, what that does to write amplification, and hosts
// that waste superblocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "timing/nand/drive.h"

namespace flashmob::timing::nand {
namespace {

// Rows of 4 units and superblocks of 64; of `superblocks` superblocks a share is what hosts see.
Params drive_of(Streams streams, std::uint32_t superblocks, double capacity_share) {
  Params params;
  params.geometry = {.channels = 2,
                     .dies_per_channel = 1,
                     .planes = 1,
                     .superblocks = 0,
                     .word_lines = 8,
                     .bits_per_cell = 1,
                     .page_bytes = 16'384,
                     .unit_bytes = 4'096};
  params.cells = {.read_ns = {50'000}, .program_ns = 100'000, .erase_ns = 100'000, .suspend_ns = 0, .resume_ns = 0};
  params.buffer_rows = 16 + streams.count;
  params.streams = streams;
  params.free_superblocks = streams.open_superblocks();
  params.geometry.superblocks = superblocks + params.free_superblocks + streams.open_superblocks();
  params.capacity_units = static_cast<std::uint64_t>(superblocks * 64 * capacity_share);
  return params;
}

void write(Drive& drive, Unit unit, std::uint32_t stream, std::uint64_t& now_ns) {
  now_ns = std::max(now_ns, drive.write(unit, 1, 4'096, now_ns, 0, false, stream));
}

// Logs that go round, each at a rate of its own: what is written together dies together, where logs are apart.
double amplification_of_logs(bool is_apart, Streams streams) {
  constexpr std::uint32_t kLogs = 4;
  const Params params = drive_of(streams, 256, 0.9);
  Drive drive(params);
  const auto log_units = static_cast<std::uint32_t>(params.capacity_units / kLogs);
  std::array<std::uint32_t, kLogs> next{};
  std::uint64_t now_ns = 1;
  Rng rng(11);
  const auto write_some = [&](std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t chance = rng.below(15);
      const std::uint32_t log = chance < 8 ? 0 : chance < 12 ? 1 : chance < 14 ? 2 : 3;
      write(drive, log * log_units + next[log], is_apart ? log : 0, now_ns);
      next[log] = (next[log] + 1) % log_units;
    }
  };
  write_some(6 * params.capacity_units);
  const Counters before = drive.ftl().counters();
  write_some(4 * params.capacity_units);
  const Counters after = drive.ftl().counters();
  const auto written = static_cast<double>(after.written_units - before.written_units);
  return (written + static_cast<double>(after.moved_units - before.moved_units)) / written;
}

TEST(Streams, LogsApartAmplifyNothing) {
  for (const bool apart_when_moved : {false, true}) {
    const Streams streams{.count = 4, .apart_when_moved = apart_when_moved};
    const double mixed = amplification_of_logs(false, streams), apart = amplification_of_logs(true, streams);
    EXPECT_GT(mixed, 1.5) << apart_when_moved;
    EXPECT_LT(apart, 1.05) << apart_when_moved;
  }
}

// Of greedy cleaning where all are written alike: a / (a + W(-a e^-a)), a superblocks for each that is full.
double closed_form(double a) {
  double w = -0.5;
  for (int i = 0; i < 200; ++i) w = -a * std::exp(-a) * std::exp(-w);
  return a / (a + w);
}

// What is never written again keeps to superblocks that are never collected, and all spare space is the others'.
TEST(Streams, WhatStaysApartLeavesItsSpareSpaceToTheRest) {
  constexpr std::uint32_t kSuperblocks = 512;
  const Params params = drive_of({.count = 2}, kSuperblocks, 0.8);
  const auto cold = static_cast<std::uint32_t>(params.capacity_units / 2);
  const std::uint64_t hot = params.capacity_units - cold;
  const double cold_superblocks = cold / 64.0;
  const double expected = closed_form(64 * (kSuperblocks - cold_superblocks) / static_cast<double>(hot));
  std::array<double, 2> found{};
  for (const bool is_apart : {false, true}) {
    Drive drive(params);
    Rng rng(5);
    std::uint64_t now_ns = 1;
    // The cold half is written in turns with the hot one.
    for (std::uint32_t unit = 0; unit < cold; ++unit) {
      write(drive, unit, 0, now_ns);
      write(drive, static_cast<Unit>(cold + rng.below(hot)), is_apart ? 1 : 0, now_ns);
    }
    for (std::uint64_t i = 0; i < 2 * hot; ++i)
      write(drive, static_cast<Unit>(cold + rng.below(hot)), is_apart ? 1 : 0, now_ns);
    const Counters before = drive.ftl().counters();
    for (std::uint64_t i = 0; i < 2 * hot; ++i)
      write(drive, static_cast<Unit>(cold + rng.below(hot)), is_apart ? 1 : 0, now_ns);
    const Counters after = drive.ftl().counters();
    const auto written = static_cast<double>(after.written_units - before.written_units);
    found[is_apart] = (written + static_cast<double>(after.moved_units - before.moved_units)) / written;
  }
  // Superblocks of so few units are cleaned a little better than those of the closed form, which has no end of them.
  EXPECT_NEAR(found[1], expected, 0.08 * expected);
  EXPECT_GT(found[0], found[1]);
}

// However often they are moved.
TEST(Streams, PersistentlyIsolatedDataAreNeverMixed) {
  constexpr std::uint32_t kStreams = 3;
  const Params params = drive_of({.count = kStreams, .apart_when_moved = true}, 64, 0.8);
  Drive drive(params);
  Rng rng(9);
  std::uint64_t now_ns = 1;
  for (std::uint64_t i = 0; i < 20 * params.capacity_units; ++i) {
    const auto unit = static_cast<Unit>(rng.below(params.capacity_units));
    write(drive, unit, unit % kStreams, now_ns);
  }
  EXPECT_GT(drive.ftl().counters().moved_units, params.capacity_units);
  std::vector<std::uint32_t> stream_of(params.geometry.superblocks, kStreams);
  for (Unit unit = 0; unit < params.capacity_units; ++unit) {
    const Place place = drive.ftl().place_of(unit);
    ASSERT_NE(place, Ftl::kNowhere);
    std::uint32_t& stream = stream_of[place / 64];
    if (stream == kStreams) stream = unit % kStreams;
    ASSERT_EQ(stream, unit % kStreams) << unit;
  }
}

TEST(Streams, AUnitInTheBufferGoesWhereItIsWrittenNext) {
  Drive drive(drive_of({.count = 2}, 64, 0.8));
  std::uint64_t now_ns = 1;
  write(drive, 7, 0, now_ns);
  const Place first = drive.ftl().place_of(7);
  write(drive, 7, 0, now_ns);
  EXPECT_EQ(drive.ftl().place_of(7), first);
  EXPECT_EQ(drive.ftl().counters().joined_sectors, 8u);
  write(drive, 7, 1, now_ns);
  EXPECT_NE(drive.ftl().place_of(7) / 64, first / 64);
  EXPECT_EQ(drive.ftl().counters().joined_sectors, 8u);
}

TEST(Streams, TheNextSuperblockIsEmpty) {
  Drive drive(drive_of({.count = 2}, 64, 0.8));
  std::uint64_t now_ns = 1;
  EXPECT_EQ(drive.ftl().units_left(1), 64u);
  drive.next_superblock(1, now_ns);
  EXPECT_EQ(drive.ftl().units_left(1), 64u);
  EXPECT_EQ(drive.ftl().superblocks().free_count(), 64u + 3 + 3);
  for (Unit unit = 0; unit < 5; ++unit) write(drive, unit, 1, now_ns);
  EXPECT_EQ(drive.ftl().units_left(1), 59u);
  EXPECT_EQ(drive.ftl().units_left(0), 64u);
  const std::uint32_t before = drive.ftl().place_of(0) / 64;
  drive.next_superblock(1, now_ns);
  EXPECT_EQ(drive.ftl().units_left(1), 64u);
  EXPECT_EQ(drive.ftl().counters().padded_units, 3u);
  write(drive, 9, 1, now_ns);
  EXPECT_NE(drive.ftl().place_of(9) / 64, before);
  for (Unit unit = 10; unit < 10 + 63; ++unit) write(drive, unit, 1, now_ns);
  EXPECT_EQ(drive.ftl().units_left(1), 64u);
}

// Whatever hosts do, there is a superblock for whom needs one, and the map and the counts of valid units agree.
TEST(Streams, HostsThatWasteSuperblocksHaveThemAllTheSame) {
  for (const bool apart_when_moved : {false, true}) {
    for (const std::uint32_t count : {2u, 8u, 40u}) {
      Params params = drive_of({.count = count, .apart_when_moved = apart_when_moved}, 100, 1);
      params.capacity_units = 98 * 64;
      ASSERT_EQ(what_is_wrong(params), "");
      Drive drive(params);
      Rng rng(count);
      std::uint64_t now_ns = 1;
      for (int i = 0; i < 20'000; ++i) {
        const auto stream = static_cast<std::uint32_t>(rng.below(count));
        if (rng.below(3) == 0) drive.next_superblock(stream, now_ns);
        write(drive, static_cast<Unit>(rng.below(params.capacity_units)), stream, now_ns);
        if (rng.below(500) == 0) drive.deallocate(static_cast<Unit>(rng.below(params.capacity_units - 64)), 64);
      }
      std::vector<std::uint32_t> valid(params.geometry.superblocks);
      for (Unit unit = 0; unit < params.capacity_units; ++unit)
        if (const Place place = drive.ftl().place_of(unit); place != Ftl::kNowhere) ++valid[place / 64];
      for (std::uint32_t i = 0; i < valid.size(); ++i) ASSERT_EQ(drive.ftl().superblocks().valid(i), valid[i]) << i;
    }
  }
}

}  // namespace
}  // namespace flashmob::timing::nand
