// What a NAND drive is made of: its geometry, the times of its cells, its ways for data, and its spare space.
//
// Words: a die programs and erases all its planes together. A *row* is what one die programs at once: one word line
// over all planes, which is `bits_per_cell` pages of `page_bytes` on each plane (the one-shot programming unit). A
// *superblock* is the same block on every plane of every die, erased together. A *unit* is what the map maps, 4 KiB or
// more.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace flashmob::timing::nand {

inline constexpr std::uint32_t kMaxBitsPerCell = 4;
inline constexpr std::uint32_t kMaxStreams = 255;

struct Geometry {
  std::uint32_t channels = 8;
  std::uint32_t dies_per_channel = 4;
  std::uint32_t planes = 4;
  std::uint32_t superblocks = 1024;  // blocks of a plane
  std::uint32_t word_lines = 384;    // of a block, strings counted: rows that a block takes
  std::uint32_t bits_per_cell = 3;
  std::uint32_t page_bytes = 16384;
  std::uint32_t unit_bytes = 4096;

  constexpr std::uint32_t dies() const { return channels * dies_per_channel; }
  constexpr std::uint32_t units_per_page() const { return page_bytes / unit_bytes; }
  constexpr std::uint32_t units_per_row() const { return units_per_page() * planes * bits_per_cell; }
  constexpr std::uint32_t rows_per_superblock() const { return word_lines * dies(); }
  constexpr std::uint64_t units_per_superblock() const {
    return std::uint64_t{rows_per_superblock()} * units_per_row();
  }
  constexpr std::uint64_t physical_units() const { return units_per_superblock() * superblocks; }
};

struct CellTimes {
  std::array<std::uint32_t, kMaxBitsPerCell> read_ns{45'000, 60'000, 75'000, 0};  // by page of the cell, lowest first
  std::uint32_t program_ns = 1'200'000;  // a whole row
  std::uint32_t erase_ns = 3'500'000;
  std::uint32_t suspend_ns = 0;  // how long a read waits for a running program or erase; 0: it waits for its end
  std::uint32_t resume_ns = 0;  // what the suspended operation takes beyond the reads
  // Of cells that hold one bit each, where superblocks are used so.
  std::uint32_t slc_read_ns = 0;
  std::uint32_t slc_program_ns = 0;
};

// A cache of cells that hold one bit each, in superblocks that hold a share of what they would else. Hosts write to it
// while it has room.
struct SlcCache {
  std::uint32_t fixed_superblocks = 0;  // that are always there for it
  std::uint32_t dynamic_superblocks = 0;  // beyond those, as far as there are free ones
  // A full cache is passed by; else hosts wait until it is folded to the cells' full density.
  bool bypass = true;

  std::uint32_t most() const { return fixed_superblocks + dynamic_superblocks; }
};

// A read meets, in this order: firmware, die, channel, error correction, link. A write: link, firmware, buffer; later
// channel and die.
struct Ways {
  std::uint64_t channel_bytes_per_s = 1'200'000'000;
  // The share of a channel that data on its way to a program may take, so that reads pass between its bursts.
  double program_share = 0.5;
  std::uint32_t cores = 4;
  std::uint32_t firmware_ns = 4'000;  // a command's, on one core
  std::uint32_t correction_ns = 0;  // a read's, after the channel
  std::uint64_t link_bytes_per_s = 7'000'000'000;  // payload, each direction
};

// Rows that garbage collection may have on their way for each die, in buffers of its own.
inline constexpr std::uint32_t kRowsToMove = 4;

// Hosts' writes that are kept apart from each other, each stream in superblocks of its own.
struct Streams {
  std::uint32_t count = 1;
  bool apart_when_moved = false;  // by garbage collection, too; else that mixes them

  constexpr std::uint32_t moved() const { return apart_when_moved ? count : 1; }
  // Superblocks that are being written, the SLC cache's aside.
  constexpr std::uint32_t open_superblocks() const { return count + moved(); }
};

enum class Victim : std::uint8_t { greedy, fifo, d_choices, random };

struct Params {
  Geometry geometry;
  CellTimes cells;
  Ways ways;
  std::uint64_t capacity_units = 0;  // what the host sees
  std::uint32_t buffer_rows = 64;  // the write buffer, in rows; one is being filled
  std::uint32_t buffer_write_ns = 5'000;  // a Write's time in the buffer, beyond firmware and link
  bool protected_buffer = true;  // capacitors keep it over a power loss
  Victim victim = Victim::greedy;
  std::uint32_t choices = 8;  // of d_choices
  // Garbage collection keeps this many superblocks free beside those being written, and at least as many
  // as those: all of them may become full before the first that is collected is free.
  std::uint32_t free_superblocks = 2;
  SlcCache slc;
  // Without a request for so long, the drive folds its cache and collects garbage until idle_free_superblocks are free;
  // 0: it never does.
  std::uint64_t idle_ns = 0;
  std::uint32_t idle_free_superblocks = 0;
  // Data that stay are moved from the superblock with the fewest erases where another has more by more than this; 0:
  // never.
  std::uint32_t wear_spread = 0;
  Streams streams;
  std::uint64_t seed = 1;
};

// One sentence that names the key and the fix, or nothing: what would make a drive that cannot work.
std::string what_is_wrong(const Params& params);

}  // namespace flashmob::timing::nand
