// The lines of a cache and the protocol by which lanes share them: look up, pin, take, publish, begin and end a
// write-back. No I/O and no waiting: every function here returns after a bounded number of steps, and the one lock that
// there is (a set's) is held only within claim(). Compiles as CUDA device code.
//
// Who fetches a line leaves a Completion in it; whoever next looks at the line after the command has ended takes its
// result (settle). So a prefetch needs nobody to wait for it, and no lane depends on another one being scheduled.
// Thread rule: any lane at once, except at() and place(), which are for the host before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "flashmob/gpu/cache_line.h"
#include "flashmob/gpu/cache_policy/policy.h"
#include "flashmob/gpu/lock_chain.h"

namespace flashmob::gpu {

struct CacheGeometry {
  std::uint32_t line_bytes = 4096;  // a multiple of the block sizes of all namespaces, at most the largest transfer
  std::uint32_t sets = 1;
  std::uint32_t ways = 1;

  FLASHMOB_HD constexpr std::uint64_t lines() const { return std::uint64_t{sets} * ways; }
  FLASHMOB_HD constexpr std::uint64_t data_bytes() const { return lines() * line_bytes; }
};

inline constexpr std::uint64_t kNoLine = ~std::uint64_t{0};

// What came of asking for a line.
struct Claim {
  enum class Kind : std::uint8_t {
    taken,  // `line` is the caller's, BUSY, with its pins
    found,  // somebody else has brought the block meanwhile: look again
    contended,  // the set is locked or a line is just being left: again, soon
    full,  // every line is in use or being written: again, when something has ended
    failed,  // as full, but nothing will end by itself: `line`'s write-back has failed
  };
  Kind kind = Kind::contended;
  bool evicted = false;  // another block had to go
  bool moving = false;  // full: a line is being filled or written, so something will end by itself
  std::uint64_t line = kNoLine;
  std::uint64_t store = kNoLine;  // this line should be written back, to be free when it is wanted
};

template <class Policy, class Chain = BuildLockChain>
class CacheSets {
 public:
  // --- Set-up, by the host ---

  FLASHMOB_HD static constexpr std::uint64_t metadata_bytes(const CacheGeometry& g) {
    return g.lines() * (sizeof(CacheLine) + sizeof(std::uint64_t)) +
           std::uint64_t{g.sets} * (1 + Policy::set_words(g.ways)) * sizeof(std::uint32_t);
  }
  // The cache in `metadata`, metadata_bytes() aligned to 32, and `data`, g.data_bytes(), wherever these lie: nothing is
  // touched. The geometry is valid: 1...Policy::kMaxWays ways, at least one set.
  static CacheSets at(const CacheGeometry& g, void* metadata, void* data, Chain chain = {}) {
    CacheSets sets;
    sets.chain_ = chain;
    sets.geometry_ = g;
    sets.data_ = static_cast<std::byte*>(data);
    sets.lines_ = static_cast<CacheLine*>(metadata);
    sets.tags_ = reinterpret_cast<simt::Word<std::uint64_t>*>(sets.lines_ + g.lines());
    sets.locks_ = reinterpret_cast<simt::Word<std::uint32_t>*>(sets.tags_ + g.lines());
    sets.words_ = sets.locks_ + g.sets;
    return sets;
  }
  // The same, made empty, in memory that the host sees.
  static CacheSets place(const CacheGeometry& g, void* metadata, void* data, Chain chain = {}) {
    const CacheSets sets = at(g, metadata, data, chain);
    for (std::uint64_t i = 0; i < g.lines(); ++i) {
      sets.lines_[i] = CacheLine{};
      new (sets.tags_ + i) simt::Word<std::uint64_t>{kNoTag};
    }
    for (std::uint64_t i = 0; i < std::uint64_t{g.sets} * (1 + Policy::set_words(g.ways)); ++i)
      new (sets.locks_ + i) simt::Word<std::uint32_t>;
    return sets;
  }

  // --- Places ---

