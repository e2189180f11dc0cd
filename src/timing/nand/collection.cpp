// Collection: which superblocks are moved and when, in the time that hosts pay for and in idle time (ftl.h).
#include <algorithm>

#include "base/check.h"
#include "timing/nand/ftl.h"

namespace flashmob::timing::nand {

// Free superblocks, but for those that the cache may always have.
std::uint32_t Ftl::free_for_data() const {
  const std::uint32_t free = superblocks_.free_count();
  const std::uint32_t kept = slc_.fixed_superblocks - std::min(slc_.fixed_superblocks, superblocks_.slc_count());
  return free - std::min(free, kept);
}

// Whether hosts' next superblock is one of the cache.
bool Ftl::takes_slc() const {
  if (slc_.most() == 0 || is_assuming_) return false;
  const std::uint32_t used = superblocks_.slc_count();
  if (used < slc_.fixed_superblocks) return superblocks_.free_count() >= 2;
  return used < slc_.most() && free_for_data() > free_superblocks_ + 2;
}

// Whether hosts wait for a cache that is full.
bool Ftl::must_fold() const {
  return slc_.most() != 0 && !slc_.bypass && !is_assuming_ && superblocks_.slc_count() >= slc_.most();
}

// Where hosts' next unit goes. They wait for a superblock: the last one that is free is collection's own.
Ftl::Stream& Ftl::stream_of_hosts(std::uint32_t number, std::uint64_t& now_ns) {
  if (cached().superblock != Superblocks::kNone && !is_assuming_) return cached();
  while (must_fold() && (collection_.superblock != Superblocks::kNone || begin_collection()))
    now_ns = move_some(now_ns);
  const bool is_cached = takes_slc();
  Stream& stream = is_cached ? cached() : hosts(number);
  // Streams may want theirs one after the other, faster than what they write pays for.
  const auto goes_on = [this] {
    return collection_.superblock != Superblocks::kNone || (params_.streams.count != 1 && begin_collection());
  };
  while (stream.superblock == Superblocks::kNone && (is_cached ? superblocks_.free_count() : free_for_data()) < 2 &&
         goes_on())
    now_ns = move_some(now_ns);
  return stream;
}

bool Ftl::begin_collection() {
  const bool is_short = free_for_data() <= free_superblocks_;
  std::uint32_t victim = must_fold() ? superblocks_.choose_cached() : Superblocks::kNone;
  const bool is_folded = victim != Superblocks::kNone;
  bool is_cold = false;
  if (!is_folded && is_short) {
    victim = superblocks_.choose_cold();
    is_cold = victim != Superblocks::kNone;
    if (!is_cold) victim = superblocks_.choose_victim();
  }
  if (victim == Superblocks::kNone) return false;
  const std::uint32_t valid = superblocks_.valid(victim);
  const std::uint32_t room = units_per_superblock_ - valid;
  std::uint32_t gain = room;
  // Folded while hosts fill another one of the cache.
  if (is_folded && !is_short) gain = units_per_superblock_;
  if (is_cold) {
    // It gains little or nothing; hosts pay for it bit by bit, and what they take meanwhile later.
    gain = std::max(room, units_per_superblock_ / 4);
    debt_ += gain - room;
    ++counters_.levelled_superblocks;
  }
  collection_ = {victim, 0, 0, valid, gain};
  return true;
}

// The share of garbage collection that is owed for what was written or padded.
std::uint64_t Ftl::collect(std::uint64_t now_ns) {
  while (owed_ != 0) {
    if (collection_.superblock == Superblocks::kNone && !begin_collection()) {
      owed_ = 0;
      break;
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
  const bool is_slc = superblocks_.is_slc(superblock);
  while (superblocks_.valid(superblock) > 0) {
    const Place begin = first_place_of(superblock) + collection_.next;
    const Place end = begin + units_per_sense_;
    collection_.next += is_slc ? units_per_row_ : units_per_sense_;
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
    Stream& to = moved_from(superblock);
    if (to.row == Die::kNoRow) begin_row(to, now_ns);
    now_ns = std::max(now_ns, to.begun_ns);
    const std::uint64_t there_ns = is_silent_ ? now_ns : flash_.read_to_move(first, valid, now_ns, is_slc);
    now_ns = move(to, first, end, there_ns, now_ns);
    break;
  }
  if (superblocks_.valid(superblock) == 0) end_collection(now_ns);
  return now_ns;
}

// Moves the valid units of [first, end), whose reads began at now_ns and have arrived at there_ns. Returns when there
// was a buffer for all of them.
std::uint64_t Ftl::move(Stream& to, Place first, Place end, std::uint64_t there_ns, std::uint64_t now_ns) {
  for (Place place = first; place < end; ++place) {
    const Unit unit = units_[place];
    if (places_[unit] != place) continue;
    if (to.row == Die::kNoRow) begin_row(to, now_ns);
    now_ns = std::max(now_ns, to.begun_ns);
    forget(unit);
    append(to, unit, there_ns);
    ++counters_.moved_units;
  }
  return now_ns;
}

// What was owed for more than it gained is owed to the next.
void Ftl::end_collection(std::uint64_t now_ns) {
  if (collection_.valid != 0 && collection_.credit > 0)
    owed_ += static_cast<std::uint32_t>(collection_.credit / collection_.valid);
  if (!is_silent_) flash_.erase(now_ns);
  superblocks_.free(collection_.superblock);
  ++counters_.erased_superblocks;
  collection_ = {};
}

bool Ftl::begin_idle_collection() {
  std::uint32_t victim = slc_.most() != 0 ? superblocks_.choose_cached() : Superblocks::kNone;
  if (victim == Superblocks::kNone && free_for_data() < idle_free_superblocks_) victim = superblocks_.choose_victim();
  if (victim == Superblocks::kNone) return false;
  const std::uint32_t valid = superblocks_.valid(victim);
  collection_ = {victim, 0, 0, valid, units_per_superblock_ - valid};
  return true;
}

// Of all dies together: what one sensing and the programs of its units take.
std::uint64_t Ftl::idle_cost_ns(std::uint64_t moved_units) const {
  return 1 + (idle_sense_ns_ + moved_units * idle_program_ns_ / units_per_row_) / dies_;
}

// What the drive does by itself is done between requests and keeps none of them waiting, so it takes idle time and no
// die. A request looks at no more of it than it could write itself; the rest is done at the next ones.
void Ftl::work_in_idle_time(std::uint64_t now_ns) {
  constexpr int kMostSensings = 64;
  if (now_ns > last_ns_ + idle_ns_) idle_left_ns_ += static_cast<std::int64_t>(now_ns - last_ns_ - idle_ns_);
  last_ns_ = std::max(last_ns_, now_ns);
  if (idle_left_ns_ <= 0) return;
  is_silent_ = true;
  for (int i = 0; i < kMostSensings && idle_left_ns_ > 0; ++i) {
    if (collection_.superblock == Superblocks::kNone && !begin_idle_collection()) {
      idle_left_ns_ = 0;
      break;
    }
    const std::uint64_t moved = counters_.moved_units, erased = counters_.erased_superblocks;
    move_some(now_ns);
    counters_.idle_moved_units += counters_.moved_units - moved;
    idle_left_ns_ -= static_cast<std::int64_t>(idle_cost_ns(counters_.moved_units - moved));
    if (counters_.erased_superblocks != erased) idle_left_ns_ -= static_cast<std::int64_t>(idle_erase_ns_);
  }
  is_silent_ = false;
}

}  // namespace flashmob::timing::nand
