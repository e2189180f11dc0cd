// A drive once more, slow and plain: lists that are searched, valid units that are counted, futures that are played on
// a copy. Request by request the model must answer as it does, whatever comes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "timing/nand/ftl.h"

namespace flashmob::timing::nand {
namespace {

constexpr std::uint64_t kNever = UINT64_MAX;

struct PlainOperation {
  std::uint64_t ready = 0, duration = 0, number = 0, filled_since = 0;
  bool yields = true;
};

struct PlainDie {
  std::uint64_t suspend = 0, resume = 0;
  std::vector<PlainOperation> waiting;
  bool is_running = false;
  PlainOperation running;
  std::uint64_t start = 0, end = 0, reads_end = 0, operations_end = 0;

  // Ends what ends by t, and begins what begins before t.
  void advance(std::uint64_t t) {
    while (true) {
      if (is_running) {
        if (end > t) return;
        is_running = false;
        operations_end = end;
      }
      auto next = waiting.end();
      for (auto it = waiting.begin(); it != waiting.end(); ++it)
        if (next == waiting.end() || it->ready < next->ready || (it->ready == next->ready && it->number < next->number))
          next = it;
      if (next == waiting.end()) return;
      const std::uint64_t begin = std::max({next->ready, reads_end, operations_end});
      if (begin >= t) return;
      is_running = true;
      running = *next;
      start = begin;
      end = begin + next->duration;
      waiting.erase(next);
    }
  }
  std::uint64_t read(std::uint64_t t, std::uint64_t duration) {
    advance(t);
    std::uint64_t begin = std::max(t, reads_end);
    if (is_running && end > begin) {
      if (reads_end > t) {
        end += duration;  // within a suspension
      } else if (suspend == 0 || !running.yields || end - begin <= suspend) {
        begin = end;
      } else {
        begin += suspend;
        end += suspend + duration + resume;
      }
    }
    reads_end = begin + duration;
    return reads_end;
  }
  // If nothing more comes.
  std::uint64_t end_of(std::uint64_t number) const {
    PlainDie copy = *this;
    while (true) {
      if (copy.is_running && copy.running.number == number) return copy.end;
      if (!copy.is_running && copy.waiting.empty()) return 0;
      if (copy.is_running)
        copy.advance(copy.end);
      else
        copy.begin_next();
    }
  }
  void begin_next() {
    std::uint64_t t = kNever;
    for (const PlainOperation& one : waiting) t = std::min(t, std::max({one.ready, reads_end, operations_end}));
    advance(t + 1);
  }
};

class PlainChannel {
 public:
  std::uint64_t take(std::uint64_t ready, std::uint64_t ticks, std::uint32_t limit) {
    const std::uint64_t least = ready + ticks / Calendar::kTicksPerNs;
    for (std::uint64_t bucket = ready >> Calendar::kBucketShift;; ++bucket) {
      std::uint32_t& used = used_[bucket];
      if (used >= limit) continue;
      const auto part = static_cast<std::uint32_t>(std::min<std::uint64_t>(ticks, limit - used));
      used += part;
      ticks -= part;
      if (ticks == 0) return std::max((bucket << Calendar::kBucketShift) + used / Calendar::kTicksPerNs, least);
    }
  }

 private:
  std::map<std::uint64_t, std::uint32_t> used_;
};

class PlainDrive {
 public:
  explicit PlainDrive(const Params& params)
      : p(params),
        g(params.geometry),
        channels(g.channels),
        place_of(params.capacity_units, -1),
        unit_at(g.physical_units(), -1),
        blocks(g.superblocks) {
    for (std::uint32_t i = 0; i < g.dies(); ++i) {
      dies.emplace_back();
      dies.back().suspend = p.cells.suspend_ns;
      dies.back().resume = p.cells.resume_ns;
    }
    for (Block& block : blocks) block.freed = ++clock;
    hosts.limit = p.buffer_rows;
    moved.limit = kRowsToMove * g.dies();
  }

  std::uint64_t read(Unit unit, std::uint64_t now) {
    advance(now);
    if (place_of[unit] < 0) return now;
    const auto place = static_cast<std::uint64_t>(place_of[unit]);
    if (is_buffered(place / g.units_per_row())) return now;
    PlainDie& die = die_of(place);
    return channel_of(place).take(die.read(now, sensing(place)), ticks(g.unit_bytes), Calendar::kBucketTicks);
  }

