// The second half of a request's way: move the bytes, hold the request until its target time, post its completion.
//
// A worker owns completion queues, a slab of slots and a timing wheel; no other thread touches them. With
// EngineConfig::workers = 0 it runs on its dispatcher's thread and requests are handed over by a call; otherwise on a
// thread of its own and slots travel through two rings. Data is moved in slices of a few microseconds: completions that
// are due go out between slices, and controllers take turns, so a long run of copies delays neither. Media that takes
// its time (media_queue.h) is asked and looked at once a round (worker_media.cpp).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "command_set/command_set.h"
#include "engine/copy_engine.h"
#include "engine/move_queue.h"
#include "engine/port.h"
#include "engine/queues.h"
#include "engine/slab.h"
#include "engine/spsc_ring.h"
#include "engine/stats.h"
#include "engine/sync_thread.h"
#include "engine/thread_clock.h"
#include "engine/timing_wheel.h"
#include "flashmob/config.h"
#include "media/media_queue.h"
#include "timing/model.h"

namespace flashmob::engine {

class Worker {
 public:
  // `threaded`: runs on another thread than its dispatcher. `phase` is the engine's current statistics phase. `number`
  // is no other worker's of the engine.
  Worker(unsigned number, const EngineConfig& config, timing::TimingModel& model, ThreadClock& time,
         const std::atomic<unsigned>& phase, bool threaded, std::unique_ptr<CopyEngine> copies, std::uint32_t slots);

  // Before the first poll(): flushes go there, and `wake` calls poll() when one is done. Both outlive the worker's use.
  void set_syncs(SyncThread& syncs, std::function<void()> wake) {
    syncs_ = &syncs;
    mailbox_.emplace(std::move(wake));
    syncs.add(*mailbox_);
  }
  // Before the first request: other workers copy, too. Copies that are made beside the worker (DSA) lock nothing:
  // blocks are then whole only as far as those are.
  void set_locks(command_set::PieceLocks& locks) {
    if (copy_engine_->may_be_cut_short()) locks_ = &locks;
  }
  Slab& slab() { return slab_; }
  bool threaded() const { return threaded_; }

  // --- Dispatcher's side ---
  // When a Flush that was fetched at that time is done, by what the model has been asked so far.
  static std::uint64_t flush_target(timing::TimingModel& model, std::uint64_t fetched_ns);
  // Takes over a slot that the dispatcher has filled in. Threaded: call publish() after a batch.
  void hand_over(Slot slot) {
    if (threaded_)
      inbox_.push(slot);
    else
      accept(slot);
  }
  // Fills in the slots of a batch of Reads and Writes to one namespace and takes them over; each gets a ColdRequest if
  // `whole`, else only those that need it.
  void admit(const Sq& sq, const command_set::Namespace& ns, const nvme::Sqe* sqes, std::span<const Slot> slots,
             const std::uint64_t* targets_ns, std::uint64_t fetched_ns, bool whole);
  void publish() {
    if (threaded_) inbox_.publish();
  }
  // Threaded: takes back slots the worker has finished with.
  void reclaim() {
    if (threaded_) {
      returns_.drain(Slab::kCapacity, [this](Slot slot) {
        uncharge(slot);
        slab_.release(slot);
      });
    }
  }
  // How many more commands of this queue may be fetched. No controller has more than kMostShare times what is left for
  // all others. What they leave shrinks with their number, so kLeastSlots are each one's own, as are those that answer
  // its admin commands.
  std::uint32_t room_for(const Sq& sq) const {
    const std::uint32_t held = *sq.slots_held;
    if (sq.admin) [[unlikely]] {
      const std::uint32_t limit = sq.port->admin_limit();
      return held < limit ? limit - held : 0;
    }
    const std::uint32_t own = held < kLeastSlots ? kLeastSlots - held : 0;
    const std::uint32_t available = slab_.available();
    const std::uint32_t left = available > reserved_ ? available - reserved_ : 0;
    return std::max(own, held < kMostShare * left ? std::min(left, kMostShare * left - held) : 0);
  }
  // How many slots of each controller's are its own, besides those of its admin commands.
  static constexpr std::uint32_t kLeastSlots = 64;
  // How many of them may be fetched now. Where several controllers are served, what one rings beyond kMostUnmoved waits
  // in its queues: fetching takes time, too, and a pass over them is then short for all others.
  std::uint32_t fetchable(const Sq& sq) const {
    const std::uint32_t room = room_for(sq);
    if (!several_ || sq.admin) [[likely]]
      return room;
    const std::uint32_t unmoved = sq.port->moves->size();
    return unmoved < kMostUnmoved ? std::min(room, kMostUnmoved - unmoved) : 0;
  }
  static constexpr std::uint32_t kMostUnmoved = 1024;
  // Whether completions wait for room in the queue where this one's go: its host has to read first, and what it asks
  // for until then waits in its queue, with no slot. (A worker with a thread of its own is not looked into.)
  bool has_unread(const Sq& sq) const {
    return !threaded_ && overflowed_ != 0 && !sq.admin && sqs_[sq.index].cq->overflow_first != kNoSlot;
  }
  // The same once what finds room by now has been posted: a host that made it while we did not look has not kept us.
  bool keeps_us_waiting(const Sq& sq) {
    if (!has_unread(sq)) [[likely]]
      return false;
    drain_overflow(*sqs_[sq.index].cq);
    return has_unread(sq);
  }
  // The same of any worker, while it is paused.
  bool leaves_answers(const Sq& sq) const { return sqs_[sq.index].cq->overflow_first != kNoSlot; }
  // Slots that are not shared: every controller's own. By the dispatcher while the worker is paused.
  void reserve(std::uint32_t slots, std::size_t controllers) {
    reserved_ = slots;
    several_ = controllers > 1 && !threaded_;  // a worker with a thread of its own is not looked into
    turns_.reserve(controllers);
  }

