#include "timing/nand/ftl.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

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
    : sectors_per_unit_(checked(params).geometry.unit_bytes / kSectorBytes),
      units_per_row_(params.geometry.units_per_row()),
      units_per_sense_(params.geometry.units_per_page() * params.geometry.planes),
      units_per_superblock_(static_cast<std::uint32_t>(params.geometry.units_per_superblock())),
      free_superblocks_(params.free_superblocks),
      by_row_(units_per_row_),
      by_sense_(units_per_sense_),
      by_superblock_(units_per_superblock_),
      flash_(params),
      superblocks_(params),
      hosts_(params.buffer_rows),
      moved_(kRowsToMove * params.geometry.dies()),
      places_(params.capacity_units, kNowhere),
      units_(params.geometry.physical_units(), 0) {
  in_part_.reserve(units_per_row_);
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
  return flash_.read(place, bytes, ready_ns);
}

std::uint64_t Ftl::write(Unit unit, Part part, std::uint64_t ready_ns) {
  at_ns_ = ready_ns;
  counters_.written_sectors += part.sectors();
  std::uint64_t now_ns = 0;
  if (overwrites(places_[unit], part, ready_ns, now_ns)) return now_ns;
  ++counters_.written_units;
  ++owed_;
  now_ns = collect(ready_ns);
  // The last one that is free is collection's own.
  while (hosts_.superblock == Superblocks::kNone && superblocks_.free_count() < 2 &&
         collection_.superblock != Superblocks::kNone)
    now_ns = move_some(now_ns);
  if (hosts_.is_full) finish_row(hosts_);
  if (hosts_.row == Die::kNoRow) begin_row(hosts_, now_ns);
  if (part.sectors() != sectors_per_unit_) note_part(places_[unit], part, ready_ns);
  forget(unit);
  return append(hosts_, unit, now_ns);
}

// Writes a part of a unit where it lies in the buffer, if it does and its program has not begun; done_ns is then when.
bool Ftl::overwrites(Place place, Part part, std::uint64_t ready_ns, std::uint64_t& done_ns) {
  if (place == kNowhere || !superblocks_.is_recent(by_superblock_.quotient(place))) return false;
  const Row row = flash_.row_of(place);
  std::uint64_t begun_ns = 0;
  if (row == hosts_.row || row == moved_.row) {
    Stream& stream = row == hosts_.row ? hosts_ : moved_;
    begun_ns = stream.begun_ns;
    stream.ready_ns = std::max({stream.ready_ns, ready_ns, begun_ns});
  } else if (!flash_.waits(row, ready_ns, begun_ns)) {
    return false;
  }
  std::uint32_t again = part.sectors();
  bool is_whole = false;
  if (row == hosts_.row) {
    const std::uint32_t index = by_row_.remainder(place);
    const auto one = std::ranges::find(in_part_, index, &InPart::index);
    if (one != in_part_.end()) {
      const unsigned __int128 fresh = sectors_of(part) & ~one->written;
      const std::uint32_t count = count_of(fresh);
      again -= count;
      counters_.filled_sectors -= count;
      one->written |= fresh;
      is_whole = hosts_.is_full && index == units_per_row_ - 1 && count_of(one->written) == sectors_per_unit_;
    }
  }
  counters_.joined_sectors += again;
  if (is_whole) finish_row(hosts_);
  done_ns = std::max(ready_ns, begun_ns);
  return true;
}

// The next unit of hosts' open row is written in part.
void Ftl::note_part(Place old_place, Part part, std::uint64_t ready_ns) {
  counters_.filled_sectors += sectors_per_unit_ - part.sectors();
  const bool is_on_medium = old_place != kNowhere && !is_buffered(old_place, ready_ns);
  in_part_.push_back({by_row_.remainder(hosts_.next), is_on_medium ? old_place : kNowhere, sectors_of(part)});
}

