#include "engine/dispatcher.h"

#include <algorithm>
#include <utility>

#include "command_set/nvm.h"

namespace flashmob::engine {
namespace {

using command_set::Runs;

// Commands that the engine itself takes in, whether right or wrong; all others their command set executes.
bool may_be_in_run(const command_set::Namespace& ns, std::uint8_t opcode) {
  const Runs runs = ns.runs.load(std::memory_order_relaxed);
  if (runs == Runs::all) return command_set::is_read_or_write(opcode);
  return runs == Runs::reads && opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::read);
}

// Both halves of a fused pair belong to one doorbell update (Base 2.0c, 3.4.2). A host that rings twice is forgiven if
// the second half follows within this time; after it the first half is aborted.
constexpr std::uint64_t kFusedPatienceNs = 100'000'000;

// What a command of blocks that is no plain transfer counts for. What a Copy copies stands in the host's memory, and so
// it counts as the most that one may.
std::uint64_t named_bytes(const nvme::Sqe& sqe, const command_set::Namespace& ns) {
  using nvme::NvmOpcode;
  switch (static_cast<NvmOpcode>(sqe.opcode)) {
    case NvmOpcode::read:
    case NvmOpcode::write:
    case NvmOpcode::compare:
    case NvmOpcode::verify:
    case NvmOpcode::write_zeroes:
      return std::uint64_t{nvme::block_count(sqe)} << ns.lba_shift;
    case NvmOpcode::copy:
      return std::uint64_t{command_set::kMaxCopyLength} << ns.lba_shift;
    default:
      return 0;
  }
}

}  // namespace

Dispatcher::Dispatcher(const EngineConfig& config, timing::TimingModel& model, ThreadClock& time,
                       std::vector<std::unique_ptr<Worker>>& workers)
    : config_(config), model_(model), time_(time), workers_(workers) {}

void Dispatcher::expire_fused() {
  for (auto& sq : sqs_) {
    if (sq->fused_first == kNoSlot) continue;
    const std::uint64_t since_ns = workers_[sq->worker]->slab().hot(sq->fused_first).fetched_ns;
    if (time_.now_ns - since_ns >= kFusedPatienceNs) drop_fused(*sq);
  }
}

std::uint64_t Dispatcher::next_deadline_ns() const {
  std::uint64_t deadline_ns = gate_opens_ns_;
  for (const DelayedAdminCommand& delayed : delayed_admin_) deadline_ns = std::min(deadline_ns, delayed.due_ns);
  if (fused_waiting_ == 0) return deadline_ns;
  for (const auto& sq : sqs_) {
    if (sq->fused_first == kNoSlot) continue;
    const std::uint64_t since_ns = workers_[sq->worker]->slab().hot(sq->fused_first).fetched_ns;
    deadline_ns = std::min(deadline_ns, since_ns + kFusedPatienceNs);
  }
  return deadline_ns;
}

Slot Dispatcher::take_slot(Sq& sq, const nvme::Sqe& sqe, std::uint8_t flags) {
  Slab& slab = workers_[sq.worker]->slab();
  const Slot slot = slab.alloc(sq.index);
  fresh_slots_[0] = slot;
  slab.hot(slot).fill(0, time_.now_ns, sq.index, sqe.cid, static_cast<std::uint8_t>(kLive | flags), kNoSlot);
  return slot;
}

void Dispatcher::ingest(Sq& sq, std::uint32_t count) {
  if (faults_ != nullptr && faults_->armed()) [[unlikely]]
    return ingest_with_faults(sq, count);
  if (sq.admin) {
    for (std::uint32_t i = 0; i < count; ++i) admin_commands_.push_back({sq.controller, fetched_[i]});
    return;
  }
  for (std::uint32_t at = 0; at < count;) at += take_in(sq, fetched_.data() + at, count - at);
}

// Takes in the first of these I/O commands, and with a plain transfer those like it that follow. Returns how many.
std::uint32_t Dispatcher::take_in(Sq& sq, const nvme::Sqe* sqes, std::uint32_t count) {
  command_set::Namespace* const ns = sq.controller->attached(sqes->nsid);
  if (ns != nullptr && sq.fused_first == kNoSlot && ns->runs.load(std::memory_order_relaxed) != Runs::none) [[likely]] {
    const std::uint32_t run = decode_run(sq, *ns, sqes, count);
    if (run != 0) {
      admit_run(sq, *ns, sqes, run);
      return run;
    }
  }
  ingest_other(sq, *sqes, ns);
  return 1;
}

