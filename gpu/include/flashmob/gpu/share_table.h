// Buffers of users that hold blocks, and who else uses them: a thread that wants a block which another thread has in a
// buffer of its own already is given that buffer instead of reading the block again.
//
//   Share share = table.open(t, key, my_buffer);          // begins to read, or joins
//   if (!table.wait(t, share).ok()) ...                   // share.data is the block: my_buffer or somebody's
//   share.data[...] = ...; table.modified(t, share);      // seen by all that share it, and written back later
//   status = table.close(t, share);
//
// A block is in one buffer at most, that of its *owner*, the thread that opened it first. What that buffer is follows
// from two facts, whether more than one thread uses it and whether it is newer than what lies below:
//
//                     one user     several
//        unchanged    exclusive    shared
//        changed      modified     owned
//
// The owner writes back: by write_back(), and at the latest by close(), which lets nobody join any more and waits until
// the others have closed, because the buffer is the owner's again afterwards. So: close what you have joined before
// what you own; a debug build reports who does not, and the wait ends by its deadline, with the share still open.
//
// What is below is the cache (CachedBlocks: buffers are filled from lines and written back to lines, so both agree
// after a write-back) or the SSD itself (DirectBlocks). Between two write-backs others see the buffer only by sharing.
// Thread rule: any lane; threads that change the same words of a shared buffer must agree among themselves, as with all
// memory. No lock is held while anything is waited for. Compiles as CUDA device code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "flashmob/gpu/cache.h"

namespace flashmob::gpu {

enum class ShareState : std::uint8_t { none, loading, exclusive, shared, modified, owned, failed };

// A thread's use of a buffer.
struct Share {
  std::byte* data = nullptr;
  std::uint64_t entry = kNoLine;
  std::uint64_t tag = kNoTag;
  IoStatus status{0, IoKind::stale};
  bool owner = false;

  FLASHMOB_HD bool open() const { return entry != kNoLine; }
};

// Blocks as a cache holds them.
template <class Cache>
class CachedBlocks {
 public:
  CachedBlocks() = default;
  FLASHMOB_HD explicit CachedBlocks(const Cache& cache) : cache_(cache) {}
  FLASHMOB_HD std::uint64_t timeout_ns(std::uint64_t tag) const { return cache_.ssd(key_of(tag).ssd).timeout_ns(); }
  FLASHMOB_HD bool serves(const BlockKey& key) const { return cache_.serves(key); }
  template <class Lane>
  FLASHMOB_HD bool aborted(Lane& t, std::uint64_t tag) const {
    return cache_.ssd(key_of(tag).ssd).aborted(t);
  }
  template <class Lane>
  FLASHMOB_HD bool help(Lane& t, std::uint64_t tag) const {
    return cache_.ssd(key_of(tag).ssd).help(t);
  }
  // Brings the block to `to`; the end is announced in `done`, which is armed.
  template <class Lane>
  FLASHMOB_HD void load(Lane& t, std::uint64_t tag, void* to, Completion& done) const {
    if (cache_.copy_out(t, 1u << t.lane(), tag, to))
      done.finish(t, {});
    else
      cache_.read_past(t, tag, to, done);
  }
  template <class Lane>
  FLASHMOB_HD IoStatus store(Lane& t, std::uint64_t tag, const void* from, Completion&, WaitLimit limit) const {
    const Pin pin = cache_.acquire(t, key_of(tag), Access::overwrite, limit);
    if (!pin.ok()) return pin.status;
    copy_line(t, pin.data, from, cache_.line_bytes());
    cache_.release(t, pin);
    return {};
  }

 private:
  Cache cache_;
};

// Blocks of SSDs that nobody caches.
template <class Ssd = SsdRef>
class DirectBlocks {
 public:
  DirectBlocks() = default;
  FLASHMOB_HD DirectBlocks(const Ssd* ssds, std::uint32_t ssd_count, std::uint32_t block_bytes)
      : ssds_(ssds), ssd_count_(ssd_count), block_bytes_(block_bytes) {}
  FLASHMOB_HD std::uint64_t timeout_ns(std::uint64_t tag) const { return ssds_[key_of(tag).ssd].timeout_ns(); }
  FLASHMOB_HD bool serves(const BlockKey& key) const {
    return key.ssd < ssd_count_ && has_tag(key) && key.ns < ssds_[key.ssd].namespace_count();
  }
  template <class Lane>
  FLASHMOB_HD bool aborted(Lane& t, std::uint64_t tag) const {
    return ssds_[key_of(tag).ssd].aborted(t);
  }
  template <class Lane>
  FLASHMOB_HD bool help(Lane& t, std::uint64_t tag) const {
    return ssds_[key_of(tag).ssd].help(t);
  }
  template <class Lane>
  FLASHMOB_HD void load(Lane& t, std::uint64_t tag, void* to, Completion& done) const {
    const BlockKey key = key_of(tag);
    const Extent where = extent_of(ssds_[key.ssd].ns(key.ns), key, block_bytes_);
    ssds_[key.ssd].read_into(t, key.ns, where.lba, where.blocks, to, done);
  }
  // A command whose wait ended early is still the SSD's: `done` will say when it is not.
  template <class Lane>
  FLASHMOB_HD IoStatus store(Lane& t, std::uint64_t tag, const void* from, Completion& done, WaitLimit limit) const {
    const BlockKey key = key_of(tag);
    const Ssd& ssd = ssds_[key.ssd];
    const Extent where = extent_of(ssd.ns(key.ns), key, block_bytes_);
    done.arm(t);
    ssd.write_from(t, key.ns, where.lba, where.blocks, from, done);
    return ssd.wait(t, done, limit);
  }

