// One driver thread of a benchmark: a non-blocking state machine that keeps its queues full as the workload says.
//
// Closed loop (requesters, with or without think time), open loop (fixed rate or Poisson arrivals) and trace replay.
// Latency counts from the moment a request is wanted, not from when a slot was free for it, so a slow device cannot
// hide behind its own back-pressure. poll() is called in a loop by a thread, or by a VirtualWorld.
// Nothing allocates while it runs, except an open loop's backlog that outgrows everything before.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/gap_monitor.h"
#include "base/histogram.h"
#include "base/rng.h"
#include "driver/data_buffer.h"
#include "driver/nvme_driver.h"
#include "load/completion_predictor.h"
#include "load/moved_list.h"
#include "load/pattern.h"
#include "load/trace.h"
#include "load/verifier.h"
#include "memory/host_memory.h"

namespace flashmob::load {

enum class LoopKind : std::uint8_t { closed, open, trace, trace_as_fast };

// What the jobs of a run that ends by count share: they begin and end measuring together.
struct JobGroup {
  std::atomic<std::uint64_t> completed{0};
  std::atomic<std::uint64_t> measured{0};  // once any of them measures
};

struct JobConfig {
  static constexpr std::uint64_t kNoEnd = UINT64_MAX / 4;
  std::uint32_t nsid = 1;
  unsigned lba_shift = 9;
  std::uint32_t max_io_bytes = 512;      // the largest request of the workload
  std::uint32_t queue_depth = 128;       // commands in flight per queue
  LoopKind loop = LoopKind::closed;
  std::uint64_t think_time_ns = 0;
  bool poisson = true;
  std::uint64_t ramp_ns = 0;             // by time, or ...
  std::uint64_t runtime_ns = 0;          // kNoEnd: until all of a trace has been answered
  std::uint64_t ramp_ios = 0;            // ... by count, when ios is not 0: of all jobs of the group
  std::uint64_t ios = 0;
  std::shared_ptr<JobGroup> group = nullptr;  // nullptr: of its own
  double verify_percent = 0;
  std::uint64_t seed = 1;
  bool tells_waits = false;              // requests may wait for slots: JobStats::served_ns
  bool lists_moved = false;              // Job::moved()
  bool use_interrupts = false;           // poll only queues whose interrupt fired (virtual time)
  bool predicts = false;                 // Job::predictor()
  std::uint64_t gap_ns = 5'000;
  // Commands may never be answered (a device that is told to lose them, or one of another process). After so long
  // without any completion a job that only waits for commands ends, if `nothing_comes` agrees or is empty.
  std::uint64_t patience_ns = 0;  // 0: for ever
  std::function<bool()> nothing_comes;
};

enum class IoKind : std::uint8_t { read, write, other };  // other: flushes and deallocations of a trace
inline constexpr std::size_t kIoKinds = CompletionPredictor::kKinds;

// Successful commands of one kind, as in JobStats.
struct KindStats {
  std::uint64_t ios = 0;
  std::uint64_t bytes = 0;
  Histogram latency_ns;
  Histogram served_ns;  // without the waits for slots, where these are told; else empty
  void merge(const KindStats& other);
};

// What one job measured between the end of its ramp and its end. Rates count the successful commands that completed in
// that time; latencies are theirs and those of the commands that were in flight at its end, so that nothing that hangs
// there is lost. Commands that failed are in neither.
struct JobStats {
  KindStats kinds[kIoKinds];
  // Of all kinds. Requests of an open loop or a trace that never found a slot count with their age at the end.
  Histogram latency_ns;
  Histogram served_ns;  // as in KindStats; without those that never found a slot
  std::uint64_t ios = 0, bytes = 0;
  std::uint64_t failed = 0;  // commands that completed with an error status meanwhile
  std::uint64_t moved = 0;  // requests that went to another place and are in nobody's list; ramp included
  std::uint64_t ramp_ios = 0;  // commands that completed before
  std::uint64_t started_ns = 0, ended_ns = 0;
  // At the end of the measured time: commands in flight, requests of an open loop or trace without a slot, and the age
  // of the oldest of them.
  std::uint64_t outstanding = 0, backlog = 0, oldest_ns = 0;
  std::uint64_t verified = 0;       // reads whose content was checked, ramp included
  std::uint64_t crowded = 0;  // reads that were to be, and met writes of the same blocks in flight; ramp included
  std::uint64_t verify_errors = 0;
  std::string first_error;
  std::map<std::uint16_t, std::uint64_t> errors;  // status field -> count, ramp included
  std::uint64_t unanswered = 0;  // commands given up
  SpanSums gaps;       // of the driver's thread: time that the machine took
  SpanSums long_work;  // ... and its own work, too long without a look at the clock
  // Adds another job's, of the same time.
  void merge(const JobStats& other);
  const KindStats& of(IoKind kind) const { return kinds[static_cast<std::size_t>(kind)]; }
};

class Job {
 public:
  // The queues' memory comes from `device`. `verifier` is shared by all jobs and outlives them. Called back on the
  // job's thread: on_measure when the ramp ends, on_end when measuring ends (both may be empty).
  Job(const JobConfig& config, const Clock& clock, driver::PciDevice& device, Verifier& verifier,
      std::function<void()> on_measure, std::function<void()> on_end);
  ~Job();

