// The dies and their channels: what senses, transfers, programs and erases, and when it is done.
//
// Places are numbered in the order in which they are written: unit, then row; the rows of a superblock go round its
// dies, channel by channel, so that what is written one after another lies on different channels.
#pragma once

#include <cstdint>
#include <vector>

#include "timing/nand/calendar.h"
#include "timing/nand/die.h"
#include "timing/nand/divider.h"
#include "timing/nand/params.h"

namespace flashmob::timing::nand {

using Place = std::uint32_t;  // of a unit on the medium
using Row = std::uint32_t;    // what one die programs at once

// A program that was given to a die.
struct Given {
  std::uint32_t die = 0;
  Die::Handle handle;
};

class Flash {
 public:
  explicit Flash(const Params& params);

  Row row_of(Place place) const { return by_row_.quotient(place); }
  std::uint32_t die_of(Row row) const { return by_die_.remainder(row); }

  // Reads `bytes` of a unit: senses its page, not before ready_ns, and moves them over the channel. Returns when they
  // have arrived at the controller.
  std::uint64_t read(Place place, std::uint32_t bytes, std::uint64_t ready_ns, bool is_slc = false);
  // The same for garbage collection, of `units` units in one page of all planes: it waits for its turn among programs
  // and erases, and reads of hosts pass it. Returns when they are expected.
  std::uint64_t read_to_move(Place first, std::uint32_t units, std::uint64_t ready_ns, bool is_slc = false);
  // Moves a row's data to its die, not before ready_ns, and programs it. It was begun to be filled at buffered_ns.
  Given program(Row row, std::uint64_t ready_ns, std::uint64_t buffered_ns, bool is_slc = false);
  // Erases a superblock, a block row on every die, not before ready_ns.
  void erase(std::uint64_t ready_ns);

  // When the last of all programs that were given ends; 0 if all have.
  std::uint64_t all_programmed_ns() const;

  // Nothing is under way, and time may begin anew.
  void forget_load();

  bool has_ended(const Given& given, std::uint64_t now_ns) { return dies_[given.die].has_ended(given.handle, now_ns); }
  std::uint64_t expected_end_ns(const Given& given) const { return dies_[given.die].expected_end_ns(given.handle); }
  // Of a row that was given to its die: whether it is not on the medium by now_ns.
  bool is_leaving(Row row, std::uint64_t now_ns) { return dies_[die_of(row)].holds(row, now_ns); }
  // Whether its program has not begun by now_ns; buffered_ns is then since when it has a buffer.
  bool waits(Row row, std::uint64_t now_ns, std::uint64_t& buffered_ns) {
    return dies_[die_of(row)].waits(row, now_ns, buffered_ns);
  }
  // When it is; 0 if it is known to be.
  std::uint64_t expected_end_of_row_ns(Row row) const { return dies_[die_of(row)].expected_end_of_row_ns(row); }

 private:
  std::uint32_t channel_of(std::uint32_t die) const { return by_channel_.remainder(die); }
  std::uint32_t read_ns(Place place, bool is_slc) const {
    return is_slc ? cells_.slc_read_ns : cells_.read_ns[by_page_of_cell_.quotient(by_row_.remainder(place))];
  }
  std::uint64_t channel_ticks(std::uint32_t bytes) const { return (bytes * ticks_per_kib_ + 512) / 1024; }

  const CellTimes cells_;
  const std::uint32_t unit_bytes_;
  const std::uint32_t row_bytes_;
  const std::uint32_t slc_row_bytes_;
  const Divider by_row_;
  const Divider by_die_;
  const Divider by_channel_;
  const Divider by_page_of_cell_;  // the units of a row that lie in the same page of their cells
  const std::uint64_t ticks_per_kib_;
  std::vector<Die> dies_;
  std::vector<Calendar> channels_;
};

}  // namespace flashmob::timing::nand
