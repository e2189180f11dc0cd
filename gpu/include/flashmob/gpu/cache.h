// A software cache in device memory for blocks of SSDs, shared by all threads of a GPU.
//
//   const Pin pin = cache.acquire(t, {.ssd = 0, .ns = 0, .block = 17}, Access::write);
//   if (!pin.ok()) return pin.status;
//   reinterpret_cast<float*>(pin.data)[3] = 1;
//   cache.release(t, pin);
//
// A block is fetched once, however many ask; what was written goes back to the SSD before its line is given to another
// block, and by write_back() and flush(). A block that is found costs one atomic addition to pin it and one to let it
// go. The protocol of lines is cache_sets.h's; here are the commands, the waits and what users call.
//
// Whoever waits here holds no lock, looks at the abort flag and has a deadline, and each one that waits for a fetch is
// told its error. A wait that ends early leaves the command in flight and the line BUSY until the SSD has answered.
// What the user holds is the user's: who keeps pins while asking for more can fill a set, and then waits until its
// deadline (IoKind::no_line); a debug build reports circular waits (lock_chain.h).
// Thread rule: any lane. CacheRef is trivially copyable and passed by value. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/cache_sets.h"
#include "flashmob/gpu/cache_statistics.h"
#include "flashmob/gpu/coalesce.h"
#include "flashmob/gpu/second_tier.h"
#include "flashmob/gpu/ssd.h"
#include "flashmob/gpu/status.h"
#include "flashmob/gpu/token.h"

namespace flashmob::gpu {

enum class Access : std::uint8_t {
  read,
  write,      // the block is fetched, and MODIFIED from now on
  overwrite,  // like write, but the caller fills all of the block, so it is not fetched; others wait until it is
              // released
};

// A line that does not go away until it is released.
struct Pin {
  std::byte* data = nullptr;
  std::uint64_t line = kNoLine;
  IoStatus status{0, IoKind::stale};
  bool writes = false;
  bool fills = false;       // nobody else sees the line before it is released
  std::uint32_t group = 0;  // of the warp's form: the lanes that were given this line

  FLASHMOB_HD bool ok() const { return data != nullptr; }
};

// What an SSD type's commands are held by.
template <class Ssd>
struct TokenOf {
  using Type = Token;
};

// A copy between a user's buffer and the SSD, ended by wait_for() of the cache that began it.
template <class CommandToken>
struct TransferOf {
  enum class Kind : std::uint8_t { finished, reads, writes };
  Kind kind = Kind::finished;
  IoStatus status{};
  std::uint64_t tag = kNoTag;
  CommandToken token{};
};

template <class Policy, class Ssd = SsdRef, class Tier = NoSecondTier, class Chain = BuildLockChain>
class CacheRef {
 public:
  using Sets = CacheSets<Policy, Chain>;
  using Transfer = TransferOf<typename TokenOf<Ssd>::Type>;

  CacheRef() = default;
  // `ssds` is an array of `ssd_count` that outlives the cache, like everything else.
  FLASHMOB_HD CacheRef(const Sets& sets, const Ssd* ssds, std::uint32_t ssd_count, CacheCounters counters = {},
                       const Tier& tier = {})
      : sets_(sets), ssds_(ssds), counters_(counters), tier_(tier), ssd_count_(ssd_count) {}

  FLASHMOB_HD const Sets& sets() const { return sets_; }
  FLASHMOB_HD const CacheCounters& counters() const { return counters_; }
  FLASHMOB_HD const Tier& tier() const { return tier_; }
  FLASHMOB_HD std::uint32_t line_bytes() const { return sets_.geometry().line_bytes; }
  FLASHMOB_HD const Ssd& ssd(std::uint32_t index) const { return ssds_[index]; }

  // --- One thread ---

  template <class Lane>
  FLASHMOB_HD Pin acquire(Lane& t, const BlockKey& key, Access access = Access::read, WaitLimit limit = {}) const {
    const Pin pin = acquire_for(t, key, access, line::users(1, access != Access::read), limit);
    if (pin.ok()) note_pin(t, pin.line, pin.fills);
    return pin;
  }
  template <class Lane>
  FLASHMOB_HD void release(Lane& t, const Pin& pin) const {
    if (!pin.ok()) return;
    forget_pin(t, pin);
    release_for(t, pin, line::users(1, pin.writes));
  }
  // Begins to fetch the block if it is not here. Waits for no I/O; a prefetch that finds no line free is dropped.
  template <class Lane>
  FLASHMOB_HD void prefetch(Lane& t, const BlockKey& key) const {
    prefetch_by(t, 1u << t.lane(), true, key);
  }