  std::uint64_t write(Unit unit, std::uint64_t now) {
    advance(now);
    at = now;
    if (place_of[unit] >= 0) {
      const auto row = static_cast<std::uint64_t>(place_of[unit]) / g.units_per_row();
      for (Stream* stream : {&hosts, &moved}) {
        if (!stream->is_filling || stream->row != row) continue;
        stream->ready = std::max({stream->ready, now, stream->since});
        return std::max(now, stream->since);
      }
      PlainDie then = dies[row % g.dies()];
      then.advance(now + 1);
      for (const PlainOperation& one : then.waiting)
        if (one.number == last_program(row)) return std::max(now, one.filled_since);
    }
    ++owed;
    std::uint64_t t = collect(now);
    while (hosts.block < 0 && free_count() < 2 && victim >= 0) t = move_some(t);
    return append(hosts, unit, t, t);
  }

  void deallocate(Unit unit) {
    if (place_of[unit] >= 0) unit_at[static_cast<std::size_t>(place_of[unit])] = -1;
    place_of[unit] = -1;
  }

  std::uint64_t moved_units = 0;

 private:
  struct Block {
    char state = 'f';  // free, open, closed, collected
    std::uint64_t freed = 0, closed = 0, erases = 0;
  };
  struct Stream {
    int block = -1;
    std::uint64_t next = 0, row = 0, filled = 0, ready = 0, since = 0, limit = 0;
    bool is_filling = false;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> leaving;  // die and number of the program
  };

  void advance(std::uint64_t t) {
    for (PlainDie& die : dies) die.advance(t);
  }
  PlainDie& die_of(std::uint64_t place) { return dies[place / g.units_per_row() % g.dies()]; }
  PlainChannel& channel_of(std::uint64_t place) { return channels[place / g.units_per_row() % g.dies() % g.channels]; }
  std::uint64_t sensing(std::uint64_t place) const {
    return p.cells.read_ns[place % g.units_per_row() / (g.units_per_page() * g.planes)];
  }
  std::uint64_t ticks(std::uint64_t bytes) const {
    return (bytes * ticks_of(1024, p.ways.channel_bytes_per_s) + 512) / 1024;
  }
  // A superblock of which nothing is valid may be written anew before its last programs have begun.
  std::uint64_t last_program(std::uint64_t row) const {
    const auto last = last_programs.find(row);
    return last == last_programs.end() ? kNever : last->second;
  }
  bool is_buffered(std::uint64_t row) const {
    for (const Stream* stream : {&hosts, &moved})
      if (stream->is_filling && stream->row == row) return true;
    const PlainDie& die = dies[row % g.dies()];
    if (die.is_running && die.running.number == last_program(row)) return true;
    for (const PlainOperation& one : die.waiting)
      if (one.number == last_program(row)) return true;
    return false;
  }
  std::uint64_t free_count() const {
    std::uint64_t count = 0;
    for (const Block& block : blocks) count += block.state == 'f';
    return count;
  }
  std::uint64_t valid_of(std::size_t block) const {
    std::uint64_t count = 0;
    for (std::uint64_t i = 0; i < g.units_per_superblock(); ++i)
      count += unit_at[block * g.units_per_superblock() + i] >= 0;
    return count;
  }

  std::uint64_t take_buffer(Stream& stream, std::uint64_t t) {
    std::erase_if(stream.leaving, [&](const auto& one) {
      const std::uint64_t end = dies[one.first].end_of(one.second);
      return end <= at;
    });
    if (stream.leaving.size() < stream.limit) return std::max(t, at);
    auto first = stream.leaving.begin();
    for (auto it = first; it != stream.leaving.end(); ++it)
      if (dies[it->first].end_of(it->second) < dies[first->first].end_of(first->second)) first = it;
    const std::uint64_t end = dies[first->first].end_of(first->second);
    stream.leaving.erase(first);
    return std::max(t, end);
  }