  // Adds a queue: its requests come from `pattern`, `requesters` of them at once (closed loop) or at `rate_iops`
  // (open loop), or are `trace` entries in order.
  void add_queue(driver::QueuePair& pair, Pattern pattern, std::uint64_t requesters, double rate_iops,
                 std::vector<TraceIo> trace);

  // Allocates the buffers of all queues, in one region of DMA memory. After the last add_queue(), before poll().
  void prepare();

  // One round; true if it did anything. After done() it does nothing.
  bool poll();
  // When it has something to do by itself (arrivals, end of ramp or run); virtual time skips to it.
  std::uint64_t next_deadline_ns() const;
  bool done() const { return state_ == State::done; }
  // The clock as poll() last read it, and when the thread last got its core back.
  std::uint64_t now_ns() const { return now_ns_; }
  std::uint64_t gap_end_ns() const { return gaps_.gap_end_ns(); }
  // When completions are to be expected; nullptr unless config.predicts.
  const CompletionPredictor* predictor() const { return predictor_.get(); }
  // The thread slept, between two polls; all that it did so after `meant_ns` was taken from it.
  void slept_until(std::uint64_t meant_ns) { gaps_.restart(meant_ns); }
  // The thread slept because it had nothing to do, however long that took; what the next poll finds had completed by
  // then.
  void waited_until(std::uint64_t meant_ns) {
    gaps_.restart(clock_.now_ns());
    there_by_ns_ = meant_ns;
  }
  // Virtual time: the machine takes the thread's core.
  void taken(std::uint64_t from_ns, std::uint64_t to_ns) { gaps_.take(from_ns, to_ns); }
  // Stops submitting and ends as soon as nothing is outstanding. Any thread.
  void cancel() { cancel_.store(true, std::memory_order_relaxed); }
  // Ends a job whose device has failed, which nobody polls any more: it measured until its last answer, and what is
  // outstanding has none.
  void abandon();
  // For the interrupt handler of queue `index` (use_interrupts), on the job's own thread.
  void mark_ready(std::size_t index);

  // Any thread, while it runs.
  std::uint64_t completed() const { return progress_ios_.load(std::memory_order_relaxed); }
  std::uint64_t latency_sum_ns() const { return progress_latency_.load(std::memory_order_relaxed); }
  std::uint64_t in_flight() const { return progress_in_flight_.load(std::memory_order_relaxed); }
  std::uint64_t verify_errors() const { return progress_errors_.load(std::memory_order_relaxed); }
  // How much of its ramp and run is done, 0...1.
  double fraction() const;
  // On its own thread: for how long it has only waited for commands, and none has completed; 0 without patience_ns.
  std::uint64_t silent_ns() const { return silent_since_ns_ == 0 ? 0 : now_ns_ - silent_since_ns_; }
  // On its own thread: how many commands the way to the device ended (Transient Transport Error). It may be gone for
  // good.
  std::uint64_t transport_errors() const { return transport_errors_; }
  bool measuring() const { return progress_measuring_.load(std::memory_order_relaxed); }

  // After done().
  JobStats& stats() { return stats_; }
  // Which requests of queue `index` went to another place: of very many, the first.
  const MovedList& moved(std::size_t index) const;
  // All that its trace asks for has been asked.
  bool trace_exhausted() const;
  // When it began to ask, after its first poll().
  std::uint64_t begun_ns() const { return begun_ns_.load(std::memory_order_relaxed); }

