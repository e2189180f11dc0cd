#include "engine/dispatcher.h"

#include <algorithm>
#include <cstring>

#include "command_set/nvm.h"

namespace flashmob::engine {
namespace {

// Copies `count` entries of the ring, which the host filled before it rang: one streaming pass, no checks.
void fetch_entries(nvme::Sqe* to, const nvme::Sqe* from, std::uint32_t count) {
  std::memcpy(to, from, std::size_t{count} * sizeof(nvme::Sqe));
}

// Both halves of a fused pair belong to one doorbell update (Base 2.0c, 3.4.2). A host that rings twice is forgiven if
// the second half follows within this time; after it the first half is aborted.
constexpr std::uint64_t kFusedPatienceNs = 100'000'000;

}  // namespace

Dispatcher::Dispatcher(const EngineConfig& config, timing::TimingModel& model, ThreadClock& time,
                       std::vector<std::unique_ptr<Worker>>& workers)
    : config_(config), model_(model), time_(time), workers_(workers) {}

bool Dispatcher::pass() {
  FidelityStats& stats = workers_[0]->stats_now();
  if (last_pass_ns_ != 0 && time_.now_ns - last_pass_ns_ > stats.max_poll_gap_ns)
    stats.max_poll_gap_ns = time_.now_ns - last_pass_ns_;
  last_pass_ns_ = time_.now_ns;
  for (auto& worker : workers_) worker->reclaim();
  if (fused_waiting_ != 0) [[unlikely]]
    expire_fused();
  bool fetched = false;
  if (weighted_) {
    fetched = weighted_pass();
  } else {
    std::uint32_t taken = 0;
    for (Sq* sq : order_) {
      // The common case, an unmoved doorbell, costs two loads here.
      if (std::atomic_ref<std::uint32_t>(*sq->doorbell).load(std::memory_order_relaxed) ==
          sq->head.load(std::memory_order_relaxed))
        continue;
      fetched |= poll_sq(*sq, burst_, taken);
    }
  }
  ++(fetched ? stats.busy_polls : stats.idle_polls);
  return fetched;
}

void Dispatcher::expire_fused() {
  for (auto& sq : sqs_) {
    if (sq->fused_first == kNoSlot) continue;
    const std::uint64_t since_ns = workers_[sq->worker]->slab().hot(sq->fused_first).fetched_ns;
    if (time_.now_ns - since_ns >= kFusedPatienceNs) drop_fused(*sq);
  }
}

std::uint64_t Dispatcher::next_deadline_ns() const {
  std::uint64_t deadline_ns = UINT64_MAX;
  if (fused_waiting_ == 0) return deadline_ns;
  for (const auto& sq : sqs_) {
    if (sq->fused_first == kNoSlot) continue;
    const std::uint64_t since_ns = workers_[sq->worker]->slab().hot(sq->fused_first).fetched_ns;
    deadline_ns = std::min(deadline_ns, since_ns + kFusedPatienceNs);
  }
  return deadline_ns;
}

bool Dispatcher::weighted_pass() {
  // Base 2.0c, 3.4.4.2: the admin queue and urgent queues are strictly first; while they have commands, nobody else is
  // asked. The three weighted classes then share each pass by their weights.
  bool fetched = false;
  for (PriorityClass& group : classes_) {
    std::uint32_t credits = group.credits == 0 ? kMaxBatch : group.credits;
    for (std::uint32_t empty_visits = 0; credits != 0 && empty_visits < group.count;) {
      std::uint32_t taken = 0;
      fetched |= poll_sq(*order_[group.first + group.next], std::min(burst_, credits), taken);
      group.next = group.next + 1 == group.count ? 0 : group.next + 1;
      credits -= taken;
      empty_visits = taken == 0 ? empty_visits + 1 : 0;
    }
    if (fetched && &group == &classes_[0]) return true;
  }
  return fetched;
}

bool Dispatcher::poll_sq(Sq& sq, std::uint32_t limit, std::uint32_t& taken) {
  const std::uint32_t tail = std::atomic_ref<std::uint32_t>(*sq.doorbell).load(std::memory_order_acquire);
  const std::uint32_t head = sq.head.load(std::memory_order_relaxed);
  if (tail == head) [[likely]]
    return false;
  if (tail >= sq.entries) [[unlikely]] {
    if (sq.bad_tail != tail) {
      sq.bad_tail = tail;
      sq.controller->raise_error_event(controller::ErrorEvent::invalid_doorbell_value);
    }
    return false;
  }
  sq.bad_tail = 0xFFFFFFFFu;
  if (sq.ring == nullptr) [[unlikely]]
    return false;
  Worker& worker = *workers_[sq.worker];
  std::uint32_t count = tail > head ? tail - head : tail + sq.entries - head;
  // Half of what is free: a command that is no plain transfer takes a slot of its own beside the batch's.
  count = std::min({count, limit, config_.fetch_limit, worker.slab().available() / 2});
  if (count == 0) return false;
  const std::uint32_t first_run = std::min(count, sq.entries - head);
  fetch_entries(fetched_.data(), sq.ring + head, first_run);
  if (first_run < count) fetch_entries(fetched_.data() + first_run, sq.ring, count - first_run);
  const std::uint32_t next = head + count;
  sq.head.store(next >= sq.entries ? next - sq.entries : next, std::memory_order_relaxed);
  if (sq.event_index != nullptr) std::atomic_ref<std::uint32_t>(*sq.event_index).store(tail, std::memory_order_relaxed);
  time_.refresh();
  taken = count;
  ingest(sq, count);
  worker.publish();
  // A fetch takes a cross-core round trip or two; what came due meanwhile does not wait for the other queues.
  if (!worker.threaded()) worker.release_due();
  return true;
}

Slot Dispatcher::take_slot(Sq& sq, const nvme::Sqe& sqe, std::uint8_t flags) {
  Slab& slab = workers_[sq.worker]->slab();
  const Slot slot = slab.alloc();
  fill_slot(slab.hot(slot), sq, sqe, flags);
  return slot;
}

inline void Dispatcher::fill_slot(HotRequest& hot, const Sq& sq, const nvme::Sqe& sqe, std::uint8_t flags) {
  hot.fetched_ns = time_.now_ns;
  hot.sq = sq.index;
  hot.cid = sqe.cid;
  hot.status = 0;
  hot.flags = static_cast<std::uint8_t>(kLive | flags);
  hot.cold = kNoSlot;
}

void Dispatcher::ingest(Sq& sq, std::uint32_t count) {
  if (sq.admin) {
    for (std::uint32_t i = 0; i < count; ++i) admin_commands_.push_back({sq.controller, fetched_[i]});
    return;
  }
  Worker& worker = *workers_[sq.worker];
  Slab& slab = worker.slab();
  const command_set::IoLimits& limits = sq.controller->io_limits();
  const std::uint8_t transfer_flags =
      static_cast<std::uint8_t>(config_.move_data ? kTransfer | kTimed : kTransfer | kTimed | kDataDone);
  std::uint32_t last_nsid = 0;
  command_set::Namespace* ns = nullptr;
  std::uint64_t reads = 0, read_bytes = 0, writes = 0, written_bytes = 0;
  std::uint32_t timed = 0;
  // Plain transfers take slots from one batch; what other commands leave of it goes back.
  std::uint32_t used = 0;
  slab.alloc_batch(fresh_slots_.data(), count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const nvme::Sqe& sqe = fetched_[i];
    if (sqe.nsid != last_nsid) {
      last_nsid = sqe.nsid;
      ns = sq.controller->attached(sqe.nsid);
    }
    timing::Demand& demand = demands_[timed];
    if (ns == nullptr || !command_set::is_read_or_write(sqe.opcode) || (sqe.flags & nvme::kFlagFuseMask) != 0 ||
        sq.fused_first != kNoSlot) [[unlikely]] {
      const Slot slot = ingest_other(sq, sqe, demand);
      if (slot != kNoSlot) slots_[timed++] = slot;
      continue;
    }
    command_set::Transfer transfer;
    const nvme::Status status = command_set::decode_read_write(sqe, *ns, limits, transfer);
    if (status != nvme::Status::success) [[unlikely]] {
      slots_[timed++] = reject(sq, sqe, status, demand);
      continue;
    }
    const Slot slot = fresh_slots_[used++];
    fill_slot(slab.hot(slot), sq, sqe, transfer_flags);
    if (config_.move_data) {
      ColdRequest& cold = slab.alloc_cold(slot);
      cold.sqe = sqe;
      cold.ns = ns;
      cold.dw0 = 0;
      cold.media_offset = transfer.media_offset;
      cold.bytes = transfer.bytes;
      cold.is_write = transfer.is_write;
      cold.force_unit_access = transfer.force_unit_access || !sq.controller->write_cache_enabled();
    }
    // Field by field: a 16-byte copy of a structure just built would wait for its narrow stores.
    const std::uint64_t first_unit = transfer.media_offset >> ns->unit_shift;
    const std::uint64_t last_unit = (transfer.media_offset + transfer.bytes - 1) >> ns->unit_shift;
    demand.first_unit = ns->unit_base + first_unit;
    demand.units = static_cast<std::uint32_t>(last_unit - first_unit + 1);
    demand.kind = transfer.is_write ? timing::DemandKind::write : timing::DemandKind::read;
    slots_[timed++] = slot;
    reads += !transfer.is_write;
    writes += transfer.is_write;
    (transfer.is_write ? written_bytes : read_bytes) += transfer.bytes;
  }
  if (used != count) [[unlikely]]
    slab.release_batch(fresh_slots_.data() + used, count - used);
  model_.schedule({demands_.data(), timed}, time_.now_ns, {targets_ns_.data(), timed});
  worker.hand_over(slots_.data(), targets_ns_.data(), timed);
  sq.port->count(reads, read_bytes, writes, written_bytes);
}

Slot Dispatcher::reject(Sq& sq, const nvme::Sqe& sqe, nvme::Status status, timing::Demand& demand) {
  const Slot slot = take_slot(sq, sqe, kTimed | kDataDone | kFailed);
  const std::uint64_t lba = sqe.cdw10 | (std::uint64_t{sqe.cdw11} << 32);
  Slab& slab = workers_[sq.worker]->slab();
  slab.hot(slot).status = sq.controller->record_error(sq.sqid, sqe.cid, status, sqe.nsid, lba);
  demand = {0, 0, timing::DemandKind::immediate, {}};
  return slot;
}

// Everything but a plain Read or Write. Returns a slot that wants a target, or kNoSlot if it was dealt with.
Slot Dispatcher::ingest_other(Sq& sq, const nvme::Sqe& sqe, timing::Demand& demand) {
  Worker& worker = *workers_[sq.worker];
  Slab& slab = worker.slab();
  const std::uint8_t fuse = sqe.flags & nvme::kFlagFuseMask;
  if (sq.fused_first != kNoSlot && fuse != nvme::kFlagFuseSecond) drop_fused(sq);
  if (fuse == nvme::kFlagFuseMask) return reject(sq, sqe, nvme::Status::invalid_field, demand);
  if (fuse == nvme::kFlagFuseSecond && sq.fused_first == kNoSlot)
    return reject(sq, sqe, nvme::Status::aborted_missing_fused, demand);

  command_set::Namespace* ns = sq.controller->attached(sqe.nsid);
  const bool broadcast_flush =
      sqe.nsid == 0xFFFFFFFFu && sqe.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::flush) && fuse == 0;
  if (ns == nullptr && !broadcast_flush) {
    // Base 2.0c, 3.2.1.2 and 3.2.1.4: an invalid NSID, and a valid one that is inactive.
    if (fuse == nvme::kFlagFuseSecond) drop_fused(sq);
    const bool invalid = sqe.nsid == 0 || sqe.nsid > controller::kMaxNamespaces;
    return reject(sq, sqe, invalid ? nvme::Status::invalid_namespace_or_format : nvme::Status::invalid_field, demand);
  }
  const Slot slot = take_slot(sq, sqe, fuse == nvme::kFlagFuseFirst ? kFused : 0);
  ColdRequest& cold = slab.alloc_cold(slot);
  cold.sqe = sqe;
  cold.ns = ns;
  cold.dw0 = 0;
  cold.bytes = 0;
  cold.is_write = false;
  cold.force_unit_access = false;
  cold.partner = kNoSlot;
  if (fuse == nvme::kFlagFuseFirst) {
    sq.fused_first = slot;
    ++fused_waiting_;
  } else if (fuse == nvme::kFlagFuseSecond) {
    slab.cold(sq.fused_first).partner = slot;
    worker.hand_over(sq.fused_first);
    sq.fused_first = kNoSlot;
    --fused_waiting_;
  } else {
    worker.hand_over(slot);
  }
  return kNoSlot;
}