  void begin_row(Stream& stream, std::uint64_t t) {
    if (stream.block < 0) {
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (blocks[i].state != 'f') continue;
        if (stream.block < 0) stream.block = static_cast<int>(i);
        const Block& best = blocks[static_cast<std::size_t>(stream.block)];
        if (blocks[i].erases < best.erases || (blocks[i].erases == best.erases && blocks[i].freed < best.freed))
          stream.block = static_cast<int>(i);
      }
      blocks[static_cast<std::size_t>(stream.block)].state = 'o';
      stream.next = 0;
    }
    stream.since = take_buffer(stream, t);
    stream.ready = 0;
    stream.filled = 0;
    stream.is_filling = true;
    stream.row = static_cast<std::uint64_t>(stream.block) * g.rows_per_superblock() + stream.next;
  }

  std::uint64_t append(Stream& stream, Unit unit, std::uint64_t there, std::uint64_t t) {
    if (!stream.is_filling) begin_row(stream, t);
    there = std::max(there, stream.since);
    const std::uint64_t place = stream.row * g.units_per_row() + stream.filled++;
    deallocate(unit);
    place_of[unit] = static_cast<std::int64_t>(place);
    unit_at[place] = unit;
    stream.ready = std::max(stream.ready, there);
    if (stream.filled == g.units_per_row()) finish_row(stream);
    return there;
  }

  void finish_row(Stream& stream) {
    const std::uint64_t place = stream.row * g.units_per_row();
    const auto share = static_cast<std::uint32_t>(Calendar::kBucketTicks * p.ways.program_share);
    const std::uint64_t there = channel_of(place).take(stream.ready, ticks(g.units_per_row() * g.unit_bytes), share);
    die_of(place).waiting.push_back({there, p.cells.program_ns, ++clock, stream.since, true});
    last_programs[stream.row] = clock;
    stream.leaving.emplace_back(stream.row % g.dies(), clock);
    stream.is_filling = false;
    if (++stream.next < g.rows_per_superblock()) return;
    blocks[static_cast<std::size_t>(stream.block)].state = 'c';
    blocks[static_cast<std::size_t>(stream.block)].closed = ++clock;
    stream.block = -1;
  }

  bool choose() {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i].state != 'c') continue;
      if (victim < 0) victim = static_cast<int>(i);
      const auto best = static_cast<std::size_t>(victim);
      if (valid_of(i) < valid_of(best) || (valid_of(i) == valid_of(best) && blocks[i].closed < blocks[best].closed))
        victim = static_cast<int>(i);
    }
    if (victim < 0) return false;
    chosen_valid = static_cast<std::int64_t>(valid_of(static_cast<std::size_t>(victim)));
    gain = static_cast<std::int64_t>(g.units_per_superblock()) - chosen_valid;
    if (gain == 0) {
      victim = -1;
      return false;
    }
    blocks[static_cast<std::size_t>(victim)].state = 'v';
    look = 0;
    credit = 0;
    return true;
  }

  std::uint64_t collect(std::uint64_t t) {
    while (owed != 0) {
      if (victim < 0 && (free_count() > p.free_superblocks || !choose())) {
        owed = 0;
        break;
      }
      if (chosen_valid == 0) {
        t = move_some(t);
        continue;
      }
      credit += chosen_valid * owed;
      owed = 0;
      while (victim >= 0 && credit >= gain) t = move_some(t);
    }
    return t;
  }

  std::uint64_t move_some(std::uint64_t t) {
    const auto block = static_cast<std::size_t>(victim);
    const std::uint64_t group = g.units_per_page() * g.planes;
    while (valid_of(block) > 0) {
      const std::uint64_t begin = block * g.units_per_superblock() + look;
      look += group;
      std::vector<std::uint64_t> places;
      for (std::uint64_t place = begin; place < begin + group; ++place)
        if (unit_at[place] >= 0) places.push_back(place);
      if (places.empty()) continue;
      credit -= static_cast<std::int64_t>(places.size()) * gain;
      if (!moved.is_filling) begin_row(moved, t);
      t = std::max(t, moved.since);
      PlainDie& die = die_of(begin);
      die.waiting.push_back({t, sensing(begin), ++clock, t, false});
      const std::uint64_t there =
          channel_of(begin).take(die.end_of(clock), ticks(places.size() * g.unit_bytes), Calendar::kBucketTicks);
      for (const std::uint64_t place : places) {
        if (!moved.is_filling) begin_row(moved, t);
        t = std::max(t, moved.since);
        append(moved, static_cast<Unit>(unit_at[place]), there, t);
        ++moved_units;
      }
      break;
    }
    if (valid_of(block) > 0) return t;
    if (chosen_valid != 0 && credit > 0) owed += credit / chosen_valid;
    for (PlainDie& die : dies) die.waiting.push_back({t, p.cells.erase_ns, ++clock, 0, true});
    blocks[block] = {'f', ++clock, 0, blocks[block].erases + 1};
    victim = -1;
    return t;
  }

  const Params p;
  const Geometry g;
  std::vector<PlainDie> dies;
  std::vector<PlainChannel> channels;
  std::vector<std::int64_t> place_of, unit_at;
  std::vector<Block> blocks;
  Stream hosts, moved;
  std::map<std::uint64_t, std::uint64_t> last_programs;  // of rows
  std::uint64_t clock = 0, at = 0, look = 0;
  int victim = -1;
  std::int64_t chosen_valid = 0, gain = 0, credit = 0, owed = 0;
};

