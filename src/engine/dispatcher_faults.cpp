// Taking in commands while the SSD is told to show faults: one by one, each looked up among the rules. None of this is
// touched while there are no rules.
#include "engine/dispatcher.h"

#include <algorithm>

namespace flashmob::engine {
namespace {

// A command that was fetched is not answered.
void forgo_slot(Sq& sq) {
  if (*sq.slots_held != 0) --*sq.slots_held;
}

}  // namespace

void Dispatcher::ingest_with_faults(Sq& sq, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const nvme::Sqe& sqe = fetched_[i];
    // The halves of a fused pair live and die together by rules of their own; they are left alone.
    const bool fused = !sq.admin && ((sqe.flags & nvme::kFlagFuseMask) != 0 || sq.fused_first != kNoSlot);
    const nvme::Csi csi = sq.admin ? nvme::Csi::nvm : sq.controller->attached_shape(sqe.nsid).csi;
    const Fault fault = fused ? Fault{} : faults_->match(sqe, sq.admin, csi, time_.now_ns);
    if (ends_here(sq, sqe, fault)) continue;
    if (!sq.admin)
      take_in_with_fault(sq, sqe, fault);
    else if (fault.delay_ns != 0)
      delayed_admin_.push_back({time_.now_ns + fault.delay_ns, {sq.controller, sqe}});
    else
      admin_commands_.push_back({sq.controller, sqe});
  }
}

// Faults that leave nothing to be carried out. Commands that are swallowed keep no slot: the host's abort does not find
// them, its reset has nothing to wait for.
bool Dispatcher::ends_here(Sq& sq, const nvme::Sqe& sqe, const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::error:
      if (sq.admin)
        complete_admin(sq, sqe.cid, sq.controller->record_error(sq.sqid, sqe.cid, fault.status, sqe.nsid, 0), 0);
      else
        reject(sq, sqe, fault.status);
      return true;
    case FaultKind::drop:
      forgo_slot(sq);
      sq.controller->drop_connection();
      return true;
    case FaultKind::fatal:
      forgo_slot(sq);
      sq.controller->request_failure();
      return true;
    case FaultKind::lose:
      if (sq.admin) forgo_slot(sq);
      return sq.admin;
    default:
      return false;
  }
}

void Dispatcher::take_in_with_fault(Sq& sq, const nvme::Sqe& sqe, const Fault& fault) {
  fault_delay_ns_ = fault.delay_ns;
  may_show_fault_ = fault.kind != FaultKind::none;
  take_in(sq, &sqe, 1);
  fault_delay_ns_ = 0;
  may_show_fault_ = false;
  if (fault.kind == FaultKind::none) return;
  // No worker sees the slot before publish().
  HotRequest& hot = workers_[sq.worker]->slab().hot(fresh_slots_[0]);
  if (fault.kind == FaultKind::lose) {
    hot.fault = kLoseCompletion;
    if (sq.lost++ == 0) sq.lost_since_ns = time_.now_ns;
  }
  if (fault.kind == FaultKind::corrupt) hot.fault = kCorruptData;
  // A command without target gets it when it has been executed, and then not before this. A Flush has one.
  if ((hot.flags & kTimed) == 0) hot.target_ns = std::max(hot.target_ns, time_.now_ns) + fault.delay_ns;
  // Nothing is left to move, where it would otherwise be noticed.
  if (fault.kind == FaultKind::lose && (hot.flags & kDataDone) != 0)
    hot.flags = static_cast<std::uint8_t>(hot.flags | kZombie);
}

void Dispatcher::run_delayed_admin_commands() {
  std::erase_if(delayed_admin_, [this](const DelayedAdminCommand& delayed) {
    if (delayed.due_ns > time_.now_ns) return false;
    admin_commands_.push_back(delayed.command);
    return true;
  });
}

}  // namespace flashmob::engine