  // --- A warp, or part of one: every lane of `mask` calls, each with its own key; equal keys are asked for once ---
  // Lanes with different keys go on apart from each other, as each gets its line. They must not meet before they have
  // released them: as many different lines as a warp has lanes may be more than a set, or a cache, can give. (Of a
  // cache with a second tier they meet within this call, as long as nobody waits, and copy together what moves between
  // the tiers.)

  template <class Lane>
  FLASHMOB_HD Pin acquire(Lane& t, std::uint32_t mask, const BlockKey& key, Access access = Access::read,
                          WaitLimit limit = {}) const {
    // A key that has no tag fails alone, wherever it is asked for.
    const Group group = coalesce(t, mask, serves(key) ? tag_of(key) : kNoTag);
    const std::uint32_t writers = t.ballot(group.mask, access != Access::read);
    const bool alone = group.mask == (1u << group.leader);
    const Access together = alone ? access : writers != 0 ? Access::write : Access::read;
    const std::uint64_t users =
        line::users(simt::count_lanes(group.mask), false) + line::kWriter * simt::count_lanes(writers);
    const Pin got = acquire_by(t, mask, group.leads, key, together, users, limit);
    const std::uint64_t index = share(t, group, got.line);
    const std::uint32_t rest = share(t, group, got.status.to_bits() | (got.fills ? 1u : 0u));
    if (index == kNoLine) return {.status = IoStatus::from_bits(rest)};
    // What the leader has seen, all see: on a GPU a shuffle does not see to that.
    if (!alone) t.sync(group.mask);
    note_pin(t, index, (rest & 1) != 0);
    Pin pin = pinned(index, access != Access::read, (rest & 1) != 0);
    pin.group = group.mask;
    return pin;
  }
  // For pins of the warp's form, with the same mask, instead of the other release(): the lanes that were given one line
  // meet and let it go together. Lanes with other lines are not waited for.
  template <class Lane>
  FLASHMOB_HD void release(Lane& t, std::uint32_t mask, const Pin& pin) const {
    if (!pin.ok()) return;
    const std::uint32_t writers = t.ballot(pin.group & mask, pin.writes);
    // What all have written is there before one of them lets the line go.
    if (simt::count_lanes(pin.group) > 1) t.sync(pin.group);
    forget_pin(t, pin);
    if (!t.elect(pin.group)) return;
    release_for(t, pin, line::users(simt::count_lanes(pin.group), false) + line::kWriter * simt::count_lanes(writers));
  }
  template <class Lane>
  FLASHMOB_HD void prefetch(Lane& t, std::uint32_t mask, const BlockKey& key) const {
    prefetch_by(t, mask, coalesce(t, mask, serves(key) ? tag_of(key) : kNoTag).leads, key);
  }

  // --- A user's own buffers: line_bytes() long, aligned to 16, in memory that the SSD reaches ---
  // With `mask` all of its lanes call with the same key and buffer, and copy together. The transfer is the lowest
  // lane's to test and wait for; the others' are finished.

  // Begins to bring a block to `to`: from here if it is here, else straight from the SSD, leaving the cache as it is.
  // What others write to the block later does not reach the buffer.
  template <class Lane>
  FLASHMOB_HD Transfer async_read(Lane& t, std::uint32_t mask, const BlockKey& key, void* to) const;
  template <class Lane>
  FLASHMOB_HD Transfer async_read(Lane& t, const BlockKey& key, void* to) const {
    return async_read(t, 1u << t.lane(), key, to);
  }
  // Begins to write a block. It is in the cache, for everyone to see, when this returns, and `from` is the caller's
  // again; the transfer is finished when it is on the SSD (which may keep it in a volatile cache of its own: flush).
  template <class Lane>
  FLASHMOB_HD Transfer async_write(Lane& t, std::uint32_t mask, const BlockKey& key, const void* from,
                                   WaitLimit limit = {}) const;
  template <class Lane>
  FLASHMOB_HD Transfer async_write(Lane& t, const BlockKey& key, const void* from, WaitLimit limit = {}) const {
    return async_write(t, 1u << t.lane(), key, from, limit);
  }
  // True if wait_for() will not wait. Any lane.
  template <class Lane>
  FLASHMOB_HD bool test(Lane& t, const Transfer& transfer) const;
  // The end of a transfer; once, by one lane. After a deadline or an abort it may be called again.
  template <class Lane>
  FLASHMOB_HD IoStatus wait_for(Lane& t, const Transfer& transfer, WaitLimit limit = {}) const;

