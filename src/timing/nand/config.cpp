#include "timing/nand/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "base/config_checks.h"

namespace flashmob::timing::nand {
namespace {

using namespace config_checks;

constexpr std::uint64_t kMostNs = 1'000'000'000;
constexpr std::uint64_t kFewestRows = 4;  // of the buffer: two open ones and two on their way to the dies
// Fewer superblocks than these would make garbage collection coarser than a drive's.
constexpr std::uint64_t kFewestSuperblocks = 256;
// Each namespace begins with a unit of its own.
constexpr std::uint64_t kMostNamespaces = 256;

const char* const kVictims[] = {"greedy", "fifo", "d_choices", "random"};  // in the order of Victim

std::string key_of(const char* name) { return std::string("timing.nand.") + name; }

void check_geometry(const NandConfig& nand) {
  check_range(key_of("channels"), nand.channels, 1, 64);
  check_range(key_of("dies_per_channel"), nand.dies_per_channel, 1, 64);
  check_range(key_of("planes"), nand.planes, 1, 16);
  check_range(key_of("word_lines"), nand.word_lines, 1, 8192);
  check_range(key_of("bits_per_cell"), nand.bits_per_cell, 1, kMaxBitsPerCell);
  check_power_of_two(key_of("page_bytes"), nand.page_bytes, 512, 65536);
  if (!(nand.over_provisioning >= 0.01 && nand.over_provisioning <= 4))
    reject(key_of("over_provisioning"), number(nand.over_provisioning), "use a share from 0.01 to 4");
}

void check_times(const NandConfig& nand) {
  if (nand.read_ns.size() != nand.bits_per_cell)
    reject(key_of("read_ns"), "a list of " + std::to_string(nand.read_ns.size()),
           "give one time for each page of a cell, timing.nand.bits_per_cell = " + std::to_string(nand.bits_per_cell));
  for (const std::uint32_t read_ns : nand.read_ns) check_range(key_of("read_ns"), read_ns, 1, kMostNs);
  check_range(key_of("program_ns"), nand.program_ns, 1, kMostNs);
  check_range(key_of("erase_ns"), nand.erase_ns, 1, kMostNs);
  check_range(key_of("suspend_ns"), nand.suspend_ns, 0, kMostNs);
  check_range(key_of("resume_ns"), nand.resume_ns, 0, kMostNs);
  check_range(key_of("firmware_ns"), nand.firmware_ns, 0, kMostNs);
  check_range(key_of("correction_ns"), nand.correction_ns, 0, kMostNs);
  check_range(key_of("buffer_write_ns"), nand.buffer_write_ns, 0, kMostNs);
}

void check_ways(const NandConfig& nand) {
  check_range(key_of("channel_bytes_per_s"), nand.channel_bytes_per_s, 1'000'000, 10'000'000'000'000);
  if (!(nand.program_share >= 0.01 && nand.program_share <= 1))
    reject(key_of("program_share"), number(nand.program_share), "use a share from 0.01 to 1");
  check_range(key_of("cores"), nand.cores, 1, 64);
  const std::uint64_t row_bytes = std::uint64_t{nand.page_bytes} * nand.planes * nand.bits_per_cell;
  check_range(key_of("buffer_bytes"), nand.buffer_bytes, kFewestRows * row_bytes, std::uint64_t{1} << 34);
  check_one_of(key_of("victim"), nand.victim, {kVictims[0], kVictims[1], kVictims[2], kVictims[3]});
  check_range(key_of("choices"), nand.choices, 1, 64);
  check_range(key_of("free_superblocks"), nand.free_superblocks, 2, 64);
}

void check_cache_and_idle_time(const NandConfig& nand) {
  const auto check_share = [](const char* name, double share) {
    if (!(share >= 0 && share <= 1)) reject(key_of(name), number(share), "use a share of the capacity, 0 to 1");
  };
  check_share("slc_fixed", nand.slc_fixed);
  check_share("slc_dynamic", nand.slc_dynamic);
  const bool has_cache = nand.slc_fixed + nand.slc_dynamic > 0;
  for (const auto& [name, ns] : {std::pair{"slc_read_ns", nand.slc_read_ns}, {"slc_program_ns", nand.slc_program_ns}}) {
    if (has_cache && ns == 0)
      reject(key_of(nand.slc_dynamic > 0 ? "slc_dynamic" : "slc_fixed"),
             number(nand.slc_dynamic > 0 ? nand.slc_dynamic : nand.slc_fixed),
             std::string("such a cache needs timing.nand.") + name + ", too, the time of a cell of one bit; set it");
    check_range(key_of(name), ns, 0, kMostNs);
  }
  if (has_cache && nand.bits_per_cell == 1)
    reject(key_of("bits_per_cell"), "1", "use at least 2: cells of one bit are no cache for themselves");
  check_range(key_of("idle_ns"), nand.idle_ns, 0, kMostNs);
  check_range(key_of("idle_free_superblocks"), nand.idle_free_superblocks, 0, 65536);
}

// Superblocks that hold a share of the capacity with one bit in each cell.
std::uint32_t cache_superblocks(double share, const Params& params) {
  const double units = share * static_cast<double>(params.capacity_units) * params.geometry.bits_per_cell;
  return static_cast<std::uint32_t>(std::ceil(units / static_cast<double>(params.geometry.units_per_superblock())));
}

// Blocks as long as the capacity allows, and so many of them that there is the spare space that was asked for.
void scale(const NandConfig& nand, std::uint64_t physical_units, Params& params) {
  Geometry& g = params.geometry;
  g.word_lines = 1;
  const std::uint64_t shortest = g.units_per_superblock();
  g.word_lines = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(physical_units / (kFewestSuperblocks * shortest), 1, nand.word_lines));
  params.cells.erase_ns = static_cast<std::uint32_t>(
      std::max<std::uint64_t>(1, std::uint64_t{nand.erase_ns} * g.word_lines / nand.word_lines));
  const std::uint64_t superblock = g.units_per_superblock();
  const std::uint64_t kept = params.free_superblocks + params.streams.open_superblocks();
  std::uint64_t superblocks = (physical_units + superblock - 1) / superblock + kept;
  if ((superblocks - kept - 1) * superblock < params.capacity_units) ++superblocks;
  params.slc = {.fixed_superblocks = cache_superblocks(nand.slc_fixed, params),
                .dynamic_superblocks = cache_superblocks(nand.slc_dynamic, params),
                .bypass = nand.slc_bypass};
  g.superblocks = static_cast<std::uint32_t>(superblocks) + params.slc.fixed_superblocks;
}

}  // namespace