void Dispatcher::drop_fused(Sq& sq) {
  if (sq.fused_first == kNoSlot) return;
  Worker& worker = *workers_[sq.worker];
  HotRequest& hot = worker.slab().hot(sq.fused_first);
  const std::uint8_t aborted = hot.flags & kZombie;  // an Abort has answered it already
  if (aborted == 0) {
    const nvme::Sqe& sqe = worker.slab().cold(sq.fused_first).sqe;
    hot.status = sq.controller->record_error(sq.sqid, hot.cid, nvme::Status::aborted_missing_fused, sqe.nsid, 0);
  }
  hot.target_ns = time_.now_ns;
  hot.flags = static_cast<std::uint8_t>(kLive | kTimed | kDataDone | kFailed | aborted);
  worker.hand_over(sq.fused_first);
  worker.publish();
  sq.fused_first = kNoSlot;
  --fused_waiting_;
}

Sq& Dispatcher::add_sq(std::unique_ptr<Sq> sq) {
  sqs_.push_back(std::move(sq));
  sort_queues();
  return *sqs_.back();
}

Sq* Dispatcher::find_sq(const controller::Controller& controller, std::uint16_t sqid) {
  for (auto& sq : sqs_)
    if (sq->controller == &controller && sq->sqid == sqid) return sq.get();
  return nullptr;
}

