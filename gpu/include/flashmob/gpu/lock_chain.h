// What a debug build knows about who holds what and who waits for whom: it reports circular waits, and locks that are
// held while something is waited for. In other builds the cache is given NoLockChain and nothing of this remains.
//
// A thread may hold several things and waits for one at a time. It is stuck if everything that could end its wait is
// held by threads that are stuck. Whoever begins to wait looks whether it is (and again now and then); what it found
// is kept in the table for the host (gpu/include/flashmob/gpu/audit.h prints it).
// Thread rule: any lane of one kernel at a time, which the table counts by thread(); threads beyond it are not watched.
// Compiles as CUDA device code.
#pragma once

#include <cstdint>
#include <new>

#include "base/platform.h"
#include "flashmob/gpu/simt/word.h"

namespace flashmob::gpu {

// Something that can be held: a set's lock, the right to fill a line, lines of a set (which pins keep from others), a
// buffer of the share table.
enum class HeldKind : std::uint8_t { lock = 1, fill = 2, lines = 3, share = 4 };

FLASHMOB_HD constexpr std::uint64_t held_thing(HeldKind kind, std::uint64_t index) {
  return static_cast<std::uint64_t>(kind) << 56 | index;
}
FLASHMOB_HD constexpr HeldKind held_kind(std::uint64_t thing) { return static_cast<HeldKind>(thing >> 56); }
FLASHMOB_HD constexpr std::uint64_t held_index(std::uint64_t thing) { return thing & ((std::uint64_t{1} << 56) - 1); }

struct ChainThread {
  static constexpr std::uint32_t kMostHeld = 32;

  simt::Word<std::uint32_t> changes;  // odd while this thread changes what follows
  simt::Word<std::uint64_t> waits_for;
  simt::Word<std::uint64_t> held[kMostHeld];  // 0: empty
};

// A link of a reported chain: `thread` waits for `thing`, which the next link's thread holds; the last link's thing is
// held by a thread that came before in the chain.
struct ChainLink {
  std::uint32_t thread = 0;
  std::uint64_t thing = 0;
};

struct ChainReport {
  static constexpr std::uint32_t kMostLinks = 16;

  simt::Word<std::uint32_t> circular_waits;  // how many were seen; the first one's links follow
  simt::Word<std::uint32_t> waits_with_locks;  // how often something was waited for with a lock held
  std::uint32_t links = 0;
  ChainLink link[kMostLinks];
};

struct NoLockChain {
  static constexpr bool kOn = false;
  FLASHMOB_HD static constexpr std::uint64_t bytes(std::uint32_t) { return 0; }
  static NoLockChain place(std::uint32_t, void*) { return {}; }
  template <class Lane>
  FLASHMOB_HD void took(Lane&, std::uint64_t) const {}
  template <class Lane>
  FLASHMOB_HD void left(Lane&, std::uint64_t) const {}
  template <class Lane>
  FLASHMOB_HD void waits(Lane&, std::uint64_t) const {}
  template <class Lane>
  FLASHMOB_HD void waits_for_device(Lane&) const {}
  template <class Lane>
  FLASHMOB_HD void goes_on(Lane&) const {}
};

class LockChain {
 public:
  static constexpr bool kOn = true;

  LockChain() = default;
  FLASHMOB_HD static constexpr std::uint64_t bytes(std::uint32_t threads) {
    return sizeof(ChainReport) + threads * (sizeof(ChainThread) + scratch_words(threads) * sizeof(std::uint32_t));
  }
  // An empty table for so many threads, in bytes(threads) of memory aligned to 8. By the host.
  static LockChain place(std::uint32_t threads, void* memory) {
    LockChain chain;
    chain.threads_ = threads;
    chain.report_ = new (memory) ChainReport;
    chain.thread_ = reinterpret_cast<ChainThread*>(chain.report_ + 1);
    for (std::uint32_t i = 0; i < threads; ++i) new (chain.thread_ + i) ChainThread;
    chain.scratch_ = reinterpret_cast<std::uint32_t*>(chain.thread_ + threads);
    return chain;
  }
  const ChainReport& report() const { return *report_; }

  template <class Lane>
  FLASHMOB_HD void took(Lane& t, std::uint64_t thing) const {
    replace(t, 0, thing);
  }
  template <class Lane>
  FLASHMOB_HD void left(Lane& t, std::uint64_t thing) const {
    replace(t, thing, 0);
  }
  // The thread waits for a thing that others hold. To be called at every turn of the wait.
  template <class Lane>
  FLASHMOB_HD void waits(Lane& t, std::uint64_t thing) const {
    if (t.thread() >= threads_) return;
    note_locks(t);
    ChainThread& me = thread_[t.thread()];
    if (me.waits_for.load(t) != thing) {
      change(t, me);
      me.waits_for.store(t, thing);
      change(t, me);
    }
    if (stuck(t)) report_chain(t);
  }
  // The thread waits for what a device will do, which ends by itself.
  template <class Lane>
  FLASHMOB_HD void waits_for_device(Lane& t) const {
    if (t.thread() < threads_) note_locks(t);
  }
  template <class Lane>
  FLASHMOB_HD void goes_on(Lane& t) const {
    if (t.thread() >= threads_) return;
    ChainThread& me = thread_[t.thread()];
    if (me.waits_for.load(t) == 0) return;
    change(t, me);
    me.waits_for.store(t, 0);
    change(t, me);
  }

