// The guest's memory as a controller sees it: regions of I/O virtual addresses backed by host memory.
//
// One writer side (map, unmap; any thread, serialised by a mutex) and many reader threads. A reader works inside a
// guard: between enter() and leave() no region it can see is taken away, because unmap() publishes the new table and
// then waits until every reader has left the old ones. Hence "DMA unmap waits for copies in flight". The protocol is
// that of hazard pointers (Michael, IEEE TPDS 2004) with whole tables as the protected objects.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/asymmetric_fence.h"
#include "base/check.h"
#include "base/platform.h"

namespace flashmob::memory {

struct Region {
  std::uint64_t iova;
  std::uint64_t bytes;
  std::byte* host;
  bool writable;

  // Host address of [at, at + wanted), or nullptr if that range is not wholly in here (or not writable although
  // `for_write`).
  std::byte* translate(std::uint64_t at, std::uint64_t wanted, bool for_write) const {
    const std::uint64_t offset = at - iova;
    return offset < bytes && wanted <= bytes - offset && (writable || !for_write) ? host + offset : nullptr;
  }
};

// An immutable, sorted snapshot of the regions.
struct RegionTable {
  std::uint64_t generation;
  std::vector<Region> regions;  // sorted by iova, disjoint
  // What readers search: neighbours that are neighbours in host memory too are one span, so that a ring or a page
  // list may cross the border between two mappings.
  std::vector<Region> spans;
};

class AddressSpace {
 public:
  static constexpr std::size_t kMaxReaders = 64;

  AddressSpace();
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  // Adds a region. Throws ConfigError if it is empty, wraps, or overlaps another. Must not be called inside a guard,
  // because it may have to wait for an unmap() that waits for that guard.
  void map(std::uint64_t iova, std::uint64_t bytes, void* host, bool writable = true);
  // Removes the region that was mapped at exactly [iova, iova + bytes); false if there is none.
  // Blocks until no reader can still touch it. Must not be called inside a guard.
  bool unmap(std::uint64_t iova, std::uint64_t bytes);
  // A device that keeps a copy of the table: called with what the regions are about to be, once at once and then
  // before every change; when it returns, the device uses nothing older, and where it throws, nothing changes. Called
  // with the mutex held, on the thread that maps. Empty: none.
  using Mirror = std::function<void(const std::vector<Region>& regions)>;
  void set_mirror(Mirror mirror);
  std::size_t region_count() const { return region_count_.load(std::memory_order_relaxed); }

  // A thread's view. Create one per thread and address space; at most kMaxReaders at once (ConfigError beyond).
  class Reader {
   public:
    explicit Reader(AddressSpace& space);
    ~Reader();
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    // Opens and closes the guard (not recursive). Once per batch, not per request.
    void enter();
    void leave();
    bool inside() const { return table_ != nullptr; }
    // Inside: whether the regions have changed since enter(), so that somebody may be waiting for leave().
    bool stale() const {
      return space_.table_.load(std::memory_order_acquire) !=
             space_.slots_[slot_].in_use.load(std::memory_order_relaxed);
    }
    // Grows by one whenever the regions change; valid inside the guard, where it only grows if a translation missed and
    // the regions had changed. Pointers cached from one guard to another die when it changes.
    std::uint64_t generation() const { return table_->generation; }

    // Host address of [iova, iova + bytes), or nullptr if that range is not wholly inside regions that lie one after
    // the other in host memory too (or not writable although `for_write`). The last match is tried first.
    std::byte* translate(std::uint64_t iova, std::uint64_t bytes, bool for_write) {
      std::byte* const host = hit_.translate(iova, bytes, for_write);
      return host != nullptr ? host : translate_slow(iova, bytes, for_write);
    }
    // The region of the last match, for a loop that keeps it in registers. Valid as long as pointers are.
    const Region& last_match() const { return hit_; }

    // Host address of `iova` and, in `contiguous`, how many of the `bytes` bytes from there lie in the same region
    // (at least 1 of them); nullptr if the first byte is not mapped so. For ranges that may span adjacent regions.
    std::byte* translate_prefix(std::uint64_t iova, std::uint64_t bytes, bool for_write, std::uint64_t& contiguous);

   private:
    void announce(std::atomic<const RegionTable*>& where, const RegionTable*& table);
    std::byte* translate_slow(std::uint64_t iova, std::uint64_t bytes, bool for_write);
    bool take_up_newer();

    AddressSpace& space_;
    const bool light_ = has_heavy_fence();
    std::size_t slot_;
    const RegionTable* table_ = nullptr;
    Region hit_{};
    std::uint64_t hit_generation_ = 0;
  };

 private:
  // A reader's published table: non-null while inside a guard. One cache line each, written only by its reader.
  struct alignas(kCacheLineBytes) ReaderSlot {
    std::atomic<const RegionTable*> in_use{nullptr};
    std::atomic<const RegionTable*> newer{nullptr};  // taken up inside the guard; cleared before in_use
    std::atomic<bool> taken{false};
  };

  // All three with the mutex held.
  void publish(std::unique_ptr<RegionTable> next);
  bool in_use(const RegionTable* table) const;
  void free_unused_tables();

  std::mutex mutex_;  // serialises map() and unmap()
  Mirror mirror_;
  std::atomic<const RegionTable*> table_;
  std::atomic<std::size_t> region_count_{0};
  std::vector<std::unique_ptr<const RegionTable>> retired_;  // no longer published, perhaps still in use
  std::array<ReaderSlot, kMaxReaders> slots_;
};

// Announces `table`, then looks again: either the writer sees the announcement, or we see the writer's newer table and
// take that. This needs one total order over the two variables. Guards are opened millions of times a second and a full
// fence here would wait for every completion just posted to reach its reader's core, so the writer makes the fence.
inline void AddressSpace::Reader::announce(std::atomic<const RegionTable*>& where, const RegionTable*& table) {
  for (;;) {
    if (light_) [[likely]] {
      where.store(table, std::memory_order_relaxed);
      light_fence();
    } else {
      where.store(table, std::memory_order_seq_cst);
    }
    const RegionTable* const current = space_.table_.load(std::memory_order_seq_cst);
    if (current == table) return;
    table = current;
  }
}

inline void AddressSpace::Reader::enter() {
  FLASHMOB_CHECK(table_ == nullptr);
  const RegionTable* table = space_.table_.load(std::memory_order_acquire);
  announce(space_.slots_[slot_].in_use, table);
  table_ = table;
  if (table->generation != hit_generation_) {
    hit_ = Region{};
    hit_generation_ = table->generation;
  }
}

inline void AddressSpace::Reader::leave() {
  FLASHMOB_CHECK(table_ != nullptr);
  table_ = nullptr;
  space_.slots_[slot_].newer.store(nullptr, std::memory_order_relaxed);
  space_.slots_[slot_].in_use.store(nullptr, std::memory_order_release);
}

}  // namespace flashmob::memory
