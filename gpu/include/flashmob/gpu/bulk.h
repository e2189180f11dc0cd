// Many elements at a time between arrays on SSDs and memory, by a warp or by a block.
//
// The forms with a mask are for the lanes of a warp together: all of `mask` call with the same arguments. The forms
// with _block are for all threads of a block together, and end with its barrier. A line is asked for once and copied by
// all lanes; the next kAhead lines are under way meanwhile. No more than one line is pinned at a time. `Array` is a
// FlatRef (array.h): array[ssd] or a striped array. False for the lane if an access failed; the array's Fault has it.
// Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/array.h"
#include "flashmob/gpu/coalesce.h"

namespace flashmob::gpu {
namespace bulk {

inline constexpr std::uint32_t kAhead = 4;

// The lanes that work together: lane number `rank` of `count`.
struct Team {
  std::uint32_t mask;
  std::uint32_t rank;
  std::uint32_t count;
};
template <class Lane>
FLASHMOB_HD Team team_of(Lane& t, std::uint32_t mask) {
  return {mask, simt::count_lanes(simt::lanes_below(mask, t.lane())), simt::count_lanes(mask)};
}

// The part of line `line` that the range first...first + count - 1 covers.
struct Part {
  std::uint64_t line;
  std::uint32_t slot;
  std::uint32_t length;
  std::uint64_t done;  // elements of the range before this line
};
FLASHMOB_HD inline Part part_of(const LineSplit& split, std::uint64_t line, std::uint64_t first, std::uint64_t count) {
  const std::uint64_t line_first = line * split.per_line();
  const std::uint64_t begin = line_first > first ? line_first : first;
  const std::uint64_t line_end = line_first + split.per_line();
  const std::uint64_t end = line_end < first + count ? line_end : first + count;
  return {line, static_cast<std::uint32_t>(begin - line_first), static_cast<std::uint32_t>(end - begin), begin - first};
}

// Lends one line to all lanes of the team: visit(data) copies this lane's share of it.
template <class Lane, class Array, class Visit>
FLASHMOB_HD bool with_line(Lane& t, const Team& team, const Array& array, std::uint64_t line, Access access,
                           Visit visit) {
  const std::uint32_t leader = simt::first_lane(team.mask);
  Pin pin;
  std::uint64_t address = 0;
  if (t.lane() == leader) {
    pin = array.cache().acquire(t, array.line_key(line), access);
    if (pin.ok())
      address = reinterpret_cast<std::uint64_t>(pin.data);
    else
      array.note(t, pin.status);
  }
  address = t.shuffle(team.mask, address, leader);
  if (address == 0) return false;
  visit(reinterpret_cast<typename Array::Value*>(address));
  t.sync(team.mask);
  if (t.lane() == leader) array.cache().release(t, pin);
  return true;
}

// Copies the lines begin, begin + step, ... of a range.
template <bool kWrite, class Lane, class Array, class Pointer>
FLASHMOB_HD bool copy_lines(Lane& t, const Team& team, const Array& array, std::uint64_t first, std::uint64_t count,
                            Pointer memory, std::uint64_t begin, std::uint64_t step) {
  if (count == 0) return true;
  const LineSplit& split = array.split();
  const std::uint64_t last_line = split.line(first + count - 1);
  bool all = true;
  for (std::uint64_t line = split.line(first) + begin; line <= last_line; line += step) {
    const Part part = part_of(split, line, first, count);
    if constexpr (kWrite) {
      // A line that is written as a whole need not be fetched first.
      const Access access = part.length == split.per_line() ? Access::overwrite : Access::write;
      all &= with_line(t, team, array, line, access, [&](typename Array::Value* data) {
        for (std::uint32_t i = team.rank; i < part.length; i += team.count) data[part.slot + i] = memory[part.done + i];
      });
    } else {
      if (team.rank >= 1 && team.rank <= kAhead) {
        const std::uint64_t ahead = line + step * team.rank;
        if (ahead <= last_line) array.cache().prefetch(t, array.line_key(ahead));
      }
      all &= with_line(t, team, array, line, Access::read, [&](const typename Array::Value* data) {
        for (std::uint32_t i = team.rank; i < part.length; i += team.count) memory[part.done + i] = data[part.slot + i];
      });
    }
  }
  return all;
}

}  // namespace bulk

// memory[0...count) = array[first...first + count)
template <class Lane, class Array>
FLASHMOB_HD bool read_range(Lane& t, std::uint32_t mask, const Array& array, std::uint64_t first, std::uint64_t count,
                            typename Array::Value* memory) {
  return bulk::copy_lines<false>(t, bulk::team_of(t, mask), array, first, count, memory, 0, 1);
}
// array[first...first + count) = memory[0...count)
template <class Lane, class Array>
FLASHMOB_HD bool write_range(Lane& t, std::uint32_t mask, const Array& array, std::uint64_t first, std::uint64_t count,
                             const typename Array::Value* memory) {
  return bulk::copy_lines<true>(t, bulk::team_of(t, mask), array, first, count, memory, 0, 1);
}

namespace bulk {

template <bool kWrite, class Lane, class Array, class Pointer>
FLASHMOB_HD bool copy_by_block(Lane& t, const Array& array, std::uint64_t first, std::uint64_t count, Pointer memory) {
  const std::uint32_t warps = (t.block_threads() + simt::kWarpLanes - 1) / simt::kWarpLanes;
  const bool all = copy_lines<kWrite>(t, team_of(t, t.lanes()), array, first, count, memory,
                                      t.thread_in_block() / simt::kWarpLanes, warps);
  t.sync_block();
  return all;
}

}  // namespace bulk

template <class Lane, class Array>
FLASHMOB_HD bool read_range_block(Lane& t, const Array& array, std::uint64_t first, std::uint64_t count,
                                  typename Array::Value* memory) {
  return bulk::copy_by_block<false>(t, array, first, count, memory);
}
template <class Lane, class Array>
FLASHMOB_HD bool write_range_block(Lane& t, const Array& array, std::uint64_t first, std::uint64_t count,
                                   const typename Array::Value* memory) {
  return bulk::copy_by_block<true>(t, array, first, count, memory);
}

// Asks for all lines of a range and waits for none.
template <class Lane, class Array>
FLASHMOB_HD void prefetch_range(Lane& t, std::uint32_t mask, const Array& array, std::uint64_t first,
                                std::uint64_t count) {
  if (count == 0) return;
  const bulk::Team team = bulk::team_of(t, mask);
  const std::uint64_t last_line = array.split().line(first + count - 1);
  for (std::uint64_t line = array.split().line(first) + team.rank; line <= last_line; line += team.count)
    array.cache().prefetch(t, array.line_key(line));
}

// memory[k] = array[indices[k]] for k < count
template <class Lane, class Array>
FLASHMOB_HD void gather(Lane& t, std::uint32_t mask, const Array& array, const std::uint64_t* indices,
                        std::uint64_t count, typename Array::Value* memory) {
  const bulk::Team team = bulk::team_of(t, mask);
  for (std::uint64_t first = 0; first < count; first += team.count) {
    const std::uint32_t active = t.ballot(mask, first + team.rank < count);
    if (first + team.rank < count) memory[first + team.rank] = array.read(t, active, indices[first + team.rank]);
  }
}
// array[indices[k]] = memory[k] for k < count; of equal indices one wins.
template <class Lane, class Array>
FLASHMOB_HD void scatter(Lane& t, std::uint32_t mask, const Array& array, const std::uint64_t* indices,
                         std::uint64_t count, const typename Array::Value* memory) {
  const bulk::Team team = bulk::team_of(t, mask);
  for (std::uint64_t k = team.rank; k < count; k += team.count) array.write(t, indices[k], memory[k]);
}

}  // namespace flashmob::gpu
