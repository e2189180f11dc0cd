#include "engine/worker.h"

#include <algorithm>
#include <utility>

namespace flashmob::engine {
namespace {

constexpr std::uint32_t kAcceptPerRound = 1024;
constexpr int kSlicesPerRound = 4;
// Slices take some ten microseconds each. One that took longer had a command that waited for a disk, and the round is
// over: the admin side, and whoever parks this thread, would wait for the next such command, too.
constexpr std::uint64_t kLongRoundNs = 200'000;

}  // namespace

Worker::Worker(unsigned number, const EngineConfig& config, timing::TimingModel& model, ThreadClock& time,
               const std::atomic<unsigned>& phase, bool threaded, std::unique_ptr<CopyEngine> copies,
               std::uint32_t slots)
    : config_(config),
      model_(model),
      time_(time),
      phase_(phase),
      threaded_(threaded),
      slab_(slots),
      wheel_(config.wheel_shift),
      hot_(slab_.hot_array()),
      copy_engine_(std::move(copies)),
      segments_(8192),
      number_(number) {
  for (auto& stats : stats_) stats = std::make_unique<FidelityStats>();
  current_stats_ = stats_[0].get();
  sqs_.resize(1);
  copies_.reserve(16384);
  busy_media_.reserve(controller::kMaxNamespaces);
  wheel_.start(time.now_ns);
}

bool Worker::poll() {
  current_stats_ = stats_[phase_.load(std::memory_order_relaxed)].get();
  bool worked = false;
  if (threaded_) {
    worked = inbox_.drain(kAcceptPerRound, [this](Slot slot) { accept(slot); }) != 0;
    time_.refresh();
  }
  const std::uint64_t began_ns = time_.now_ns;
  finished_in_round_ = 0;
  if (copies_in_flight_ != 0) [[unlikely]] {
    collect_copies();
    finish_moved();
    worked = true;
  }
  if (syncing_ != 0 && !mailbox_->empty()) [[unlikely]] {
    collect_syncs();
    worked = true;
  }
  if (media_requests_ != 0) [[unlikely]]
    worked |= poll_media();
  release_due();
  // Several slices a round: the doorbells wait a few microseconds, completions that are due only for one slice.
  for (int slice = 0; slice < kSlicesPerRound && !nothing_to_move(); ++slice) {
    move_slice();
    time_.refresh();
    release_due();
    worked = true;
    if (time_.now_ns - began_ns >= kLongRoundNs) [[unlikely]]
      break;
  }
  for (media::MediaQueue* queue : busy_media_) queue->kick();
  // Virtual time stands still while a copy runs, and a simulated host may take its memory back between two rounds.
  if (copies_in_flight_ != 0 && time_.clock.is_virtual()) finish_copies();
  if (overflowed_ != 0) {
    for (auto& cq : cqs_)
      if (cq->overflow_first != kNoSlot) drain_overflow(*cq);
  }
  if (finished_in_round_ != 0) {
    worked = true;
    live_completions_.store(total_.completions, std::memory_order_relaxed);
    live_lateness_ns_.store(total_.lateness_sum_ns, std::memory_order_relaxed);
  }
  if (!dirty_.empty() || coalescing_ != 0) after_round();
  if (threaded_) returns_.publish();
  return worked;
}

std::uint64_t Worker::next_deadline_ns() const {
  if (!nothing_to_move() || copies_in_flight_ != 0 || media_requests_ != 0) return time_.now_ns;
  // What waits for room waits for a doorbell, as a fetch does: nobody stays awake for hosts that do not read. (In
  // virtual time they have their turn while we wait.)
  if (overflowed_ != 0 && time_.clock.is_virtual()) return time_.now_ns;
  return coalescing_ != 0 ? std::min(wheel_.next_deadline_ns(), time_.now_ns + 100'000) : wheel_.next_deadline_ns();
}

void Worker::release_due() {
  std::uint32_t count = 0;
  do {
    const std::uint32_t moved_late = std::exchange(due_count_, 0);
    count = moved_late + wheel_.collect(hot_, time_.now_ns, due_.data() + moved_late, kDueBatch - moved_late);
    if (count == 0) return;
    finished_in_round_ += count;
    std::uint32_t ready = count;
    if (count != moved_late) {
      ready = leave_unmoved(moved_late, count);
      group_by_queue(ready);
    }
    finish_batch(ready);
  } while (count == kDueBatch);
}

void Worker::on_target(Slot slot) {
  if ((hot_[slot].flags & kZombie) != 0) [[unlikely]]
    give_back(slot);
  else
    finish(slot);
}

// Of those that finish() has completed, as of the time last read.
void Worker::record_finished() {
  for (std::uint32_t i = 0; i < finished_count_; ++i) record(finished_[i]);
  finished_count_ = 0;
}

void Worker::record(const Sample& sample) {
  FidelityStats& stats = *current_stats_;
  const std::uint64_t now_ns = time_.now_ns;
  const std::uint64_t lateness_ns = now_ns > sample.target_ns ? now_ns - sample.target_ns : 0;
  enter_sample(stats, sample.target_ns - sample.fetched_ns, now_ns - sample.fetched_ns, lateness_ns,
               sample.target_ns < time_.gaps.gap_end_ns(), 1);
  ++stats.completions;
  stats.target_sum_ns += sample.target_ns - sample.fetched_ns;
  stats.lateness_sum_ns += lateness_ns;
  stats.lateness_max_ns = std::max(stats.lateness_max_ns, lateness_ns);
  ++total_.completions;
  total_.lateness_sum_ns += lateness_ns;
}

void Worker::finish(Slot slot) {
  const HotRequest& hot = hot_[slot];
  ++finished_in_round_;
  const SqRef& ref = sqs_[hot.sq];
  Cq& cq = *ref.cq;
  const bool posted = cq.overflow_first == kNoSlot && post(cq, hot, slot);
  // What waits for room in its queue from here on waits for its host.
  if (!ref.sq->admin) finished_[finished_count_++] = {hot.target_ns, hot.fetched_ns};
  if (posted) [[likely]]
    give_back(slot);
  else
    wait_for_room(cq, slot);
}

void Worker::wait_for_room(Cq& cq, Slot slot) {
  hot_[slot].next = kNoSlot;
  if (cq.overflow_first == kNoSlot) {
    cq.overflow_first = slot;
    // Who comes after others has not looked.
    cq.full_ns = time_.now_ns;
  } else {
    hot_[cq.overflow_last].next = slot;
  }
  cq.overflow_last = slot;
  ++overflowed_;
}

void Worker::give_back(Slot slot) {
  hot_[slot].flags = 0;
  if (threaded_) {
    returns_.push(slot);
  } else {
    uncharge(slot);
    slab_.release(slot);
  }
}

// Of a zombie whose queue goes: its place in the table may soon be another queue's.
void Worker::disown(Slot slot) {
  uncharge(slot);
  hot_[slot].sq = 0;
}

// Zombies leave the wheel now, not at their targets: slots that hosts could not have back by resets would be lost to
// everyone until then.
void Worker::leave_wheel() {
  wheel_.remove_if([this](Slot slot) {
    HotRequest& hot = hot_[slot];
    if ((hot.flags & kZombie) == 0) return false;
    if ((hot.flags & kDataDone) != 0)
      give_back(slot);
    else
      hot.flags = static_cast<std::uint8_t>(hot.flags | kDue);  // prepare() gives it back
    return true;
  });
  if (!threaded_) return;
  returns_.publish();
  reclaim();
}

bool Worker::refresh_free(Cq& cq) {
  const std::uint32_t head = std::atomic_ref<std::uint32_t>(*cq.head_doorbell).load(std::memory_order_acquire);
  if (head != cq.head) {
    const std::uint32_t posted = cq.tail >= cq.head ? cq.tail - cq.head : cq.tail + cq.entries - cq.head;
    const std::uint32_t moved = head >= cq.head ? head - cq.head : head + cq.entries - cq.head;
    if (head >= cq.entries || moved > posted) {
      // Base 2.0c, 3.3.3.1 and Figure 149: a head beyond what was posted is an invalid doorbell value.
      if (cq.bad_head != head) {
        cq.bad_head = head;
        cq.controller->raise_error_event(nvme::AsyncErrorInfo::invalid_doorbell_value);
      }
    } else {
      cq.head = head;
      cq.bad_head = 0xFFFFFFFFu;
    }
  }
  if (cq.event_index != nullptr)
    std::atomic_ref<std::uint32_t>(*cq.event_index).store(cq.head, std::memory_order_relaxed);
  const std::uint32_t used = cq.tail >= cq.head ? cq.tail - cq.head : cq.tail + cq.entries - cq.head;
  cq.free = cq.entries - 1 - used;
  return cq.free != 0;
}

bool Worker::post(Cq& cq, const HotRequest& hot, Slot slot) {
  if (cq.free == 0 && !refresh_free(cq)) [[unlikely]]
    return false;
  put_entry(cq, *sqs_[hot.sq].sq, hot, hot.cold == kNoSlot ? 0 : slab_.cold(slot).dw0);
  return true;
}

void Worker::drain_overflow(Cq& cq) {
  while (cq.overflow_first != kNoSlot) {
    const Slot slot = cq.overflow_first;
    if ((hot_[slot].flags & kZombie) == 0) {
      if (!post(cq, hot_[slot], slot)) {
        cq.full_ns = time_.now_ns;
        return;
      }
      if (!sqs_[hot_[slot].sq].sq->admin) record_wait_for_room(cq.full_ns);
    }
    cq.overflow_first = hot_[slot].next;
    --overflowed_;
    ++finished_in_round_;
    give_back(slot);
  }
}

// Of a completion that is counted already: until its host made room it waited for its host, then for a look of ours. A
// sample of its own, so the many that are next to nothing stay out of the distribution.
void Worker::record_wait_for_room(std::uint64_t full_ns) {
  constexpr std::uint64_t kWorthASampleNs = 1'000;
  const std::uint64_t late_ns = time_.now_ns - std::min(time_.now_ns, full_ns);
  FidelityStats& stats = *current_stats_;
  if (late_ns >= kWorthASampleNs)
    (full_ns < time_.gaps.gap_end_ns() ? stats.lateness_gap_ns : stats.lateness_ns).record(late_ns);
  stats.lateness_sum_ns += late_ns;
  stats.lateness_max_ns = std::max(stats.lateness_max_ns, late_ns);
  total_.lateness_sum_ns += late_ns;
}

void Worker::after_round() {
  for (std::size_t i = 0; i < dirty_.size(); ++i) {
    Cq& cq = *dirty_[i];
    const controller::Coalescing& rule = cq.controller->coalescing();
    const bool wait = rule.time_100us != 0 && cq.cqid != 0 && cq.coalesced <= rule.threshold &&
                      !cq.controller->coalescing_disabled(cq.vector);
    if (cq.coalescing_since_ns == 0) {
      cq.coalescing_since_ns = time_.now_ns;
      ++coalescing_;
    }
    if (wait && time_.now_ns - cq.coalescing_since_ns < rule.time_100us * 100'000ull) continue;
    raise_interrupts(cq);
    dirty_[i--] = dirty_.back();
    dirty_.pop_back();
  }
}

void Worker::raise_interrupts(Cq& cq) {
  cq.dirty = false;
  cq.coalesced = 0;
  cq.coalescing_since_ns = 0;
  --coalescing_;
  if (*cq.port->interrupt) (*cq.port->interrupt)(cq.vector);
}

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
    found = (hot_[slot].flags & kLive) != 0 && hot_[slot].cold != kNoSlot && slab_.cold(slot).sync_media == &media;
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
    if (!all && ((hot.flags & kTransfer) == 0 || !cold.is_write || cold.sync_media != nullptr)) continue;
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