  // --- Worker's thread ---
  // Completes what is due by the time last read. For the worker's thread, inside the guard of its ports.
  void release_due();
  // One round: accept, release what is due, move a slice, release again. True if anything was done.
  bool poll();
  // When poll() has something to do by itself; UINT64_MAX if only a hand-over can bring work.
  std::uint64_t next_deadline_ns() const;
  bool has_requests() const {
    return !wheel_.empty() || !nothing_to_move() || overflowed_ != 0 || copies_in_flight_ != 0 || syncing_ != 0 ||
           media_requests_ != 0;
  }
  // Copies were started that are not finished: host memory that they touch must stay where it is.
  bool copies_in_flight() const { return copies_in_flight_ != 0; }
  // Waits for them, inside the guard they were started in: a few microseconds, or the copy engine's time-out.
  void finish_copies();
  // Media that takes its time has requests of this worker, or will.
  bool has_media_requests() const { return media_requests_ != 0; }
  // Waits for those that it has, inside the guard; others are prepared again.
  void finish_media();

  // Takes in everything that was handed over; before a queue operation of a paused worker.
  void accept_all() {
    if (threaded_) inbox_.drain(Slab::kCapacity, [this](Slot slot) { accept(slot); });
  }

  // Queue operations: by the dispatcher while the worker is paused. add_sq returns the SQ's index in this worker's
  // table.
  Cq& add_cq(std::unique_ptr<Cq> cq);
  std::uint16_t add_sq(Sq& sq, Cq& cq);
  Cq* find_cq(const controller::Controller& controller, std::uint16_t cqid);
  void remove_cq(const controller::Controller& controller, std::uint16_t cqid);
  // Before either of these: accept_all(). Ends every request of the SQ; `post` posts Command Aborted due to SQ Deletion
  // where the CQ has room.
  void cancel_sq(const Sq& sq, bool post);
  // Ends one request with Command Abort Requested; false if it is not here (any more).
  bool abort(const Sq& sq, std::uint16_t cid);
  // Before this: accept_all(). Ends the requests to a namespace, or the writes among them, whose data has not been
  // moved.
  void end_commands(const command_set::Namespace& ns, nvme::Status status, controller::CommandsToEnd which);
  // Drops every request and queue of a controller without posting anything.
  void drop_controller(PortContext& port);
  // Whether a request may still touch this media. By the dispatcher while the worker is paused.
  bool knows(const media::Media& media);
  // Adds the requests that it holds. Those that are past their target, but for want of room with the host, count in
  // `late` as completions that come now.
  void add_unanswered(std::uint64_t now_ns, Unanswered& sum, FidelityStats& late);
  // Guest memory changed or shadow doorbells moved: host pointers of this controller's rings are looked up again.
  void refresh_rings(PortContext& port);
  // Host pointers of prepared copies are stale: prepare those requests again.
  void redo_copies();

