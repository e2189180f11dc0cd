#include "engine/completer.h"

#include <algorithm>
#include <utility>

namespace flashmob::engine {

Completer::Completer(const WorkerContext& context, Requests& requests, const std::atomic<unsigned>& phase)
    : requests_(requests),
      time_(context.time),
      hot_(requests.hot_array()),
      queues_(time_),
      account_(time_, phase),
      wheel_(context.config.wheel_shift) {
  wheel_.start(time_.now_ns);
}

void Completer::data_moved(Slot slot) {
  HotRequest& hot = hot_[slot];
  hot.set(kDataDone);
  if (!hot.has(kDue)) return;
  if (hot.has(kZombie)) return requests_.give_back(slot);
  due_[due_count_++] = slot;
  if (due_count_ == kDueBatch) finish_moved();
}

void Completer::data_moved(std::span<const Copy> run) {
  if (due_count_ + run.size() > kDueBatch) finish_moved();
  HotRequest* const hot = hot_;
  std::uint32_t due_count = due_count_;
  for (const Copy& copy : run) {
    hot[copy.token].set(kDataDone);
    due_[due_count] = copy.token;
    due_count += hot[copy.token].has(kDue);
  }
  due_count_ = due_count;
  if (due_count == kDueBatch) finish_moved();
}

void Completer::finish_moved() {
  if (due_count_ == 0) return;
  finished_ += due_count_;
  finish_batch(std::exchange(due_count_, 0));
}

void Completer::release_due(bool all_moved) {
  std::uint32_t count = 0;
  do {
    const std::uint32_t moved_late = std::exchange(due_count_, 0);
    count = moved_late + wheel_.collect(hot_, time_.now_ns, due_.data() + moved_late, kDueBatch - moved_late);
    if (count == 0) return;
    finished_ += count;
    std::uint32_t ready = count;
    if (count != moved_late) {
      if (!all_moved) ready = leave_unmoved(moved_late, count);
      group_by_queue(ready);
    }
    finish_batch(ready);
  } while (count == kDueBatch);
}

bool Completer::end_round() {
  if (waiting_ != 0) drain_all();
  if (finished_ != 0) account_.publish();
  queues_.interrupt();
  return finished_ != 0;
}

std::uint64_t Completer::next_deadline_ns() const {
  // What waits for room waits for a doorbell, as a fetch does: nobody stays awake for hosts that do not read. (In
  // virtual time they have their turn while we wait.)
  if (waiting_ != 0 && time_.clock.is_virtual()) return time_.now_ns;
  const std::uint64_t due_ns = wheel_.next_deadline_ns();
  return queues_.is_coalescing() ? std::min(due_ns, time_.now_ns + 100'000) : due_ns;
}

// Completes a request of any kind. A plain one counts in the batch's sums and is sampled with the batch, like those
// that complete in runs.
void Completer::finish_one(Slot slot, Account::Sums& sums) {
  const HotRequest& hot = hot_[slot];
  if (hot.has(kZombie)) [[unlikely]]
    return requests_.give_back(slot);
  ++finished_;
  const Requests::Queue& queue = requests_.queue_of(hot);
  Cq& cq = *queue.cq;
  const bool posted = cq.overflow_first == kNoSlot && post(cq, hot, slot);
  // What waits for room in its queue from here on waits for its host.
  if (!queue.sq->admin) {
    if (hot.cold == kNoSlot)
      sums.take(hot);
    else
      singles_[single_count_++] = Account::Times::of(hot);
  }
  if (posted) [[likely]]
    requests_.give_back(slot);
  else
    wait_for_room(cq, slot);
}

bool Completer::post(Cq& cq, const HotRequest& hot, Slot slot) {
  if (!queues_.has_room(cq)) [[unlikely]]
    return false;
  queues_.put(cq, *requests_.queue_of(hot).sq, hot, hot.cold == kNoSlot ? 0 : requests_.cold(slot).result);
  return true;
}

void Completer::wait_for_room(Cq& cq, Slot slot) {
  hot_[slot].next = kNoSlot;
  if (cq.overflow_first == kNoSlot) {
    cq.overflow_first = slot;
    // Who comes after others has not looked.
    cq.full_ns = time_.now_ns;
  } else {
    hot_[cq.overflow_last].next = slot;
  }
  cq.overflow_last = slot;
  ++waiting_;
}

bool Completer::drain(Cq& cq) {
  while (cq.overflow_first != kNoSlot) {
    const Slot slot = cq.overflow_first;
    const HotRequest& hot = hot_[slot];
    if (!hot.has(kZombie)) {
      if (!post(cq, hot, slot)) {
        cq.full_ns = time_.now_ns;
        return true;
      }
      if (!requests_.queue_of(hot).sq->admin) account_.record_wait_for_room(cq.full_ns);
    }
    cq.overflow_first = hot.next;
    --waiting_;
    ++finished_;
    requests_.give_back(slot);
  }
  return false;
}

void Completer::drain_all() {
  for (auto& cq : queues_.all())
    if (cq->overflow_first != kNoSlot) drain(*cq);
}

void Completer::remove_queue(const controller::Controller& controller, std::uint16_t cqid) {
  Cq* const cq = queues_.find(controller, cqid);
  if (cq == nullptr) return;
  for (Slot slot = cq->overflow_first; slot != kNoSlot; --waiting_)
    requests_.give_back(std::exchange(slot, hot_[slot].next));
  queues_.remove(*cq);
}

void Completer::end(Slot slot, nvme::Status status, bool post_entry) {
  HotRequest& hot = hot_[slot];
  note_ended(hot);
  if (post_entry) {
    const Requests::Queue& queue = requests_.queue_of(hot);
    hot.status = queue.sq->controller->record_error(queue.sq->sqid, hot.cid, status, 0, 0);
    const bool posted = queue.cq->overflow_first == kNoSlot && post(*queue.cq, hot, slot);
    if (!posted && status == nvme::Status::abort_requested) {
      // The request's own slot is still on the wheel or in the move queue; its completion waits in one of its own.
      const Slot waiting = requests_.slab().alloc(hot.sq);
      ++*queue.sq->slots_held;
      hot_[waiting] = hot;
      hot_[waiting].cold = kNoSlot;
      hot_[waiting].flags = kLive | kTimed | kDataDone | kFailed;
      wait_for_room(*queue.cq, waiting);
    }
  }
  set_zombie(hot);
}

// Looking through the wheel costs a little for all that it holds: it is done when those who left are a share of that.
void Completer::release_zombies() {
  if (zombies_ * kHeldPerZombie < wheel_.size()) return;
  zombies_ = 0;
  wheel_.remove_if([this](Slot slot) {
    HotRequest& hot = hot_[slot];
    if (!hot.has(kZombie)) return false;
    if (hot.has(kDataDone))
      requests_.give_back(slot);
    else
      hot.set(kDue);  // the mover gives it back
    return true;
  });
}

void Completer::add_unanswered(std::uint64_t now_ns, Unanswered& sum, FidelityStats& late) {
  // The lowest slots are used again first. The unit is parked meanwhile, so we look at no more than these.
  constexpr Slot kMostSlots = 1u << 16;
  if (requests_.slab().in_use() == 0) return;
  requests_.for_each_live(std::min(requests_.slab().fresh(), kMostSlots), [&](Slot, const HotRequest& hot) {
    if (hot.has(kZombie) || hot.fault == kLoseCompletion || requests_.queue_of(hot).sq->admin) return;
    ++sum.count;
    sum.oldest_ns = std::max(sum.oldest_ns, now_ns - std::min(now_ns, hot.fetched_ns));
    if (is_late(hot, now_ns)) Account::add_late(hot, now_ns, late);
  });
}

// Past its target, unless it has none yet (it has not been carried out) or its host takes no answers.
bool Completer::is_late(const HotRequest& hot, std::uint64_t now_ns) const {
  return hot.target_ns != 0 && hot.target_ns < now_ns && requests_.queue_of(hot).cq->overflow_first == kNoSlot;
}

void Completer::note_ended(const HotRequest& hot) {
  if (hot.has(kZombie) || hot.fault == kLoseCompletion || requests_.queue_of(hot).sq->admin) return;
  const std::uint64_t now_ns = time_.clock.now_ns();
  if (is_late(hot, now_ns)) account_.add_late(hot, now_ns);
}

}  // namespace flashmob::engine