  FLASHMOB_HD const CacheGeometry& geometry() const { return geometry_; }
  FLASHMOB_HD std::uint64_t lines() const { return geometry_.lines(); }
  FLASHMOB_HD CacheLine& line(std::uint64_t index) const { return lines_[index]; }
  FLASHMOB_HD simt::Word<std::uint64_t>& tag(std::uint64_t index) const { return tags_[index]; }
  FLASHMOB_HD simt::Word<std::uint32_t>& lock(std::uint32_t set) const { return locks_[set]; }
  FLASHMOB_HD std::byte* data(std::uint64_t index) const { return data_ + index * geometry_.line_bytes; }
  FLASHMOB_HD const Chain& chain() const { return chain_; }
  FLASHMOB_HD std::uint32_t set_of(std::uint64_t tag) const {
    return static_cast<std::uint32_t>((mix_tag(tag) >> 32) * geometry_.sets >> 32);
  }
  FLASHMOB_HD std::uint32_t set_of_line(std::uint64_t index) const {
    return static_cast<std::uint32_t>(index / geometry_.ways);
  }
  FLASHMOB_HD std::uint64_t first_line(std::uint32_t set) const { return std::uint64_t{set} * geometry_.ways; }

  // --- Use of a line ---

  // The line that bears the tag, in whatever state, or kNoLine. What is found may be gone the next moment.
  template <class Lane>
  FLASHMOB_HD std::uint64_t find(Lane& t, std::uint64_t tag) const {
    const std::uint64_t first = first_line(set_of(tag));
    for (std::uint32_t way = 0; way < geometry_.ways; ++way) {
      if (tags_[first + way].load(t) == tag) return first + way;
    }
    return kNoLine;
  }
  // Pins the line, whatever it is; the word as it was. While it is pinned it is not taken for another block, so: if the
  // word says READY or MODIFIED, a tag that is read after this stays. If it says BUSY, the line may be on its way to
  // another block, and the tag counts only when it is read after the line is READY.
  template <class Lane>
  FLASHMOB_HD std::uint64_t pin(Lane& t, std::uint64_t index, std::uint64_t users) const {
    return lines_[index].state.fetch_add(t, users);
  }
  template <class Lane>
  FLASHMOB_HD void unpin(Lane& t, std::uint64_t index, std::uint64_t users) const {
    lines_[index].state.fetch_add(t, 0 - users);
  }
  template <class Lane>
  FLASHMOB_HD bool bears(Lane& t, std::uint64_t index, std::uint64_t tag) const {
    return tags_[index].load(t) == tag;
  }
  // For a pinned line that holds data, which a writer is about to change.
  template <class Lane>
  FLASHMOB_HD void modify(Lane& t, std::uint64_t index, std::uint64_t word) const {
    if (line::state(word) != LineState::modified)
      lines_[index].state.fetch_or(t, static_cast<std::uint64_t>(LineState::modified));
  }
  // The policy is told that a block was found.
  template <class Lane>
  FLASHMOB_HD void hit(Lane& t, std::uint64_t index) const {
    const std::uint32_t set = set_of_line(index);
    Policy::hit(t, policy_set(set), static_cast<std::uint32_t>(index - first_line(set)));
  }
  // The one that has filled a BUSY line lets the others look, and gives up `users`. `kept`: the second tier has it.
  template <class Lane>
  FLASHMOB_HD void publish(Lane& t, std::uint64_t index, LineState state, std::uint64_t users,
                           bool kept = false) const {
    const std::uint64_t change = static_cast<std::uint64_t>(state) - static_cast<std::uint64_t>(LineState::busy);
    lines_[index].state.fetch_add(t, change + (kept ? line::kKept : 0) - users);
  }

  // --- Taking a line for another block ---

  // A line for `tag`, BUSY and with `users`, if one can be had now. `offer_clean`: clean lines go to the second tier
  // before they are given up, so those not yet kept there count as lines to store.
  template <class Lane>
  FLASHMOB_HD Claim claim(Lane& t, std::uint64_t tag, std::uint64_t users, bool offer_clean) const {
    const std::uint32_t set = set_of(tag);
    std::uint32_t free = 0;
    if (!locks_[set].compare_exchange(t, free, t.thread() + 1)) return {};
    chain_.took(t, held_thing(HeldKind::lock, set));
    const Claim claim = claim_locked(t, set, tag, users, offer_clean);
    chain_.left(t, held_thing(HeldKind::lock, set));
    locks_[set].store(t, 0);
    return claim;
  }