  // Any thread, while it runs.
  LiveFigures live() const {
    return {live_completions_.load(std::memory_order_relaxed), live_lateness_ns_.load(std::memory_order_relaxed)};
  }

  const CopyEngine& copy_engine() const { return *copy_engine_; }
  FidelityStats& stats(unsigned phase) { return *stats_[phase]; }
  FidelityStats& stats_now() { return *stats_[phase_.load(std::memory_order_relaxed)]; }

 private:
  // Takes a handed-over request onto the wheel, the copy queue, or both.
  void accept(Slot slot) {
    const HotRequest& hot = hot_[slot];
    if ((hot.flags & kTimed) != 0) wheel_.insert(slot, hot.target_ns);
    if ((hot.flags & kDataDone) == 0) {
      MoveQueue& moves = *sqs_[hot.sq].cq->port->moves;
      take_turns(moves);
      moves.push_other(slot);
    }
  }
  // A slot is given back, and counts no longer against its queue's controller.
  void uncharge(Slot slot) {
    const Sq* const sq = sqs_[hot_[slot].sq].sq;
    if (sq != nullptr && *sq->slots_held != 0) --*sq->slots_held;
  }
  void disown(Slot slot);
  void leave_wheel();

  struct SqRef {
    Sq* sq = nullptr;
    Cq* cq = nullptr;
  };

  struct Sample {
    std::uint64_t target_ns, fetched_ns;
    bool is_write;
  };

  // What the requests of a batch add up to.
  struct RunSums {
    std::uint64_t completions = 0;
    std::uint64_t target_sum_ns = 0;
    std::uint64_t fetched_sum_ns = 0;
    std::uint64_t target_min_ns = UINT64_MAX;
  };

  void finish_batch(std::uint32_t count);
  std::uint32_t leave_unmoved(std::uint32_t from, std::uint32_t count);
  void group_by_queue(std::uint32_t count);
  std::uint32_t finish_run(std::uint32_t at, std::uint32_t count, RunSums& sums);
  void prefetch_queues(const HotRequest& hot) const;
  std::uint32_t choose_samples(std::uint32_t count);
  void enter_samples(std::uint32_t samples, std::uint32_t weight);
  static void enter_sample(FidelityStats& stats, const Sample& sample, std::uint64_t now_ns, std::uint64_t lateness_ns,
                           bool gap_hit, std::uint32_t weight);
  void put_entry(Cq& cq, const Sq& sq, const HotRequest& hot, std::uint64_t result);
  void on_target(Slot slot);
  void finish(Slot slot);
  void record_finished();
  void wait_for_room(Cq& cq, Slot slot);
  void record(const Sample& sample);
  bool post(Cq& cq, const HotRequest& hot, Slot slot);
  void advance_tail(Cq& cq, std::uint32_t entries);
  bool refresh_free(Cq& cq);
  void drain_overflow(Cq& cq);
  void record_wait_for_room(std::uint64_t full_ns);
  void after_round();
  void raise_interrupts(Cq& cq);
  void give_back(Slot slot);
  void end_now(Slot slot, nvme::Status status, bool post);
  bool is_late(const HotRequest& hot, std::uint64_t now_ns) const;
  static void add_late(const HotRequest& hot, std::uint64_t now_ns, FidelityStats& late);
  void note_ended(const HotRequest& hot);

