// The executor and the sync thread, which has the media of some commands made durable; and what is to go wrong with a
// command on purpose, once it has been carried out.
#include <algorithm>

#include "base/rng.h"
#include "command_set/nvm.h"
#include "engine/executor.h"
#include "nvme/opcode.h"

namespace flashmob::engine {
namespace {

nvme::Status sync_failure(const ColdRequest& cold) {
  if (cold.sync_marks) return cold.ns->write_failure();
  return cold.is_write ? nvme::Status::write_fault : nvme::Status::unrecovered_read_error;
}

}  // namespace

bool Executor::start_sync(Slot slot, command_set::Namespace& ns) {
  if (syncs_ == nullptr || !ns.media->sync_waits()) return false;
  ColdRequest& cold = requests_.cold(slot);
  cold.sync_ns = &ns;
  if (!syncs_->submit(*mailbox_, cold)) {
    cold.sync_ns = nullptr;
    return false;
  }
  ++syncing_;
  return true;
}

bool Executor::collect_syncs() {
  if (syncing_ == 0 || mailbox_->empty()) return false;
  SyncList done = mailbox_->take();
  while (ColdRequest* const request = done.pop()) {
    ColdRequest& cold = *request;
    const Slot slot = cold.slot;
    const HotRequest& hot = requests_.hot(slot);
    const bool good = cold.sync_good;
    cold.sync_ns = nullptr;
    --syncing_;
    if (hot.has(kZombie)) {
      requests_.drop_zombie(slot);
    } else if (cold.is(nvme::NvmOpcode::flush)) {
      go_on_flushing(slot, cold.media_offset + 1, good);
    } else if (!hot.has(kTransfer) || cold.is_write) {
      synced(slot, good);
    } else if (good) {
      cold.force_unit_access = false;  // what it reads is on the medium
      redo_.push_back(slot);
    } else {
      fail_transfer(slot, nvme::Status::unrecovered_read_error);
    }
  }
  return true;
}

// A Flush reaches one namespace, or every attached one (NVM 1.0c, 3.2.1): those from `first` on. `media_offset` says
// which one the sync thread has.
void Executor::go_on_flushing(Slot slot, std::uint64_t first, bool good) {
  HotRequest& hot = requests_.hot(slot);
  ColdRequest& cold = requests_.cold(slot);
  PortContext& port = requests_.port_of(hot);
  if (!good) cold.sync_failed = true;
  const bool all = cold.ns == nullptr;
  const bool needed = port.controller.io_limits().volatile_write_cache;
  for (std::uint64_t nsid = first; needed && (all || first == 0) && nsid <= controller::kMaxNamespaces; ++nsid) {
    command_set::Namespace* const ns = all ? port.controller.attached(static_cast<std::uint32_t>(nsid)) : cold.ns;
    if (ns != nullptr) {
      cold.media_offset = nsid;
      cold.sync_marks = ns->marks_unsaved();
      if (start_sync(slot, *ns)) return;
      context_.time.gaps.note_work();
      if (!ns->flush()) cold.sync_failed = true;
    }
    if (!all) break;
  }
  command_set::Outcome outcome;
  outcome.demand.kind = timing::DemandKind::immediate;  // the model has been asked
  if (cold.sync_failed && !hot.has(kFailed)) outcome.status = nvme::Status::write_fault;
  context_.time.refresh();
  conclude(slot, outcome, hot.target_ns);
}

// Of a write, or of a command that ran in one piece and asked for it.
void Executor::synced(Slot slot, bool good) {
  HotRequest& hot = requests_.hot(slot);
  const ColdRequest& cold = requests_.cold(slot);
  if (!good && !hot.has(kFailed)) requests_.fail(hot, cold, sync_failure(cold));
  if (hot.has(kTransfer))
    complete_transfer(slot);
  else
    executed(slot);
}

void Executor::show_fault(HotRequest& hot, ColdRequest& cold) {
  // A zombie completes without an entry.
  if ((hot.fault & kLoseCompletion) != 0) hot.set(kZombie);
  if ((hot.fault & kCorruptData) == 0 || hot.has(kFailed | kZombie)) return;
  if (!hot.has(kTransfer)) say_what_moved(cold);
  corrupt(hot, cold);
}

// Of a read or a write, or an append, that its command set has executed.
void Executor::say_what_moved(ColdRequest& cold) {
  const bool appended = cold.ns->command_set->csi() == nvme::Csi::zoned &&
                        cold.sqe.opcode == static_cast<std::uint8_t>(nvme::ZonedOpcode::zone_append);
  cold.media_offset = (appended ? cold.result : nvme::starting_lba(cold.sqe)) << cold.ns->lba_shift;
  cold.bytes = nvme::block_count(cold.sqe) << cold.ns->lba_shift;
  cold.is_write = !cold.is(nvme::NvmOpcode::read);
}

// Turns one bit: of a read, in the host's memory; of a write, on the medium. Which one follows from the command, so
// that equal runs in virtual time are equal.
void Executor::corrupt(const HotRequest& hot, const ColdRequest& cold) {
  const std::uint64_t drawn = splitmix64(hot.fetched_ns ^ (std::uint64_t{hot.cid} << 48) ^ cold.media_offset);
  std::uint64_t at = drawn % cold.bytes;
  const auto bit = static_cast<std::byte>(1u << (drawn >> 61));
  if (cold.is_write) {
    media::Media& media = *cold.ns->media;
    std::byte value{};
    if (!media.read(cold.media_offset + at, {&value, 1})) return;
    value ^= bit;
    media.write(cold.media_offset + at, {&value, 1});
    return;
  }
  memory::Segment one{};
  std::span<const memory::Segment> segments;
  if (resolve(hot, cold, one, segments) != nvme::Status::success) return;  // the host has unmapped it meanwhile
  for (const memory::Segment& segment : segments) {
    if (at < segment.bytes) {
      if (segment.host != nullptr) segment.host[at] ^= bit;
      return;
    }
    at -= segment.bytes;
  }
}

}  // namespace flashmob::engine