  // --- Write-back and the end of commands ---

  // The caller is to write the line's data to what lies below, and to end that with end_store or through line.io. False
  // if there is nothing to write, or a writer is at it, or it is being written. `dirty`: it is newer than what is
  // below.
  template <class Lane>
  FLASHMOB_HD bool begin_store(Lane& t, std::uint64_t index, bool offer_clean, bool& dirty) const {
    std::uint64_t word = lines_[index].state.load(t);
    for (;;) {
      const LineState state = line::state(word);
      dirty = state == LineState::modified;
      const bool to_offer = offer_clean && state == LineState::ready && (word & line::kKept) == 0;
      if ((!dirty && !to_offer) || line::writing(word) || line::writers(word) != 0) return false;
      const std::uint64_t next =
          line::with_state(word & ~(line::kKept | line::kWriteFailed), LineState::ready) | line::kWriting;
      if (lines_[index].state.compare_exchange(t, word, next)) return true;
    }
  }
  // `kept`: the second tier has it, or does not want it. `again`: as if it had never been begun.
  template <class Lane>
  FLASHMOB_HD void end_store(Lane& t, std::uint64_t index, IoStatus status, bool kept) const {
    if (!status.ok()) lines_[index].error.store(t, status.to_bits());
    change(
        t, index, line::kWriting,
        status.ok() ? (kept ? line::kKept : 0) : static_cast<std::uint64_t>(LineState::modified) | line::kWriteFailed);
  }
  template <class Lane>
  FLASHMOB_HD void undo_store(Lane& t, std::uint64_t index, bool dirty) const {
    change(t, index, line::kWriting, dirty ? static_cast<std::uint64_t>(LineState::modified) : 0);
  }

  // If the line's command has ended and nobody has drawn the consequences yet, does so. True if it had ended.
  template <class Lane>
  FLASHMOB_HD bool settle(Lane& t, std::uint64_t index) const {
    CacheLine& line = lines_[index];
    std::uint32_t word = line.io.word.load(t);
    if ((word & Completion::kFinished) == 0 || (word & CacheLine::kTaken) != 0) return false;
    const IoStatus status = IoStatus::from_bits(word);
    // One winner, even among those that have slept since an earlier command of this line: it is its result, too.
    if (!line.io.word.compare_exchange(t, word, Completion::kFinished | CacheLine::kTaken)) return true;
    if (line::writing(line.state.load(t))) {
      end_store(t, index, status, false);
    } else {
      if (!status.ok()) line.error.store(t, status.to_bits());
      publish(t, index, status.ok() ? LineState::ready : LineState::invalid, 0);
    }
    return true;
  }
  template <class Lane>
  FLASHMOB_HD void settle_set(Lane& t, std::uint32_t set) const {
    for (std::uint32_t way = 0; way < geometry_.ways; ++way) settle(t, first_line(set) + way);
  }
  template <class Lane>
  FLASHMOB_HD IoStatus error(Lane& t, std::uint64_t index) const {
    return IoStatus::from_bits(lines_[index].error.load(t));
  }

 private:
  // What the lines of a set are good for.
  struct Survey {
    std::uint64_t clean = 0;
    std::uint64_t dirty = 0;
    std::uint64_t failed = 0;
    std::uint32_t empty = policy::kMaxWays;
    bool moving = false;  // a line is being filled or written: something will end
  };

  FLASHMOB_HD PolicySet policy_set(std::uint32_t set) const {
    return {lines_ + first_line(set), words_ + std::uint64_t{set} * Policy::set_words(geometry_.ways), geometry_.ways};
  }

  template <class Lane>
  FLASHMOB_HD void change(Lane& t, std::uint64_t index, std::uint64_t clear, std::uint64_t set) const {
    std::uint64_t word = lines_[index].state.load(t);
    while (!lines_[index].state.compare_exchange(t, word, (word & ~clear) | set)) {
    }
  }

