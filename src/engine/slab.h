// Where requests live between fetch and completion: a fixed pool of slots, hot fields apart from cold ones.
//
// Owned by one worker. Address space for all slots is reserved at once and committed when first touched, so the pool
// never moves or allocates while I/O runs. alloc() belongs to the dispatcher's thread; release() too (a worker on
// another thread returns slots through a ring, see worker.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/platform.h"
#include "command_set/namespace.h"
#include "memory/host_memory.h"
#include "nvme/command.h"
#include "nvme/opcode.h"

namespace flashmob::engine {

using Slot = std::uint32_t;
inline constexpr Slot kNoSlot = 0xFFFFFFFFu;

enum RequestFlag : std::uint8_t {
  kLive = 1,        // between alloc and release
  kDataDone = 2,    // nothing left to move: may complete at its target
  kDue = 4,         // its target has passed while data was still moving
  kZombie = 8,      // aborted or its queue is gone: completes without an entry
  kTransfer = 16,   // a Read or Write decoded by the dispatcher
  kFused = 32,      // first half of a fused pair; `partner` is the second
  kFailed = 64,     // status is an error; nothing is moved
  kTimed = 128,     // has a target (commands that execute() runs get theirs afterwards)
};

enum RequestFault : std::uint8_t {
  kLoseCompletion = 1,
  kCorruptData = 2,
};

// Of a Write that came with a batch, above the 15 bits of its status, whose entry it does not reach: for statistics.
// What fails has lost it.
inline constexpr std::uint16_t kIsWrite = 0x8000;

// 32 bytes, two to a cache line: all that fetch, hold and completion of a plain request touch.
struct alignas(32) HotRequest {
  std::uint64_t target_ns;
  std::uint64_t fetched_ns;
  Slot next;             // wheel list, overflow list
  std::uint16_t sq;      // index in the worker's SQ table
  std::uint16_t cid;
  std::uint16_t status;  // status field without phase, in 15 bits; kIsWrite
  std::uint8_t flags;
  std::uint8_t fault;    // RequestFault: what is to go wrong
  Slot cold;             // its ColdRequest, or kNoSlot

  // Whether it has any of these flags.
  bool has(unsigned any) const { return (flags & any) != 0; }
  void set(unsigned more) { flags = static_cast<std::uint8_t>(flags | more); }
  // All fields at once but `next`, in four stores.
  void fill(std::uint64_t target, std::uint64_t fetched, std::uint16_t sq_index, std::uint16_t command_id,
            unsigned request_flags, Slot cold_slot, bool is_write = false) {
    using Word [[gnu::may_alias]] = std::uint64_t;
    Word* const words = reinterpret_cast<Word*>(this);
    words[0] = target;
    words[1] = fetched;
    words[2] = kNoSlot | (std::uint64_t{sq_index} << 32) | (std::uint64_t{command_id} << 48);
    words[3] = (is_write ? std::uint64_t{kIsWrite} : 0) | (std::uint64_t{request_flags} << 16) |
               (std::uint64_t{cold_slot} << 32);
  }
};
static_assert(sizeof(HotRequest) == 32);
// As fill() puts the fields together.
static_assert(offsetof(HotRequest, target_ns) == 0 && offsetof(HotRequest, fetched_ns) == 8 &&
              offsetof(HotRequest, next) == 16 && offsetof(HotRequest, sq) == 20 && offsetof(HotRequest, cid) == 22 &&
              offsetof(HotRequest, status) == 24 && offsetof(HotRequest, flags) == 26 &&
              offsetof(HotRequest, fault) == 27 && offsetof(HotRequest, cold) == 28);

// Two cache lines: what moving the data needs. Handed out apart from hot slots and given back as soon as the data has
// been moved: with hundreds of thousands of requests on hold, the few that are being moved stay in the cache.
struct alignas(128) ColdRequest {
  nvme::Sqe sqe;
  command_set::Namespace* ns;
  std::uint64_t media_offset;  // until the command is carried out: TimingModel::writes_scheduled() at its fetch
  std::uint64_t result;  // dwords 0 and 1 of its completion
  std::uint32_t bytes;
  std::uint32_t copies_left;  // of a command that is done in parts: which of those it is, from 1
  Slot partner;
  std::uint32_t bytes_moved;  // by media, slice by slice
  // The worker's alone: what follows in bytes of their own is also the sync thread's.
  bool is_write : 1;
  bool force_unit_access : 1;
  bool is_durable : 1;  // of a write with FUA: its medium has seen to that
  bool is_asked : 1;  // the timing model was asked at its fetch, and it has its target
  bool sync_failed;  // of a Flush: one of its namespaces could not be made durable
  bool sync_good;
  bool sync_marks;  // what is to be durable are the namespace's marks, and all that was written before
  Slot slot;                // whose it is
  command_set::Namespace* sync_ns;  // what the sync thread is to make durable, or has; nullptr: nothing
  ColdRequest* sync_next;    // its list

  bool is(nvme::NvmOpcode opcode) const { return sqe.opcode == static_cast<std::uint8_t>(opcode); }
};
static_assert(sizeof(ColdRequest) == 128);

class Slab {
 public:
  static constexpr std::uint32_t kCapacity = 1u << 20;