  // --- Everything ---

  // Writes back what was modified before this call, in lines part, part + parts, ...: a kernel's lanes share the work.
  // The first error, if any; lines whose write failed stay MODIFIED. A line that somebody holds for writing is waited
  // for, so the caller must hold none.
  template <class Lane>
  FLASHMOB_HD IoStatus write_back(Lane& t, std::uint64_t part = 0, std::uint64_t parts = 1, WaitLimit limit = {}) const;
  // write_back() of everything, the second tier too, and then a Flush of every namespace.
  template <class Lane>
  FLASHMOB_HD IoStatus flush(Lane& t, WaitLimit limit = {}) const;
  // Waits until no command of a line is in flight, as the host wants it before it takes the memory away.
  template <class Lane>
  FLASHMOB_HD IoStatus drain(Lane& t, WaitLimit limit = {}) const;

  // --- For what builds on caches: the second tier, the share table ---

  // False for keys that name no SSD or namespace, or a block beyond what tags can say.
  FLASHMOB_HD bool serves(const BlockKey& key) const {
    return key.ssd < ssd_count_ && has_tag(key) && key.ns < ssds_[key.ssd].namespace_count();
  }
  // Copies the block to `to` if it is here, in either tier, by all lanes of `mask` together.
  template <class Lane>
  FLASHMOB_HD bool copy_out(Lane& t, std::uint32_t mask, std::uint64_t tag, void* to) const;
  // Begins to read the block from the SSD, which is right only after copy_out() has said that it is not here.
  template <class Lane>
  FLASHMOB_HD void read_past(Lane& t, std::uint64_t tag, void* to, Completion& done) const {
    counters_.add(t, CacheCount::misses);
    const BlockKey key = key_of(tag);
    const Extent where = extent(key);
    ssds_[key.ssd].read_into(t, key.ns, where.lba, where.blocks, to, done);
  }
  // Begins the write-back of a line. False if there is nothing to write, or somebody is at it, or it cannot be now.
  // With `mask` all of its lanes call, each with a line or kNoLine, and copy to the second tier together.
  template <class Lane>
  FLASHMOB_HD bool start_store(Lane& t, std::uint32_t mask, std::uint64_t index, bool offer_clean) const;
  template <class Lane>
  FLASHMOB_HD bool start_store(Lane& t, std::uint64_t index, bool offer_clean = Tier::kPresent) const {
    return start_store(t, 1u << t.lane(), index, offer_clean);
  }

 private:
  // While others have the set's lock, which they give back without waiting for anything: enough for all the warps that
  // can be at one set.
  static constexpr std::uint32_t kPrefetchAttempts = 256;
  // How often the lanes of a warp try together before each goes on by itself. The first time a full set finds its
  // victim a place below, the second takes its line; the others are for lanes that meet at a set's lock.
  static constexpr std::uint32_t kRoundsTogether = 8;

  struct Wait {
    std::uint64_t start_ns = 0;
    std::uint64_t timeout_ns = 0;
    Backoff backoff{};
    bool waited = false;
    bool retried = false;  // a write-back that had failed was begun again
  };
  FLASHMOB_HD Extent extent(const BlockKey& key) const {
    return extent_of(ssds_[key.ssd].ns(key.ns), key, line_bytes());
  }