 private:
  FLASHMOB_HD static constexpr std::uint32_t scratch_words(std::uint32_t threads) { return (threads + 31) / 32; }

  template <class Lane>
  FLASHMOB_HD static void change(Lane& t, ChainThread& of) {
    of.changes.fetch_add(t, 1);
  }

  template <class Lane>
  FLASHMOB_HD void replace(Lane& t, std::uint64_t from, std::uint64_t to) const {
    if (t.thread() >= threads_) return;
    ChainThread& me = thread_[t.thread()];
    for (auto& held : me.held) {
      if (held.load(t, simt::Order::relaxed) != from) continue;
      change(t, me);
      held.store(t, to);
      change(t, me);
      return;
    }
  }

  template <class Lane>
  FLASHMOB_HD void note_locks(Lane& t) const {
    for (const auto& held : thread_[t.thread()].held) {
      const std::uint64_t thing = held.load(t, simt::Order::relaxed);
      if (thing != 0 && held_kind(thing) == HeldKind::lock) report_->waits_with_locks.fetch_add(t, 1);
    }
  }

  template <class Lane>
  FLASHMOB_HD bool holds(Lane& t, std::uint32_t thread, std::uint64_t thing) const {
    for (const auto& held : thread_[thread].held) {
      if (held.load(t) == thing) return true;
    }
    return false;
  }

  FLASHMOB_HD std::uint32_t* suspects(std::uint32_t thread) const {
    return scratch_ + std::uint64_t{thread} * scratch_words(threads_);
  }
  FLASHMOB_HD static bool has(const std::uint32_t* set, std::uint32_t i) { return (set[i / 32] >> i % 32 & 1) != 0; }

  // The sum of all changes, or 0 if a thread is in the middle of one: equal sums, equal tables.
  template <class Lane>
  FLASHMOB_HD std::uint64_t version(Lane& t) const {
    std::uint64_t sum = 2;
    for (std::uint32_t i = 0; i < threads_; ++i) {
      const std::uint32_t changes = thread_[i].changes.load(t);
      if (changes % 2 != 0) return 0;
      sum += changes;
    }
    return sum;
  }

  // Starts from all that wait, and takes out whom somebody outside could let go on, until nobody is left to take out.
  template <class Lane>
  FLASHMOB_HD bool stuck(Lane& t) const {
    const std::uint64_t before = version(t);
    if (before == 0) return false;
    std::uint32_t* set = suspects(t.thread());
    for (std::uint32_t i = 0; i < scratch_words(threads_); ++i) set[i] = 0;
    for (std::uint32_t i = 0; i < threads_; ++i) {
      if (thread_[i].waits_for.load(t) != 0) set[i / 32] |= 1u << i % 32;
    }
    for (bool changed = true; changed && has(set, t.thread());) {
      changed = false;
      for (std::uint32_t i = 0; i < threads_; ++i) {
        if (!has(set, i) || !may_go_on(t, i, set)) continue;
        set[i / 32] &= ~(1u << i % 32);
        changed = true;
      }
    }
    // What changed meanwhile may have been seen half: then the next turn will tell.
    return has(set, t.thread()) && version(t) == before;
  }
  template <class Lane>
  FLASHMOB_HD bool may_go_on(Lane& t, std::uint32_t thread, const std::uint32_t* set) const {
    const std::uint64_t thing = thread_[thread].waits_for.load(t);
    bool held = false;
    for (std::uint32_t i = 0; i < threads_; ++i) {
      if (!holds(t, i, thing)) continue;
      held = true;
      if (!has(set, i)) return true;
    }
    return !held;
  }

  template <class Lane>
  FLASHMOB_HD void report_chain(Lane& t) const {
    if (report_->circular_waits.fetch_add(t, 1) != 0) return;
    std::uint32_t at = t.thread();
    std::uint32_t links = 0;
    for (bool seen = false; !seen && links < ChainReport::kMostLinks; ++links) {
      const std::uint64_t thing = thread_[at].waits_for.load(t);
      report_->link[links] = {at, thing};
      std::uint32_t next = 0;
      while (next < threads_ && !holds(t, next, thing)) ++next;
      for (std::uint32_t i = 0; i <= links; ++i) seen |= report_->link[i].thread == next;
      if (next == threads_) break;
      at = next;
    }
    report_->links = links;
  }

  ChainReport* report_ = nullptr;
  ChainThread* thread_ = nullptr;
  std::uint32_t* scratch_ = nullptr;  // per thread, one bit for every thread
  std::uint32_t threads_ = 0;
};

// What caches use unless they are told otherwise. The same for the whole build.
#if defined(FLASHMOB_GPU_DEBUG)
using BuildLockChain = LockChain;
#else
using BuildLockChain = NoLockChain;
#endif

}  // namespace flashmob::gpu