 private:
  const Ssd* ssds_ = nullptr;
  std::uint32_t ssd_count_ = 0;
  std::uint32_t block_bytes_ = 0;
};

// A place of the table. `word`: what is going on, and users from bit 32 on. It is free if the word is 0.
struct alignas(64) ShareEntry {
  static constexpr std::uint64_t kPresent = 1;
  static constexpr std::uint64_t kLoading = 2;
  static constexpr std::uint64_t kDirty = 4;
  static constexpr std::uint64_t kFailed = 8;  // the block could not be read
  static constexpr std::uint64_t kClosing = 16;  // the owner waits for the others; nobody joins
  static constexpr std::uint64_t kUser = std::uint64_t{1} << 32;

  simt::Word<std::uint64_t> tag{kNoTag};
  simt::Word<std::uint64_t> word;
  simt::Word<std::uint64_t> buffer;
  Completion io{{Completion::kFinished | CacheLine::kTaken}};
};

template <class Blocks, class Chain = BuildLockChain>
class ShareTable {
 public:
  FLASHMOB_HD static constexpr std::uint64_t bytes(std::uint32_t sets, std::uint32_t ways) {
    return std::uint64_t{sets} * ways * sizeof(ShareEntry) + std::uint64_t{sets} * sizeof(std::uint32_t);
  }
  // The table in `memory`, bytes() aligned to 64, wherever that lies: nothing is touched. Twice as many entries as
  // there are buffers, in sets of 8, leave room for uneven sets. By the host, as place() is.
  static ShareTable at(std::uint32_t sets, std::uint32_t ways, void* memory, const Blocks& blocks, Chain chain = {}) {
    ShareTable table;
    table.entries_ = static_cast<ShareEntry*>(memory);
    table.locks_ = reinterpret_cast<simt::Word<std::uint32_t>*>(table.entries_ + std::uint64_t{sets} * ways);
    table.sets_ = sets;
    table.ways_ = ways;
    table.blocks_ = blocks;
    table.chain_ = chain;
    return table;
  }
  // The same, made empty, in memory that the host sees.
  static ShareTable place(std::uint32_t sets, std::uint32_t ways, void* memory, const Blocks& blocks,
                          Chain chain = {}) {
    const ShareTable table = at(sets, ways, memory, blocks, chain);
    for (std::uint64_t i = 0; i < std::uint64_t{sets} * ways; ++i) table.entries_[i] = ShareEntry{};
    for (std::uint32_t i = 0; i < sets; ++i) new (table.locks_ + i) simt::Word<std::uint32_t>;
    return table;
  }

  FLASHMOB_HD std::uint64_t entries() const { return std::uint64_t{sets_} * ways_; }
  FLASHMOB_HD const ShareEntry& entry(std::uint64_t index) const { return entries_[index]; }

  // Begins to use a block. `own` is as long as a block and aligned to 16, where the SSD reaches it; it is in use until
  // the share is closed if share.owner, and not at all otherwise. Waits only while the table is full, or the block is
  // just being closed; share.status says why it is not open.
  template <class Lane>
  FLASHMOB_HD Share open(Lane& t, const BlockKey& key, void* own, WaitLimit limit = {}) const {
    Share share{.status = {0, IoKind::bad_request}};
    if (!blocks_.serves(key)) return share;
    share.tag = tag_of(key);
    const std::uint64_t start_ns = t.now_ns();
    for (Backoff backoff; !join(t, share) && !take(t, share, static_cast<std::byte*>(own));) {
      if (!turn(t, share.tag, start_ns, limit, backoff, share.status)) {
        if (share.status.kind == IoKind::deadline) share.status.kind = IoKind::no_line;
        return share;
      }
    }
    share.status = {0, IoKind::pending};
    chain_.took(t, held_thing(HeldKind::share, share.entry));
    return share;
  }

