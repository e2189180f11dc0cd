#include "timing/nand/ftl.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "timing/nand/steady_state.h"

namespace flashmob::timing::nand {
namespace {

const Params& checked(const Params& params) {
  if (std::string wrong = what_is_wrong(params); !wrong.empty()) throw ConfigError("timing.nand: " + wrong);
  return params;
}

unsigned __int128 sectors_of(Part part) {
  const auto below = [](std::uint32_t sector) {
    return sector >= 128 ? ~static_cast<unsigned __int128>(0) : (static_cast<unsigned __int128>(1) << sector) - 1;
  };
  return below(part.end) & ~below(part.begin);
}

std::uint32_t count_of(unsigned __int128 sectors) {
  return static_cast<std::uint32_t>(std::popcount(static_cast<std::uint64_t>(sectors)) +
                                    std::popcount(static_cast<std::uint64_t>(sectors >> 64)));
}

}  // namespace

Ftl::Ftl(const Params& params)
    : params_(params),
      sectors_per_unit_(checked(params).geometry.unit_bytes / kSectorBytes),
      units_per_row_(params.geometry.units_per_row()),
      units_per_sense_(params.geometry.units_per_page() * params.geometry.planes),
      units_per_superblock_(static_cast<std::uint32_t>(params.geometry.units_per_superblock())),
      bits_per_cell_(params.geometry.bits_per_cell),
      free_superblocks_(params.free_superblocks),
      slc_(params.slc),
      idle_ns_(params.idle_ns),
      idle_free_superblocks_(params.idle_free_superblocks),
      dies_(params.geometry.dies()),
      idle_sense_ns_(
          std::accumulate(params.cells.read_ns.begin(), params.cells.read_ns.begin() + bits_per_cell_, 0ull) /
          bits_per_cell_),
      idle_program_ns_(params.cells.program_ns),
      idle_erase_ns_(params.cells.erase_ns),
      by_row_(units_per_row_),
      by_sense_(units_per_sense_),
      by_superblock_(units_per_superblock_),
      flash_(params),
      superblocks_(params),
      buffer_(params.buffer_rows),
      moved_buffers_(kRowsToMove * params.geometry.dies() + params.streams.moved() - 1),
      streams_(params.streams.count + 1 + params.streams.moved()),
      places_(params.capacity_units, kNowhere),
      units_(params.geometry.physical_units(), 0) {
  const std::uint32_t of_hosts = params.streams.count + 1;
  for (std::uint32_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    stream.is_moved = i >= of_hosts;
    stream.number = stream.is_moved ? i - of_hosts : i;
    if (!stream.is_moved) stream.in_part.reserve(units_per_row_);
  }
}

std::uint64_t Ftl::read(Unit unit, std::uint32_t bytes, std::uint64_t ready_ns) {
  const Place place = places_[unit];
  if (place == kNowhere) {
    ++counters_.unwritten_reads;
    return ready_ns;
  }
  if (is_buffered(place, ready_ns)) {
    ++counters_.buffer_reads;
    return ready_ns;
  }
  ++counters_.flash_reads;
  return flash_.read(place, bytes, ready_ns, slc_.most() != 0 && superblocks_.is_slc(by_superblock_.quotient(place)));
}

std::uint64_t Ftl::write(Unit unit, Part part, std::uint64_t ready_ns, std::uint32_t number) {
  at_ns_ = ready_ns;
  counters_.written_sectors += part.sectors();
  std::uint64_t now_ns = 0;
  if (overwrites(places_[unit], part, number, ready_ns, now_ns)) return now_ns;
  ++counters_.written_units;
  owed_ += cached().superblock != Superblocks::kNone ? bits_per_cell_ : 1;
  if (debt_ != 0) --debt_, ++owed_;
  now_ns = collect(ready_ns);
  Stream& stream = stream_of_hosts(number, now_ns);
  if (stream.is_full) finish_row(stream);
  if (stream.row == Die::kNoRow) begin_row(stream, now_ns);
  if (part.sectors() != sectors_per_unit_) note_part(stream, places_[unit], part, ready_ns);
  if (stream.is_slc) ++counters_.cached_units;
  forget(unit);
  return append(stream, unit, now_ns);
}

// Writes a part of a unit where it lies in the buffer, if it does and its program has not begun; done_ns is then when.
bool Ftl::overwrites(Place place, Part part, std::uint32_t number, std::uint64_t ready_ns, std::uint64_t& done_ns) {
  if (place == kNowhere) return false;
  const std::uint32_t superblock = by_superblock_.quotient(place);
  if (!superblocks_.is_recent(superblock)) return false;
  // What is kept apart does not lie where another stream's was.
  if (params_.streams.count != 1 && superblocks_.owner(superblock) != number) return false;
  const Row row = flash_.row_of(place);
  std::uint64_t begun_ns = 0;
  Stream* const stream = open_stream_of(row);
  if (stream != nullptr) {
    begun_ns = stream->begun_ns;
    stream->ready_ns = std::max({stream->ready_ns, ready_ns, begun_ns});
  } else if (!flash_.waits(row, ready_ns, begun_ns)) {
    return false;
  }
  done_ns = std::max(ready_ns, begun_ns);
  counters_.joined_sectors += part.sectors();
  if (stream != nullptr && !stream->in_part.empty()) join(*stream, by_row_.remainder(place), part);
  return true;
}

// A part of a unit of the open row is written that may have been in part.
void Ftl::join(Stream& stream, std::uint32_t index, Part part) {
  const auto one = std::ranges::find(stream.in_part, index, &InPart::index);
  if (one == stream.in_part.end()) return;
  const unsigned __int128 fresh = sectors_of(part) & ~one->written;
  const std::uint32_t count = count_of(fresh);
  counters_.joined_sectors -= count;
  counters_.filled_sectors -= count;
  one->written |= fresh;
  if (stream.is_full && index == stream.row_units - 1 && count_of(one->written) == sectors_per_unit_)
    finish_row(stream);
}

// The next unit of the open row is written in part.
void Ftl::note_part(Stream& stream, Place old_place, Part part, std::uint64_t ready_ns) {
  counters_.filled_sectors += sectors_per_unit_ - part.sectors();
  const bool is_on_medium = old_place != kNowhere && !is_buffered(old_place, ready_ns);
  stream.in_part.push_back({stream.filled, is_on_medium ? old_place : kNowhere, sectors_of(part)});
}

// The open row is full when all of its units are whole.
void Ftl::read_the_rest(Stream& stream) {
  std::uint64_t there_ns = stream.ready_ns;
  for (const InPart& one : stream.in_part) {
    if (one.rest == kNowhere || count_of(one.written) == sectors_per_unit_) continue;
    ++counters_.filling_reads;
    const bool is_slc = superblocks_.is_slc(by_superblock_.quotient(one.rest));
    there_ns = std::max(there_ns, flash_.read_to_move(one.rest, 1, stream.ready_ns, is_slc));
  }
  stream.ready_ns = there_ns;
  stream.in_part.clear();
}

// Those that lie one after another in one superblock leave it together.
void Ftl::deallocate(Unit first, std::uint32_t units) {
  std::uint32_t superblock = Superblocks::kNone;
  std::uint32_t valid = 0;  // of these, in that superblock
  for (Place& place : std::span(places_).subspan(first, units)) {
    if (place == kNowhere) continue;
    const std::uint32_t its = by_superblock_.quotient(std::exchange(place, kNowhere));
    if (its != superblock) {
      if (valid != 0) superblocks_.drop_valid(superblock, valid);
      superblock = its;
      valid = 0;
    }
    ++valid;
  }
  if (valid != 0) superblocks_.drop_valid(superblock, valid);
}

void Ftl::forget(Unit unit) {
  const Place place = places_[unit];
  if (place != kNowhere) superblocks_.drop_valid(by_superblock_.quotient(place));
}

// Whether a place is in the buffer, filled but not on the medium.
bool Ftl::is_buffered(Place place, std::uint64_t now_ns) {
  const Row row = flash_.row_of(place);
  return open_stream_of(row) != nullptr || flash_.is_leaving(row, now_ns);
}

void Ftl::open_superblock(Stream& stream) {
  stream.is_slc = &stream == &cached();
  stream.superblock = superblocks_.open(stream.is_slc, static_cast<std::uint32_t>(&stream - streams_.data()));
  FLASHMOB_CHECK(stream.superblock != Superblocks::kNone);
  stream.row_units = stream.is_slc ? units_per_sense_ : units_per_row_;
  stream.next = 0;
}

// Rows that streams of one kind are filling. Where hosts have one stream, its row and the SLC cache's share a buffer.
std::uint32_t Ftl::open_rows_of(bool is_moved) const {
  if (params_.streams.count == 1) return 0;
  return static_cast<std::uint32_t>(std::ranges::count_if(
      streams_, [is_moved](const Stream& stream) { return stream.is_moved == is_moved && stream.row != Die::kNoRow; }));
}

void Ftl::begin_row(Stream& stream, std::uint64_t ready_ns) {
  if (stream.superblock == Superblocks::kNone) open_superblock(stream);
  stream.begun_ns = is_silent_
                        ? ready_ns
                        : std::max(ready_ns, buffers_of(stream).take(at_ns_, flash_, open_rows_of(stream.is_moved)));
  stream.ready_ns = 0;
  stream.filled = 0;
  stream.row = flash_.row_of(first_place_of(stream.superblock) + stream.next);
}

std::uint64_t Ftl::append(Stream& stream, Unit unit, std::uint64_t ready_ns) {
  if (stream.row == Die::kNoRow) begin_row(stream, ready_ns);
  // Nobody overtakes who waits for the row.
  ready_ns = std::max(ready_ns, stream.begun_ns);
  const Place place = first_place_of(stream.superblock) + stream.next + stream.filled++;
  places_[unit] = place;
  units_[place] = unit;
  superblocks_.add_valid(stream.superblock);
  stream.ready_ns = std::max(stream.ready_ns, ready_ns);
  if (stream.filled != stream.row_units) return ready_ns;
  // What is to come of its last unit may be under way: it has until the next unit.
  const bool may_grow = !stream.in_part.empty() && stream.in_part.back().index == stream.row_units - 1;
  stream.is_full = true;
  if (!may_grow) finish_row(stream);
  return ready_ns;
}

void Ftl::finish_row(Stream& stream) {
  if (!stream.in_part.empty()) read_the_rest(stream);
  if (!is_silent_)
    buffers_of(stream).put(flash_.program(stream.row, stream.ready_ns, stream.begun_ns, stream.is_slc), flash_);
  stream.row = Die::kNoRow;
  stream.is_full = false;
  stream.next += units_per_row_;
  if (stream.next < units_per_superblock_) return;
  superblocks_.close(stream.superblock);
  stream.superblock = Superblocks::kNone;
}

// Programs the open row as it is.
void Ftl::pad(Stream& stream, std::uint64_t ready_ns) {
  if (stream.row == Die::kNoRow) return;
  const std::uint32_t left = stream.row_units - stream.filled;
  stream.ready_ns = std::max(stream.ready_ns, ready_ns);
  counters_.padded_units += left;
  owed_ += left * (stream.is_slc ? bits_per_cell_ : 1);
  finish_row(stream);
}

std::uint64_t Ftl::program_units(Unit first, std::uint32_t units, std::uint64_t ready_ns) {
  at_ns_ = ready_ns;
  std::uint64_t end_ns = ready_ns;
  for (Unit unit = first; unit < first + units; ++unit) {
    if (places_[unit] == kNowhere) continue;
    const Row row = flash_.row_of(places_[unit]);
    if (Stream* const stream = open_stream_of(row)) pad(*stream, ready_ns);
    end_ns = std::max(end_ns, flash_.expected_end_of_row_ns(row));
  }
  return end_ns;
}

std::uint64_t Ftl::program_all(std::uint64_t ready_ns) {
  at_ns_ = ready_ns;
  for (Stream& stream : streams_) pad(stream, ready_ns);
  return std::max(ready_ns, flash_.all_programmed_ns());
}

void Ftl::next_superblock(std::uint32_t number, std::uint64_t ready_ns) {
  at_ns_ = ready_ns;
  Stream& stream = hosts(number);
  pad(stream, ready_ns);
  if (stream.superblock == Superblocks::kNone) return;
  // Its room is taken, and paid for, as if it had been written.
  owed_ += units_per_superblock_ - stream.next;
  superblocks_.close(stream.superblock);
  stream.superblock = Superblocks::kNone;
}

std::uint32_t Ftl::units_left(std::uint32_t number) const {
  const Stream& stream = streams_[number];
  if (stream.superblock == Superblocks::kNone) return units_per_superblock_;
  return units_per_superblock_ - stream.next - (stream.row != Die::kNoRow ? stream.filled : 0);
}

void Ftl::assume_steady(Unit first, std::uint32_t units, double drive_writes, const std::atomic<bool>* cancelled) {
  const auto is_cancelled = [cancelled] { return cancelled != nullptr && *cancelled; };
  if (is_cancelled()) return;
  SteadyState steady(superblocks_, params_, units);
  steady.write(drive_writes, cancelled);
  const std::pair<Stream*, const SteadyState::Open*> open[] = {{&hosts(), &steady.hosts()},
                                                               {&moved(), &steady.moved()}};
  Rng rng(params_.seed);
  const Permutation order(units, rng.next());
  std::uint64_t next = 0;
  for (std::uint32_t i = 0; i < params_.geometry.superblocks; ++i) {
    if (is_cancelled()) return;
    std::uint32_t written = superblocks_.is_free(i) ? 0 : units_per_superblock_;
    for (const auto& [stream, its] : open)
      if (its->superblock == i) written = its->filled;
    map_at_random(i, written, next, order, first, rng);
  }
  FLASHMOB_CHECK(next == units);
  for (const auto& [stream, its] : open) {
    if (its->superblock == Superblocks::kNone) continue;
    // The row that would be open is padded.
    stream->superblock = its->superblock;
    stream->row_units = units_per_row_;
    stream->next = by_row_.quotient(its->filled + units_per_row_ - 1) * units_per_row_;
    if (stream->next < units_per_superblock_) continue;
    superblocks_.close(stream->superblock);
    stream->superblock = Superblocks::kNone;
  }
}

// The valid units of a superblock lie anywhere among those that were written.
void Ftl::map_at_random(std::uint32_t superblock, std::uint32_t written, std::uint64_t& next, const Permutation& units,
                        Unit first, Rng& rng) {
  std::uint32_t valid = superblocks_.valid(superblock);
  Place place = first_place_of(superblock);
  for (std::uint32_t left = written; valid != 0; --left, ++place) {
    if (rng.below(left) >= valid) continue;
    const auto unit = static_cast<Unit>(first + units(next++));
    places_[unit] = place;
    units_[place] = unit;
    --valid;
  }
}

void Ftl::forget_load() {
  flash_.forget_load();
  buffer_.clear();
  moved_buffers_.clear();
  for (Stream& stream : streams_) stream.ready_ns = stream.begun_ns = 0;
  last_ns_ = 0;
  idle_left_ns_ = 0;
}

}  // namespace flashmob::timing::nand
