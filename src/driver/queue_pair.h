// One I/O (or admin) queue pair of the user-space driver: rings, doorbells, phase. The caller owns command identifiers.
//
// For one thread at a time. Nothing here allocates, locks or calls the kernel after construction. Submissions become
// visible to the device in ring_sq(), and consumed completions in ring_cq(): once per batch, because a doorbell per
// command costs an order of magnitude.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/check.h"
#include "base/platform.h"
#include "driver/pci_device.h"
#include "nvme/command.h"

namespace flashmob::driver {

class alignas(kCacheLineBytes) QueuePair {
 public:
  // `sq` and `cq` are zeroed rings of `sq_entries` and `cq_entries` entries that the device reaches; nullptr where
  // somebody else works on them, who then uses the doorbells alone. `dstrd` is CAP's.
  QueuePair(PciDevice& device, std::uint16_t qid, nvme::Sqe* sq, std::uint32_t sq_entries, nvme::Cqe* cq,
            std::uint32_t cq_entries, std::uint8_t dstrd = 0)
      : sq_(sq),
        cq_(cq),
        doorbells_(device.doorbells() + (std::size_t{qid} << (dstrd + 1))),
        sleeping_(device.sleeping()),
        sq_entries_(sq_entries),
        cq_entries_(cq_entries),
        cq_doorbell_at_(static_cast<std::uint16_t>(1u << dstrd)),
        device_(device),
        qid_(qid) {}

  std::uint16_t qid() const { return qid_; }
  std::uint32_t sq_entries() const { return sq_entries_; }
  std::uint32_t cq_entries() const { return cq_entries_; }
  // For those who ring by themselves.
  std::uint32_t* sq_doorbell() const { return doorbells_; }
  std::uint32_t* cq_doorbell() const { return doorbells_ + cq_doorbell_at_; }
  // Commands that may still be submitted: the ring keeps one slot empty.
  std::uint32_t free_slots() const { return sq_entries_ - 1 - outstanding_; }
  std::uint32_t outstanding() const { return outstanding_; }

  // The ring slot of the next command, to be filled in place; counts as submitted. There must be a free slot.
  nvme::Sqe& submit() {
    nvme::Sqe& slot = sq_[sq_tail_];
    if (++sq_tail_ == sq_entries_) sq_tail_ = 0;
    ++outstanding_;
    return slot;
  }
  // Fetches the ring slot `ahead` places further for writing: its line was last read by the device.
  void prefetch_slot(std::uint32_t ahead) const {
    std::uint32_t at = sq_tail_ + ahead;
    if (at >= sq_entries_) at -= sq_entries_;
    __builtin_prefetch(&sq_[at], 1, 3);
  }

  // Tells the device of everything submitted since the last call; wakes it if it sleeps.
  void ring_sq() {
    if (sq_tail_ == sq_rung_) return;
    std::atomic_ref<std::uint32_t>(*sq_doorbell()).store(sq_tail_, std::memory_order_release);
    sq_rung_ = sq_tail_;
    if (sleeping_ != nullptr && sleeping_->load(std::memory_order_relaxed) != 0) [[unlikely]]
      device_.wake();
  }
  void ring_cq() {
    if (cq_head_ == cq_rung_) return;
    std::atomic_ref<std::uint32_t>(*cq_doorbell()).store(cq_head_, std::memory_order_release);
    cq_rung_ = cq_head_;
    if (sleeping_ != nullptr && sleeping_->load(std::memory_order_relaxed) != 0) [[unlikely]]
      device_.wake();
  }

  // True if a completion waits to be reaped.
  bool has_completion() const { return next_completion() != nullptr; }
  // The completion that will be reaped first; nullptr if none waits.
  const nvme::Cqe* next_completion() const {
    nvme::Cqe* const entry = &cq_[cq_head_];
    auto* last = reinterpret_cast<std::uint32_t*>(entry) + 3;
    const std::uint32_t dw3 = std::atomic_ref<std::uint32_t>(*last).load(std::memory_order_acquire);
    return ((dw3 >> 16) & 1) == phase_ ? entry : nullptr;
  }

  // How many completions wait to be reaped, `limit` at most. A clock that is read after this has been asked cannot show
  // a completion as earlier than it was.
  std::uint32_t visible(std::uint32_t limit) const {
    std::uint32_t at = cq_head_, phase = phase_, count = 0;
    for (; count < limit; ++count) {
      auto* const last = reinterpret_cast<std::uint32_t*>(&cq_[at]) + 3;
      if (((std::atomic_ref<std::uint32_t>(*last).load(std::memory_order_acquire) >> 16) & 1) != phase) break;
      if (++at == cq_entries_) {
        at = 0;
        phase ^= 1;
      }
    }
    return count;
  }

  // Calls on_completion(const nvme::Cqe&) for up to `limit` new completions; returns how many. Does not ring.
  template <class F>
  std::uint32_t reap(std::uint32_t limit, F&& on_completion) {
    std::uint32_t count = 0;
    while (count < limit) {
      nvme::Cqe& entry = cq_[cq_head_];
      // The last dword (CID, status, phase) is written last or together with the rest; acquire orders our reads.
      auto* last = reinterpret_cast<std::uint32_t*>(&entry) + 3;
      const std::uint32_t dw3 = std::atomic_ref<std::uint32_t>(*last).load(std::memory_order_acquire);
      if (((dw3 >> 16) & 1) != phase_) break;
      if (++cq_head_ == cq_entries_) {
        cq_head_ = 0;
        phase_ ^= 1;
      }
      --outstanding_;
      ++count;
      on_completion(static_cast<const nvme::Cqe&>(entry));
    }
    return count;
  }

 private:
  // One cache line of what every command touches; what is rare lies behind it.
  nvme::Sqe* sq_;
  nvme::Cqe* cq_;
  std::uint32_t* doorbells_;  // the submission queue's; the completion queue's is some words further
  const std::atomic<std::uint32_t>* sleeping_;
  std::uint32_t sq_entries_;
  std::uint32_t cq_entries_;
  std::uint32_t sq_tail_ = 0;
  std::uint32_t sq_rung_ = 0;
  std::uint32_t cq_head_ = 0;
  std::uint32_t cq_rung_ = 0;
  std::uint32_t outstanding_ = 0;
  std::uint16_t phase_ = 1;
  std::uint16_t cq_doorbell_at_;

  PciDevice& device_;
  std::uint16_t qid_;
};

}  // namespace flashmob::driver