  // True if wait() will not wait.
  template <class Lane>
  FLASHMOB_HD bool test(Lane& t, const Share& share) const {
    if (!share.open()) return true;
    blocks_.help(t, share.tag);
    settle(t, share.entry);
    return (entries_[share.entry].word.load(t) & ShareEntry::kLoading) == 0;
  }
  // Until the block is there. All that share a block whose read has failed are told; they close it, too.
  template <class Lane>
  FLASHMOB_HD IoStatus wait(Lane& t, Share& share, WaitLimit limit = {}) const {
    if (!share.open()) return share.status;
    const std::uint64_t start_ns = t.now_ns();
    for (Backoff backoff;;) {
      settle(t, share.entry);
      const std::uint64_t word = entries_[share.entry].word.load(t);
      if ((word & ShareEntry::kLoading) == 0)
        return share.status = (word & ShareEntry::kFailed) != 0 ? entries_[share.entry].io.status(t) : IoStatus{};
      chain_.waits_for_device(t);
      IoStatus status;
      if (!turn(t, share.tag, start_ns, limit, backoff, status)) return status;
    }
  }

  // To be called after the data were changed: a write-back that ran meanwhile may have missed some of it.
  template <class Lane>
  FLASHMOB_HD void modified(Lane& t, const Share& share) const {
    if ((entries_[share.entry].word.load(t) & ShareEntry::kDirty) == 0)
      entries_[share.entry].word.fetch_or(t, ShareEntry::kDirty);
  }
  // For the owner: what has been changed so far goes below. Waits.
  template <class Lane>
  FLASHMOB_HD IoStatus write_back(Lane& t, const Share& share, WaitLimit limit = {}) const {
    if (!share.open() || !share.owner) return {0, IoKind::bad_request};
    ShareEntry& entry = entries_[share.entry];
    if (!entry.io.finished(t)) {
      // An earlier write-back whose wait ended early.
      const std::uint64_t start_ns = t.now_ns();
      for (Backoff backoff; !entry.io.finished(t);) {
        IoStatus status;
        if (!turn(t, share.tag, start_ns, limit, backoff, status)) return status;
      }
    }
    if ((entry.word.fetch_and(t, ~ShareEntry::kDirty) & ShareEntry::kDirty) == 0) return {};
    const IoStatus stored = blocks_.store(t, share.tag, share.data, entry.io, limit);
    if (!stored.ok()) entry.word.fetch_or(t, ShareEntry::kDirty);
    return stored;
  }
  // Ends the use. For the owner that means: write back and take the buffer out of the table, once nobody else uses it.
  // If that fails, the share stays open (others may join again), and close() may be called again.
  template <class Lane>
  FLASHMOB_HD IoStatus close(Lane& t, Share& share, WaitLimit limit = {}) const {
    if (!share.open()) return {};
    ShareEntry& entry = entries_[share.entry];
    if (share.owner) {
      entry.word.fetch_or(t, ShareEntry::kClosing);
      IoStatus status = await_others(t, share, limit);
      chain_.goes_on(t);
      if (status.ok() && (entry.word.load(t) & ShareEntry::kFailed) == 0) status = write_back(t, share, limit);
      if (!status.ok()) {
        entry.word.fetch_and(t, ~ShareEntry::kClosing);
        return status;
      }
      entry.tag.store(t, kNoTag);
      entry.word.store(t, 0);
    } else {
      entry.word.fetch_add(t, 0 - ShareEntry::kUser);
    }
    chain_.left(t, held_thing(HeldKind::share, share.entry));
    share = Share{};
    return {};
  }

  template <class Lane>
  FLASHMOB_HD ShareState state(Lane& t, const Share& share) const {
    if (!share.open()) return ShareState::none;
    const std::uint64_t word = entries_[share.entry].word.load(t);
    if ((word & ShareEntry::kFailed) != 0) return ShareState::failed;
    if ((word & ShareEntry::kLoading) != 0) return ShareState::loading;
    const bool several = word >= 2 * ShareEntry::kUser;
    if ((word & ShareEntry::kDirty) != 0) return several ? ShareState::owned : ShareState::modified;
    return several ? ShareState::shared : ShareState::exclusive;
  }
  template <class Lane>
  FLASHMOB_HD std::uint32_t users(Lane& t, const Share& share) const {
    return static_cast<std::uint32_t>(entries_[share.entry].word.load(t) >> 32);
  }

 private:
  FLASHMOB_HD std::uint32_t set_of(std::uint64_t tag) const {
    return static_cast<std::uint32_t>((mix_tag(tag) >> 32) * sets_ >> 32);
  }

