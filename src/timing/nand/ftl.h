// The flash translation layer: where each unit lies, the write buffer in front of the dies, and garbage collection.
//
// A written unit gets its place at once and stays in the buffer until its row is programmed; a Read finds it there, and
// a Write overwrites it there until its program begins. Of a unit that is written in part, the rest is read from the
// medium when its row is full, unless it was written by then. Rows leave the buffer when they are programmed; while all
// are on their way, a Write waits. Collection is paced: once free superblocks run short, each written unit moves as
// many units as keep the supply even, so that its cost is spread. Moved units have buffers of their own, and a Write
// waits while they are full: so hosts' writes and collection share the dies as collection's pace says, and neither
// waits for a row of the other.
//
// Deterministic and not thread-safe: one owner calls it with times that do not run backwards by more than what the ways
// before it take. Nothing is allocated after construction. The map costs 4 bytes a logical and 4 a physical unit.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "timing/nand/divider.h"
#include "timing/nand/flash.h"
#include "timing/nand/params.h"
#include "timing/nand/permutation.h"
#include "timing/nand/row_slots.h"
#include "timing/nand/superblocks.h"

namespace flashmob::timing::nand {

using Unit = std::uint32_t;  // as hosts number them

inline constexpr std::uint32_t kSectorBytes = 512;

// The sectors of a unit that a Write writes.
struct Part {
  std::uint32_t begin;
  std::uint32_t end;
  std::uint32_t sectors() const { return end - begin; }
};

struct Counters {
  std::uint64_t written_sectors = 0;  // by hosts
  std::uint64_t joined_sectors = 0;  // of those, overwritten in the buffer
  std::uint64_t filled_sectors = 0;  // of units that hosts wrote in part, what they did not write
  std::uint64_t written_units = 0;  // that were given a place for hosts
  std::uint64_t filling_reads = 0;  // of the rest of units on the medium that were written in part
  std::uint64_t moved_units = 0;  // by garbage collection
  std::uint64_t cached_units = 0;  // of those that hosts wrote, to the SLC cache
  std::uint64_t idle_moved_units = 0;  // of those moved, in idle time
  std::uint64_t levelled_superblocks = 0;  // moved because they were erased too seldom
  std::uint64_t moving_reads = 0;  // sensings for that
  std::uint64_t padded_units = 0;  // programmed empty, for a Flush without protection against power loss
  std::uint64_t flash_reads = 0;
  std::uint64_t buffer_reads = 0;
  std::uint64_t unwritten_reads = 0;
  std::uint64_t erased_superblocks = 0;

  double write_amplification() const {
    return written_units == 0
               ? 1.0
               : static_cast<double>(written_units + moved_units + padded_units) / static_cast<double>(written_units);
  }
};

class Ftl {
 public:
  static constexpr Place kNowhere = ~0u;

  // Throws ConfigError with what_is_wrong(params).
  explicit Ftl(const Params& params);

  // Returns when `bytes` of a unit, or of those that lie together with it, have arrived at the controller.
  std::uint64_t read(Unit unit, std::uint32_t bytes, std::uint64_t ready_ns);
  // How many of `units` units, from `first` on, one sensing brings: they lie one after another in one page of all
  // planes.
  std::uint32_t together(Unit first, std::uint32_t units) const {
    const Place place = places_[first];
    if (units == 1 || place == kNowhere) return 1;
    const std::uint32_t most = std::min(units, units_per_sense_ - by_sense_.remainder(place));
    std::uint32_t count = 1;
    while (count < most && places_[first + count] == place + count) ++count;
    return count;
  }
  // Returns when a part of a unit, of one of hosts' streams, lies in the write buffer.
  std::uint64_t write(Unit unit, Part part, std::uint64_t ready_ns, std::uint32_t stream = 0);
  std::uint64_t write(Unit unit, std::uint64_t ready_ns) { return write(unit, {0, sectors_per_unit_}, ready_ns); }
  void deallocate(Unit first, std::uint32_t units = 1);
  // A request comes, at times that do not run backwards: what was idle time before it has been used.
  void come(std::uint64_t now_ns) {
    if (idle_ns_ != 0) work_in_idle_time(now_ns);
  }
  // One has been done at that time.
  void went(std::uint64_t done_ns) { last_ns_ = std::max(last_ns_, done_ns); }
  // What is written until assume(false) was written before time began: it takes none, and lies in cells of full
  // density.
  void assume(bool is_before_time) { is_silent_ = is_assuming_ = is_before_time; }
  // An empty drive is as if these units had been written one after another, and then overwritten at random so many
  // times.
  void assume_steady(Unit first, std::uint32_t units, double drive_writes,
                     const std::atomic<bool>* cancelled = nullptr);
  // The drive is left alone for long: rows on their way are programmed, and time may begin anew.
  void forget_load();
  // Nothing of what was done until now counts.
  void forget_counters() { counters_ = {}; }
  // Programs these units if they are in the buffer, the open row padded. Returns when they are on the medium.
  std::uint64_t program_units(Unit first, std::uint32_t units, std::uint64_t ready_ns);
  // Programs what the buffer holds, open rows padded. Returns when all of it is on the medium.
  std::uint64_t program_all(std::uint64_t ready_ns);
  // What is written next of one of hosts' streams goes to another superblock, unless nothing was written to this one.
  // Its open row is padded, and the rest of it stays empty until it is erased.
  void next_superblock(std::uint32_t stream, std::uint64_t ready_ns);
  // How many units its superblock still takes; all of one where it has none yet.
  std::uint32_t units_left(std::uint32_t stream) const;

