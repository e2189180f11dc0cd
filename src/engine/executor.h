// What a request's data needs beside being moved: commands other than Reads and Writes are carried out here in one
// piece, or part by part where MediaTransfers says so, Writes take marks off and are made durable where they have to
// be, and faults are shown.
//
// Flushes, and commands with FUA, of media that a disk keeps a flush waiting for go to the sync thread for that part of
// them, and the worker goes on with the others. For the worker's thread, inside the guard of its ports.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "command_set/command_set.h"
#include "engine/completer.h"
#include "engine/requests.h"
#include "engine/sync_thread.h"

namespace flashmob::engine {

// Slots whose commands the mover prepares again, before others.
using RedoQueue = std::deque<Slot>;

class Executor {
 public:
  Executor(const WorkerContext& context, Requests& requests, Completer& completer, RedoQueue& redo);

  // Before the first command: flushes go there, and `wake` has the worker run when one is done. Both outlive its use.
  void set_syncs(SyncThread& syncs, std::function<void()> wake) {
    syncs_ = &syncs;
    mailbox_.emplace(std::move(wake));
    syncs.add(*mailbox_);
  }

  // Carries out a command that is no transfer, or a fused pair by its first half.
  void run(Slot slot);
  // As run(), of a command that looks at blocks which have been read, or could not be.
  void look(Slot slot, std::span<const std::byte> stored);
  void fail_look(Slot slot);
  // As run(), of a command whose blocks will be zeroed: notes them. False: there are none, and it is carried out.
  bool begin_zeroing(Slot slot, command_set::Zeroing& zeroing);
  // So many of them more are, which need not be all of a range.
  void note_zeroed(Slot slot, command_set::Zeroing& zeroing, std::uint64_t bytes);
  // All of them are, or no more will be.
  void end_zeroing(Slot slot, const command_set::Zeroing& zeroing, nvme::Status status);
  // The same of a command whose blocks will be copied.
  bool begin_copying(Slot slot, command_set::Copying& copying);
  void end_copying(Slot slot, const command_set::Copying& copying, nvme::Status status);
  // As run(), of a command that is carried out in steps: the next one. True: `outcome` is what to end them with.
  bool step(Slot slot, command_set::Progress& progress, command_set::Outcome& outcome);
  void end_steps(Slot slot, const command_set::Outcome& outcome);
  // A request that was ended before its turn came. A fused pair's halves were ended together.
  void end_failed(Slot slot);
  // The first half of a fused pair is gone before it ran: the second half fails, or goes with it.
  void end_partner(Slot second);

  // Where a transfer's host memory lies; `one` holds what has a single piece.
  nvme::Status resolve(const HotRequest& hot, const ColdRequest& cold, memory::Segment& one,
                       std::span<const memory::Segment>& segments);
  // The bytes of a transfer have been moved, or it has failed.
  void transferred(Slot slot);
  void fail_transfer(Slot slot, nvme::Status status) {
    requests_.fail(requests_.hot(slot), requests_.cold(slot), status);
    transferred(slot);
  }

  // Has the sync thread make the request's bytes durable, of which 0 are all. False: the worker has to do it itself.
  bool start_sync(Slot slot, command_set::Namespace& ns);
  // Goes on with the requests whose media is durable now, or could not be made so. True if there were any.
  bool collect_syncs();
  bool is_syncing() const { return syncing_ != 0; }

 private:
  command_set::ExecContext context_of(Slot slot);
  void conclude(Slot slot, const command_set::Outcome& outcome, std::uint64_t not_before_ns);
  void executed(Slot slot);
  void complete_transfer(Slot slot);
  void go_on_flushing(Slot slot, std::uint64_t first, bool good);
  void synced(Slot slot, bool good);
  void show_fault(HotRequest& hot, ColdRequest& cold);
  static void say_what_moved(ColdRequest& cold);
  void corrupt(const HotRequest& hot, const ColdRequest& cold);

  const WorkerContext& context_;
  Requests& requests_;
  Completer& completer_;
  RedoQueue& redo_;
  memory::SegmentList segments_;
  std::vector<std::byte> bounce_;
  SyncThread* syncs_ = nullptr;  // nullptr: virtual time, which stands still while media is made durable
  std::optional<SyncMailbox> mailbox_;
  std::uint32_t syncing_ = 0;  // requests that the sync thread has, or has done
};

}  // namespace flashmob::engine