  bool nothing_to_move() const { return turns_.empty() && !has_prepared(); }
  // Before something is put into a queue.
  void take_turns(MoveQueue& moves) {
    if (moves.empty()) turns_.push_back(&moves);
  }
  // The queue of the controller whose turn it is; there is one.
  MoveQueue& in_turn() { return *turns_[turn_]; }
  void end_turn();
  // Copies of commands other than plain transfers that wait to be started.
  bool has_prepared() const { return copies_at_ != copies_.size() || !redo_.empty(); }
  // A slice ends after so many copies or bytes: a few microseconds, so that completions due are never far behind. It is
  // twice as long where no request has a target that could be missed, because every turn to something else empties the
  // CPU's window of loads that wait for memory.
  static constexpr std::uint32_t kSliceCopies = 64;
  static constexpr std::uint32_t kMaxSliceCopies = 2 * kSliceCopies;
  static constexpr std::uint32_t kSliceBytes = 32 * 1024;
  // What a slow machine takes for a copy, for the gap monitor: random blocks from DRAM took 80 ns for 512 B and 0.45 us
  // for 4 KiB on the machines seen.
  static constexpr std::uint32_t kCopyNs = 100;
  static constexpr std::uint32_t kCopyBytesPerNs = 4;
  // What is left of a slice.
  struct SliceBudget {
    std::uint32_t copies;
    std::uint32_t bytes;
    bool is_spent() const { return copies == 0 || bytes == 0; }
    void spend() { copies = bytes = 0; }
    void take(std::uint32_t some_copies, std::uint32_t some_bytes) {
      copies -= std::min(copies, some_copies);
      bytes -= std::min(bytes, some_bytes);
    }
  };
  // Nothing is locked around calls into media that wait for a disk: these hold locks of their own, and a thread that
  // waits for those may be waited for.
  command_set::PieceLocks* locks_of(const command_set::Namespace& ns) const {
    return ns.base != nullptr ? locks_ : nullptr;
  }
  bool next_to_prepare(Slot& slot);
  void move_slice();
  void move_plain(SliceBudget& left);
  void note_pages(const command_set::Namespace& ns) {
    if (ns.pages_may_go) [[unlikely]]
      pages_may_go_ = true;
  }
  bool submit(CopyRun& run, std::size_t count, bool streaming, bool& made);
  std::uint32_t look_at_sources(std::span<const Copy> copies);
  void copy_torn_again(const MoveQueue& moves, std::span<const Copy> copies);
  bool move_by_media(Slot slot, std::span<const memory::Segment> segments);
  void move_plain_singly(const MoveQueue& moves, std::span<const Copy> copies);
  void make_singly(std::span<const Copy> copies);
  void stop_moves();
  void refresh_moves(PortContext& port);
  void fail_plain(const Copy& copy, const PlainTransfer& plain, HotRequest& hot, nvme::Status status);
  void copied(Slot slot);
  void plain_run_done(std::span<const Copy> run);
  bool outgrows_cache(std::uint32_t bytes) const;
  void plain_done(Slot slot, HotRequest& hot);
  void move_prepared(SliceBudget& left);
  void queue_moves(const Sq& sq, command_set::Namespace& ns, const nvme::Sqe* sqes, std::span<const Slot> slots,
                   bool whole);
  void fill_cold(Slot slot, const nvme::Sqe& sqe, command_set::Namespace& ns);
  bool splits_block(const Copy& copy);
  std::uint32_t prepare(Slot slot);
  std::uint32_t prepare_transfer(Slot slot, HotRequest& hot, ColdRequest& cold);
  void run_command(Slot slot);
  void run_fused(Slot first, Slot second);
  void end_failed(Slot slot);
  void conclude(Slot slot, const command_set::Outcome& outcome, std::uint64_t not_before_ns);
  void hold(Slot slot);
  void data_done(Slot slot);
  void data_durable(Slot slot);
  void drop_zombie(Slot slot);
  bool start_sync(Slot slot, command_set::Namespace& ns);
  void collect_syncs();
  void go_on_flushing(Slot slot, std::uint64_t first, bool good);
  void write_durable(Slot slot, bool good);
  void execution_durable(Slot slot, bool good);
  nvme::Status resolve(const HotRequest& hot, const ColdRequest& cold, memory::Segment& one,
                       std::span<const memory::Segment>& segments);
  bool start_media(Slot slot, const HotRequest& hot, ColdRequest& cold);
  bool try_media(Slot slot, ColdRequest& cold, media::MediaQueue& queue);
  void go_on(media::MediaQueue& queue, media::Transfer& transfer);
  bool waits_for_media(const ColdRequest& cold) const;
  bool poll_media();
  bool collect_media();
  void drain_media();
  void push_waiting(Slot slot);
  Slot pop_waiting();
  void show_fault(HotRequest& hot, const ColdRequest& cold);
  void corrupt(const HotRequest& hot, const ColdRequest& cold);
  void make_copies(std::span<const Copy> pending, std::size_t count);
  void collect_copies();
  void finish_moved();
  void end_partner(Slot second);
  void fail(HotRequest& hot, const ColdRequest& cold, nvme::Status status);

