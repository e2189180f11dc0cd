// What a worker is told while it is paused: queues and controllers come and go, and commands are ended before their
// time.
#include <algorithm>
#include <utility>

#include "engine/worker.h"

namespace flashmob::engine {

Cq& Worker::add_cq(std::unique_ptr<Cq> cq) {
  refresh_free(*cq);
  cqs_.push_back(std::move(cq));
  dirty_.reserve(cqs_.size());
  return *cqs_.back();
}

std::uint16_t Worker::add_sq(Sq& sq, Cq& cq) {
  std::size_t index = 1;
  while (index < sqs_.size() && sqs_[index].sq != nullptr) ++index;
  if (index == sqs_.size()) sqs_.emplace_back();
  sqs_[index] = {&sq, &cq};
  sq.index = static_cast<std::uint16_t>(index);
  return sq.index;
}

Cq* Worker::find_cq(const controller::Controller& controller, std::uint16_t cqid) {
  for (auto& cq : cqs_)
    if (cq->controller == &controller && cq->cqid == cqid) return cq.get();
  return nullptr;
}

void Worker::remove_cq(const controller::Controller& controller, std::uint16_t cqid) {
  Cq* cq = find_cq(controller, cqid);
  if (cq == nullptr) return;
  for (Slot slot = cq->overflow_first; slot != kNoSlot;) {
    const Slot next = hot_[slot].next;
    --overflowed_;
    give_back(slot);
    slot = next;
  }
  if (cq->dirty) {
    dirty_.erase(std::find(dirty_.begin(), dirty_.end(), cq));
    if (cq->coalescing_since_ns != 0) --coalescing_;
  }
  cqs_.erase(std::find_if(cqs_.begin(), cqs_.end(), [cq](const auto& held) { return held.get() == cq; }));
}

void Worker::end_now(Slot slot, nvme::Status status, bool post_entry) {
  HotRequest& hot = hot_[slot];
  note_ended(hot);
  if (post_entry) {
    const SqRef& ref = sqs_[hot.sq];
    hot.status = ref.sq->controller->record_error(ref.sq->sqid, hot.cid, status, 0, 0);
    const bool posted = ref.cq->overflow_first == kNoSlot && post(*ref.cq, hot, slot);
    if (!posted && status == nvme::Status::abort_requested) {
      // The request's own slot is still on the wheel or in the copy queue; its completion waits in one of its own.
      const Slot waiting = slab_.alloc();
      ++*ref.sq->slots_held;
      hot_[waiting] = hot;
      hot_[waiting].cold = kNoSlot;
      hot_[waiting].flags = kLive | kTimed | kDataDone | kFailed;
      wait_for_room(*ref.cq, waiting);
    }
  }
  hot.flags = static_cast<std::uint8_t>(hot.flags | kZombie);
  redo_copies();
  // Its slot is given back by whoever still holds it: the wheel, or the copy queue.
}

void Worker::cancel_sq(const Sq& sq, bool post_entry) {
  if (threaded_) {
    returns_.publish();
    reclaim();
  }
  for (Slot slot = 0; slot < slab_.fresh(); ++slot) {
    const HotRequest& hot = hot_[slot];
    if ((hot.flags & kLive) == 0 || sqs_[hot.sq].sq != &sq) continue;
    if ((hot.flags & kZombie) == 0) end_now(slot, nvme::Status::aborted_sq_deletion, post_entry);
    disown(slot);
  }
  stop_moves();
  leave_wheel();
  for (auto& cq : cqs_)
    if (cq->overflow_first != kNoSlot) drain_overflow(*cq);
  sqs_[sq.index] = {};
}

bool Worker::abort(const Sq& sq, std::uint16_t cid) {
  for (Slot slot = 0; slot < slab_.fresh(); ++slot) {
    const HotRequest& hot = hot_[slot];
    if ((hot.flags & kLive) == 0 || (hot.flags & kZombie) != 0 || sqs_[hot.sq].sq != &sq || hot.cid != cid) continue;
    // One that waits only for room in its CQ is done already.
    const bool waits_for_room =
        (hot.flags & kDue) == 0 && (hot.flags & kDataDone) != 0 && hot.target_ns <= time_.now_ns;
    if (waits_for_room) return false;
    // Its completion would need a slot of its own where it has to wait for room.
    Cq& cq = *sqs_[hot.sq].cq;
    const bool is_full = cq.overflow_first != kNoSlot || (cq.free == 0 && !refresh_free(cq));
    if (is_full && room_for(sq) == 0) return false;
    end_now(slot, nvme::Status::abort_requested, true);
    stop_moves();
    return true;
  }
  return false;
}

bool Worker::knows(const media::Media& media) {
  const auto is_of = [&](Slot slot) {
    return hot_[slot].cold != kNoSlot && slab_.cold(slot).ns != nullptr && slab_.cold(slot).ns->media == &media;
  };
  bool found = std::any_of(redo_.begin(), redo_.end(), is_of);
  for (Slot slot = 0; syncing_ != 0 && slot < slab_.fresh() && !found; ++slot)
    found = (hot_[slot].flags & kLive) != 0 && hot_[slot].cold != kNoSlot && slab_.cold(slot).sync_ns != nullptr &&
            slab_.cold(slot).sync_ns->media == &media;
  for (std::size_t i = copies_at_; i < copies_.size() && !found; ++i) found = is_of(copies_[i].token);
  for (const MoveQueue* const moves : turns_) {
    for (std::uint32_t i = 0; i < moves->size() && !found; ++i) {
      const command_set::Namespace* const ns = moves->plain(i).ns;
      found = ns != nullptr ? ns->media == &media : is_of(moves->slot(i));
    }
  }
  return found;
}

void Worker::end_commands(const command_set::Namespace& ns, nvme::Status status, controller::CommandsToEnd which) {
  const bool all = which == controller::CommandsToEnd::all;
  redo_copies();
  for (MoveQueue* const moves : turns_)
    moves->for_each_plain([&](Copy& copy, const PlainTransfer& plain) {
      if (plain.ns != &ns || (!all && !plain.is_write())) return;
      fail_plain(copy, plain, hot_[copy.token], status);
      copy.bytes = 0;  // prepare() goes on
    });
  // What else waits has a cold part until its data is done; prepare() finds that it has failed, be it after its flush.
  const auto is_waiting = [](std::uint8_t flags) { return (flags & (kLive | kDataDone | kZombie | kFailed)) == kLive; };
  for (Slot slot = 0; slot < slab_.fresh(); ++slot) {
    HotRequest& hot = hot_[slot];
    if (!is_waiting(hot.flags) || hot.cold == kNoSlot || slab_.cold(slot).ns != &ns) continue;
    const ColdRequest& cold = slab_.cold(slot);
    // Commands that run in one piece see for themselves whether they may write, and what the sync thread has is there.
    if (!all && ((hot.flags & kTransfer) == 0 || !cold.is_write || cold.sync_ns != nullptr)) continue;
    fail(hot, cold, status);
  }
}

void Worker::add_unanswered(std::uint64_t now_ns, Unanswered& sum, FidelityStats& late) {
  // The lowest slots are used again first. The unit is parked meanwhile, so we look at no more than these.
  constexpr Slot kMostSlots = 1u << 16;
  const Slot slots = slab_.in_use() == 0 ? 0 : std::min(slab_.fresh(), kMostSlots);
  for (Slot slot = 0; slot < slots; ++slot) {
    const HotRequest& hot = hot_[slot];
    if ((hot.flags & kLive) == 0 || (hot.flags & kZombie) != 0 || hot.fault == kLoseCompletion) continue;
    if (sqs_[hot.sq].sq->admin) continue;
    ++sum.count;
    sum.oldest_ns = std::max(sum.oldest_ns, now_ns - std::min(now_ns, hot.fetched_ns));
    if (is_late(hot, now_ns)) add_late(hot, now_ns, late);
  }
}

// Past its target, unless it has none yet (it has not been carried out) or its host takes no answers.
bool Worker::is_late(const HotRequest& hot, std::uint64_t now_ns) const {
  return hot.target_ns != 0 && hot.target_ns < now_ns && sqs_[hot.sq].cq->overflow_first == kNoSlot;
}

void Worker::add_late(const HotRequest& hot, std::uint64_t now_ns, FidelityStats& late) {
  const std::uint64_t late_ns = now_ns - hot.target_ns;
  ++late.completions;
  late.lateness_ns.record(late_ns);
  late.lateness_sum_ns += late_ns;
  late.lateness_max_ns = std::max(late.lateness_max_ns, late_ns);
  late.target_ns.record(hot.target_ns - hot.fetched_ns);
  late.processing_ns.record(now_ns - hot.fetched_ns);
  late.target_sum_ns += hot.target_ns - hot.fetched_ns;
}

// Whoever gives up waiting has waited: a command that is past its target when its host aborts it, or takes its queue or
// itself away, was late by so much at least.
void Worker::note_ended(const HotRequest& hot) {
  if ((hot.flags & kZombie) != 0 || hot.fault == kLoseCompletion || sqs_[hot.sq].sq->admin) return;
  const std::uint64_t now_ns = time_.clock.now_ns();
  if (is_late(hot, now_ns)) add_late(hot, now_ns, *current_stats_);
}

void Worker::drop_controller(PortContext& port) {
  const controller::Controller& controller = port.controller;
  if (threaded_) {
    returns_.publish();
    reclaim();
  }
  for (Slot slot = 0; slot < slab_.fresh(); ++slot) {
    HotRequest& hot = hot_[slot];
    if ((hot.flags & kLive) == 0 || sqs_[hot.sq].sq == nullptr || sqs_[hot.sq].sq->controller != &controller) continue;
    note_ended(hot);
    hot.flags = static_cast<std::uint8_t>(hot.flags | kZombie);
    disown(slot);
  }
  redo_copies();
  std::vector<std::uint16_t> gone;
  for (const auto& cq : cqs_)
    if (cq->controller == &controller) gone.push_back(cq->cqid);
  for (const std::uint16_t cqid : gone) remove_cq(controller, cqid);
  leave_wheel();
  // Its queue may go with it.
  if (!port.moves->empty()) {
    std::erase(turns_, port.moves.get());
    turn_ = 0;
  }
  while (!port.moves->empty()) {
    const Slot slot = port.moves->front().token;
    port.moves->pop();
    prepare(slot);
  }
  if (threaded_) {
    returns_.publish();
    reclaim();
  }
  for (SqRef& ref : sqs_)
    if (ref.sq != nullptr && ref.sq->controller == &controller) ref = {};
}

void Worker::refresh_rings(PortContext& port) {
  for (auto& cq : cqs_) {
    if (cq->port != &port) continue;
    cq->ring = reinterpret_cast<nvme::Cqe*>(
        port.reader.translate(cq->iova, std::uint64_t{cq->entries} * sizeof(nvme::Cqe), true));
    cq->head_doorbell = port.doorbell(2u * cq->cqid + 1, cq->bar_doorbell, cq->event_index);
  }
  refresh_moves(port);
  redo_copies();
}

}  // namespace flashmob::engine
