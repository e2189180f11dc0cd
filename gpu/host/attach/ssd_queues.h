// Queue pairs for GPU threads: creates them on an SSD through its driver and lays out all that device code needs
// (gpu/include/flashmob/gpu/queue.h), in memory of the caller's choice.
//
// Independent of clock and door. Construct and destroy on the driver's thread. Kernels and services that use ref()
// must have ended before destruction, which deletes the queues; commands still in flight are then aborted by the SSD.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "driver/nvme_driver.h"
#include "flashmob/gpu/service.h"
#include "flashmob/gpu/ssd.h"
#include "host/attach/queue_memory.h"

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

// The rings, slots and lists of one queue pair for `layout`, all slots free; only the doorbells are left to be set.
// cq_entries and max_transfer_bytes are taken as they are. `queue` is host code's own, to be copied to where kernels
// see it.
void lay_out(Queue& queue, const QueueLayout& layout, simt::Word<std::uint32_t, simt::Scope::system>& abort,
             QueueMemory& memory);

class SsdQueues {
 public:
  // Throws ConfigError for a layout that the SSD does not allow, NvmeError if it refuses a command. `memory` nullptr:
  // DmaQueueMemory; it outlives this object.
  SsdQueues(driver::NvmeDriver& driver, const QueueLayout& layout, QueueMemory* memory = nullptr);
  // Deletes the queues as far as the SSD answers.
  ~SsdQueues();
  SsdQueues(const SsdQueues&) = delete;
  SsdQueues& operator=(const SsdQueues&) = delete;

  // For kernels; what it refers to is theirs, and host code may not see it.
  SsdRef ref() const {
    return {kernels_queues_, layout_.queues, kernels_namespaces_, static_cast<std::uint32_t>(namespaces_.size()),
            layout_.max_transfer_bytes};
  }
  const QueueLayout& layout() const { return layout_; }
  const std::vector<NamespaceInfo>& namespaces() const { return namespaces_; }
  // As it was laid out.
  const Queue& queue(std::uint32_t index) const { return queues_[index]; }
  // From the SSD's first doorbell to the end of the last of these queues: what a GPU must reach to ring them.
  std::size_t doorbell_bytes() const;
  // Ends all waits and refuses submissions while it is raised. Any thread.
  void set_abort(bool raised);

 private:
  void check();
  void find_namespaces();
  void create(Queue& queue);
  void remove_all();

  driver::NvmeDriver& driver_;
  QueueLayout layout_;
  std::unique_ptr<QueueMemory> own_memory_;
  QueueMemory& memory_;
  std::vector<Queue> queues_;
  std::vector<NamespaceInfo> namespaces_;
  Queue* kernels_queues_ = nullptr;
  NamespaceInfo* kernels_namespaces_ = nullptr;
  simt::Word<std::uint32_t, simt::Scope::system>* abort_ = nullptr;
  std::vector<driver::QueuePair*> pairs_;  // good as long as the driver's generation is this one
  std::uint64_t generation_;
};

}  // namespace flashmob::gpu