void check(const TimingConfig& config) {
  const NandConfig& nand = config.nand;
  check_geometry(nand);
  check_times(nand);
  check_ways(nand);
  check_cache_and_idle_time(nand);
  if (nand.page_bytes < config.unit_bytes)
    reject("timing.unit_bytes", std::to_string(config.unit_bytes),
           "the mapping unit of model nand is at most timing.nand.page_bytes = " + std::to_string(nand.page_bytes));
}

Params params_of(const TimingConfig& config, std::uint64_t capacity_bytes, std::uint64_t seed, Streams streams) {
  const NandConfig& nand = config.nand;
  Params params;
  params.geometry = {.channels = nand.channels,
                     .dies_per_channel = nand.dies_per_channel,
                     .planes = nand.planes,
                     .superblocks = 0,
                     .word_lines = nand.word_lines,
                     .bits_per_cell = nand.bits_per_cell,
                     .page_bytes = nand.page_bytes,
                     .unit_bytes = config.unit_bytes};
  std::copy(nand.read_ns.begin(), nand.read_ns.end(), params.cells.read_ns.begin());
  params.cells.program_ns = nand.program_ns;
  params.cells.suspend_ns = nand.suspend_ns;
  params.cells.resume_ns = nand.resume_ns;
  params.cells.slc_read_ns = nand.slc_read_ns;
  params.cells.slc_program_ns = nand.slc_program_ns;
  constexpr std::uint64_t kNoLimit = 10'000'000'000'000;
  params.ways = {.channel_bytes_per_s = nand.channel_bytes_per_s,
                 .program_share = nand.program_share,
                 .cores = nand.cores,
                 .firmware_ns = nand.firmware_ns,
                 .correction_ns = nand.correction_ns,
                 .link_bytes_per_s = config.link_bytes_per_s == 0 ? kNoLimit : config.link_bytes_per_s};
  const std::uint64_t row_bytes = std::uint64_t{params.geometry.units_per_row()} * config.unit_bytes;
  params.buffer_rows = static_cast<std::uint32_t>(nand.buffer_bytes / row_bytes);
  params.buffer_write_ns = nand.buffer_write_ns;
  params.protected_buffer = nand.protected_buffer;
  params.victim = static_cast<Victim>(std::find(std::begin(kVictims), std::end(kVictims), nand.victim) - kVictims);
  params.choices = nand.choices;
  params.streams = streams;
  // Those that are written may all become full at once.
  params.free_superblocks = nand.free_superblocks + streams.open_superblocks() - 2;
  params.idle_ns = nand.idle_ns;
  params.idle_free_superblocks = nand.idle_free_superblocks;
  params.wear_spread = nand.wear_spread;
  params.seed = seed;
  params.capacity_units = (capacity_bytes + config.unit_bytes - 1) / config.unit_bytes + kMostNamespaces;
  const double physical = std::ceil(static_cast<double>(params.capacity_units) * (1 + nand.over_provisioning));
  // The drive's spare space included, with room for what it is rounded up by.
  if (physical * 1.05 >= std::numeric_limits<std::uint32_t>::max())
    throw ConfigError("a drive of " + std::to_string(capacity_bytes) + " bytes is not possible: in units of " +
                      std::to_string(config.unit_bytes) +
                      " bytes it has more than model nand maps; use a smaller size, or a larger timing.unit_bytes");
  scale(nand, static_cast<std::uint64_t>(physical), params);
  return params;
}

}  // namespace flashmob::timing::nand
