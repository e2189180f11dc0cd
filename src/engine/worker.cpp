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
  enter_sample(stats, sample, now_ns, lateness_ns, sample.target_ns < time_.gaps.gap_end_ns(), 1);
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
  if (!ref.sq->admin) finished_[finished_count_++] = {hot.target_ns, hot.fetched_ns, (hot.status & kIsWrite) != 0};
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
  put_entry(cq, *sqs_[hot.sq].sq, hot, hot.cold == kNoSlot ? 0 : slab_.cold(slot).result);
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

}  // namespace flashmob::engine
