// Queue pairs for GPU threads: creates them on an SSD through its driver and lays out all that device code needs
// (gpu/include/flashmob/gpu/queue.h), in memory of the caller's choice.
//
// Independent of clock and door. Construct and destroy on the driver's thread. Kernels and services that use ref()
// must have ended before destruction, which deletes the queues; commands still in flight are then aborted by the SSD.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "driver/dma_memory.h"
#include "driver/nvme_driver.h"
#include "flashmob/gpu/service.h"
#include "flashmob/gpu/ssd.h"

namespace flashmob::gpu {

struct QueueLayout {
  std::uint32_t queues = 4;
  std::uint32_t entries = 256;     // of each submission queue, 2...65536
  std::uint32_t cq_entries = 0;    // 0: as `entries`
  std::uint64_t max_transfer_bytes = 128 << 10;  // the SSD's limit if that is less; costs list memory for every slot
  std::uint64_t timeout_ns = 10'000'000'000;     // of waits that name none
  ServiceMode mode = ServiceMode::callers;
  std::uint64_t first_ticket = 0;  // of every slot
};

// Where queues live. The default is host memory that the SSD reaches; rings may lie in a GPU's own.
class QueueMemory {
 public:
  virtual ~QueueMemory() = default;
  // Zeroed, aligned to a page, seen by host and GPU, and reached by the SSD at its own address. Lives as long as this.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  // The same for a submission or completion ring, which host code need not see.
  virtual std::byte* allocate_ring(std::size_t bytes) { return allocate(bytes); }
  virtual bool rings_are_seen_by_host() const { return true; }
};

// Objects over zeroed memory.
template <class T>
T* make_array(QueueMemory& memory, std::size_t count) {
  T* first = reinterpret_cast<T*>(memory.allocate(count * sizeof(T)));
  for (std::size_t i = 0; i < count; ++i) new (first + i) T();
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

// The rings, slots and lists of one queue pair for `layout`, all slots free; only the doorbells are left to be set.
// cq_entries and max_transfer_bytes are taken as they are.
void lay_out(Queue& queue, const QueueLayout& layout, simt::Word<std::uint32_t, simt::Scope::system>& abort,
             QueueMemory& memory);

class SsdQueues {
 public:
  // Throws ConfigError for a layout that the SSD does not allow, NvmeError if it refuses a command. `memory` nullptr:
  // DmaQueueMemory.
  SsdQueues(driver::NvmeDriver& driver, const QueueLayout& layout, QueueMemory* memory = nullptr);
  // Deletes the queues as far as the SSD answers.
  ~SsdQueues();
  SsdQueues(const SsdQueues&) = delete;
  SsdQueues& operator=(const SsdQueues&) = delete;

  SsdRef ref() const { return {queues_, layout_.queues, namespaces_, namespace_count_, layout_.max_transfer_bytes}; }
  const QueueLayout& layout() const { return layout_; }
  Queue& queue(std::uint32_t index) { return queues_[index]; }
  // From the SSD's first doorbell to the end of the last of these queues: what a GPU must reach to ring them.
  std::size_t doorbell_bytes() const;
  // Ends all waits and refuses submissions while it is raised. Any thread.
  void set_abort(bool raised);

 private:
  void check();
  void find_namespaces(QueueMemory& memory);
  void create(Queue& queue);
  void remove_all();

  driver::NvmeDriver& driver_;
  QueueLayout layout_;
  std::unique_ptr<QueueMemory> own_memory_;
  Queue* queues_ = nullptr;
  NamespaceInfo* namespaces_ = nullptr;
  std::uint32_t namespace_count_ = 0;
  simt::Word<std::uint32_t, simt::Scope::system>* abort_ = nullptr;
  std::vector<driver::QueuePair*> pairs_;  // good as long as the driver's generation is this one
  std::uint64_t generation_;
};

}  // namespace flashmob::gpu