Params drawn(Rng& rng) {
  Params params;
  const auto one_of = [&](std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(rng.below(high - low + 1));
  };
  params.geometry = {.channels = one_of(1, 2),
                     .dies_per_channel = one_of(1, 2),
                     .planes = one_of(1, 2),
                     .superblocks = one_of(9, 14),
                     .word_lines = one_of(1, 3),
                     .bits_per_cell = one_of(1, 3),
                     .page_bytes = 4'096u << rng.below(2),
                     .unit_bytes = 4'096};
  const Geometry& g = params.geometry;
  params.cells = {.read_ns = {one_of(10'000, 60'000), one_of(10'000, 60'000), one_of(10'000, 60'000)},
                  .program_ns = one_of(50'000, 400'000),
                  .erase_ns = one_of(50'000, 600'000),
                  .suspend_ns = rng.below(2) == 0 ? 0 : one_of(1'000, 30'000),
                  .resume_ns = one_of(0, 9'000)};
  params.ways.channel_bytes_per_s = one_of(300, 2'000) * 1'000'000ull;
  params.ways.program_share = rng.below(2) == 0 ? 1.0 : 0.4;
  params.buffer_rows = one_of(4, 9);
  params.capacity_units = 1 + rng.below((g.superblocks - 5) * g.units_per_superblock());
  return params;
}

void compare(std::uint64_t seed, int requests) {
  Rng rng(seed);
  const Params params = drawn(rng);
  Ftl model(params);
  PlainDrive plain(params);
  // From single requests to bursts that fill the buffer.
  const std::uint64_t pause = std::uint64_t{1} << rng.below(20);
  const std::uint64_t writes = 20 + rng.below(70);
  std::uint64_t now = 1'000'000;
  for (int i = 0; i < requests; ++i) {
    now += rng.below(4) == 0 ? rng.below(8 * pause) : rng.below(pause);
    const auto unit = static_cast<Unit>(rng.below(params.capacity_units));
    const std::uint64_t what = rng.below(100);
    if (what < writes) {
      ASSERT_EQ(model.write(unit, now), plain.write(unit, now)) << "seed " << seed << " write " << i;
    } else if (what < 98) {
      ASSERT_EQ(model.read(unit, 4'096, now), plain.read(unit, now)) << "seed " << seed << " read " << i;
    } else {
      model.deallocate(unit);
      plain.deallocate(unit);
    }
  }
  EXPECT_EQ(model.counters().moved_units, plain.moved_units) << "seed " << seed;
}

std::uint64_t asked(const char* name, std::uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::stoull(value);
}

// FLASHMOB_ORACLE_SEEDS=10000 looks at more of them, FLASHMOB_ORACLE_FIRST=3599 begins with that one.
TEST(Oracle, AgreesRequestByRequest) {
  const std::uint64_t first = asked("FLASHMOB_ORACLE_FIRST", 1), seeds = asked("FLASHMOB_ORACLE_SEEDS", 100);
  for (std::uint64_t seed = first; seed < first + seeds && !HasFatalFailure(); ++seed) compare(seed, 300);
}

// A row is written anew while its last program, of which nothing is valid, still runs.
TEST(Oracle, AgreesOnRowsThatAreWrittenAnewEarly) { compare(3'599, 300); }

}  // namespace
}  // namespace flashmob::timing::nand
