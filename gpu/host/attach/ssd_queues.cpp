#include "host/attach/ssd_queues.h"

#include <algorithm>
#include <string>

#include "driver/namespaces.h"
#include "flashmob/error.h"
#include "flashmob/gpu/command.h"
#include "nvme/features.h"
#include "nvme/registers.h"

namespace flashmob::gpu {
namespace {

std::uint64_t address(const void* memory) { return reinterpret_cast<std::uint64_t>(memory); }

}  // namespace

void lay_out(Queue& queue, const QueueLayout& layout, simt::Word<std::uint32_t, simt::Scope::system>& abort,
             QueueMemory& memory) {
  queue.sq_entries = layout.entries;
  queue.cq_entries = layout.cq_entries;
  queue.slot_count = layout.entries - 1;
  queue.host_sees_rings = memory.rings_are_seen_by_host();
  queue.timeout_ns = layout.timeout_ns;
  queue.mode.value = layout.mode;
  queue.abort = &abort;
  // Zeroed memory is an empty ring.
  queue.sq = reinterpret_cast<nvme::Sqe*>(memory.allocate_ring(queue.sq_entries * sizeof(nvme::Sqe)));
  queue.cq = reinterpret_cast<nvme::Cqe*>(memory.allocate_ring(queue.cq_entries * sizeof(nvme::Cqe)));
  queue.list_stride = static_cast<std::uint32_t>(list_bytes(layout.max_transfer_bytes));
  queue.lists = memory.allocate_lists(std::size_t{queue.slot_count} * queue.list_stride);
  std::vector<Slot> slots(queue.slot_count);
  std::vector<SharedWord<std::uint64_t>> free_slots((queue.slot_count + 63) / 64);
  for (std::uint32_t i = 0; i < queue.slot_count; ++i) {
    slots[i].ticket.value = layout.first_ticket;
    free_slots[i / 64].value |= std::uint64_t{1} << (i % 64);
  }
  queue.slots = put_near(memory, slots);
  queue.free_slots = put_near(memory, free_slots);
}

SsdQueues::SsdQueues(driver::NvmeDriver& driver, const QueueLayout& layout, QueueMemory* memory)
    : driver_(driver),
      layout_(layout),
      own_memory_(memory == nullptr ? std::make_unique<DmaQueueMemory>(driver.device()) : nullptr),
      memory_(memory == nullptr ? *own_memory_ : *memory),
      generation_(driver.generation()) {
  if (layout_.cq_entries == 0) layout_.cq_entries = layout_.entries;
  layout_.max_transfer_bytes = std::min(layout_.max_transfer_bytes, driver::max_transfer_bytes(driver_));
  check();
  find_namespaces();
  abort_ = put_near(memory_, std::vector<simt::Word<std::uint32_t, simt::Scope::system>>(1));
  queues_.resize(layout_.queues);
  try {
    for (Queue& queue : queues_) {
      lay_out(queue, layout_, *abort_, memory_);
      create(queue);
    }
    kernels_queues_ = put_near(memory_, queues_);
  } catch (...) {
    remove_all();
    throw;
  }
}

SsdQueues::~SsdQueues() { remove_all(); }

void SsdQueues::check() {
  const std::uint32_t most = std::uint32_t{nvme::decode_cap(driver_.capabilities()).mqes} + 1;
  for (const std::uint32_t entries : {layout_.entries, layout_.cq_entries}) {
    if (entries < 2 || entries > most)
      throw ConfigError("queue depth " + std::to_string(entries) + ": this SSD's queues have 2 to " +
                        std::to_string(most) + " entries");
  }
  const std::uint32_t others = driver_.queue_pairs();
  if (layout_.queues == 0 || layout_.queues > driver::QueueIds::kAll - others)
    throw ConfigError("queues is " + std::to_string(layout_.queues) + ": ask for 1 to " +
                      std::to_string(driver::QueueIds::kAll - others));
  if (layout_.max_transfer_bytes < kPageBytes)
    throw ConfigError("max_transfer_bytes is " + std::to_string(layout_.max_transfer_bytes) +
                      ": at least one page of 4096 bytes");
  const std::uint32_t needed = others + layout_.queues;
  const auto features =
      nvme::decode_number_of_queues(driver_.get_feature(static_cast<std::uint8_t>(nvme::Feature::number_of_queues)));
  std::uint32_t granted = std::min(features.sqs, features.cqs) + 1u;
  // More may be asked for only before there are any (Base 2.0c, 5.27.1.5).
  if (granted < needed && others == 0) granted = driver_.request_queues(needed);
  if (granted < needed)
    throw ConfigError("queues is " + std::to_string(layout_.queues) + ": this SSD grants " +
                      std::to_string(granted - std::min(granted, others)));
}

void SsdQueues::find_namespaces() {
  for (const std::uint32_t nsid : driver::active_namespaces(driver_)) {
    const driver::BlockNamespace found = driver::identify_namespace(driver_, nsid);
    namespaces_.push_back({found.nsid, found.lba_shift, found.blocks});
  }
  kernels_namespaces_ = put_near(memory_, namespaces_);
}

void SsdQueues::create(Queue& queue) {
  // The rings may lie in a GPU's memory: the driver touches neither, and the doorbells are all that we need of the
  // pair.
  const driver::QueueRings rings{.sq_iova = address(queue.sq), .cq_iova = address(queue.cq)};
  driver::QueuePair& pair =
      driver_.create_queue_pair({.sq_entries = queue.sq_entries, .cq_entries = queue.cq_entries, .rings = rings});
  pairs_.push_back(&pair);
  queue.sq_doorbell = pair.sq_doorbell();
  queue.cq_doorbell = pair.cq_doorbell();
}

std::size_t SsdQueues::doorbell_bytes() const {
  const std::uint32_t* end = driver_.device().doorbells();
  for (const driver::QueuePair* const pair : pairs_) end = std::max<const std::uint32_t*>(end, pair->cq_doorbell() + 1);
  return static_cast<std::size_t>(end - driver_.device().doorbells()) * sizeof(std::uint32_t);
}

void SsdQueues::remove_all() {
  try {
    for (driver::QueuePair* const pair : pairs_) {
      if (generation_ == driver_.generation()) driver_.delete_queue_pair(*pair);
    }
  } catch (const std::exception&) {
    // A controller that does not answer has no use for the rings either; the next reset forgets them.
  }
  pairs_.clear();
}

void SsdQueues::set_abort(bool raised) { put_word(memory_, *abort_, raised ? 1u : 0u); }

}  // namespace flashmob::gpu