// Decodes Reads and Writes to one namespace up to the first command that is something else or wrong; their demands on
// the timing model are in demands_. Returns how many. The hot beginning of the engine: what stays the same is in
// locals, because the compiler must assume that every store may change a member.
std::uint32_t Dispatcher::decode_run(Sq& sq, const command_set::Namespace& ns, const nvme::Sqe* sqes,
                                     std::uint32_t count) {
  const command_set::IoLimits limits = sq.controller->io_limits();
  const std::uint32_t nsid = sqes->nsid;
  const command_set::PlainRead plain_read(ns, nsid, limits);
  // Another unit may have ended runs of any kind since the caller looked, as where a zone has gone offline.
  const bool reads_alone = ns.runs.load(std::memory_order_relaxed) != Runs::all;
  const bool places = ns.has_directives;
  const timing::UnitMap units = ns.units();
  timing::Demand* demand = demands_.data();
  std::uint64_t bytes = 0, writes = 0, written_bytes = 0;
  std::uint32_t run = 0;
  for (; run < count; ++run, ++demand) {
    const nvme::Sqe& sqe = sqes[run];
    command_set::Transfer transfer;
    if (!plain_read.decode(sqe, transfer)) [[unlikely]] {
      if (sqe.nsid != nsid || !command_set::is_read_or_write(sqe.opcode) || (sqe.flags & nvme::kFlagFuseMask) != 0 ||
          command_set::decode_read_write(sqe, ns, limits, transfer) != nvme::Status::success ||
          (transfer.is_write && reads_alone))
        break;
      writes += transfer.is_write;
      written_bytes += transfer.is_write ? transfer.bytes : 0;
    }
    units.transfer(transfer.media_offset, transfer.bytes, transfer.is_write, *demand, transfer.force_unit_access);
    if (places && transfer.is_write) [[unlikely]]
      ns.placement->place(sqe, transfer.bytes, time_.now_ns, *demand);
    bytes += transfer.bytes;
  }
  if (run != 0) sq.port->count(run - writes, bytes - written_bytes, writes, written_bytes);
  if (sq.is_limited) [[unlikely]]
    sq.controller->rate_gate().pay(time_.now_ns, bytes);
  return run;
}

// Of a request with its own update of the timing model.
std::uint64_t Dispatcher::target_of(const timing::Demand& demand) {
  std::uint64_t target_ns = time_.now_ns;
  model_.schedule({&demand, 1}, time_.now_ns, {&target_ns, 1});
  return target_ns;
}

void Dispatcher::reject(Sq& sq, const nvme::Sqe& sqe, nvme::Status status) {
  const Slot slot = take_slot(sq, sqe, kTimed | kDataDone | kFailed);
  Worker& worker = *workers_[sq.worker];
  HotRequest& hot = worker.slab().hot(slot);
  const bool has_blocks = sq.controller->attached_shape(sqe.nsid).csi != nvme::Csi::key_value;
  hot.status =
      sq.controller->record_error(sq.sqid, sqe.cid, status, sqe.nsid, has_blocks ? nvme::starting_lba(sqe) : 0);
  hot.target_ns = target_of({0, 0, timing::DemandKind::immediate, {}});
  worker.hand_over(slot);
}

// A Read or Write that was not taken with a run: it is wrong, or it came after a lonely half of a fused pair.
void Dispatcher::ingest_transfer(Sq& sq, const nvme::Sqe& sqe, command_set::Namespace& ns) {
  command_set::Transfer transfer;
  const nvme::Status status = command_set::decode_read_write(sqe, ns, sq.controller->io_limits(), transfer);
  if (status != nvme::Status::success) return reject(sq, sqe, status);
  // Right after all: it follows half of a fused pair, or another unit's write has cleared a mark of Write
  // Uncorrectable.
  ns.units().transfer(transfer.media_offset, transfer.bytes, transfer.is_write, demands_[0]);
  if (transfer.is_write && ns.has_directives) ns.placement->place(sqe, transfer.bytes, time_.now_ns, demands_[0]);
  sq.port->count(!transfer.is_write, transfer.is_write ? 0 : transfer.bytes, transfer.is_write,
                 transfer.is_write ? transfer.bytes : 0);
  if (sq.is_limited) sq.controller->rate_gate().pay(time_.now_ns, transfer.bytes);
  admit_run(sq, ns, &sqe, 1);
}

// Gives slots and targets to the commands that decode_run() took.
void Dispatcher::admit_run(Sq& sq, command_set::Namespace& ns, const nvme::Sqe* sqes, std::uint32_t run) {
  Worker& worker = *workers_[sq.worker];
  worker.slab().alloc_batch(fresh_slots_.data(), run, sq.index);
  model_.schedule({demands_.data(), run}, time_.now_ns, {targets_ns_.data(), run});
  if (fault_delay_ns_ != 0) [[unlikely]]
    targets_ns_[0] += fault_delay_ns_;
  worker.admit(sq, ns, sqes, {fresh_slots_.data(), run}, targets_ns_.data(), time_.now_ns, may_show_fault_);
}