  template <class Lane>
  FLASHMOB_HD Pin acquire_for(Lane& t, const BlockKey& key, Access access, std::uint64_t users, WaitLimit limit) const;
  template <class Lane>
  FLASHMOB_HD Pin acquire_by(Lane& t, std::uint32_t mask, bool asks, const BlockKey& key, Access access,
                             std::uint64_t users, WaitLimit limit) const;
  template <class Lane>
  FLASHMOB_HD std::uint64_t take_together(Lane& t, std::uint32_t mask, std::uint64_t tag, Access access,
                                          std::uint64_t users, Pin& pin) const;
  template <class Lane>
  FLASHMOB_HD void prefetch_by(Lane& t, std::uint32_t mask, bool asks, const BlockKey& key) const;
  template <class Lane>
  FLASHMOB_HD bool find_now(Lane& t, std::uint64_t tag, bool write, std::uint64_t users, Pin& pin) const;
  template <class Lane>
  FLASHMOB_HD Pin acquire_slowly(Lane& t, std::uint64_t tag, Access access, std::uint64_t users, std::uint64_t taken,
                                 WaitLimit limit) const;
  template <class Lane>
  FLASHMOB_HD bool look_again(Lane& t, std::uint64_t tag, Access access, std::uint64_t users, Wait& wait,
                              Pin& pin) const;
  template <class Lane>
  FLASHMOB_HD bool take_line(Lane& t, std::uint64_t tag, Access access, std::uint64_t users, Wait& wait,
                             Pin& pin) const;
  template <class Lane>
  FLASHMOB_HD bool join(Lane& t, std::uint64_t index, std::uint64_t tag, bool write, std::uint64_t users, Wait& wait,
                        Pin& pin) const;
  template <class Lane>
  FLASHMOB_HD void release_for(Lane& t, const Pin& pin, std::uint64_t users) const {
    if (pin.fills)
      sets_.publish(t, pin.line, LineState::modified, users);
    else
      sets_.unpin(t, pin.line, users);
  }
  template <class Lane>
  FLASHMOB_HD IoStatus await(Lane& t, std::uint64_t index, std::uint32_t ssd, bool write, Wait& wait,
                             std::uint64_t& word) const;
  template <class Lane>
  FLASHMOB_HD IoStatus await_stored(Lane& t, std::uint64_t index, std::uint64_t tag, Wait& wait) const;
  template <class Lane>
  FLASHMOB_HD bool go_on(Lane& t, std::uint32_t ssd, Wait& wait, IoStatus& status) const;
  template <class Lane>
  FLASHMOB_HD void help(Lane& t, Wait& wait) const;
  template <class Lane>
  FLASHMOB_HD bool follow(Lane& t, std::uint32_t mask, const Claim& claim, bool fetch, std::uint64_t tag) const;
  template <class Lane>
  FLASHMOB_HD void read_line(Lane& t, std::uint64_t index, std::uint64_t tag) const;

  template <class Lane>
  FLASHMOB_HD Wait begin_wait(Lane& t, std::uint32_t ssd, WaitLimit limit) const {
    return {t.now_ns(), limit.timeout_ns != 0 ? limit.timeout_ns : ssds_[ssd].timeout_ns()};
  }
  FLASHMOB_HD Pin pinned(std::uint64_t index, bool write, bool fills) const {
    return {sets_.data(index), index, {}, write, fills, 0};
  }
  template <class Lane>
  FLASHMOB_HD void note_claim(Lane& t, const Claim& claim) const {
    if (claim.evicted) counters_.add(t, CacheCount::evictions);
  }
  // For the lock chain: who holds what.
  template <class Lane>
  FLASHMOB_HD void note_pin(Lane& t, std::uint64_t index, bool fills) const {
    sets_.chain().took(t, held_thing(HeldKind::lines, sets_.set_of_line(index)));
    if (fills) sets_.chain().took(t, held_thing(HeldKind::fill, index));
  }
  template <class Lane>
  FLASHMOB_HD void forget_pin(Lane& t, const Pin& pin) const {
    sets_.chain().left(t, held_thing(HeldKind::lines, sets_.set_of_line(pin.line)));
    if (pin.fills) sets_.chain().left(t, held_thing(HeldKind::fill, pin.line));
  }

  Sets sets_;
  const Ssd* ssds_ = nullptr;
  CacheCounters counters_;
  [[no_unique_address]] Tier tier_;
  std::uint32_t ssd_count_ = 0;
};

}  // namespace flashmob::gpu

#include "flashmob/gpu/detail/cache_access.h"
#include "flashmob/gpu/detail/cache_transfer.h"