// Of hosts' open row: it is full when all of its units are whole.
void Ftl::read_the_rest() {
  std::uint64_t there_ns = hosts_.ready_ns;
  for (const InPart& one : in_part_) {
    if (one.rest == kNowhere || count_of(one.written) == sectors_per_unit_) continue;
    ++counters_.filling_reads;
    there_ns = std::max(there_ns, flash_.read_to_move(one.rest, 1, hosts_.ready_ns));
  }
  hosts_.ready_ns = there_ns;
  in_part_.clear();
}

void Ftl::deallocate(Unit unit) {
  forget(unit);
  places_[unit] = kNowhere;
}

void Ftl::forget(Unit unit) {
  const Place place = places_[unit];
  if (place != kNowhere) superblocks_.drop_valid(by_superblock_.quotient(place));
}

// Whether a place is in the buffer, filled but not on the medium.
bool Ftl::is_buffered(Place place, std::uint64_t now_ns) {
  const Row row = flash_.row_of(place);
  return row == hosts_.row || row == moved_.row || flash_.is_leaving(row, now_ns);
}

void Ftl::begin_row(Stream& stream, std::uint64_t ready_ns) {
  if (stream.superblock == Superblocks::kNone) {
    stream.superblock = superblocks_.open();
    FLASHMOB_CHECK(stream.superblock != Superblocks::kNone);
    stream.next = 0;
  }
  stream.begun_ns = std::max(ready_ns, stream.slots.take(at_ns_, flash_));
  stream.ready_ns = 0;
  stream.row = flash_.row_of(first_place_of(stream.superblock) + stream.next);
}

std::uint64_t Ftl::append(Stream& stream, Unit unit, std::uint64_t ready_ns) {
  if (stream.row == Die::kNoRow) begin_row(stream, ready_ns);
  // Nobody overtakes who waits for the row.
  ready_ns = std::max(ready_ns, stream.begun_ns);
  const Place place = first_place_of(stream.superblock) + stream.next++;
  places_[unit] = place;
  units_[place] = unit;
  superblocks_.add_valid(stream.superblock);
  stream.ready_ns = std::max(stream.ready_ns, ready_ns);
  if (by_row_.remainder(stream.next) != 0) return ready_ns;
  // What is to come of its last unit may be under way: it has until the next unit.
  const bool may_grow = &stream == &hosts_ && !in_part_.empty() && in_part_.back().index == units_per_row_ - 1;
  stream.is_full = true;
  if (!may_grow) finish_row(stream);
  return ready_ns;
}

void Ftl::finish_row(Stream& stream) {
  if (!in_part_.empty() && &stream == &hosts_) read_the_rest();
  stream.slots.put(flash_.program(stream.row, stream.ready_ns, stream.begun_ns), flash_);
  stream.row = Die::kNoRow;
  stream.is_full = false;
  if (stream.next < units_per_superblock_) return;
  superblocks_.close(stream.superblock);
  stream.superblock = Superblocks::kNone;
}

// Programs the open row as it is.
void Ftl::pad(Stream& stream, std::uint64_t ready_ns) {
  if (stream.row == Die::kNoRow) return;
  const std::uint32_t left = stream.is_full ? 0 : units_per_row_ - by_row_.remainder(stream.next);
  stream.ready_ns = std::max(stream.ready_ns, ready_ns);
  counters_.padded_units += left;
  owed_ += left;
  stream.next += left;
  finish_row(stream);
}

std::uint64_t Ftl::program_units(Unit first, std::uint32_t units, std::uint64_t ready_ns) {
  at_ns_ = ready_ns;
  std::uint64_t end_ns = ready_ns;
  for (Unit unit = first; unit < first + units; ++unit) {
    if (places_[unit] == kNowhere) continue;
    const Row row = flash_.row_of(places_[unit]);
    if (row == hosts_.row) pad(hosts_, ready_ns);
    if (row == moved_.row) pad(moved_, ready_ns);
    end_ns = std::max(end_ns, flash_.expected_end_of_row_ns(row));
  }
  return end_ns;
}

