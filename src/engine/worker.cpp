#include "engine/worker.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "command_set/nvm.h"

namespace flashmob::engine {
namespace {

constexpr std::uint32_t kAcceptPerRound = 1024;
// Slices take some ten microseconds each. One that took longer had a command that waited for a disk, and the round is
// over: the admin side, and whoever parks this thread, would wait for the next such command, too.
constexpr std::uint64_t kLongRoundNs = 200'000;

}  // namespace

Worker::Worker(unsigned number, const EngineConfig& config, timing::TimingModel& model, ThreadClock& time,
               const std::atomic<unsigned>& phase, bool threaded, std::unique_ptr<CopyEngine> copies,
               std::uint32_t slots)
    : context_{config, model, time, number},
      requests_(slots, threaded),
      completer_(context_, requests_, phase),
      executor_(context_, requests_, completer_, redo_),
      media_(context_, requests_, completer_, executor_, redo_),
      mover_(context_, requests_, completer_, executor_, media_, redo_, std::move(copies)) {}

bool Worker::poll() {
  ThreadClock& time = context_.time;
  completer_.begin_round();
  bool worked = false;
  if (requests_.threaded()) {
    worked = accept_handed(kAcceptPerRound) != 0;
    time.refresh();
  }
  const std::uint64_t began_ns = time.now_ns;
  if (mover_.copies_in_flight()) [[unlikely]] {
    mover_.collect_copies();
    completer_.finish_moved();
    worked = true;
  }
  worked |= executor_.collect_syncs();
  worked |= media_.poll();
  release_due();
  for (std::uint32_t slice = 0; slice < slices_per_round_ && mover_.has_work(); ++slice) {
    mover_.move_slice();
    // Virtual time stands still while a copy runs, and a simulated host may take its memory back between two rounds.
    if (mover_.copies_in_flight() && time.clock.is_virtual()) mover_.finish_copies();
    time.refresh();
    release_due();
    worked = true;
    if (time.now_ns - began_ns >= kLongRoundNs) [[unlikely]]
      break;
  }
  media_.kick();
  worked |= completer_.end_round();
  requests_.publish_returns();
  return worked;
}

std::uint64_t Worker::next_deadline_ns() const {
  if (mover_.has_work() || mover_.copies_in_flight() || media_.any()) return context_.time.now_ns;
  return completer_.next_deadline_ns();
}

void Worker::admit(const Sq& sq, command_set::Namespace& ns, const nvme::Sqe* sqes, std::span<const Slot> slots,
                   const std::uint64_t* targets_ns, std::uint64_t fetched_ns, bool whole) {
  HotRequest* const hot = requests_.hot_array();
  const std::uint16_t index = sq.index;
  const auto fill = [&](std::size_t i, unsigned flags) {
    hot[slots[i]].fill(targets_ns[i], fetched_ns, index, sqes[i].cid, kLive | kTransfer | kTimed | flags, kNoSlot,
                       command_set::is_write(sqes[i].opcode));
  };
  std::size_t due = 0;
  if (!context_.config.move_data) {
    for (std::size_t i = 0; i < slots.size(); ++i) fill(i, kDataDone);
  } else {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      // Due already (no timing model): completes as soon as its data has been moved.
      const bool at_once = targets_ns[i] <= fetched_ns;
      fill(i, at_once ? unsigned{kDue} : 0u);
      due += at_once;
    }
    if (requests_.threaded())
      describe(sq, ns, sqes, slots, whole);
    else
      mover_.queue(sq, ns, sqes, slots, whole);
  }
  if (requests_.threaded()) {
    for (const Slot slot : slots) requests_.hand_over(slot);
    return;
  }
  completer_.account().late_by_copy(due);
  if (due == 0) {
    completer_.hold(slots, targets_ns);
  } else if (due != slots.size()) {
    for (std::size_t i = 0; i < slots.size(); ++i)
      if (!hot[slots[i]].has(kDue)) completer_.hold(slots[i], targets_ns[i]);
  }
}

// Threaded: writes down what is to be moved, for the worker's thread to queue.
void Worker::describe(const Sq& sq, command_set::Namespace& ns, const nvme::Sqe* sqes, std::span<const Slot> slots,
                      bool whole) {
  const PlainRule plain(sq, ns, whole, context_.locks);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const nvme::Sqe& sqe = sqes[i];
    const command_set::Transfer transfer = command_set::transfer_of(sqe, ns);
    if (plain.takes(sqe, transfer))
      requests_.plain(slots[i]) = {PlainTransfer::of(sqe.prp1, transfer.is_write, &ns), ns.base + transfer.media_offset,
                                   transfer.bytes};
    else
      requests_.add_transfer(slots[i], sqe, ns);
  }
}

std::uint32_t Worker::accept_handed(std::uint32_t limit) {
  std::array<Slot, 64> slots;
  std::uint32_t accepted = 0;
  while (accepted < limit) {
    const std::uint32_t count = requests_.take_handed(slots);
    for (std::uint32_t i = 0; i < count; ++i) accept(slots[i]);
    accepted += count;
    if (count < slots.size()) break;
  }
  return accepted;
}