// Everything but a plain and legal Read or Write.
void Dispatcher::ingest_other(Sq& sq, const nvme::Sqe& sqe, command_set::Namespace* ns) {
  Worker& worker = *workers_[sq.worker];
  Slab& slab = worker.slab();
  const std::uint8_t fuse = sqe.flags & nvme::kFlagFuseMask;
  if (sq.fused_first != kNoSlot && fuse != nvme::kFlagFuseSecond) drop_fused(sq);
  if (fuse == nvme::kFlagFuseMask) return reject(sq, sqe, nvme::Status::invalid_field);
  if (fuse == nvme::kFlagFuseSecond && sq.fused_first == kNoSlot)
    return reject(sq, sqe, nvme::Status::aborted_missing_fused);

  const bool broadcast_flush =
      sqe.nsid == 0xFFFFFFFFu && sqe.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::flush) && fuse == 0;
  if (ns == nullptr && !broadcast_flush) {
    // Base 2.0c, 3.2.1.2 and 3.2.1.4: an invalid NSID, and a valid one that is inactive.
    if (fuse == nvme::kFlagFuseSecond) drop_fused(sq);
    if (!controller::is_valid_nsid(sqe.nsid)) return reject(sq, sqe, nvme::Status::invalid_namespace_or_format);
    const bool comes_back = sq.controller->is_formatting(sqe.nsid);
    return reject(sq, sqe, comes_back ? nvme::Status::format_in_progress : nvme::Status::invalid_field);
  }
  if (fuse == 0 && ns != nullptr && may_be_in_run(*ns, sqe.opcode)) return ingest_transfer(sq, sqe, *ns);
  if (sq.is_limited && ns != nullptr) sq.controller->rate_gate().pay(time_.now_ns, named_bytes(sqe, *ns));
  const Slot slot = take_slot(sq, sqe, fuse == nvme::kFlagFuseFirst ? kFused : 0);
  ColdRequest& cold = slab.alloc_cold(slot, sqe, ns);
  // A Flush waits for what was fetched before it, and a Deallocate leaves alone what was written after it: they are
  // carried out later, when the model knows more.
  cold.media_offset = model_.writes_scheduled();
  if (fuse == 0 && cold.is(nvme::NvmOpcode::flush)) {
    slab.hot(slot).target_ns = target_of({0, 0, timing::DemandKind::flush, {}});
  } else if (fuse == 0) {
    if (const auto demand = ns->command_set->demand_of(sqe, *ns, sq.controller->io_limits())) {
      slab.hot(slot).target_ns = target_of(*demand);
      cold.is_asked = true;
    }
  }
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
  worker.requests().publish();
  sq.fused_first = kNoSlot;
  --fused_waiting_;
}

// Those that take longer together than others' I/O is to wait go on in the next round. (In virtual time none does.)
void Dispatcher::run_admin_commands() {
  const std::uint64_t began_ns = time_.clock.now_ns();
  do {
    // It may drop others, in a reset.
    const AdminCommand command = admin_commands_[admin_next_++];
    command.controller->execute_admin(command.sqe, time_.now_ns);
  } while (has_admin_commands() && time_.clock.now_ns() - began_ns < kAdminRoundNs);
  if (2 * admin_next_ >= admin_commands_.size()) forget_run_admin_commands();
}

void Dispatcher::forget_run_admin_commands() {
  admin_commands_.erase(admin_commands_.begin(), admin_commands_.begin() + static_cast<std::ptrdiff_t>(admin_next_));
  admin_next_ = 0;
}

void Dispatcher::drop_admin_commands(const controller::Controller& controller) {
  forget_run_admin_commands();
  std::erase_if(admin_commands_, [&](const AdminCommand& held) { return held.controller == &controller; });
  std::erase_if(delayed_admin_,
                [&](const DelayedAdminCommand& held) { return held.command.controller == &controller; });
}

// There is a slot: admin commands are fetched only where there is one for each answer.
void Dispatcher::complete_admin(Sq& admin_sq, std::uint16_t cid, std::uint16_t status_field, std::uint32_t dw0) {
  nvme::Sqe sqe{};
  sqe.cid = cid;
  const Slot slot = take_slot(admin_sq, sqe, kTimed | kDataDone);
  Worker& worker = *workers_[admin_sq.worker];
  HotRequest& hot = worker.slab().hot(slot);
  hot.status = status_field;
  hot.target_ns = time_.now_ns;
  worker.slab().alloc_cold(slot).result = dw0;
  worker.hand_over(slot);
  worker.requests().publish();
}

}  // namespace flashmob::engine