void Dispatcher::remove_sq(Sq& sq) {
  sqs_.erase(std::find_if(sqs_.begin(), sqs_.end(), [&sq](const auto& held) { return held.get() == &sq; }));
  sort_queues();
}

void Dispatcher::refresh_rings(PortContext& port) {
  for (auto& sq : sqs_) {
    if (sq->port != &port) continue;
    sq->ring = reinterpret_cast<const nvme::Sqe*>(
        port.reader.translate(sq->iova, std::uint64_t{sq->entries} * sizeof(nvme::Sqe), false));
    sq->doorbell = port.doorbell(2u * sq->sqid, sq->bar_doorbell, sq->event_index);
  }
}

void Dispatcher::sort_queues() {
  // Admin queues first, then by class, then in order of creation: the round-robin order within a class.
  order_.clear();
  for (auto& sq : sqs_) order_.push_back(sq.get());
  const auto rank = [](const Sq* sq) { return sq->admin ? 0 : static_cast<int>(sq->priority); };
  std::stable_sort(order_.begin(), order_.end(),
                   [&](const Sq* a, const Sq* b) { return a->admin != b->admin ? a->admin : rank(a) < rank(b); });
  weighted_ = false;
  burst_ = kMaxBatch;
  classes_ = {};
  for (std::uint32_t i = 0; i < order_.size(); ++i) {
    PriorityClass& group = classes_[static_cast<std::size_t>(rank(order_[i]))];
    if (group.count == 0) group.first = i;
    ++group.count;
    if (order_[i]->admin) continue;
    // With several controllers on one unit the last one's features rule; each controller's weights are its own wish.
    const controller::Arbitration& wish = order_[i]->controller->arbitration();
    weighted_ |= wish.weighted_round_robin;
    if (wish.burst_log2 < 7) burst_ = std::min(burst_, 1u << wish.burst_log2);
    classes_[1].credits = wish.high_weight + 1u;
    classes_[2].credits = wish.medium_weight + 1u;
    classes_[3].credits = wish.low_weight + 1u;
  }
}

void Dispatcher::run_admin_commands() {
  while (!admin_commands_.empty()) {
    const AdminCommand command = admin_commands_.front();
    admin_commands_.erase(admin_commands_.begin());
    command.controller->execute_admin(command.sqe, time_.now_ns);
  }
}

void Dispatcher::drop_admin_commands(const controller::Controller& controller) {
  std::erase_if(admin_commands_, [&](const AdminCommand& held) { return held.controller == &controller; });
}

void Dispatcher::complete_admin(Sq& admin_sq, std::uint16_t cid, std::uint16_t status_field, std::uint32_t dw0) {
  nvme::Sqe sqe{};
  sqe.cid = cid;
  const Slot slot = take_slot(admin_sq, sqe, kTimed | kDataDone);
  Worker& worker = *workers_[admin_sq.worker];
  HotRequest& hot = worker.slab().hot(slot);
  hot.status = status_field;
  hot.target_ns = time_.now_ns;
  worker.slab().alloc_cold(slot).dw0 = dw0;
  worker.hand_over(slot);
  worker.publish();
}

}  // namespace flashmob::engine