// Takes a handed-over request onto the wheel, the move queue, or both.
void Worker::accept(Slot slot) {
  const HotRequest& hot = requests_.hot(slot);
  if (hot.has(kDue))
    completer_.account().late_by_copy(1);
  else if (hot.has(kTimed))
    completer_.hold(slot, hot.target_ns);
  if (hot.has(kDataDone)) return;
  if (hot.has(kTransfer) && hot.cold == kNoSlot)
    mover_.take_plain(slot);
  else
    mover_.take(slot);
}

void Worker::cancel_sq(const Sq& sq, bool post_entry) {
  requests_.settle_returns();
  bool any = false;
  requests_.for_each_of(sq, [&](Slot slot, const HotRequest& hot) {
    if (!hot.has(kZombie)) completer_.end(slot, nvme::Status::aborted_sq_deletion, post_entry);
    disown(slot);
    any = true;
  });
  if (any) {
    mover_.redo_copies();
    mover_.stop_zombies(*requests_.queue(sq.index).cq->port);
    completer_.release_zombies();
  }
  requests_.settle_returns();
  completer_.drain_all();
  requests_.remove_queue(sq);
}

// What it keeps between its parts is its controller's, which it is the last to know of.
void Worker::disown(Slot slot) {
  const HotRequest& hot = requests_.hot(slot);
  if (hot.cold != kNoSlot && !hot.has(kDataDone)) media_.forget_parts(slot);
  requests_.disown(slot);
}

// Looks at all that the queue has, as cancel_sq() does: a host sends few Aborts (ACL), and a table of identifiers would
// cost every command.
bool Worker::abort(const Sq& sq, std::uint16_t cid) {
  Slot found = kNoSlot;
  requests_.for_each_of(sq, [&](Slot slot, const HotRequest& hot) {
    if (found == kNoSlot && !hot.has(kZombie) && hot.cid == cid) found = slot;
  });
  if (found == kNoSlot) return false;
  const HotRequest& hot = requests_.hot(found);
  // One that waits only for room in its CQ is done already.
  if (!hot.has(kDue) && hot.has(kDataDone) && hot.target_ns <= context_.time.now_ns) return false;
  // Its completion would need a slot of its own where it has to wait for room.
  Cq& cq = *requests_.queue_of(hot).cq;
  const bool is_full = cq.overflow_first != kNoSlot || !completer_.queues().has_room(cq);
  if (is_full && requests_.room_for(sq) == 0) return false;
  completer_.end(found, nvme::Status::abort_requested, true);
  mover_.redo_copies();
  mover_.stop_zombies(*cq.port);
  return true;
}

bool Worker::knows(const media::Media& media) {
  bool found = mover_.knows(media);
  if (!executor_.is_syncing()) return found;
  requests_.for_each_live([&](Slot slot, const HotRequest& hot) {
    const command_set::Namespace* const ns = hot.cold != kNoSlot ? requests_.cold(slot).sync_ns : nullptr;
    found |= ns != nullptr && ns->media == &media;
  });
  return found;
}

void Worker::end_commands(const command_set::Namespace& ns, nvme::Status status, controller::CommandsToEnd which) {
  const bool all = which == controller::CommandsToEnd::all;
  mover_.redo_copies();
  mover_.fail_plain(ns, status, !all);
  // What else waits has a cold part until its data is done; the mover finds that it has failed, be it after its flush.
  requests_.for_each_live([&](Slot slot, HotRequest& hot) {
    if (all && hot.cold != kNoSlot && requests_.cold(slot).ns == &ns) media_.forget_steps(slot);
    if (hot.has(kDataDone | kZombie | kFailed) || hot.cold == kNoSlot) return;
    const ColdRequest& cold = requests_.cold(slot);
    // Commands that run in one piece see for themselves whether they may write, and what the sync thread has is there.
    if (cold.ns != &ns || (!all && (!hot.has(kTransfer) || !cold.is_write || cold.sync_ns != nullptr))) return;
    requests_.fail(hot, cold, status);
  });
}

void Worker::drop_leaving(std::span<PortContext* const> ports) {
  requests_.settle_returns();
  requests_.for_each_leaving([&](Slot slot, HotRequest& hot) {
    completer_.note_ended(hot);
    completer_.set_zombie(hot);
    disown(slot);
  });
  mover_.redo_copies();
  std::vector<std::pair<const controller::Controller*, std::uint16_t>> gone;
  for (const auto& cq : completer_.queues().all())
    if (cq->port->is_leaving) gone.emplace_back(cq->controller, cq->cqid);
  for (const auto& [controller, cqid] : gone) completer_.remove_queue(*controller, cqid);
  completer_.release_zombies();
  requests_.settle_returns();
  for (PortContext* const port : ports) mover_.drop(*port);
  requests_.settle_returns();
  requests_.remove_leaving();
}

}  // namespace flashmob::engine
