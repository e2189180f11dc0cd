// A second, larger cache in pinned host memory, below the one in device memory. A block that leaves the first tier goes
// to the second, dirty or clean; a miss of the first looks there before it asks the SSD. Blocks come from the SSD to
// the first tier directly, so the second costs no bandwidth for what it does not hold.
//
// To the first tier, "what lies below" is the second tier and the SSD together: every write-back goes through here, and
// a block that is here and newer than the SSD is found here. Lines of this tier are only ever filled by copies, and
// nothing here waits: what cannot be done now is said to be possible later. Compiles as CUDA device code.
// Thread rule: any lane.
#pragma once

#include <cstdint>

#include "flashmob/gpu/cache_sets.h"

namespace flashmob::gpu {

// Copies `bytes`, a multiple of 16, by all lanes of `mask` together; both ends are aligned to 16. Neighbouring lanes
// copy neighbouring pieces, which a GPU moves as one access. One lane may have come by the two lines for all: they meet
// before and afterwards, because a GPU's shuffle and ballot do not order what is in memory.
template <class Lane>
FLASHMOB_HD void copy_line(Lane& t, std::uint32_t mask, void* to, const void* from, std::uint32_t bytes) {
  struct alignas(16) Chunk {
    std::uint64_t words[2];
  };
  auto* out = static_cast<Chunk*>(to);
  const auto* in = static_cast<const Chunk*>(from);
  const std::uint32_t lanes = simt::count_lanes(mask);
  if (lanes > 1) t.sync(mask);
  for (std::uint32_t i = simt::count_lanes(simt::lanes_below(mask, t.lane())); i < bytes / sizeof(Chunk); i += lanes) {
    // The seeded scheduler may switch here, as it may at an atomic: a copy takes time.
    t.before_atomic(simt::Here::current());
    out[i] = in[i];
  }
  if (lanes > 1) t.sync(mask);
}
template <class Lane>
FLASHMOB_HD void copy_line(Lane& t, void* to, const void* from, std::uint32_t bytes) {
  copy_line(t, 1u << t.lane(), to, from, bytes);
}

// For each lane of `mask` that `wants` it, copies a line of one cache to one of another, by all of them together.
template <class Lane, class To, class From>
FLASHMOB_HD void copy_each(Lane& t, std::uint32_t mask, bool wants, const To& to, std::uint64_t to_line,
                           const From& from, std::uint64_t from_line) {
  for (std::uint32_t left = t.ballot(mask, wants); left != 0; left &= left - 1) {
    const std::uint32_t lane = simt::first_lane(left);
    const std::uint64_t target = t.shuffle(mask, to_line, lane);
    const std::uint64_t source = t.shuffle(mask, from_line, lane);
    copy_line(t, mask, to.data(target), from.data(source), to.geometry().line_bytes);
  }
}

// The line with the block, if there is one, with one more user.
template <class Lane, class Sets>
FLASHMOB_HD std::uint64_t pin_block(Lane& t, const Sets& sets, std::uint64_t tag) {
  const std::uint64_t users = line::users(1, false);
  const std::uint64_t index = sets.find(t, tag);
  if (index == kNoLine) return kNoLine;
  const std::uint64_t word = sets.pin(t, index, users);
  if (line::holds_data(word) && sets.bears(t, index, tag)) {
    sets.hit(t, index);
    return index;
  }
  sets.unpin(t, index, users);
  return kNoLine;
}

// Copies a block out of its line, if it is in one, by all lanes of `mask` together; the lowest holds the pin meanwhile.
template <class Lane, class Sets>
FLASHMOB_HD bool copy_block(Lane& t, std::uint32_t mask, const Sets& sets, std::uint64_t tag, void* to) {
  const bool leads = t.elect(mask);
  const std::uint64_t index = t.shuffle(mask, leads ? pin_block(t, sets, tag) : kNoLine, simt::first_lane(mask));
  if (index == kNoLine) return false;
  copy_line(t, mask, to, sets.data(index), sets.geometry().line_bytes);
  if (leads) sets.unpin(t, index, line::users(1, false));
  return true;
}

enum class Put : std::uint8_t {
  done,
  skipped,  // clean data that there is no place for
  later,  // dirty data that there is no place for yet
  failed,  // and there will be none, because the SSD does not take what is here
};

struct NoSecondTier {
  static constexpr bool kPresent = false;
};

// `Lower` is a CacheRef over host memory.
template <class Lower>
class SecondTier {
 public:
  static constexpr bool kPresent = true;

