// Where queues of kernels live: what their SSD reaches, and what only kernels update, which lies as near to them as
// memory can. Host code looks at the latter through QueueView.
//
// Thread rule: one host thread allocates; copy() is for any.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "driver/dma_memory.h"
#include "flashmob/gpu/queue.h"
#include "flashmob/gpu/simt/host_lane.h"

namespace flashmob::gpu {

// The default is host memory that the SSD reaches; rings, and what only kernels update, may lie in a GPU's own.
class QueueMemory {
 public:
  virtual ~QueueMemory() = default;
  // Zeroed, aligned to a page, seen by host and GPU, and reached by the SSD at its own address. Lives as long as this.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  // The same for a submission or completion ring, which host code need not see.
  virtual std::byte* allocate_ring(std::size_t bytes) { return allocate(bytes); }
  virtual bool rings_are_seen_by_host() const { return true; }
  // The same for PRP lists, which kernels write and the SSD reads.
  virtual std::byte* allocate_lists(std::size_t bytes) { return allocate(bytes); }
  // The same for what the SSD has no use for: a word in the host's memory costs a GPU seven times one of its own, and
  // looks of many warps at it wait for each other. Where the host does not see it, copy() is its only way there.
  virtual std::byte* allocate_near(std::size_t bytes) { return allocate(bytes); }
  virtual bool near_is_seen_by_host() const { return true; }
  // Between that memory and the host's, beside kernels that run. What has the size of a word, 4 or 8 bytes, is taken
  // and stored as one.
  virtual void copy(void* to, const void* from, std::size_t bytes);
};

// One of the words that kernels may be looking at.
template <class T, simt::Scope S>
void put_word(QueueMemory& memory, simt::Word<T, S>& word, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  memory.copy(&word.value, &value, sizeof(T));
}
template <class T, simt::Scope S>
T get_word(QueueMemory& memory, const simt::Word<T, S>& word) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  T value{};
  memory.copy(&value, &word.value, sizeof(T));
  return value;
}
// A copy of what the host has made, for kernels.
template <class T>
T* put_near(QueueMemory& memory, const std::vector<T>& made) {
  T* const first = reinterpret_cast<T*>(memory.allocate_near((made.empty() ? 1 : made.size()) * sizeof(T)));
  if (!made.empty()) memory.copy(first, made.data(), made.size() * sizeof(T));
  return first;
}

class DmaQueueMemory final : public QueueMemory {
 public:
  explicit DmaQueueMemory(driver::PciDevice& device) : device_(device) {}
  std::byte* allocate(std::size_t bytes) override;

 private:
  driver::PciDevice& device_;
  std::vector<std::unique_ptr<driver::DmaMemory>> parts_;
};

// A queue that is laid out, for host code that counts and drains beside kernels: the queue itself where the host sees
// it, copies of moments elsewhere. `memory` and what the queue lies in outlive it. For one host thread at a time.
class QueueView {
 public:
  QueueView(QueueMemory& memory, QueueRef queue);
  // As those of QueueRef. `lane` may let kernels go on while it waits.
  QueueStats stats(simt::HostLane& lane) const;
  bool idle(simt::HostLane& lane) const;

 private:
  std::vector<Slot> copy_slots() const;

  QueueMemory& memory_;
  QueueRef queue_;  // as kernels know it
  Slot* slots_;     // likewise
  std::uint32_t slot_count_;
};

}  // namespace flashmob::gpu