  // Becomes one more user of the buffer that has the block, if there is one.
  template <class Lane>
  FLASHMOB_HD bool join(Lane& t, Share& share) const {
    const std::uint64_t first = std::uint64_t{set_of(share.tag)} * ways_;
    for (std::uint64_t i = first; i < first + ways_; ++i) {
      ShareEntry& entry = entries_[i];
      if (entry.tag.load(t) != share.tag) continue;
      std::uint64_t word = entry.word.load(t);
      do {
        if ((word & ShareEntry::kPresent) == 0 || (word & ShareEntry::kClosing) != 0) return false;
      } while (!entry.word.compare_exchange(t, word, word + ShareEntry::kUser));
      // It cannot be closed now; it may have been, and opened for another block, before.
      if (entry.tag.load(t) != share.tag) {
        entry.word.fetch_add(t, 0 - ShareEntry::kUser);
        return false;
      }
      share.entry = i;
      share.data = reinterpret_cast<std::byte*>(entry.buffer.load(t));
      share.owner = false;
      return true;
    }
    return false;
  }

  // Becomes the owner of the block, if nobody is.
  template <class Lane>
  FLASHMOB_HD bool take(Lane& t, Share& share, std::byte* own) const {
    const std::uint32_t set = set_of(share.tag);
    std::uint32_t free = 0;
    if (!locks_[set].compare_exchange(t, free, t.thread() + 1)) return false;
    chain_.took(t, held_thing(HeldKind::lock, set));
    std::uint64_t found = kNoLine;
    const std::uint64_t first = std::uint64_t{set} * ways_;
    for (std::uint64_t i = first; i < first + ways_; ++i) {
      if (entries_[i].tag.load(t) == share.tag) {
        found = kNoLine;
        break;
      }
      if (entries_[i].word.load(t) == 0) found = i;
    }
    if (found != kNoLine) {
      ShareEntry& entry = entries_[found];
      entry.buffer.store(t, reinterpret_cast<std::uint64_t>(own));
      entry.io.arm(t);
      entry.tag.store(t, share.tag);
      entry.word.store(t, ShareEntry::kPresent | ShareEntry::kLoading | ShareEntry::kUser);
    }
    chain_.left(t, held_thing(HeldKind::lock, set));
    locks_[set].store(t, 0);
    if (found == kNoLine) return false;
    share.entry = found;
    share.data = own;
    share.owner = true;
    blocks_.load(t, share.tag, own, entries_[found].io);
    return true;
  }

  // If the read has ended, everybody may know. All that see it first say the same.
  template <class Lane>
  FLASHMOB_HD void settle(Lane& t, std::uint64_t index) const {
    ShareEntry& entry = entries_[index];
    std::uint64_t word = entry.word.load(t);
    if ((word & ShareEntry::kLoading) == 0 || !entry.io.finished(t)) return;
    const std::uint64_t failed = entry.io.status(t).ok() ? 0 : ShareEntry::kFailed;
    while ((word & ShareEntry::kLoading) != 0 &&
           !entry.word.compare_exchange(t, word, (word & ~ShareEntry::kLoading) | failed)) {
    }
  }

  // Of a closing owner: until it is the only user, and the read has ended.
  template <class Lane>
  FLASHMOB_HD IoStatus await_others(Lane& t, const Share& share, WaitLimit limit) const {
    const std::uint64_t start_ns = t.now_ns();
    for (Backoff backoff;;) {
      settle(t, share.entry);
      const std::uint64_t word = entries_[share.entry].word.load(t);
      const bool others = word >= 2 * ShareEntry::kUser;
      if (!others && (word & ShareEntry::kLoading) == 0) return {};
      if (others)
        chain_.waits(t, held_thing(HeldKind::share, share.entry));
      else
        chain_.waits_for_device(t);
      IoStatus status;
      if (!turn(t, share.tag, start_ns, limit, backoff, status)) return status;
    }
  }

  template <class Lane>
  FLASHMOB_HD bool turn(Lane& t, std::uint64_t tag, std::uint64_t start_ns, WaitLimit limit, Backoff& backoff,
                        IoStatus& status) const {
    if (blocks_.aborted(t, tag)) {
      status = {0, IoKind::aborted};
      return false;
    }
    if (t.now_ns() - start_ns >= (limit.timeout_ns != 0 ? limit.timeout_ns : blocks_.timeout_ns(tag))) {
      status = {0, IoKind::deadline};
      return false;
    }
    if (!blocks_.help(t, tag)) backoff.pause(t);
    return true;
  }

  ShareEntry* entries_ = nullptr;
  simt::Word<std::uint32_t>* locks_ = nullptr;
  std::uint32_t sets_ = 0;
  std::uint32_t ways_ = 0;
  Blocks blocks_;
  Chain chain_;
};

}  // namespace flashmob::gpu