  const EngineConfig& config_;
  timing::TimingModel& model_;
  ThreadClock& time_;
  const std::atomic<unsigned>& phase_;
  bool threaded_;
  bool pages_may_go_ = false;  // of some media that copies have come from or gone to

  static constexpr std::uint32_t kMostShare = 4;
  std::uint32_t reserved_ = 0;
  bool several_ = false;  // controllers
  Slab slab_;
  TimingWheel wheel_;
  HotRequest* hot_;
  FidelityStats* current_stats_;
  std::vector<SqRef> sqs_;  // the first is nobody's: what is left of requests whose queue is gone refers to it
  std::vector<std::unique_ptr<Cq>> cqs_;
  std::vector<Cq*> dirty_;
  static constexpr std::uint32_t kDueBatch = 256;
  std::array<Slot, kDueBatch> due_;
  std::uint32_t due_count_ = 0;  // of requests whose data was moved after their target
  std::array<Sample, kSampleAbove> samples_;  // of the batch that is being completed
  std::array<Sample, kDueBatch> finished_;  // of that batch, completed one by one
  std::uint32_t finished_count_ = 0;
  std::uint32_t sample_countdown_ = 0;
  std::uint32_t finished_in_round_ = 0;
  std::uint32_t overflowed_ = 0;  // requests waiting in overflow lists
  std::uint32_t coalescing_ = 0;  // CQs with entries posted but no interrupt raised yet

  std::vector<MoveQueue*> turns_;  // those of controllers that have data to move
  std::size_t turn_ = 0;  // whose turn it is among them
  std::vector<Copy> copies_;  // prepared copies; [copies_at_, size) are not started
  std::size_t copies_at_ = 0;
  std::size_t copies_asked_ = 0;  // of those that are not started, the first so many were asked for
  std::uint32_t copies_in_flight_ = 0;  // always 0 after a slice when the CPU copies
  std::deque<Slot> redo_;  // slots to prepare again, before others
  std::unique_ptr<CopyEngine> copy_engine_;
  command_set::PieceLocks* locks_ = nullptr;  // nullptr: nobody else copies
  // Of the sources of a run of plain Reads: two pieces of media each at most.
  std::array<std::array<std::uint64_t, 2>, kMaxSliceCopies> looks_{};
  memory::SegmentList segments_;
  std::vector<std::byte> bounce_;

  SyncThread* syncs_ = nullptr;  // nullptr: virtual time, which stands still while media is made durable
  std::optional<SyncMailbox> mailbox_;
  std::uint32_t syncing_ = 0;  // requests that the sync thread has, or has done

  const unsigned number_;
  std::uint32_t media_requests_ = 0;  // that media has, or that wait for it
  std::vector<media::MediaQueue*> busy_media_;  // those with transfers outstanding
  Slot waiting_first_ = kNoSlot;  // for blocks or buffers, by ColdRequest::partner
  Slot waiting_last_ = kNoSlot;
  std::uint32_t waiting_ = 0;

  SlotRing inbox_;
  SlotRing returns_;
  std::unique_ptr<FidelityStats> stats_[kPhases];
  // What live() shows, published once a round; the totals themselves are the worker's.
  LiveFigures total_;
  std::atomic<std::uint64_t> live_completions_{0}, live_lateness_ns_{0};
};

}  // namespace flashmob::engine