  const Counters& counters() const { return counters_; }
  const Superblocks& superblocks() const { return superblocks_; }
  // For tests and insight: the place of a unit, and the unit that a place was last written with.
  Place place_of(Unit unit) const { return places_[unit]; }
  Unit unit_at(Place place) const { return units_[place]; }

 private:
  // What hosts wrote in part of the units of an open row: `rest` is where the rest of one lies on the medium.
  struct InPart {
    std::uint32_t index;  // in the row
    Place rest;
    unsigned __int128 written;  // a bit for each sector
  };
  struct Stream {
    bool is_moved = false;  // by collection; else hosts'
    std::uint32_t number = 0;  // among those of its kind
    std::uint32_t superblock = Superblocks::kNone;
    std::uint32_t next = 0;  // the first unit of the next row, or of the open one
    bool is_slc = false;
    std::uint32_t row_units = 0;  // that a row takes
    std::uint32_t filled = 0;  // of the open row
    Row row = Die::kNoRow;  // that is being filled
    bool is_full = false;  // and waits for the rest of its last unit
    std::uint64_t ready_ns = 0;  // when the last of its units was there
    std::uint64_t begun_ns = 0;  // when there was a buffer for it
    std::vector<InPart> in_part;
  };
  struct Collection {
    std::uint32_t superblock = Superblocks::kNone;
    std::uint32_t next = 0;  // unit of the superblock to look at
    std::int64_t credit = 0;  // moves that are due, times `gain`
    std::uint32_t valid = 0;  // when it was chosen
    std::uint32_t gain = 0;  // units that are not, or as many as its moves are spread over
  };

  bool is_buffered(Place place, std::uint64_t now_ns);
  bool overwrites(Place place, Part part, std::uint32_t number, std::uint64_t ready_ns, std::uint64_t& done_ns);
  Stream* open_stream_of(Row row) {
    for (Stream& stream : streams_)
      if (stream.row == row) return &stream;
    return nullptr;
  }
  void join(Stream& stream, std::uint32_t index, Part part);
  void note_part(Stream& stream, Place old_place, Part part, std::uint64_t ready_ns);
  void read_the_rest(Stream& stream);
  RowSlots& buffers_of(const Stream& stream) { return stream.is_moved ? moved_buffers_ : buffer_; }
  std::uint32_t open_rows_of(bool is_moved) const;
  void pad(Stream& stream, std::uint64_t ready_ns);
  void open_superblock(Stream& stream);
  void begin_row(Stream& stream, std::uint64_t ready_ns);
  std::uint64_t append(Stream& stream, Unit unit, std::uint64_t ready_ns);
  void finish_row(Stream& stream);
  void forget(Unit unit);
  std::uint32_t free_for_data() const;
  bool takes_slc() const;
  bool must_fold() const;
  Stream& stream_of_hosts(std::uint32_t number, std::uint64_t& now_ns);
  bool begin_collection();
  bool begin_idle_collection();
  std::uint64_t idle_cost_ns(std::uint64_t moved_units) const;
  void work_in_idle_time(std::uint64_t now_ns);
  void map_at_random(std::uint32_t superblock, std::uint32_t written, std::uint64_t& next, const Permutation& units,
                     Unit first, Rng& rng);
  std::uint64_t collect(std::uint64_t now_ns);
  std::uint64_t move_some(std::uint64_t now_ns);
  std::uint64_t move(Stream& to, Place first, Place end, std::uint64_t there_ns, std::uint64_t now_ns);
  void end_collection(std::uint64_t now_ns);
  Place first_place_of(std::uint32_t superblock) const { return superblock * units_per_superblock_; }
  // The streams, as they lie: hosts', to the SLC cache, moved.
  Stream& hosts(std::uint32_t number = 0) { return streams_[number]; }
  Stream& cached() { return streams_[params_.streams.count]; }
  Stream& moved(std::uint32_t number = 0) { return streams_[params_.streams.count + 1 + number]; }
  // Where what is moved from a superblock goes.
  Stream& moved_from(std::uint32_t superblock) {
    return moved(params_.streams.apart_when_moved ? streams_[superblocks_.owner(superblock)].number : 0);
  }

  const Params params_;
  const std::uint32_t sectors_per_unit_;
  const std::uint32_t units_per_row_;
  const std::uint32_t units_per_sense_;  // those of a row that one multi-plane read senses
  const std::uint32_t units_per_superblock_;
  const std::uint32_t bits_per_cell_;
  const std::uint32_t free_superblocks_;
  const SlcCache slc_;
  const std::uint64_t idle_ns_;
  const std::uint32_t idle_free_superblocks_;
  const std::uint64_t dies_;
  const std::uint64_t idle_sense_ns_;  // of all dies, for a sensing
  const std::uint64_t idle_program_ns_;  // of all dies, for a row
  const std::uint64_t idle_erase_ns_;
  const Divider by_row_;
  const Divider by_sense_;
  const Divider by_superblock_;
  Flash flash_;
  Superblocks superblocks_;
  std::uint64_t at_ns_ = 0;  // when the request came that is being served
  std::uint64_t last_ns_ = 0;  // when the last request came
  std::int64_t idle_left_ns_ = 0;  // idle time that has not been used yet
  bool is_silent_ = false;  // what is done lies in the past
  bool is_assuming_ = false;
  RowSlots buffer_;
  RowSlots moved_buffers_;
  std::vector<Stream> streams_;
  Collection collection_;
  std::uint32_t owed_ = 0;  // places taken that collection has not been paid for
  std::uint32_t debt_ = 0;  // and those that hosts pay for one by one
  Counters counters_;
  std::vector<Place> places_;
  std::vector<Unit> units_;
};

}  // namespace flashmob::timing::nand
