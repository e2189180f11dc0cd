// CacheRef's copies to and from users' buffers, write-back, flush and drain. Included by cache.h.
// Thread rule: any lane. Compiles as CUDA device code.
#pragma once

#include "flashmob/gpu/detail/cache_access.h"

namespace flashmob::gpu {

FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD bool FLASHMOB_CACHE::copy_out(Lane& t, std::uint32_t mask, std::uint64_t tag, void* to) const {
  if (copy_block(t, mask, sets_, tag, to)) {
    if (t.elect(mask)) counters_.add(t, CacheCount::hits);
    return true;
  }
  if constexpr (Tier::kPresent) {
    if (tier_.get(t, mask, tag, to)) {
      if (t.elect(mask)) counters_.add(t, CacheCount::second_hits);
      return true;
    }
  }
  return false;
}

FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD auto FLASHMOB_CACHE::async_read(Lane& t, std::uint32_t mask, const BlockKey& key, void* to) const
    -> Transfer {
  if (!serves(key)) return {.status = {0, IoKind::bad_request}};
  const std::uint64_t tag = tag_of(key);
  // Whoever modifies the block after this look does so while the read is in flight: either order is right.
  if (copy_out(t, mask, tag, to) || !t.elect(mask)) return {.tag = tag};
  counters_.add(t, CacheCount::misses);
  const Extent where = extent(key);
  return {Transfer::Kind::reads, {}, tag, ssds_[key.ssd].read(t, key.ns, where.lba, where.blocks, to)};
}

FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD auto FLASHMOB_CACHE::async_write(Lane& t, std::uint32_t mask, const BlockKey& key, const void* from,
                                             WaitLimit limit) const -> Transfer {
  const std::uint32_t leader = simt::first_lane(mask);
  const bool leads = t.lane() == leader;
  const Pin pin = acquire_by(t, mask, leads, key, Access::overwrite, line::users(1, true), limit);
  if (pin.ok()) note_pin(t, pin.line, pin.fills);
  const std::uint64_t line = t.shuffle(mask, pin.line, leader);
  if (line == kNoLine) return {.status = leads ? pin.status : IoStatus{}};
  copy_line(t, mask, sets_.data(line), from, line_bytes());
  release(t, pin);
  start_store(t, mask, leads ? line : kNoLine, false);
  if (!leads) return {};
  return {.kind = Transfer::Kind::writes, .tag = tag_of(key)};
}

FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD bool FLASHMOB_CACHE::test(Lane& t, const Transfer& transfer) const {
  if (transfer.kind == Transfer::Kind::finished) return true;
  ssds_[key_of(transfer.tag).ssd].help(t);
  if (transfer.kind == Transfer::Kind::reads) return transfer.token.test(t);
  if (const std::uint64_t index = sets_.find(t, transfer.tag); index != kNoLine) {
    sets_.settle(t, index);
    start_store(t, index, false);
    const std::uint64_t word = sets_.line(index).state.load(t);
    const bool modified = line::state(word) == LineState::modified && (word & line::kWriteFailed) == 0;
    if ((modified || line::writing(word)) && sets_.bears(t, index, transfer.tag)) return false;
  }
  if constexpr (Tier::kPresent) return tier_.lower().test(t, transfer);
  return true;
}

FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD IoStatus FLASHMOB_CACHE::wait_for(Lane& t, const Transfer& transfer, WaitLimit limit) const {
  if (transfer.kind == Transfer::Kind::finished) return transfer.status;
  if (transfer.kind == Transfer::Kind::reads) return transfer.token.wait(t, limit);
  if (const std::uint64_t index = sets_.find(t, transfer.tag); index != kNoLine) {
    Wait wait = begin_wait(t, key_of(transfer.tag).ssd, limit);
    const IoStatus stored = await_stored(t, index, transfer.tag, wait);
    if (!stored.ok()) return stored;
  }
  if constexpr (Tier::kPresent) return tier_.lower().wait_for(t, transfer, limit);
  return {};
}

// Until what the line held of the block `tag` when this was called lies below. Begins what nobody has begun.
FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD IoStatus FLASHMOB_CACHE::await_stored(Lane& t, std::uint64_t index, std::uint64_t tag, Wait& wait) const {
  bool started = false;
  for (;;) {
    sets_.settle(t, index);
    // A line that has become another block's was written before.
    if (!sets_.bears(t, index, tag)) return {};
    const std::uint64_t word = sets_.line(index).state.load(t);
    if (!line::writing(word)) {
      if (line::state(word) != LineState::modified) return {};
      if (started && (word & line::kWriteFailed) != 0) return sets_.error(t, index);
      // It was written, and has been modified since.
      if (started) return {};
      if (start_store(t, index, false)) {
        started = true;
        continue;
      }
    }
    sets_.chain().waits_for_device(t);
    IoStatus status;
    if (!go_on(t, key_of(tag).ssd, wait, status)) return status;
  }
}

FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD IoStatus FLASHMOB_CACHE::write_back(Lane& t, std::uint64_t part, std::uint64_t parts,
                                                WaitLimit limit) const {
  for (std::uint64_t i = part; i < sets_.lines(); i += parts) start_store(t, i, false);
  IoStatus first;
  Wait wait = begin_wait(t, 0, limit);
  for (std::uint64_t i = part; i < sets_.lines(); i += parts) {
    const std::uint64_t tag = sets_.tag(i).load(t);
    if (tag == kNoTag) continue;
    const IoStatus stored = await_stored(t, i, tag, wait);
    if (stored.ok()) continue;
    if (stored.kind == IoKind::completed) counters_.add(t, CacheCount::write_errors);
    if (first.ok()) first = stored;
  }
  return first;
}

FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD IoStatus FLASHMOB_CACHE::flush(Lane& t, WaitLimit limit) const {
  IoStatus first = write_back(t, 0, 1, limit);
  if constexpr (Tier::kPresent) {
    const IoStatus below = tier_.lower().flush(t, limit);
    return first.ok() ? below : first;
  } else {
    for (std::uint32_t s = 0; s < ssd_count_; ++s) {
      for (std::uint32_t n = 0; n < ssds_[s].namespace_count(); ++n) {
        const auto token = ssds_[s].flush(t, n);
        const IoStatus flushed = token.wait(t, limit);
        if (flushed.in_flight()) token.abandon(t);
        if (first.ok()) first = flushed;
      }
    }
    return first;
  }
}

FLASHMOB_CACHE_TEMPLATE
template <class Lane>
FLASHMOB_HD IoStatus FLASHMOB_CACHE::drain(Lane& t, WaitLimit limit) const {
  Wait wait = begin_wait(t, 0, limit);
  for (std::uint64_t i = 0; i < sets_.lines(); ++i) {
    for (;;) {
      if (sets_.settle(t, i) || (sets_.line(i).io.word.load(t) & CacheLine::kTaken) != 0) break;
      // The abort flag does not end this wait: aborted commands are in flight, too.
      if (t.now_ns() - wait.start_ns >= wait.timeout_ns) return {0, IoKind::deadline};
      help(t, wait);
    }
  }
  if constexpr (Tier::kPresent) return tier_.lower().drain(t, limit);
  return {};
}

}  // namespace flashmob::gpu

#undef FLASHMOB_CACHE
#undef FLASHMOB_CACHE_TEMPLATE
