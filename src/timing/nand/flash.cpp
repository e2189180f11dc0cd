#include "timing/nand/flash.h"

#include <algorithm>
#include <bit>

namespace flashmob::timing::nand {
namespace {

// Of a channel's calendar: half of it covers all rows on their way to the dies, hosts' and moved ones, at the share
// that programs get, and what garbage collection's reads wait for at a die. Where that is more than memory should go
// to, the last of them are a backlog (calendar.h).
std::uint32_t buckets_of(const Params& params) {
  constexpr std::uint32_t kLeast = 16384, kMost = 1 << 20;
  const double rows = static_cast<double>(params.buffer_rows) / params.geometry.channels +
                      kRowsToMove * params.geometry.dies_per_channel + 2;
  const double row_bytes = static_cast<double>(params.geometry.units_per_row()) * params.geometry.unit_bytes;
  const double wait_ns =
      rows * row_bytes * 1e9 / (static_cast<double>(params.ways.channel_bytes_per_s) * params.ways.program_share);
  const double dies_ns = params.cells.erase_ns + 2.0 * kRowsToMove * params.cells.program_ns;
  const double buckets = std::min<double>(kMost, 2 * std::max(wait_ns, dies_ns) / (1 << Calendar::kBucketShift) + 1);
  return std::max(kLeast, std::bit_ceil(static_cast<std::uint32_t>(buckets)));
}

}  // namespace

Flash::Flash(const Params& params)
    : cells_(params.cells),
      unit_bytes_(params.geometry.unit_bytes),
      row_bytes_(params.geometry.units_per_row() * params.geometry.unit_bytes),
      slc_row_bytes_(row_bytes_ / params.geometry.bits_per_cell),
      by_row_(params.geometry.units_per_row()),
      by_die_(params.geometry.dies()),
      by_channel_(params.geometry.channels),
      by_page_of_cell_(params.geometry.units_per_page() * params.geometry.planes),
      ticks_per_kib_(ticks_of(1024, params.ways.channel_bytes_per_s)),
      channels_(params.geometry.channels,
                Calendar(buckets_of(params),
                         static_cast<std::uint32_t>(Calendar::kBucketTicks * params.ways.program_share))) {
  // Twice what waits at one die where no more is promised than the buffers hold, for rows go round the dies; of few
  // dies each takes more of a burst.
  const std::uint32_t others = 64 + 1024 / params.geometry.dies();
  const std::uint32_t operations = 2 * (params.buffer_rows / params.geometry.dies() + kRowsToMove) + others;
  dies_.reserve(params.geometry.dies());
  for (std::uint32_t die = 0; die < params.geometry.dies(); ++die) dies_.emplace_back(params.cells, operations);
}

std::uint64_t Flash::read(Place place, std::uint32_t bytes, std::uint64_t ready_ns, bool is_slc) {
  const Row row = row_of(place);
  const std::uint32_t die = die_of(row);
  const std::uint64_t sensed_ns = dies_[die].read(ready_ns, read_ns(place, is_slc));
  const std::uint64_t ticks = channel_ticks(bytes);
  return channels_[channel_of(die)].reserve(sensed_ns, ticks, ticks / Calendar::kTicksPerNs);
}

std::uint64_t Flash::read_to_move(Place first, std::uint32_t units, std::uint64_t ready_ns, bool is_slc) {
  const std::uint32_t die = die_of(row_of(first));
  const Die::Handle handle = dies_[die].give(ready_ns, read_ns(first, is_slc), Die::kNoRow, ready_ns, /*yields=*/false);
  const std::uint64_t sensed_ns = dies_[die].expected_end_ns(handle);
  const std::uint64_t ticks = channel_ticks(units * unit_bytes_);
  return channels_[channel_of(die)].reserve(sensed_ns, ticks, ticks / Calendar::kTicksPerNs);
}

Given Flash::program(Row row, std::uint64_t ready_ns, std::uint64_t buffered_ns, bool is_slc) {
  const std::uint32_t die = die_of(row);
  const std::uint64_t ticks = channel_ticks(is_slc ? slc_row_bytes_ : row_bytes_);
  const std::uint64_t there_ns =
      channels_[channel_of(die)].reserve_share(ready_ns, ticks, ticks / Calendar::kTicksPerNs);
  return {die, dies_[die].give(there_ns, is_slc ? cells_.slc_program_ns : cells_.program_ns, row, buffered_ns)};
}

std::uint64_t Flash::all_programmed_ns() const {
  std::uint64_t end_ns = 0;
  for (const Die& die : dies_) end_ns = std::max(end_ns, die.all_programmed_ns());
  return end_ns;
}

void Flash::forget_load() {
  for (Die& die : dies_) die.forget_load();
  for (Calendar& channel : channels_) channel.clear();
}

void Flash::erase(std::uint64_t ready_ns) {
  for (Die& die : dies_) die.give(ready_ns, cells_.erase_ns);
}

}  // namespace flashmob::timing::nand
