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

// Copies `bytes`, a multiple of 16; both ends are aligned to 16. Of several lanes that share the work, lane number
// `rank` of `count` does its part.
template <class Lane>
FLASHMOB_HD void copy_line(Lane& t, void* to, const void* from, std::uint32_t bytes, std::uint32_t rank = 0,
                           std::uint32_t count = 1) {
  struct alignas(16) Chunk {
    std::uint64_t words[2];
  };
  auto* out = static_cast<Chunk*>(to);
  const auto* in = static_cast<const Chunk*>(from);
  // The seeded scheduler may switch here, as it may at an atomic: a copy takes time.
  t.before_atomic(simt::Here::current());
  for (std::uint32_t i = rank; i < bytes / sizeof(Chunk); i += count) out[i] = in[i];
}

// Copies a block out of its line, if it is in one, by all lanes of `mask` together; the lowest holds the pin meanwhile.
template <class Lane, class Sets>
FLASHMOB_HD bool copy_block(Lane& t, std::uint32_t mask, const Sets& sets, std::uint64_t tag, void* to) {
  const std::uint32_t leader = simt::first_lane(mask);
  const std::uint64_t users = line::users(1, false);
  std::uint64_t index = kNoLine;
  if (t.lane() == leader) index = sets.find(t, tag);
  if (index != kNoLine) {
    const std::uint64_t word = sets.pin(t, index, users);
    if (line::holds_data(word) && sets.bears(t, index, tag)) {
      sets.hit(t, index);
    } else {
      sets.unpin(t, index, users);
      index = kNoLine;
    }
  }
  index = t.shuffle(mask, index, leader);
  if (index == kNoLine) return false;
  copy_line(t, to, sets.data(index), sets.geometry().line_bytes, simt::count_lanes(simt::lanes_below(mask, t.lane())),
            simt::count_lanes(mask));
  t.sync(mask);
  if (t.lane() == leader) sets.unpin(t, index, users);
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

  // Takes a copy of the block. `error` says why if it failed.
  template <class Lane>
  FLASHMOB_HD Put put(Lane& t, std::uint64_t tag, const void* from, bool dirty, IoStatus& error) const {
    const auto& sets = lower_.sets();
    const Put no_place = dirty ? Put::later : Put::skipped;
    const std::uint64_t users = line::users(1, true);
    if (const std::uint64_t index = sets.find(t, tag); index != kNoLine) {
      const std::uint64_t word = sets.pin(t, index, users);
      const bool here = line::holds_data(word) && sets.bears(t, index, tag);
      const bool free = here && !line::writing(word);
      if (free && dirty) {
        sets.modify(t, index, word);
        copy_line(t, sets.data(index), from, sets.geometry().line_bytes);
      }
      sets.unpin(t, index, users);
      // What is here and clean above is the same as above.
      if (here && (free || !dirty)) return Put::done;
      sets.settle(t, index);
      if (here) return no_place;
    }
    sets.settle_set(t, sets.set_of(tag));
    const Claim claim = sets.claim(t, tag, users, false);
    if (claim.kind == Claim::Kind::taken) {
      if (claim.evicted) lower_.counters().add(t, CacheCount::evictions);
      copy_line(t, sets.data(claim.line), from, sets.geometry().line_bytes);
      sets.publish(t, claim.line, dirty ? LineState::modified : LineState::ready, users);
    }
    if (claim.store != kNoLine) lower_.start_store(t, claim.store);
    if (claim.kind == Claim::Kind::taken) return Put::done;
    if (claim.kind != Claim::Kind::failed) return no_place;
    // Tried once more for the next one that asks.
    error = sets.error(t, claim.line);
    lower_.start_store(t, claim.line);
    return dirty ? Put::failed : Put::skipped;
  }

 private:
  Lower lower_;
};

}  // namespace flashmob::gpu
