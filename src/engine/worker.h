// The second half of a request's way: move the bytes, hold the request until its target time, post its completion.
//
// A worker owns the requests of its queues and the organs that see to them, each with one job: the mover moves data,
// the executor carries out what is more than that, media transfers wait for media that takes its time, the completer
// holds and answers. No other thread touches them. With EngineConfig::workers = 0 it runs on its dispatcher's thread
// and requests are handed over by a call; otherwise on a thread of its own and slots travel through two rings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "engine/completer.h"
#include "engine/executor.h"
#include "engine/media_transfers.h"
#include "engine/mover.h"
#include "engine/requests.h"

namespace flashmob::engine {

class Worker {
 public:
  // `threaded`: runs on another thread than its dispatcher. `phase` is the engine's current statistics phase. `number`
  // is no other worker's of the engine.
  Worker(unsigned number, const EngineConfig& config, timing::TimingModel& model, ThreadClock& time,
         const std::atomic<unsigned>& phase, bool threaded, std::unique_ptr<CopyEngine> copies, std::uint32_t slots);

  // Before the first poll(): flushes go there, and `wake` calls poll() when one is done. Both outlive the worker's use.
  void set_syncs(SyncThread& syncs, std::function<void()> wake) { executor_.set_syncs(syncs, std::move(wake)); }
  // Before the first request: other workers copy, too. Copies that are made beside the worker (DSA) lock nothing:
  // blocks are then whole only as far as those are.
  void set_locks(command_set::PieceLocks& locks) {
    if (mover_.copy_engine().may_be_cut_short()) context_.locks = &locks;
  }
  // Slots that are not shared, and for how many controllers. By the dispatcher while the worker is paused.
  void reserve(std::uint32_t slots, std::size_t controllers) {
    requests_.reserve(slots, controllers);
    mover_.reserve(controllers);
  }
  Requests& requests() { return requests_; }
  Slab& slab() { return requests_.slab(); }
  Completer& completer() { return completer_; }
  Account& account() { return completer_.account(); }
  MediaTransfers& media() { return media_; }
  Mover& mover() { return mover_; }

  // --- Dispatcher's side ---
  // Takes over a slot that the dispatcher has filled in. Threaded: call Requests::publish() after a batch.
  void hand_over(Slot slot) {
    if (requests_.threaded())
      requests_.hand_over(slot);
    else
      accept(slot);
  }
  // Fills in the slots of a batch of Reads and Writes to one namespace and takes them over; each gets a ColdRequest if
  // `whole`, else only those that need it.
  void admit(const Sq& sq, command_set::Namespace& ns, const nvme::Sqe* sqes, std::span<const Slot> slots,
             const std::uint64_t* targets_ns, std::uint64_t fetched_ns, bool whole);
  // Whether completions wait for room in the queue where this one's go: its host has to read first, and what it asks
  // for until then waits in its queue, with no slot. A host that made room while we did not look has not kept us.
  // (A worker with a thread of its own is not looked into.)
  bool keeps_us_waiting(const Sq& sq) {
    if (requests_.threaded() || !completer_.any_wait_for_room() || sq.admin || !leaves_answers(sq)) [[likely]]
      return false;
    return completer_.drain(*requests_.queue(sq.index).cq);
  }
  // The same of any worker, while it is paused.
  bool leaves_answers(const Sq& sq) const { return requests_.queue(sq.index).cq->overflow_first != kNoSlot; }

  // --- Worker's thread ---
  // Completes what is due by the time last read. For the worker's thread, inside the guard of its ports.
  void release_due() {
    completer_.release_due(!mover_.has_work() && !mover_.copies_in_flight() && !executor_.is_syncing() &&
                           !media_.any());
  }
  // One round: accept, release what is due, move a slice, release again. True if anything was done.
  bool poll();
  // Rounds go on until nothing is left to move; before the first of them.
  void move_at_once() { slices_per_round_ = UINT32_MAX; }
  // When poll() has something to do by itself; UINT64_MAX if only a hand-over can bring work.
  std::uint64_t next_deadline_ns() const;
  // Takes in everything that was handed over; before a queue operation of a paused worker.
  void accept_all() { accept_handed(Slab::kCapacity); }

  // Queue operations: by the dispatcher while the worker is paused, after accept_all().
  // Ends every request of the SQ; `post` posts Command Aborted due to SQ Deletion
  // where the CQ has room.
  void cancel_sq(const Sq& sq, bool post);
  // Ends one request with Command Abort Requested; false if it is not here (any more).
  bool abort(const Sq& sq, std::uint16_t cid);
  // Ends the requests to a namespace, or the writes among them, whose data has not been
  // moved.
  void end_commands(const command_set::Namespace& ns, nvme::Status status, controller::CommandsToEnd which);
  // Drops every request and queue of controllers that are leaving, whose `ports` these are, without posting anything.
  void drop_leaving(std::span<PortContext* const> ports);
  // Whether a request may still touch this media.
  bool knows(const media::Media& media);
  // Guest memory changed or shadow doorbells moved: host pointers of this controller's rings are looked up again.
  void refresh_rings(PortContext& port) {
    completer_.queues().refresh_rings(port);
    mover_.refresh(port);
  }

 private:
  // The doorbells wait a few microseconds for them, completions that are due only for one.
  static constexpr std::uint32_t kSlicesPerRound = 4;

  void accept(Slot slot);
  void disown(Slot slot);
  std::uint32_t accept_handed(std::uint32_t limit);
  void describe(const Sq& sq, command_set::Namespace& ns, const nvme::Sqe* sqes, std::span<const Slot> slots,
                bool whole);

  WorkerContext context_;
  std::uint32_t slices_per_round_ = kSlicesPerRound;
  Requests requests_;
  Completer completer_;
  RedoQueue redo_;
  Executor executor_;
  MediaTransfers media_;
  Mover mover_;
};

}  // namespace flashmob::engine
