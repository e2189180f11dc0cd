// Flushes, and commands with FUA, of media that a disk keeps a flush waiting for: the sync thread sees to that part of
// them, and the worker goes on with the others.
#include <algorithm>

#include "command_set/nvm.h"
#include "engine/worker.h"
#include "nvme/opcode.h"

namespace flashmob::engine {
namespace {

bool is_flush(const ColdRequest& cold) { return cold.sqe.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::flush); }

nvme::Status sync_failure(const ColdRequest& cold) {
  if (cold.sync_marks) return cold.ns->write_failure();
  return cold.is_write ? nvme::Status::write_fault : nvme::Status::unrecovered_read_error;
}

}  // namespace

// Of the request's bytes, of which 0 are all. False: the worker has to do it itself.
bool Worker::start_sync(Slot slot, command_set::Namespace& ns) {
  if (syncs_ == nullptr || !ns.media->sync_waits()) return false;
  ColdRequest& cold = slab_.cold(slot);
  cold.sync_ns = &ns;
  if (!syncs_->submit(*mailbox_, cold)) {
    cold.sync_ns = nullptr;
    return false;
  }
  ++syncing_;
  return true;
}

// Goes on with the requests whose media is durable now, or could not be made so.
void Worker::collect_syncs() {
  SyncList done = mailbox_->take();
  while (ColdRequest* const request = done.pop()) {
    ColdRequest& cold = *request;
    const Slot slot = cold.slot;
    HotRequest& hot = hot_[slot];
    const bool good = cold.sync_good;
    cold.sync_ns = nullptr;
    --syncing_;
    if ((hot.flags & kZombie) != 0)
      drop_zombie(slot);
    else if (is_flush(cold))
      go_on_flushing(slot, cold.media_offset + 1, good);
    else if ((hot.flags & kTransfer) == 0)
      execution_durable(slot, good);
    else if (cold.is_write)
      write_durable(slot, good);
    else if (good) {
      cold.force_unit_access = false;  // what it reads is on the medium
      redo_.push_back(slot);
    } else {
      fail(hot, cold, nvme::Status::unrecovered_read_error);
      data_done(slot);
    }
  }
}

std::uint64_t Worker::flush_target(timing::TimingModel& model, std::uint64_t fetched_ns) {
  const timing::Demand flush{0, 0, timing::DemandKind::flush, {}};
  std::uint64_t target_ns = fetched_ns;
  model.schedule({&flush, 1}, fetched_ns, {&target_ns, 1});
  return target_ns;
}

// A Flush reaches one namespace, or every attached one (NVM 1.0c, 3.2.1): those from `first` on. `media_offset` says
// which one the sync thread has.
void Worker::go_on_flushing(Slot slot, std::uint64_t first, bool good) {
  HotRequest& hot = hot_[slot];
  ColdRequest& cold = slab_.cold(slot);
  PortContext& port = *sqs_[hot.sq].cq->port;
  if (!good) cold.sync_failed = true;
  const bool all = cold.ns == nullptr;
  const bool needed = port.controller.io_limits().volatile_write_cache;
  for (std::uint64_t nsid = first; needed && (all || first == 0) && nsid <= controller::kMaxNamespaces; ++nsid) {
    command_set::Namespace* const ns = all ? port.controller.attached(static_cast<std::uint32_t>(nsid)) : cold.ns;
    if (ns != nullptr) {
      cold.media_offset = nsid;
      cold.sync_marks = ns->marks_unsaved();
      if (start_sync(slot, *ns)) return;
      time_.gaps.note_work();
      if (!ns->flush()) cold.sync_failed = true;
    }
    if (!all) break;
  }
  command_set::Outcome outcome;
  outcome.demand.kind = timing::DemandKind::immediate;  // the model has been asked
  if (cold.sync_failed && (hot.flags & kFailed) == 0) outcome.status = nvme::Status::write_fault;
  time_.refresh();
  conclude(slot, outcome, hot.target_ns);
}

void Worker::write_durable(Slot slot, bool good) {
  HotRequest& hot = hot_[slot];
  const ColdRequest& cold = slab_.cold(slot);
  if (!good && (hot.flags & kFailed) == 0) fail(hot, cold, sync_failure(cold));
  data_durable(slot);
}

// Of a command that ran in one piece, and asked for it.
void Worker::execution_durable(Slot slot, bool good) {
  HotRequest& hot = hot_[slot];
  const ColdRequest& cold = slab_.cold(slot);
  if (!good && (hot.flags & kFailed) == 0) fail(hot, cold, sync_failure(cold));
  hold(slot);
}

}  // namespace flashmob::engine
