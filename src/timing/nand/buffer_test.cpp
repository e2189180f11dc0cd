// The write buffer: overwriting and joining in it, parts of units, and Writes that must be on the medium.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "timing/nand/drive.h"

namespace flashmob::timing::nand {
namespace {

// One die whose rows have 8 units of 8 sectors.
Params one_die() {
  Params params;
  params.geometry = {.channels = 1,
                     .dies_per_channel = 1,
                     .planes = 1,
                     .superblocks = 16,
                     .word_lines = 4,
                     .bits_per_cell = 2,
                     .page_bytes = 16'384,
                     .unit_bytes = 4'096};
  params.cells = {
      .read_ns = {50'000, 50'000}, .program_ns = 500'000, .erase_ns = 1'000'000, .suspend_ns = 0, .resume_ns = 0};
  params.ways = {.channel_bytes_per_s = 4'096'000'000,  // a unit takes 1 us
                 .program_share = 1,
                 .cores = 1,
                 .firmware_ns = 0,
                 .correction_ns = 0,
                 .link_bytes_per_s = 4'096'000'000'000};
  params.buffer_write_ns = 0;
  params.buffer_rows = 4;
  params.capacity_units = 256;
  return params;
}

constexpr std::uint64_t kStart = 1'000'000'000;

TEST(Buffer, OverwritesWhatHasNotBegunToBeProgrammed) {
  Ftl ftl(one_die());
  // Two rows: the first runs, the second waits.
  for (Unit unit = 0; unit < 16; ++unit) EXPECT_EQ(ftl.write(unit, kStart), kStart);
  const Place waiting = ftl.place_of(9);
  EXPECT_EQ(ftl.write(9, kStart + 100'000), kStart + 100'000);
  EXPECT_EQ(ftl.place_of(9), waiting);
  EXPECT_EQ(ftl.counters().written_units, 16u);
  EXPECT_EQ(ftl.counters().joined_sectors, 8u);
  EXPECT_EQ(ftl.write(1, kStart + 100'000), kStart + 100'000);
  EXPECT_EQ(ftl.counters().written_units, 17u);  // its program has begun
  // In the row that this one began.
  ftl.write(1, kStart + 200'000);
  EXPECT_EQ(ftl.counters().written_units, 17u);
  EXPECT_EQ(ftl.counters().written_sectors, 19u * 8);
  EXPECT_EQ(ftl.counters().joined_sectors, 16u);
  // The second row's program begins when the first ends: 8 us on the channel and 500 us.
  EXPECT_EQ(ftl.write(9, kStart + 507'999), kStart + 507'999);
  EXPECT_EQ(ftl.counters().written_units, 17u);
  ftl.write(9, kStart + 508'000);
  EXPECT_EQ(ftl.counters().written_units, 18u);
}

// What still waits for a buffer is overwritten when it has one.
TEST(Buffer, AnOverwriteIsNotDoneBeforeWhatItOverwrites) {
  Ftl ftl(one_die());
  std::uint64_t last = 0;
  for (Unit unit = 0; unit < 40; ++unit) last = ftl.write(unit, kStart);
  EXPECT_GT(last, kStart + 500'000);
  EXPECT_EQ(ftl.write(39, kStart + 1), last);
  EXPECT_EQ(ftl.write(38, kStart + 1), last);
  EXPECT_EQ(ftl.counters().written_units, 40u);
}

TEST(Buffer, SmallWritesOneAfterAnotherJoinToWholeUnits) {
  Ftl ftl(one_die());
  for (Unit unit = 0; unit < 8; ++unit)
    for (std::uint32_t sector = 0; sector < 8; ++sector) ftl.write(unit, {sector, sector + 1}, kStart);
  EXPECT_EQ(ftl.counters().written_units, 8u);
  EXPECT_EQ(ftl.counters().written_sectors, 64u);
  EXPECT_EQ(ftl.counters().joined_sectors, 0u);
  EXPECT_EQ(ftl.counters().filled_sectors, 0u);
  // The same over data on the medium: the first row is full when its last unit is begun.
  std::uint64_t now = kStart + 100'000'000;
  for (Unit unit = 0; unit < 8; ++unit)
    for (std::uint32_t sector = 0; sector < 8; ++sector) ftl.write(unit, {sector, sector + 1}, now);
  EXPECT_EQ(ftl.counters().written_units, 16u);
  EXPECT_EQ(ftl.counters().filling_reads, 0u);
}

// The rest of each unit is sensed before the row is programmed; the Write does not wait for that. The last unit has
// until the next one comes.
TEST(Buffer, APartOfAUnitOnTheMediumReadsTheRest) {
  Drive drive(one_die());
  drive.assume_written(0, 64);
  for (Unit unit = 0; unit < 8; ++unit) EXPECT_LE(drive.write(8 * unit, 1, 512, kStart, 1'024), kStart + 2);
  const Counters& counters = drive.ftl().counters();
  EXPECT_EQ(counters.filling_reads, 0u);
  EXPECT_EQ(counters.written_sectors, 8u);
  EXPECT_EQ(counters.filled_sectors, 56u);
  EXPECT_LE(drive.write(100, 1, 4'096, kStart), kStart + 2);
  EXPECT_EQ(counters.filling_reads, 8u);
  // Eight sensings, the last unit's way, the row's way, the program.
  const std::uint64_t programmed = kStart + 1 + 400'000 + 1'000 + 8'000 + 500'000;
  EXPECT_LE(drive.read(56, 1, 4'096, programmed - 2'000), programmed);
  EXPECT_EQ(counters.buffer_reads, 1u);
  EXPECT_GE(drive.read(56, 1, 4'096, programmed + 1), programmed + 51'000);
  EXPECT_EQ(counters.flash_reads, 1u);
}

TEST(Buffer, ForcedWritesArePaddedWhereNothingProtectsTheBuffer) {
  Params params = one_die();
  for (const bool is_protected : {true, false}) {
    params.protected_buffer = is_protected;
    Drive drive(params);
    const std::uint64_t done = drive.write(5, 1, 4'096, kStart, 0, true);
    const std::uint64_t programmed = kStart + 1 + 8'000 + 500'000;
    EXPECT_EQ(done, is_protected ? kStart + 1 : programmed);
    EXPECT_EQ(drive.ftl().counters().padded_units, is_protected ? 0u : 7u);
    EXPECT_EQ(drive.write(6, 1, 4'096, programmed), programmed + 1);
  }
}

// Bytes are counted, not units: of 512 bytes at random places a whole unit is programmed each.
TEST(Buffer, EveryUnitProgrammedIsAccountedFor) {
  Ftl ftl(one_die());
  Rng rng(3);
  std::uint64_t now = kStart;
  for (int i = 0; i < 20'000; ++i) {
    const auto begin = static_cast<std::uint32_t>(rng.below(8));
    const auto end = begin + 1 + static_cast<std::uint32_t>(rng.below(8 - begin));
    now = std::max(now, ftl.write(static_cast<Unit>(rng.below(256)), {begin, end}, now)) + rng.below(100'000);
  }
  const Counters& counters = ftl.counters();
  EXPECT_GT(counters.joined_sectors, 0u);
  EXPECT_EQ(counters.written_units * 8, counters.written_sectors - counters.joined_sectors + counters.filled_sectors);
}

}  // namespace
}  // namespace flashmob::timing::nand