std::uint64_t Ftl::program_all(std::uint64_t ready_ns) {
  at_ns_ = ready_ns;
  pad(hosts_, ready_ns);
  pad(moved_, ready_ns);
  return std::max(ready_ns, flash_.all_programmed_ns());
}

void Ftl::forget_load() {
  flash_.forget_load();
  for (Stream* stream : {&hosts_, &moved_}) {
    stream->slots.clear();
    stream->ready_ns = stream->begun_ns = 0;
  }
}

// The share of garbage collection that is owed for what was written or padded.
std::uint64_t Ftl::collect(std::uint64_t now_ns) {
  while (owed_ != 0) {
    if (collection_.superblock == Superblocks::kNone) {
      const bool is_needed = superblocks_.free_count() <= free_superblocks_;
      const std::uint32_t victim = is_needed ? superblocks_.choose_victim() : Superblocks::kNone;
      if (victim == Superblocks::kNone) {
        owed_ = 0;
        break;
      }
      const std::uint32_t valid = superblocks_.valid(victim);
      collection_ = {victim, 0, 0, valid, units_per_superblock_ - valid};
    }
    // A victim that gains nothing is moved at once, one that is empty is free at once.
    if (collection_.gain == 0 || collection_.valid == 0) {
      while (collection_.superblock != Superblocks::kNone) now_ns = move_some(now_ns);
      continue;
    }
    collection_.credit += std::int64_t{collection_.valid} * owed_;
    owed_ = 0;
    while (collection_.superblock != Superblocks::kNone && collection_.credit >= collection_.gain)
      now_ns = move_some(now_ns);
  }
  return now_ns;
}

// Moves the next valid units that one multi-plane read senses; with the last of them the collection ends.
std::uint64_t Ftl::move_some(std::uint64_t now_ns) {
  const std::uint32_t superblock = collection_.superblock;
  while (superblocks_.valid(superblock) > 0) {
    const Place begin = first_place_of(superblock) + collection_.next;
    const Place end = begin + units_per_sense_;
    collection_.next += units_per_sense_;
    std::uint32_t valid = 0;
    Place first = end;
    for (Place place = end; place-- > begin;) {
      if (places_[units_[place]] != place) continue;
      ++valid;
      first = place;
    }
    if (valid == 0) continue;
    collection_.credit -= std::int64_t{valid} * collection_.gain;
    ++counters_.moving_reads;
    // Its reads begin when there is a buffer for what they bring; hosts wait with it for that, and not for the reads.
    if (moved_.row == Die::kNoRow) begin_row(moved_, now_ns);
    now_ns = std::max(now_ns, moved_.begun_ns);
    now_ns = move(first, end, flash_.read_to_move(first, valid, now_ns), now_ns);
    break;
  }
  if (superblocks_.valid(superblock) == 0) end_collection(now_ns);
  return now_ns;
}

// Moves the valid units of [first, end), whose reads began at now_ns and have arrived at there_ns. Returns when there
// was a buffer for all of them.
std::uint64_t Ftl::move(Place first, Place end, std::uint64_t there_ns, std::uint64_t now_ns) {
  for (Place place = first; place < end; ++place) {
    const Unit unit = units_[place];
    if (places_[unit] != place) continue;
    if (moved_.row == Die::kNoRow) begin_row(moved_, now_ns);
    now_ns = std::max(now_ns, moved_.begun_ns);
    forget(unit);
    append(moved_, unit, there_ns);
    ++counters_.moved_units;
  }
  return now_ns;
}

// What was owed for more than it gained is owed to the next.
void Ftl::end_collection(std::uint64_t now_ns) {
  if (collection_.valid != 0 && collection_.credit > 0)
    owed_ += static_cast<std::uint32_t>(collection_.credit / collection_.valid);
  flash_.erase(now_ns);
  superblocks_.free(collection_.superblock);
  ++counters_.erased_superblocks;
  collection_ = {};
}

}  // namespace flashmob::timing::nand