  template <class Lane>
  FLASHMOB_HD Claim claim_locked(Lane& t, std::uint32_t set, std::uint64_t tag, std::uint64_t users,
                                 bool offer_clean) const {
    Survey survey;
    const std::uint64_t first = first_line(set);
    for (std::uint32_t way = 0; way < geometry_.ways; ++way) {
      const std::uint64_t word = lines_[first + way].state.load(t);
      if (tags_[first + way].load(t, simt::Order::relaxed) == tag) {
        if (line::state(word) != LineState::invalid) return {.kind = Claim::Kind::found};
        // Its fetch has failed. Those who were told must have left before it is tried again, here and nowhere else:
        // a tag is never borne by two lines.
        return line::pins(word) == 0 ? take(t, set, way, tag, users) : Claim{};
      }
      look(word, way, offer_clean, survey);
    }
    if (survey.empty != policy::kMaxWays) return take(t, set, survey.empty, tag, users);
    Claim none{.kind = survey.failed != 0 && !survey.moving ? Claim::Kind::failed : Claim::Kind::full,
               .moving = survey.moving};
    if ((survey.clean | survey.dirty) == 0) {
      if (survey.failed != 0) none.line = first + policy::first(survey.failed);
      return none;
    }
    none.kind = Claim::Kind::full;
    const std::uint32_t choice = Policy::victim(t, policy_set(set), survey.clean | survey.dirty);
    if (!policy::has(survey.dirty, choice)) return take(t, set, choice, tag, users);
    // The one to go must be written first. While that lasts the next best clean line serves.
    none.store = first + choice;
    if (survey.clean == 0) return none;
    Claim claim = take(t, set, Policy::victim(t, policy_set(set), survey.clean), tag, users);
    claim.store = first + choice;
    return claim;
  }

  FLASHMOB_HD static void look(std::uint64_t word, std::uint32_t way, bool offer_clean, Survey& survey) {
    const std::uint64_t bit = std::uint64_t{1} << way;
    if (line::state(word) == LineState::busy || line::writing(word)) survey.moving = true;
    if (line::state(word) == LineState::busy || line::writing(word) || line::pins(word) != 0) return;
    switch (line::state(word)) {
      case LineState::invalid:
        if (survey.empty == policy::kMaxWays) survey.empty = way;
        break;
      case LineState::ready:
        ((word & line::kKept) != 0 || !offer_clean ? survey.clean : survey.dirty) |= bit;
        break;
      default:
        ((word & line::kWriteFailed) != 0 ? survey.failed : survey.dirty) |= bit;
    }
  }

  // Under the lock. Fails if somebody has pinned the line since it was looked at.
  template <class Lane>
  FLASHMOB_HD Claim take(Lane& t, std::uint32_t set, std::uint32_t way, std::uint64_t tag, std::uint64_t users) const {
    const std::uint64_t index = first_line(set) + way;
    std::uint64_t word = lines_[index].state.load(t);
    const LineState state = line::state(word);
    if ((state != LineState::invalid && state != LineState::ready) || line::pins(word) != 0 || line::writing(word))
      return {};
    if (!lines_[index].state.compare_exchange(t, word, users | static_cast<std::uint64_t>(LineState::busy))) return {};
    const std::uint64_t old = tags_[index].load(t, simt::Order::relaxed);
    if (old != kNoTag) Policy::evict(t, policy_set(set), way, old);
    tags_[index].store(t, tag);
    Policy::insert(t, policy_set(set), way, tag);
    return {.kind = Claim::Kind::taken, .evicted = state == LineState::ready, .line = index};
  }

  CacheGeometry geometry_;
  Chain chain_;
  std::byte* data_ = nullptr;
  CacheLine* lines_ = nullptr;
  simt::Word<std::uint64_t>* tags_ = nullptr;
  simt::Word<std::uint32_t>* locks_ = nullptr;
  simt::Word<std::uint32_t>* words_ = nullptr;  // the policy's, per set
};

}  // namespace flashmob::gpu
