// Random writes in steady state: collection and hosts share the dies, and the dies are what limits them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "base/rng.h"
#include "timing/nand/drive.h"

namespace flashmob::timing::nand {
namespace {

// Of the kind of a Samsung 970 PRO: planes program by themselves, nothing is suspended, and the buffer holds two rows
// for each die.
Params steady_drive() {
  Params params;
  params.geometry = {.channels = 4,
                     .dies_per_channel = 2,
                     .planes = 1,
                     .superblocks = 256,
                     .word_lines = 4,
                     .bits_per_cell = 2,
                     .page_bytes = 16'384,
                     .unit_bytes = 4'096};
  params.cells = {
      .read_ns = {30'000, 42'000}, .program_ns = 185'000, .erase_ns = 55'000, .suspend_ns = 0, .resume_ns = 0};
  params.ways = {.channel_bytes_per_s = 800'000'000,
                 .program_share = 0.5,
                 .cores = 1,
                 .firmware_ns = 0,
                 .correction_ns = 21'500,
                 .link_bytes_per_s = 3'360'000'000};
  params.buffer_rows = 16;
  params.buffer_write_ns = 4'460;
  params.capacity_units = 252 * params.geometry.units_per_superblock() * 100 / 107;
  return params;
}

// How a drive was made steady.
enum class Begin { written, assumed };

struct Steady {
  double iops = 0;
  double bound_iops = 0;  // were the dies never idle
  double amplification = 0;
  double mean_erases = 0;
  std::vector<std::uint64_t> latencies_ns;
  std::uint64_t longest_write_ns = 0;
  std::uint64_t longest_read_ns = 0;
};

// Writes with `depth` in flight; every `read_every`th request is a read, if that is not 0.
Steady steady(const Params& params, std::uint32_t depth, std::uint32_t read_every, Begin begin = Begin::written) {
  Drive drive(params);
  const auto units = static_cast<std::uint32_t>(params.capacity_units);
  if (begin == Begin::assumed)
    drive.assume_steady(0, units, 1);
  else
    drive.assume_written(0, units);
  Rng rng(7);
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> due;
  for (std::uint32_t i = 0; i < depth; ++i) due.push(1);
  Steady found;
  Counters before;
  std::uint64_t begun_ns = 0, now_ns = 0, reads = 0;
  const std::uint64_t ramp = begin == Begin::assumed ? units / 50 : 3 * params.capacity_units / 2;
  const std::uint64_t count = ramp + params.capacity_units / 2;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i == ramp) {
      before = drive.ftl().counters();
      begun_ns = now_ns;
    }
    now_ns = due.top();
    due.pop();
    const auto unit = static_cast<Unit>(rng.below(params.capacity_units));
    const bool is_read = read_every != 0 && i % read_every == 0;
    const std::uint64_t done_ns = is_read ? drive.read(unit, 1, 4'096, now_ns) : drive.write(unit, 1, 4'096, now_ns);
    due.push(done_ns);
    if (i < ramp) continue;
    std::uint64_t& longest_ns = is_read ? found.longest_read_ns : found.longest_write_ns;
    longest_ns = std::max(longest_ns, done_ns - now_ns);
    found.latencies_ns.push_back(done_ns - now_ns);
    reads += is_read ? 1 : 0;
  }
  const Counters after = drive.ftl().counters();
  const Geometry& g = params.geometry;
  const double writes = static_cast<double>(after.written_units - before.written_units);
  const double moved = static_cast<double>(after.moved_units - before.moved_units);
  const double senses = static_cast<double>(after.moving_reads - before.moving_reads);
  const double erases = static_cast<double>((after.erased_superblocks - before.erased_superblocks) * g.dies());
  const double host_reads = static_cast<double>(after.flash_reads - before.flash_reads);
  const double busy_ns = (writes + moved) / g.units_per_row() * params.cells.program_ns +
                         (senses + host_reads) * (params.cells.read_ns[0] + params.cells.read_ns[1]) / 2 +
                         erases * params.cells.erase_ns;
  const double requests = writes + static_cast<double>(reads);
  found.iops = requests * 1e9 / static_cast<double>(now_ns - begun_ns);
  found.bound_iops = requests * 1e9 * static_cast<double>(g.dies()) / busy_ns;
  found.amplification = (writes + moved) / writes;
  const Wear wear = drive.ftl().superblocks().wear();
  found.mean_erases = wear.mean;
  std::ranges::sort(found.latencies_ns);
  return found;
}

TEST(Steady, RandomWritesTakeAllThatTheDiesCarryWithoutSuspension) {
  for (const std::uint32_t depth : {1u, 64u}) {
    const Steady found = steady(steady_drive(), depth, 0, Begin::assumed);
    EXPECT_GT(found.amplification, 4);
    EXPECT_NEAR(found.iops, found.bound_iops, 0.03 * found.bound_iops) << depth;
    EXPECT_LT(found.longest_write_ns, 10'000'000u) << depth;
  }
}

TEST(Steady, AssumedIsAsIfWritten) {
  for (const Victim victim : {Victim::greedy, Victim::fifo, Victim::d_choices}) {
    Params params = steady_drive();
    params.victim = victim;
    params.capacity_units = params.capacity_units * 9 / 10;
    const Steady written = steady(params, 4, 3);
    const Steady assumed = steady(params, 4, 3, Begin::assumed);
    EXPECT_NEAR(assumed.amplification, written.amplification, 0.03 * written.amplification);
    EXPECT_NEAR(assumed.iops, written.iops, 0.03 * written.iops);
    EXPECT_NEAR(assumed.mean_erases, written.mean_erases, 0.1 * written.mean_erases);
    for (const double share : {0.25, 0.5, 0.9, 0.99}) {
      const auto at = [share](const Steady& one) {
        return static_cast<double>(
            one.latencies_ns[static_cast<std::size_t>(share * static_cast<double>(one.latencies_ns.size()))]);
      };
      EXPECT_NEAR(at(assumed), at(written), 0.03 * at(written)) << share;
    }
  }
}

// Every unit has a place of its own, and superblocks know how many they hold.
TEST(Steady, AssumedDrivesAgreeWithThemselves) {
  for (const std::uint32_t units : {1u, 700u, 30'000u}) {
    const Params params = steady_drive();
    Ftl ftl(params);
    ftl.assume_steady(100, units, 3);
    std::vector<std::uint32_t> valid(params.geometry.superblocks);
    for (Unit unit = 0; unit < params.capacity_units; ++unit) {
      const Place place = ftl.place_of(unit);
      ASSERT_EQ(place != Ftl::kNowhere, unit >= 100 && unit < 100 + units) << unit;
      if (place == Ftl::kNowhere) continue;
      ASSERT_EQ(ftl.unit_at(place), unit);
      ++valid[place / params.geometry.units_per_superblock()];
    }
    for (std::uint32_t i = 0; i < valid.size(); ++i) ASSERT_EQ(ftl.superblocks().valid(i), valid[i]) << i;
    std::uint64_t now = 1;
    Rng rng(5);
    for (int i = 0; i < 50'000; ++i) now = std::max(now, ftl.write(100 + static_cast<Unit>(rng.below(units)), now));
  }
}

// Whoever gives up does not wait until a large drive has been written.
TEST(Steady, IsLeftWhenItIsCancelled) {
  const Params params = steady_drive();
  const auto units = static_cast<std::uint32_t>(params.capacity_units);
  const std::atomic<bool> cancelled = true;
  for (const Begin begin : {Begin::written, Begin::assumed}) {
    Drive drive(params);
    if (begin == Begin::assumed)
      drive.assume_steady(0, units, 3, &cancelled);
    else
      drive.assume_written(0, units, &cancelled);
    for (Unit unit = 0; unit < units; unit += 97) ASSERT_EQ(drive.ftl().place_of(unit), Ftl::kNowhere);
  }
}

// A read of a host waits for what a die is at, never for garbage collection that waits.
TEST(Steady, ReadsPassCollection) {
  const Steady found = steady(steady_drive(), 16, 4, Begin::assumed);
  EXPECT_LT(found.longest_read_ns, 3'000'000u);
}

// One channel of a large QLC drive: what hosts and collection have on their way takes the share of the channel longer
// than its calendar remembers.
TEST(Steady, LongWaysOfProgramsStayInTheirShareAndLetReadsPass) {
  Params params;
  params.geometry = {.channels = 1,
                     .dies_per_channel = 25,
                     .planes = 4,
                     .superblocks = 128,
                     .word_lines = 1,
                     .bits_per_cell = 4,
                     .page_bytes = 16'384,
                     .unit_bytes = 16'384};
  params.cells = {.read_ns = {43'300, 68'900, 121'700, 206'100},
                  .program_ns = 5'600'000,
                  .erase_ns = 10'000,
                  .suspend_ns = 100'000,
                  .resume_ns = 0};
  params.ways.channel_bytes_per_s = 1'200'000'000;
  params.ways.program_share = 0.172;
  params.buffer_rows = 64;
  params.capacity_units = 124 * params.geometry.units_per_superblock() * 100 / 108;
  const Steady found = steady(params, 64, 4, Begin::assumed);
  const double programmed_bytes_per_s = found.iops * 0.75 * found.amplification * params.geometry.unit_bytes;
  // The buffers are still filled by some of it.
  EXPECT_NEAR(programmed_bytes_per_s, 0.172 * 1.2e9, 0.05 * 0.172 * 1.2e9);
  EXPECT_LT(found.longest_read_ns, 30'000'000u);
}

}  // namespace
}  // namespace flashmob::timing::nand