  SecondTier() = default;
  FLASHMOB_HD explicit SecondTier(const Lower& lower) : lower_(lower) {}
  FLASHMOB_HD const Lower& lower() const { return lower_; }

  // Copies the block to `to` if it is here, by all lanes of `mask` together.
  template <class Lane>
  FLASHMOB_HD bool get(Lane& t, std::uint32_t mask, std::uint64_t tag, void* to) const {
    return copy_block(t, mask, lower_.sets(), tag, to);
  }

  // --- For lanes that copy together what each of them has looked for ---

  // The line with the block, or kNoLine; to be left when it has been copied.
  template <class Lane>
  FLASHMOB_HD std::uint64_t find(Lane& t, std::uint64_t tag) const {
    return pin_block(t, lower_.sets(), tag);
  }
  template <class Lane>
  FLASHMOB_HD void leave(Lane& t, std::uint64_t index) const {
    lower_.sets().unpin(t, index, line::users(1, false));
  }

  // Where a block is to be copied to, if anywhere, and what comes of that.
  struct Place {
    Put answer = Put::done;
    bool claimed = false;  // BUSY until it is filled
    std::uint64_t line = kNoLine;
    std::uint64_t store = kNoLine;  // a line to write back, to be free when it is wanted
    IoStatus error{};  // why, if it failed
  };
  // To be left when the block has been copied to place.line, if that is a line.
  template <class Lane>
  FLASHMOB_HD Place find_place(Lane& t, std::uint64_t tag, bool dirty) const {
    const auto& sets = lower_.sets();
    const Put no_place = dirty ? Put::later : Put::skipped;
    if (const std::uint64_t index = sets.find(t, tag); index != kNoLine) {
      const std::uint64_t word = sets.pin(t, index, kUsers);
      const bool here = line::holds_data(word) && sets.bears(t, index, tag);
      if (here && dirty && !line::writing(word)) {
        sets.modify(t, index, word);
        return {.line = index};
      }
      sets.unpin(t, index, kUsers);
      // What is here and clean above is the same as above.
      if (here && !dirty) return {};
      sets.settle(t, index);
      if (here) return {.answer = no_place};
    }
    sets.settle_set(t, sets.set_of(tag));
    const Claim claim = sets.claim(t, tag, kUsers, false);
    if (claim.evicted) lower_.counters().add(t, CacheCount::evictions);
    if (claim.kind == Claim::Kind::taken) return {.claimed = true, .line = claim.line, .store = claim.store};
    if (claim.kind != Claim::Kind::failed) return {.answer = no_place, .store = claim.store};
    // Tried once more for the next one that asks.
    return {.answer = dirty ? Put::failed : Put::skipped, .store = claim.line, .error = sets.error(t, claim.line)};
  }
  template <class Lane>
  FLASHMOB_HD void leave(Lane& t, const Place& place, bool dirty) const {
    const auto& sets = lower_.sets();
    if (place.claimed)
      sets.publish(t, place.line, dirty ? LineState::modified : LineState::ready, kUsers);
    else if (place.line != kNoLine)
      sets.unpin(t, place.line, kUsers);
    if (place.store != kNoLine) lower_.start_store(t, place.store);
  }

 private:
  static constexpr std::uint64_t kUsers = line::users(1, true);  // of a place

  Lower lower_;
};

}  // namespace flashmob::gpu
