#include "engine/requests.h"

#include "command_set/nvm.h"
#include "nvme/io_command.h"

namespace flashmob::engine {

Requests::Requests(std::uint32_t slots, bool threaded) : threaded_(threaded), slab_(slots) {
  hot_ = slab_.hot_array();
  if (threaded) plain_memory_ = memory::HostMemory(sizeof(PlainRequest) * Slab::kCapacity);
  plain_ = reinterpret_cast<PlainRequest*>(plain_memory_.data());
  queues_.resize(1);
}

void Requests::add_queue(Sq& sq, Cq& cq) {
  std::size_t index = 1;
  while (index < queues_.size() && queues_[index].sq != nullptr) ++index;
  if (index == queues_.size()) queues_.emplace_back();
  queues_[index] = {&sq, &cq};
  sq.index = static_cast<std::uint16_t>(index);
}

void Requests::remove_leaving() {
  for (Queue& queue : queues_)
    if (queue.sq != nullptr && queue.sq->port->is_leaving) queue = {};
}

void Requests::fail(HotRequest& hot, nvme::Status status, std::uint32_t nsid, std::uint64_t lba) const {
  const Sq& sq = *queues_[hot.sq].sq;
  hot.status = sq.controller->record_error(sq.sqid, hot.cid, status, nsid, lba);
  hot.set(kFailed);
}

void Requests::fail(HotRequest& hot, const ColdRequest& cold, nvme::Status status) const {
  const bool has_blocks = cold.ns == nullptr || cold.ns->command_set->has_logical_blocks();
  fail(hot, status, cold.sqe.nsid, has_blocks ? nvme::starting_lba(cold.sqe) : 0);
}

void Requests::add_transfer(Slot slot, const nvme::Sqe& sqe, command_set::Namespace& ns) {
  ColdRequest& cold = slab_.alloc_cold(slot, sqe, &ns);
  const command_set::Transfer transfer = command_set::transfer_of(sqe, ns);
  cold.media_offset = transfer.media_offset;
  cold.bytes = transfer.bytes;
  cold.is_write = transfer.is_write;
  const bool write_through = cold.is_write && !queue_of(hot_[slot]).sq->controller->write_cache_enabled();
  cold.force_unit_access = transfer.force_unit_access || write_through;
}

}  // namespace flashmob::engine
