// The first half of a request's way: poll doorbells, fetch all new entries of a queue in one copy, decode, time them
// as one batch, hand them to the queue's worker.
//
// For the service unit's dispatcher thread. Nothing here allocates once queues exist, except where queues come and go.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/arbitration.h"
#include "engine/doorbell_lines.h"
#include "engine/fault_injector.h"
#include "engine/port.h"
#include "engine/queues.h"
#include "engine/thread_clock.h"
#include "engine/worker.h"
#include "flashmob/config.h"
#include "timing/model.h"

namespace flashmob::engine {

class Dispatcher {
 public:
  static constexpr std::uint32_t kMaxBatch = 1024;
  // Of a round, for commands of admin queues, and again for what controllers do of their own: hundreds of hosts have
  // more of it than others' I/O is to wait for.
  static constexpr std::uint64_t kAdminRoundNs = 50'000;

  Dispatcher(const EngineConfig& config, timing::TimingModel& model, ThreadClock& time,
             std::vector<std::unique_ptr<Worker>>& workers);

  // Before the first pass(). The injector outlives the dispatcher.
  void set_faults(FaultInjector& faults) { faults_ = &faults; }
  // Polls every queue once and fetches what is new. True if anything was fetched.
  bool pass();

  // Queue changes, on the dispatcher's thread or while it is paused.
  Sq& add_sq(std::unique_ptr<Sq> sq);
  Sq* find_sq(const controller::Controller& controller, std::uint16_t sqid);
  void remove_sq(Sq& sq);
  // Those of controllers that are leaving.
  void remove_leaving();
  void refresh_rings(PortContext& port);
  // When a lonely first half of a fused pair, or an admin command that a fault delays, has waited long enough, or a
  // rate lets more of what has been rung through; UINT64_MAX if there is none.
  std::uint64_t next_deadline_ns() const;
  // Entries that are rung and that nobody will fetch any more have waited until now: their queue is about to go. With
  // the worker paused, inside the guard of the queue's port.
  void note_unfetched(Sq& sq);
  // Hands a half-fetched fused pair's first half over as failed, so that no slot is left behind.
  void drop_fused(Sq& sq);
  // Whether a command that no worker has yet may still touch this media.
  bool knows(const media::Media& media);
  // Arbitration features or the set of queues changed.
  void sort_queues();
  // Virtual time jumps to now_ns, and no doorbell has been rung that the last pass did not see.
  void note_quiet(std::uint64_t now_ns) { quiet_ns_ = now_ns; }
  std::span<const std::unique_ptr<Sq>> queues() const { return sqs_; }

  bool has_admin_commands() const { return admin_next_ != admin_commands_.size(); }
  // Executes admin commands fetched by the last pass. Apart from pass(), because they may create and delete queues.
  void run_admin_commands();
  // Forgets fetched admin commands of a controller that is being reset.
  void drop_admin_commands(const controller::Controller& controller);
  // Completes an admin command: takes a slot that is due at once.
  void complete_admin(Sq& admin_sq, std::uint16_t cid, std::uint16_t status_field, std::uint32_t dw0);

 private:
  // A queue and what the search for moved doorbells knows of it, one after the other in memory.
  struct Watch {
    std::uint32_t* doorbell;
    Sq* sq;
    const nvme::Sqe* ring;   // as the queue's
    std::uint64_t empty_ns;  // a look no earlier than this showed nothing to fetch; 0: since Sq::watch was told
    std::uint32_t head;
    DoorbellLines::Place place;
  };
  static constexpr std::uint32_t kNoWatch = UINT32_MAX;

  bool poll_line(std::size_t line);
  std::uint64_t empty_ns(const Watch& watch) const;
  bool poll_sq(Watch& watch, std::uint32_t limit, std::uint32_t& taken);
  void record_waits(Sq& sq, std::uint32_t head, std::uint32_t tail, std::uint32_t count, std::uint64_t look_ns,
                    std::uint64_t now_ns);
  std::uint32_t let_through(Sq& sq, std::uint32_t count, std::uint64_t look_ns);
  bool weighted_pass();
  void expire_fused();
  void watch_queues();
  void settle_watches();
  void ingest(Sq& sq, std::uint32_t count);
  std::uint32_t take_in(Sq& sq, const nvme::Sqe* sqes, std::uint32_t count);
  std::uint32_t decode_run(Sq& sq, const command_set::Namespace& ns, const nvme::Sqe* sqes, std::uint32_t count);
  void admit_run(Sq& sq, command_set::Namespace& ns, const nvme::Sqe* sqes, std::uint32_t run);
  void ingest_transfer(Sq& sq, const nvme::Sqe& sqe, command_set::Namespace& ns);
  std::uint64_t target_of(const timing::Demand& demand);
  void ingest_other(Sq& sq, const nvme::Sqe& sqe, command_set::Namespace* ns);
  void reject(Sq& sq, const nvme::Sqe& sqe, nvme::Status status);
  Slot take_slot(Sq& sq, const nvme::Sqe& sqe, std::uint8_t flags);

  // dispatcher_faults.cpp: while the SSD is told to show faults.
  void ingest_with_faults(Sq& sq, std::uint32_t count);
  bool ends_here(Sq& sq, const nvme::Sqe& sqe, const Fault& fault);
  void take_in_with_fault(Sq& sq, const nvme::Sqe& sqe, const Fault& fault);
  void run_delayed_admin_commands();
  void forget_run_admin_commands();

  const EngineConfig& config_;
  timing::TimingModel& model_;
  ThreadClock& time_;
  std::vector<std::unique_ptr<Worker>>& workers_;
  std::vector<std::unique_ptr<Sq>> sqs_;
  std::vector<Sq*> order_;
  std::vector<Watch> watches_;  // in the order of `order_`
  DoorbellLines lines_;
  std::vector<std::array<std::uint32_t, DoorbellLines::kTails>> line_watches_;  // places in watches_, or kNoWatch
  std::uint64_t quiet_ns_ = 0;  // nobody has rung before this: virtual time, in which nothing happens between steps
  Sq* next_ = nullptr;  // the queue that is polled after this one, for prefetching only
  std::array<PriorityClass, kPriorityClasses> classes_;  // of queues in `order_`; admin queues are urgent
  bool weighted_ = false;
  std::uint32_t burst_ = kMaxBatch;
  std::uint64_t last_pass_ns_ = 0;
  std::uint64_t gate_opens_ns_ = UINT64_MAX;  // the first of those that the last pass found shut
  std::uint32_t fused_waiting_ = 0;  // queues with a first half whose second has not been seen
  struct AdminCommand {
    controller::Controller* controller;
    nvme::Sqe sqe;
  };
  std::vector<AdminCommand> admin_commands_;
  std::size_t admin_next_ = 0;  // those before have been run

  FaultInjector* faults_ = nullptr;
  // Of the transfer that is being admitted.
  std::uint64_t fault_delay_ns_ = 0;
  bool may_show_fault_ = false;
  struct DelayedAdminCommand {
    std::uint64_t due_ns;
    AdminCommand command;
  };
  std::vector<DelayedAdminCommand> delayed_admin_;

  alignas(kCacheLineBytes) std::array<nvme::Sqe, kMaxBatch> fetched_;
  // Of the run of plain transfers that is being taken in.
  alignas(kCacheLineBytes) std::array<timing::Demand, kMaxBatch> demands_;
  alignas(kCacheLineBytes) std::array<std::uint64_t, kMaxBatch> targets_ns_;
  alignas(kCacheLineBytes) std::array<Slot, kMaxBatch> fresh_slots_;
};

}  // namespace flashmob::engine
