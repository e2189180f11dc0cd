// CacheRef's accesses: the short way of a hit, the long way of a miss, and their waits. Included by cache.h.
// Thread rule: any lane. Compiles as CUDA device code.
#pragma once

#include "flashmob/gpu/cache.h"

#define FLASHMOB_CACHE_TEMPLATE template <class Policy, class Ssd, class Tier, class Chain>
#define FLASHMOB_CACHE CacheRef<Policy, Ssd, Tier, Chain>

namespace flashmob::gpu {

FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD Pin FLASHMOB_CACHE::acquire_for(Lane& t, const BlockKey& key, Access access, std::uint64_t users,
                                            WaitLimit limit) const {
  if (!serves(key)) return {.status = {0, IoKind::bad_request}};
  Pin pin;
  if (find_now(t, tag_of(key), access != Access::read, users, pin)) return pin;
  return acquire_slowly(t, tag_of(key), access, users, kNoLine, limit);
}

// If the block is here and can be used at once: the pin.
FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD bool FLASHMOB_CACHE::find_now(Lane& t, std::uint64_t tag, bool write, std::uint64_t users, Pin& pin) const {
  const std::uint64_t index = sets_.find(t, tag);
  if (index == kNoLine) return false;
  const std::uint64_t word = sets_.pin(t, index, users);
  // The tag is read again, now that it cannot change any more: the line may have been taken for another block between
  // the search and the pin.
  if (line::holds_data(word) && !(write && line::writing(word)) && sets_.bears(t, index, tag)) {
    if (write) sets_.modify(t, index, word);
    sets_.hit(t, index);
    counters_.add(t, CacheCount::hits);
    pin = pinned(index, write, false);
    return true;
  }
  sets_.unpin(t, index, users);
  return false;
}

// For those lanes of `mask` that ask.
FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD Pin FLASHMOB_CACHE::acquire_by(Lane& t, std::uint32_t mask, bool asks, const BlockKey& key, Access access,
                                           std::uint64_t users, WaitLimit limit) const {
  if constexpr (Tier::kPresent) {
    const std::uint64_t tag = asks && serves(key) ? tag_of(key) : kNoTag;
    Pin pin;
    const std::uint64_t taken = take_together(t, mask, tag, access, users, pin);
    if (pin.ok()) return pin;
    if (taken != kNoLine) return acquire_slowly(t, tag, access, users, taken, limit);
  }
  return asks ? acquire_for(t, key, access, users, limit) : Pin{};
}

// All of `mask` go round together, and each that has a tag comes out with its pin, with a line that is being filled
// (which is returned), or with neither. Nobody waits for I/O here, so it does no harm that some hold lines meanwhile;
// the SSD is asked, and waited for, when nobody meets any more.
FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD std::uint64_t FLASHMOB_CACHE::take_together(Lane& t, std::uint32_t mask, std::uint64_t tag, Access access,
                                                        std::uint64_t users, Pin& pin) const {
  std::uint64_t taken = kNoLine;
  bool filled = false;
  bool looks = tag != kNoTag;
  for (std::uint32_t round = 0; round < kRoundsTogether && t.ballot(mask, looks) != 0; ++round) {
    Claim claim{.kind = Claim::Kind::found};
    if (looks && !find_now(t, tag, access != Access::read, users, pin)) {
      claim = sets_.claim(t, tag, users, true);
      note_claim(t, claim);
    }
    const bool takes = claim.kind == Claim::Kind::taken;
    const bool fetch = takes && access != Access::overwrite;
    if (takes) counters_.add(t, CacheCount::misses);
    if (takes && !fetch) pin = pinned(claim.line, true, true);
    if (fetch) taken = claim.line;
    filled |= follow(t, mask, claim, fetch, tag);
    looks = claim.kind == Claim::Kind::contended || (!takes && claim.store != kNoLine);
  }
  if (taken != kNoLine && !filled) read_line(t, taken, tag);
  return taken;
}

// What a claim entails: with `fetch` the line taken is filled with the block `tag`, and the line that has to go is
// stored. False if the line is not filled, because the second tier does not have the block: then the SSD is the
// caller's to ask. With a second tier every lane of `mask` calls, whatever it has claimed, and all copy for each.
FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD bool FLASHMOB_CACHE::follow(Lane& t, std::uint32_t mask, const Claim& claim, bool fetch,
                                        std::uint64_t tag) const {
  bool filled = fetch;
  if constexpr (Tier::kPresent) {
    const std::uint64_t source = fetch ? tier_.find(t, tag) : kNoLine;
    filled = source != kNoLine;
    copy_each(t, mask, filled, sets_, claim.line, tier_.lower().sets(), source);
    if (filled) {
      tier_.leave(t, source);
      counters_.add(t, CacheCount::second_hits);
      sets_.publish(t, claim.line, LineState::ready, 0, true);
    }
  } else if (fetch) {
    read_line(t, claim.line, tag);
  }
  start_store(t, mask, claim.store, Tier::kPresent);
  return filled;
}

FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD void FLASHMOB_CACHE::prefetch_by(Lane& t, std::uint32_t mask, bool asks, const BlockKey& key) const {
  bool looks = asks && serves(key);
  const std::uint64_t tag = looks ? tag_of(key) : kNoTag;
  const std::uint64_t users = line::users(1, false);
  Backoff backoff;
  for (std::uint32_t attempt = 0; attempt < kPrefetchAttempts; ++attempt) {
    Claim claim{.kind = Claim::Kind::found};
    if (looks && sets_.find(t, tag) == kNoLine) {
      sets_.settle_set(t, sets_.set_of(tag));
      claim = sets_.claim(t, tag, users, Tier::kPresent);
      note_claim(t, claim);
    }
    const bool takes = claim.kind == Claim::Kind::taken;
    if (takes) counters_.add(t, CacheCount::prefetches);
    const bool filled = follow(t, mask, claim, takes, tag);
    if (takes && !filled) read_line(t, claim.line, tag);
    if (takes) sets_.unpin(t, claim.line, users);
    looks = claim.kind == Claim::Kind::contended;
    if (Tier::kPresent ? t.ballot(mask, looks) == 0 : !looks) return;
    if (looks) backoff.pause(t);
  }
}

FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD Pin FLASHMOB_CACHE::acquire_slowly(Lane& t, std::uint64_t tag, Access access, std::uint64_t users,
                                               std::uint64_t taken, WaitLimit limit) const {
  Wait wait = begin_wait(t, key_of(tag).ssd, limit);
  Pin pin;
  bool done = taken != kNoLine && join(t, taken, tag, access != Access::read, users, wait, pin);
  while (!done) done = look_again(t, tag, access, users, wait, pin);
  sets_.chain().goes_on(t);
  if (wait.waited) {
    counters_.add(t, CacheCount::waits);
    counters_.add_latency(t, t.now_ns() - wait.start_ns);
  }
  if (!pin.ok()) counters_.add(t, CacheCount::fetch_errors);
  return pin;
}

// One attempt. True if `pin` is the answer, good or bad.
FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD bool FLASHMOB_CACHE::look_again(Lane& t, std::uint64_t tag, Access access, std::uint64_t users, Wait& wait,
                                            Pin& pin) const {
  const std::uint64_t index = sets_.find(t, tag);
  if (index == kNoLine) return take_line(t, tag, access, users, wait, pin);
  const std::uint64_t word = sets_.pin(t, index, users);
  if (line::state(word) != LineState::invalid) {
    counters_.add(t, line::holds_data(word) ? CacheCount::hits : CacheCount::joined);
    const bool done = join(t, index, tag, access != Access::read, users, wait, pin);
    // The one that fetches a block has not found it.
    if (pin.ok()) sets_.hit(t, index);
    return done;
  }
  // Its fetch has failed before this thread came.
  sets_.unpin(t, index, users);
  return take_line(t, tag, access, users, wait, pin);
}

// With the line pinned: waits until it can be used, and says what has become of it.
FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD bool FLASHMOB_CACHE::join(Lane& t, std::uint64_t index, std::uint64_t tag, bool write, std::uint64_t users,
                                      Wait& wait, Pin& pin) const {
  std::uint64_t word = 0;
  const IoStatus waited = await(t, index, key_of(tag).ssd, write, wait, word);
  if (waited.ok()) {
    // It may have been on its way to another block when it was pinned.
    const bool ours = sets_.bears(t, index, tag);
    if (ours && line::holds_data(word)) {
      if (write) sets_.modify(t, index, word);
      pin = pinned(index, write, false);
      return true;
    }
    if (ours) pin.status = sets_.error(t, index);
    sets_.unpin(t, index, users);
    return ours;
  }
  sets_.unpin(t, index, users);
  pin.status = waited;
  return true;
}

FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD bool FLASHMOB_CACHE::take_line(Lane& t, std::uint64_t tag, Access access, std::uint64_t users, Wait& wait,
                                           Pin& pin) const {
  const Claim claim = sets_.claim(t, tag, users, Tier::kPresent);
  note_claim(t, claim);
  if (claim.kind == Claim::Kind::taken) {
    counters_.add(t, CacheCount::misses);
    const bool fetch = access != Access::overwrite;
    const bool filled = follow(t, 1u << t.lane(), claim, fetch, tag);
    if (fetch && !filled) read_line(t, claim.line, tag);
    if (fetch) return join(t, claim.line, tag, access != Access::read, users, wait, pin);
    pin = pinned(claim.line, true, true);
    return true;
  }
  if (claim.kind == Claim::Kind::found) return false;
  const std::uint32_t set = sets_.set_of(tag);
  if (claim.kind == Claim::Kind::failed) {
    // A write that has failed for others is tried once more for this thread.
    if (wait.retried) {
      pin.status = sets_.error(t, claim.line);
      return true;
    }
    wait.retried = start_store(t, claim.line);
  } else if (claim.kind == Claim::Kind::full) {
    if (claim.store != kNoLine) start_store(t, claim.store);
    sets_.settle_set(t, set);
    if (claim.store == kNoLine && !claim.moving)
      sets_.chain().waits(t, held_thing(HeldKind::lines, set));
    else
      sets_.chain().waits_for_device(t);
  }
  if (go_on(t, key_of(tag).ssd, wait, pin.status)) return false;
  if (pin.status.kind == IoKind::deadline) pin.status.kind = IoKind::no_line;
  return true;
}

// Until the line is not BUSY any more and, for a writer, not being written back; `word` is its state then.
FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD IoStatus FLASHMOB_CACHE::await(Lane& t, std::uint64_t index, std::uint32_t ssd, bool write, Wait& wait,
                                           std::uint64_t& word) const {
  for (;;) {
    word = sets_.line(index).state.load(t);
    const bool busy = line::state(word) == LineState::busy;
    if (!busy && !(write && line::writing(word))) return {};
    if (sets_.settle(t, index)) continue;
    if constexpr (Chain::kOn) {
      // Without a command, somebody's kernel is filling the line.
      if (busy && (sets_.line(index).io.word.load(t) & CacheLine::kTaken) != 0)
        sets_.chain().waits(t, held_thing(HeldKind::fill, index));
      else
        sets_.chain().waits_for_device(t);
    }
    IoStatus status;
    if (!go_on(t, ssd, wait, status)) return status;
  }
}

// One turn of a wait. False if it has gone on long enough, and why.
FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD bool FLASHMOB_CACHE::go_on(Lane& t, std::uint32_t ssd, Wait& wait, IoStatus& status) const {
  wait.waited = true;
  if (ssds_[ssd].aborted(t)) {
    status = {0, IoKind::aborted};
    return false;
  }
  if (t.now_ns() - wait.start_ns >= wait.timeout_ns) {
    status = {0, IoKind::deadline};
    return false;
  }
  help(t, wait);
  return true;
}

FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD void FLASHMOB_CACHE::help(Lane& t, Wait& wait) const {
  bool any = false;
  for (std::uint32_t i = 0; i < ssd_count_; ++i) any |= ssds_[i].help(t);
  if (!any) wait.backoff.pause(t);
}

// With the line taken: its data come from the SSD some time.
FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD void FLASHMOB_CACHE::read_line(Lane& t, std::uint64_t index, std::uint64_t tag) const {
  const BlockKey key = key_of(tag);
  const Extent where = extent(key);
  Completion& io = sets_.line(index).io;
  io.arm(t);
  // An error, too, is announced there.
  ssds_[key.ssd].read_into(t, key.ns, where.lba, where.blocks, sets_.data(index), io);
}

FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD bool FLASHMOB_CACHE::start_store(Lane& t, std::uint32_t mask, std::uint64_t index, bool offer_clean) const {
  bool dirty = false;
  const bool begun = index != kNoLine && sets_.begin_store(t, index, offer_clean, dirty);
  // It is not taken for another block now, so this is its tag.
  const std::uint64_t tag = begun ? sets_.tag(index).load(t) : kNoTag;
  if constexpr (Tier::kPresent) {
    typename Tier::Place place;
    if (begun) place = tier_.find_place(t, tag, dirty);
    copy_each(t, mask, place.line != kNoLine, tier_.lower().sets(), place.line, sets_, index);
    if (!begun) return false;
    tier_.leave(t, place, dirty);
    if (place.answer == Put::later) {
      sets_.undo_store(t, index, dirty);
      return false;
    }
    if (place.answer == Put::failed) counters_.add(t, CacheCount::write_errors);
    if (dirty) counters_.add(t, CacheCount::write_backs);
    sets_.end_store(t, index, place.answer == Put::failed ? place.error : IoStatus{}, true);
  } else if (begun) {
    counters_.add(t, CacheCount::write_backs);
    const BlockKey key = key_of(tag);
    const Extent where = extent(key);
    Completion& io = sets_.line(index).io;
    io.arm(t);
    ssds_[key.ssd].write_from(t, key.ns, where.lba, where.blocks, sets_.data(index), io);
  }
  return begun;
}

}  // namespace flashmob::gpu