  // Of so many slots, up to kCapacity.
  explicit Slab(std::uint32_t slots = kCapacity)
      : hot_memory_(sizeof(HotRequest) * kCapacity),
        cold_memory_(sizeof(ColdRequest) * kCapacity),
        free_memory_(sizeof(Slot) * kCapacity),
        free_cold_memory_(sizeof(Slot) * kCapacity),
        owner_memory_(sizeof(std::uint16_t) * kCapacity),
        hot_(reinterpret_cast<HotRequest*>(hot_memory_.data())),
        cold_(reinterpret_cast<ColdRequest*>(cold_memory_.data())),
        free_(reinterpret_cast<Slot*>(free_memory_.data())),
        free_cold_(reinterpret_cast<Slot*>(free_cold_memory_.data())),
        owners_(reinterpret_cast<std::uint16_t*>(owner_memory_.data())),
        slots_(slots) {
    FLASHMOB_CHECK(slots <= kCapacity);
  }

  HotRequest& hot(Slot slot) { return hot_[slot]; }
  // The cold part of a request that has one.
  ColdRequest& cold(Slot slot) { return cold_[hot_[slot].cold]; }
  HotRequest* hot_array() { return hot_; }

  std::uint32_t available() const { return free_count_ + (slots_ - fresh_); }
  std::uint32_t in_use() const { return fresh_ - free_count_; }
  // Slots ever handed out are [0, fresh()): the range to scan for live requests.
  std::uint32_t fresh() const { return fresh_; }

  // For a request of that queue in the worker's table. There must be one available. Prefers the slot freed last: its
  // lines are still in the cache.
  Slot alloc(std::uint16_t sq) {
    FLASHMOB_CHECK(free_count_ != 0 || fresh_ < slots_);
    const Slot slot = free_count_ != 0 ? free_[--free_count_] : fresh_++;
    owners_[slot] = sq;
    return slot;
  }
  // Fills `slots` with `count` slots that are available, the ones freed last first, and asks for their lines.
  void alloc_batch(Slot* slots, std::uint32_t count, std::uint16_t sq) {
    const std::uint32_t used = count < free_count_ ? count : free_count_;
    free_count_ -= used;
    const Slot* const top = free_ + free_count_;
    for (std::uint32_t i = 0; i < used; ++i) {
      const Slot slot = top[used - 1 - i];
      slots[i] = slot;
      owners_[slot] = sq;
      __builtin_prefetch(&hot_[slot], 1, 3);
    }
    FLASHMOB_CHECK(count - used <= slots_ - fresh_);
    for (std::uint32_t i = used; i < count; ++i) {
      owners_[fresh_] = sq;
      slots[i] = fresh_++;
    }
  }
  // Calls visit(Slot, HotRequest&) for every request, zombies too, of the queues for which is_one(index in the worker's
  // table) says so; nobody's is 0. Whose a slot was last is looked at in passing, two bytes of each that was ever
  // handed out; the slot itself only where that is one of these, and where it no longer is, no more until it is handed
  // out again. So whoever asks often pays for the slots that were in use since, and few of a million for the others.
  // Returns how many slots were looked at.
  template <class IsOne, class Visit>
  std::uint32_t for_each_of(IsOne&& is_one, Visit&& visit) {
    constexpr Slot kBlock = 64;
    static_assert(kCapacity % kBlock == 0);
    std::uint32_t looked_at = 0;
    for (Slot block = 0; block < fresh_; block += kBlock) {
      bool any = false;
      for (Slot slot = block; slot < block + kBlock; ++slot) any |= is_one(owners_[slot]);
      if (!any) [[likely]]
        continue;
      for (Slot slot = block; slot < block + kBlock; ++slot) {
        if (!is_one(owners_[slot])) continue;
        ++looked_at;
        if (hot_[slot].has(kLive) && hot_[slot].sq == owners_[slot])
          visit(slot, hot_[slot]);
        else
          owners_[slot] = 0;
      }
    }
    return looked_at;
  }
  // Of slots without cold part.
  void release_run(std::span<const Slot> run) {
    std::copy(run.begin(), run.end(), free_ + free_count_);
    free_count_ += static_cast<std::uint32_t>(run.size());
  }
  void release(Slot slot) {
    if (hot_[slot].cold != kNoSlot) release_cold(slot);
    free_[free_count_++] = slot;
  }
  // Gives a request its cold part, with nothing done yet. On the thread that allocates slots.
  ColdRequest& alloc_cold(Slot slot, const nvme::Sqe& sqe = {}, command_set::Namespace* ns = nullptr) {
    const Slot at = free_cold_count_ != 0 ? free_cold_[--free_cold_count_] : fresh_cold_++;
    hot_[slot].cold = at;
    ColdRequest& cold = cold_[at];
    cold = {};
    cold.sqe = sqe;
    cold.ns = ns;
    cold.partner = kNoSlot;
    cold.slot = slot;
    return cold;
  }
  void release_cold(Slot slot) {
    free_cold_[free_cold_count_++] = hot_[slot].cold;
    hot_[slot].cold = kNoSlot;
  }

 private:
  memory::HostMemory hot_memory_;
  memory::HostMemory cold_memory_;
  memory::HostMemory free_memory_;
  memory::HostMemory free_cold_memory_;
  memory::HostMemory owner_memory_;
  HotRequest* hot_;
  ColdRequest* cold_;
  Slot* free_;
  Slot* free_cold_;
  std::uint16_t* owners_;  // of slots handed out: whose each was last
  const std::uint32_t slots_;
  // The allocating thread's alone, which may be another than the one that looks requests up.
  alignas(kCacheLineBytes) std::uint32_t free_cold_count_ = 0;
  std::uint32_t fresh_cold_ = 0;
  std::uint32_t free_count_ = 0;
  std::uint32_t fresh_ = 0;
};

}  // namespace flashmob::engine
