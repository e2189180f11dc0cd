// The last part of a request's way: it is held until its target time, in a timing wheel, and its completion is posted
// in a batch with others. Where its completion queue is full, it waits there for its host, and nobody else waits.
//
// For the worker's thread, inside the guard of its ports; queue operations while the worker is paused.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "engine/account.h"
#include "engine/completion_queues.h"
#include "engine/copy_engine.h"
#include "engine/requests.h"
#include "engine/timing_wheel.h"

namespace flashmob::engine {

class Completer {
 public:
  // So many are completed together.
  static constexpr std::uint32_t kDueBatch = 256;

  Completer(const WorkerContext& context, Requests& requests, const std::atomic<unsigned>& phase);

  Account& account() { return account_; }
  const Account& account() const { return account_; }
  CompletionQueues& queues() { return queues_; }

  // --- Requests come ---
  void hold(Slot slot, std::uint64_t target_ns) { wheel_.insert(slot, target_ns); }
  void hold(std::span<const Slot> slots, const std::uint64_t* targets_ns) {
    wheel_.insert_batch(slots.data(), targets_ns, slots.size());
  }
  std::uint32_t held() const { return wheel_.size(); }
  // The data of a request is where it belongs: one that is past its target completes with the next batch.
  void data_moved(Slot slot);
  // The same of each of a run of plain transfers, none of which has been ended.
  void data_moved(std::span<const Copy> run);
  // Completes those that were due before their data had been moved.
  void finish_moved();

  // --- Rounds ---
  void begin_round() {
    account_.begin_round();
    finished_ = 0;
  }
  // Completes what is due by the time last read. `all_moved`: no request is past the wheel but waits for its data.
  void release_due(bool all_moved);
  // What waits for room, and interrupts. True if anything was completed in this round.
  bool end_round();
  // When a request is due or an interrupt is; UINT64_MAX for none.
  std::uint64_t next_deadline_ns() const;

  // --- Queues, and requests that end before their time ---
  void remove_queue(const controller::Controller& controller, std::uint16_t cqid);
  bool any_wait_for_room() const { return waiting_ != 0; }
  // Posts what finds room by now. True if something still waits for room.
  bool drain(Cq& cq);
  void drain_all();
  // Ends a request: with `post` by an entry of that status, if there is room now; that of an Abort waits for room.
  // Whoever still holds the request's slot, the wheel or the mover, gives it back.
  void end(Slot slot, nvme::Status status, bool post);
  // Whoever gives up waiting has waited: a command that is past its target when its host aborts it, or takes its queue
  // or itself away, was late by so much at least.
  void note_ended(const HotRequest& hot);
  void set_zombie(HotRequest& hot) {
    hot.set(kZombie);
    ++zombies_;
  }
  // Zombies leave the wheel now, not at their targets: slots that hosts could not have back by resets would be lost to
  // everyone until then. But for a few among many others, which wait for more.
  void release_zombies();
  // Adds the requests that are held. Those that are past their target, but for want of room with the host, count in
  // `late` as completions that come now.
  void add_unanswered(std::uint64_t now_ns, Unanswered& sum, FidelityStats& late);

 private:
  static constexpr std::uint64_t kHeldPerZombie = 8;

  void finish_batch(std::uint32_t count);
  std::uint32_t leave_unmoved(std::uint32_t from, std::uint32_t count);
  void group_by_queue(std::uint32_t count);
  std::uint32_t finish_run(std::uint32_t at, std::uint32_t count, Account::Sums& sums);
  void prefetch_queues(const HotRequest& hot) const;
  std::uint32_t choose_samples(std::uint32_t count);
  void finish_one(Slot slot, Account::Sums& sums);
  bool post(Cq& cq, const HotRequest& hot, Slot slot);
  void wait_for_room(Cq& cq, Slot slot);
  bool is_late(const HotRequest& hot, std::uint64_t now_ns) const;

  // First line: what every batch touches.
  Requests& requests_;
  ThreadClock& time_;
  HotRequest* const hot_;
  std::uint32_t due_count_ = 0;  // of requests whose data was moved after their target
  std::uint32_t single_count_ = 0;
  std::uint32_t sample_countdown_ = 0;
  std::uint32_t finished_ = 0;  // in this round
  std::uint32_t zombies_ = 0;  // since the wheel was last looked through
  std::uint32_t waiting_ = 0;  // for room, in the overflow lists of all queues

  alignas(kCacheLineBytes) std::array<Slot, kDueBatch> due_;
  std::array<Account::Times, kSampleAbove> samples_;  // of the batch that is being completed
  std::array<Account::Times, kDueBatch> singles_;  // of that batch, those that are no plain transfers
  CompletionQueues queues_;
  Account account_;
  TimingWheel wheel_;
};

}  // namespace flashmob::engine
