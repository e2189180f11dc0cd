// A service unit: one dispatcher and its workers, and the threads that run them. Owns a share of the queues; shares
// nothing with other units but the timing model.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "controller/subsystem.h"
#include "engine/dispatcher.h"
#include "engine/engine_thread.h"
#include "engine/port.h"
#include "engine/slab.h"
#include "engine/worker.h"

namespace flashmob::engine {

// What workers are made with.
struct SlotLimits {
  std::uint32_t slots = Slab::kCapacity;  // of each worker
  // That have slots of their own among these: as many as there may ever be.
  std::uint32_t controllers = controller::Subsystem::kMaxControllers;
};

class ServiceUnit {
 public:
  ServiceUnit(unsigned index, const DeviceConfig& config, timing::TimingModel& model, const Clock& clock,
              const std::atomic<unsigned>& phase, std::atomic<std::uint32_t>& sleepers, const CopyEngineFactory& copies,
              SlotLimits limits = {});

  // Before start(). `syncs` outlives the unit's use.
  void set_syncs(SyncThread& syncs);
  // Work that the dispatcher's thread does besides I/O, once per round: the first unit runs the admin side.
  void set_side_work(std::function<bool()> round, std::function<std::uint64_t()> deadline_ns);

  // Real time: threads. `next_core` is taken from and advanced in EngineConfig::cores.
  void start(std::size_t& next_core);
  void stop();
  void wake();
  // Any thread: EngineConfig::idle_spin_ns from now on.
  void set_idle_spin(std::uint64_t spin_ns);
  // Virtual time: one round of the dispatcher (index 0) or of worker index - 1.
  unsigned actors() const { return threaded_ ? 1 + static_cast<unsigned>(workers_.size()) : 1; }
  bool poll_actor(unsigned index);
  std::uint64_t actor_deadline_ns(unsigned index) const;

  // Parks every thread of the unit but the caller's own, with no copies in flight and no guards on guest memory open.
  void park();
  void unpark();

  // --- While parked, or on the dispatcher's thread ---
  void attach(controller::Controller& controller, const InterruptSink* sink);
  void detach(std::span<controller::Controller* const> controllers);
  nvme::Status create_cq(controller::Controller& controller, const controller::CqSpec& spec, unsigned worker);
  nvme::Status create_sq(controller::Controller& controller, const controller::SqSpec& spec, unsigned worker);
  void delete_sq(controller::Controller& controller, std::uint16_t sqid);
  void delete_cq(controller::Controller& controller, std::uint16_t cqid, unsigned worker);
  // All of them at once: each look through what is under way is for all of them.
  void delete_all(std::span<controller::Controller* const> controllers);
  bool abort(controller::Controller& controller, std::uint16_t sqid, std::uint16_t cid);
  void set_shadow_doorbells(controller::Controller& controller, std::uint64_t shadow_iova, std::uint64_t event_iova);
  // Whether a command under way may still touch this media.
  bool knows(const media::Media& media);
  Dispatcher& dispatcher() { return *dispatcher_; }
  std::vector<std::unique_ptr<Worker>>& workers() { return workers_; }
  const controller::IoCounters counters(const controller::Controller& controller) const;

  // On the dispatcher's thread, before anything that may wait for a guard on guest memory to be left: ends the copies
  // that its own worker has in flight.
  void settle_own();

  ThreadClock& time() { return time_; }
  // Virtual time jumps to now_ns, after a step in which nobody had work.
  void note_quiet(std::uint64_t now_ns);
  // Moves the gap counters collected so far into the statistics of `phase` and restarts them. While parked.
  void close_gaps(unsigned phase);
  // {thread name, CPU ns} of each thread.
  std::vector<std::pair<std::string, std::uint64_t>> cpu_times() const;

 private:
  // A controller as this unit's threads see it: the dispatcher's view and one per worker thread.
  struct Port {
    std::unique_ptr<PortContext> dispatcher;
    std::vector<std::unique_ptr<PortContext>> workers;  // empty when the dispatcher's thread is the worker
    PortContext& worker(unsigned index) { return workers.empty() ? *dispatcher : *workers[index]; }
  };

  bool dispatcher_round();
  void account_until(std::uint64_t now_ns, bool worked);
  bool worker_round(unsigned index);
  void enter(PortContext& port, Dispatcher* dispatcher, Worker* worker);
  void leave(unsigned worker);
  void settle(unsigned worker);
  Port* find_port(const controller::Controller& controller);
  Port& port(const controller::Controller& controller);
  void reserve_slots();
  void note_unfetched(Sq& sq);

  unsigned index_;
  const EngineConfig& config_;
  const SlotLimits limits_;
  bool threaded_;
  ThreadClock time_;
  std::vector<std::unique_ptr<ThreadClock>> worker_times_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::vector<std::unique_ptr<Port>> ports_;
  // Held to change ports_, the unit being parked, and to look at it from other threads than the unit's; never while
  // waiting for anything.
  mutable std::mutex ports_mutex_;
  std::function<bool()> side_work_;
  std::function<std::uint64_t()> side_deadline_ns_;
  std::unique_ptr<EngineThread> dispatcher_thread_;
  std::vector<std::unique_ptr<EngineThread>> worker_threads_;
  std::atomic<std::uint64_t> busy_ns_{0};
  std::uint64_t last_round_ns_ = 0;
};

}  // namespace flashmob::engine
