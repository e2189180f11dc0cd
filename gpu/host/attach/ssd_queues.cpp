#include "host/attach/ssd_queues.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "flashmob/error.h"
#include "flashmob/gpu/command.h"
#include "nvme/features.h"
#include "nvme/identify.h"
#include "nvme/identify_controller.h"
#include "nvme/identify_namespace.h"
#include "nvme/registers.h"

namespace flashmob::gpu {
namespace {

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

void run(driver::NvmeDriver& driver, const nvme::Sqe& sqe, const std::string& what) {
  const driver::AdminResult result = driver.admin(sqe, {}, false);
  if (result.status_field != 0) throw driver::NvmeError(what, result.status_field);
}

}  // namespace

std::byte* DmaQueueMemory::allocate(std::size_t bytes) {
  parts_.push_back(std::make_unique<driver::DmaMemory>(device_, bytes));
  return parts_.back()->data();
}

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
  queue.slots = make_array<Slot>(memory, queue.slot_count);
  queue.list_stride = static_cast<std::uint32_t>(list_bytes(layout.max_transfer_bytes));
  queue.lists = memory.allocate(std::size_t{queue.slot_count} * queue.list_stride);
  queue.free_slots = make_array<SharedWord<std::uint64_t>>(memory, (queue.slot_count + 63) / 64);
  for (std::uint32_t i = 0; i < queue.slot_count; ++i) {
    queue.slots[i].ticket.value = layout.first_ticket;
    queue.free_slots[i / 64].value |= std::uint64_t{1} << (i % 64);
  }
}

SsdQueues::SsdQueues(driver::NvmeDriver& driver, const QueueLayout& layout, QueueMemory* memory)
    : driver_(driver), layout_(layout) {
  if (layout_.cq_entries == 0) layout_.cq_entries = layout_.entries;
  if (const std::uint64_t limit = device_limit_bytes(); limit != 0)
    layout_.max_transfer_bytes = std::min(layout_.max_transfer_bytes, limit);
  check();
  if (memory == nullptr) {
    own_memory_ = std::make_unique<DmaQueueMemory>(driver_.device());
    memory = own_memory_.get();
  }
  find_namespaces(*memory);
  abort_ = make_array<simt::Word<std::uint32_t, simt::Scope::system>>(*memory, 1);
  queues_ = make_array<Queue>(*memory, layout_.queues);
  try {
    for (std::uint32_t i = 0; i < layout_.queues; ++i) {
      const auto qid = static_cast<std::uint16_t>(layout_.first_qid + i);
      queues_[i].sq_doorbell = driver_.device().doorbells() + 2 * std::size_t{qid};
      queues_[i].cq_doorbell = queues_[i].sq_doorbell + 1;
      lay_out(queues_[i], layout_, *abort_, *memory);
      create(qid, queues_[i]);
    }
  } catch (...) {
    remove_all();
    throw;
  }
}

SsdQueues::~SsdQueues() { remove_all(); }

std::uint64_t SsdQueues::device_limit_bytes() {
  nvme::IdentifyController identify{};
  driver_.identify(static_cast<std::uint8_t>(nvme::Cns::identify_controller), 0, bytes_of(identify));
  return identify.mdts == 0 ? 0 : kPageBytes << identify.mdts;
}

void SsdQueues::check() {
  const std::uint32_t most = std::uint32_t{nvme::decode_cap(driver_.capabilities()).mqes} + 1;
  for (const std::uint32_t entries : {layout_.entries, layout_.cq_entries}) {
    if (entries < 2 || entries > most)
      throw ConfigError("queue depth " + std::to_string(entries) + ": this SSD's queues have 2 to " +
                        std::to_string(most) + " entries");
  }
  if (layout_.queues == 0 || layout_.first_qid == 0 || layout_.first_qid + layout_.queues > 65536)
    throw ConfigError("queues is " + std::to_string(layout_.queues) + ": ask for 1 to " +
                      std::to_string(65536 - std::max<std::uint32_t>(layout_.first_qid, 1)));
  if (layout_.max_transfer_bytes < kPageBytes)
    throw ConfigError("max_transfer_bytes is " + std::to_string(layout_.max_transfer_bytes) +
                      ": at least one page of 4096 bytes");
  const std::uint32_t needed = layout_.first_qid - 1u + layout_.queues;
  const auto granted =
      nvme::decode_number_of_queues(driver_.get_feature(static_cast<std::uint8_t>(nvme::Feature::number_of_queues)));
  if (std::min(granted.sqs, granted.cqs) + 1u >= needed) return;
  if (const std::uint32_t got = driver_.request_queues(needed); got < needed)
    throw ConfigError("queues is " + std::to_string(layout_.queues) + ": this SSD grants " +
                      std::to_string(got < layout_.first_qid ? 0 : got - layout_.first_qid + 1));
}

void SsdQueues::find_namespaces(QueueMemory& memory) {
  nvme::NamespaceList list{};
  driver_.identify(static_cast<std::uint8_t>(nvme::Cns::active_namespace_list), 0, bytes_of(list));
  while (namespace_count_ < nvme::NamespaceList::kMaxEntries && list.nsid[namespace_count_] != 0) ++namespace_count_;
  namespaces_ = make_array<NamespaceInfo>(memory, std::max<std::uint32_t>(namespace_count_, 1));
  for (std::uint32_t i = 0; i < namespace_count_; ++i) {
    nvme::IdentifyNamespace identify{};
    driver_.identify(static_cast<std::uint8_t>(nvme::Cns::identify_namespace), list.nsid[i], bytes_of(identify));
    const nvme::LbaFormat& format = identify.lbaf[nvme::lba_format_index(identify.flbas)];
    namespaces_[i] = {list.nsid[i], format.lbads, identify.nsze};
  }
}

void SsdQueues::create(std::uint16_t qid, const Queue& queue) {
  constexpr std::uint32_t kContiguous = 1;
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::create_io_cq);
  sqe.prp1 = reinterpret_cast<std::uint64_t>(queue.cq);
  sqe.cdw10 = qid | ((queue.cq_entries - 1) << 16);
  sqe.cdw11 = kContiguous;
  run(driver_, sqe, "creating completion queue " + std::to_string(qid));
  ++completion_rings_;
  sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::create_io_sq);
  sqe.prp1 = reinterpret_cast<std::uint64_t>(queue.sq);
  sqe.cdw10 = qid | ((queue.sq_entries - 1) << 16);
  sqe.cdw11 = kContiguous | (std::uint32_t{qid} << 16);
  run(driver_, sqe, "creating submission queue " + std::to_string(qid));
  ++submission_rings_;
}

// A controller that does not answer has no use for the rings either; the next reset forgets them.
void SsdQueues::remove_all() {
  const auto remove = [&](nvme::AdminOpcode opcode, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      nvme::Sqe sqe{};
      sqe.opcode = static_cast<std::uint8_t>(opcode);
      sqe.cdw10 = layout_.first_qid + i;
      driver_.admin(sqe, {}, false);
    }
  };
  try {
    remove(nvme::AdminOpcode::delete_io_sq, submission_rings_);
    remove(nvme::AdminOpcode::delete_io_cq, completion_rings_);
  } catch (const std::exception&) {
    submission_rings_ = completion_rings_ = 0;
  }
}

void SsdQueues::set_abort(bool raised) {
  std::atomic_ref(abort_->value).store(raised ? 1 : 0, std::memory_order_release);
}

}  // namespace flashmob::gpu