 private:
  enum class State : std::uint8_t { fresh, ramp, measure, drain, done };
  struct Queue;
  struct SlotState;

  void start();
  std::uint32_t poll_queue(Queue& queue);
  void count_for_group(std::uint64_t completed);
  // What the completions of one visit to a queue add up to.
  struct Reaped {
    std::uint64_t latency_sum_ns = 0;
    std::uint64_t sectors[kIoKinds] = {};
    std::uint64_t ios[kIoKinds] = {};
    std::uint64_t failed = 0;
  };
  void complete(Queue& queue, const nvme::Cqe& entry, Reaped& reaped);
  void finish_io(Queue& queue, SlotState& slot, std::uint16_t cid, std::uint16_t status);
  void next_request(Queue& queue, std::uint16_t cid);
  void submit(Queue& queue, std::uint16_t cid, std::uint64_t wanted_ns);
  void submit_pattern(Queue& queue, SlotState& slot, std::uint16_t cid, std::uint64_t wanted_ns);
  void choose(Queue& queue, SlotState& slot);
  void place(SlotState& slot, const Io& io) const;
  void hold(Queue& queue, SlotState& slot);
  void note_moved(Queue& queue, const SlotState& slot);
  void note_submitted(const SlotState& slot);
  bool needs_hold(SlotState& slot);
  void hold_unverified(SlotState& slot);
  void leave_unverified(SlotState& slot);
  bool submit_trace(Queue& queue, std::uint16_t cid, SlotState& slot);
  bool arrivals(Queue& queue);
  void want(Queue& queue, std::uint64_t at_ns);
  void advance_state();
  void begin_measuring();
  void end_measuring();
  void add_up();
  std::uint64_t own_deadline_ns() const;
  void wait_in_vain();
  void give_up();
  void leave_out_waits_in_vain();
  bool only_waits(std::uint64_t own_deadline_ns) const;
  bool is_trace() const { return config_.loop == LoopKind::trace || config_.loop == LoopKind::trace_as_fast; }
  void set_state(State next);
  std::size_t room_for_moved(const Queue& queue) const;

  JobConfig config_;
  const Clock& clock_;
  driver::PciDevice& device_;
  Verifier& verifier_;
  std::function<void()> on_measure_;
  std::function<void()> on_end_;
  std::unique_ptr<driver::DmaMemory> buffers_;
  memory::HostMemory slots_;  // of all queues: SlotState
  std::vector<std::unique_ptr<Queue>> queues_;
  std::vector<std::uint64_t> ready_;
  std::unique_ptr<CompletionPredictor> predictor_;
  Rng rng_;

  State state_ = State::fresh;
  std::uint64_t now_ns_ = 0;
  std::uint64_t ramp_end_ns_ = 0;
  std::uint64_t end_ns_ = 0;
  std::uint64_t outstanding_ = 0;
  std::uint64_t answered_ns_ = 0;  // when a completion was last taken
  std::uint64_t there_by_ns_ = UINT64_MAX;  // what is found now, for the predictor
  std::uint64_t transport_errors_ = 0;
  std::uint64_t silent_since_ns_ = 0;  // only commands are waited for, and none has been answered; 0: not so
  std::uint64_t completed_ = 0;
  std::uint64_t trace_ios_ = 0;  // of all queues
  std::vector<std::uint64_t> given_up_ns_;  // when requests were wanted that had no slot by the end
  std::uint64_t latency_sum_ns_ = 0;
  std::uint64_t verify_every_ = 0;  // verified share of reads, in units of 2^-32
  std::uint64_t verify_acc_ = 0;
  bool plain_closed_loop_ = false;
  bool resubmits_ = false;  // a completion's slot is used again at once, for a request of the pattern
  JobStats stats_;
  GapMonitor gaps_;

  std::atomic<bool> cancel_{false};
  std::atomic<std::uint64_t> progress_ios_{0}, progress_latency_{0}, progress_errors_{0}, progress_in_flight_{0};
  std::atomic<std::uint64_t> progress_now_ns_{0}, begun_ns_{0};
  std::atomic<bool> progress_measuring_{false};
};

}  // namespace flashmob::load
