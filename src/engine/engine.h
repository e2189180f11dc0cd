// The engine of one emulated SSD: the servers of its queues, the timing model they share, and the controllers attached
// to them. What is asked of a queue goes to the server that has it, all else to each of them.
//
// Real time: start() runs the units on threads. Virtual time: a VirtualWorld calls poll_actor() of every actor in turn.
// attach(), detach() and set_phase() may be called from any thread but the engine's own; queue operations arrive from
// controllers on the admin thread (the first unit's dispatcher), which parks the unit that owns the queue for a few
// microseconds. Whoever parks other units from outside parks the first unit before them, so there is one parker.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "command_set/engine_limits.h"
#include "controller/controller.h"
#include "controller/queue_host.h"
#include "engine/door_delays.h"
#include "engine/fault_injector.h"
#include "engine/host_units.h"
#include "engine/io_server.h"
#include "flashmob/config.h"
#include "timing/model.h"
#include "timing/registry.h"

namespace flashmob::engine {

// How a controller's host rings: by stores to memory alone, which a unit has to look for, or through a thread of this
// process that wakes the engine after it has stored.
enum class Doorbells { stored, announced };

class Engine final : public controller::QueueHost {
 public:
  // `clock` outlives the engine. `copies` makes each worker's copy engine; left out, config.engine.copy says what it
  // is. `shape` is the device's that the engine serves; left out, that of the configured namespaces. Throws
  // ConfigError.
  Engine(const DeviceConfig& config, const Clock& clock, const CopyEngineFactory& copies = nullptr,
         SlotLimits limits = {}, timing::DeviceShape shape = {});
  ~Engine() override;

  // Makes a controller's queues served. `interrupt` is called on engine threads, one call per interrupt. The
  // controller must have been constructed with this engine as its QueueHost, and outlive detach(). Where it throws,
  // nothing of the controller's is known to the engine.
  void attach(controller::Controller& controller, InterruptSink interrupt, Doorbells doorbells = Doorbells::stored);
  void detach(controller::Controller& controller);
  // All of them while the engine's threads stand once: where cores are busy, having these stand takes longer than what
  // is done meanwhile. One that is not attached is left alone.
  void detach(std::span<controller::Controller* const> controllers);
  // Whether a command under way, of a controller that has left, too, may still touch media. Of the host's units.
  bool still_knows(const media::Media& media);
  // How often the engine's threads have stood for somebody else than themselves.
  std::uint64_t pauses() const { return pauses_.load(std::memory_order_relaxed); }

  // --- Real time ---
  void start();
  void stop();
  // For doors: non-zero while a thread sleeps; a doorbell store must then be followed by wake().
  const std::atomic<std::uint32_t>& sleeping() const { return sleepers_; }
  void wake();

  // Before any attach(): units share their cores with the threads that announce doorbells. While every controller's
  // are announced, units without work then sleep at once, because one that spins keeps work from coming
  // (docs/decisions/0005).
  void share_cores() { shares_cores_ = true; }

  // --- Virtual time ---
  // A round moves all the data that there is to move: of a machine whose copies take no time. Otherwise so many slices,
  // as in real time, and a command that waits for the data of others waits for that many rounds.
  void move_at_once();
  unsigned actors() const { return units_->actors(); }
  bool is_dispatcher(unsigned actor) const { return units_->actor(actor).second == 0; }
  bool poll_actor(unsigned actor);
  std::uint64_t actor_deadline_ns(unsigned actor) const;
  // The machine takes a dispatcher's core.
  void taken(unsigned actor, std::uint64_t from_ns, std::uint64_t to_ns);
  // Before the clock is moved to now_ns: since every actor was polled last, nobody has rung a doorbell, and nobody will
  // before then.
  void note_quiet(std::uint64_t now_ns);

  // --- Statistics ---
  void set_phase(Phase phase);
  // Sums over all units; of a phase that is over, or while stopped.
  FidelityStats stats(Phase phase);
  std::uint64_t outstanding() const;  // while stopped
  // As of now_ns, with the units parked: of what they serve.
  Unanswered unanswered(std::uint64_t now_ns, FidelityStats& late);
  std::vector<std::pair<std::string, std::uint64_t>> cpu_times() const;
  // Since the engine was made. Any thread, while it runs.
  LiveFigures live() const;
  // The workers' copy engines, each different one named once, and what they did since they were made. Empty where no
  // worker serves I/O.
  CopyReport copies();
  timing::TimingModel& model() { return *model_; }
  // TimingModel::clone(), with the units parked.
  std::unique_ptr<timing::TimingModel> clone_model();
  // What the medium has done in a phase that is over; nothing where the model has none.
  std::optional<timing::FlashCounters> flash_counters(Phase phase) const;
  // False: everything is done at once, and there are no times to be true to.
  bool is_timed() const { return timing::model_of(config_.timing).is_timed; }
  // TimingModel::set_path_ns(), with the units parked.
  void set_path_ns(std::uint64_t path_ns);
  FaultInjector& faults() { return faults_; }
  // Doors whose hosts' commands pass through a thread of theirs add the time in which it had work. Any thread.
  void add_door_work(std::uint64_t ns) { door_worked_ns_.fetch_add(ns, std::memory_order_relaxed); }
  std::uint64_t door_worked_ns() const { return door_worked_ns_.load(std::memory_order_relaxed); }
  DoorDelays& door_delays() { return door_delays_; }
  const Clock& clock() const { return clock_; }
  const DeviceConfig& config() const { return config_; }

  // --- QueueHost ---
  void request(controller::Controller& controller, const controller::QueueRequest& request) override;
  void complete_admin(controller::Controller& controller, std::uint16_t cid, std::uint16_t status_field,
                      std::uint32_t dw0) override;
  void run_disk_work(controller::Controller& controller, std::uint64_t ticket, controller::DiskWork work) override;
  void run_change(controller::DiskWork work, std::function<void(bool good)> then) override;
  void forget_disk_work(controller::Controller& controller) override;
  void features_changed(controller::Controller& controller) override;
  controller::IoCounters counters(const controller::Controller& controller) const override;
  nvme::Status set_shadow_doorbells(controller::Controller& controller, std::uint64_t shadow_iova,
                                    std::uint64_t event_index_iova) override;
  void namespaces_changed(controller::Controller& controller) override;
  bool knows(const media::Media& media) override;
  void units_deallocated(std::uint64_t first_unit, std::uint64_t units) override {
    model_->deallocate(first_unit, units, timing::kAllWrites);
  }
  void end_commands(const command_set::Namespace& ns, nvme::Status status, controller::CommandsToEnd which) override;
  bool basic_commands_only() const override { return limits_.basic_commands_only; }

 private:
  struct Attached {
    controller::Controller* controller;
    InterruptSink interrupt;
    Doorbells doorbells;
    std::uint64_t next_poll_ns = 0;
  };
  // What a controller, or the subsystem, has the sync thread do. Of each controller's, that has one at most.
  struct Beside {
    controller::Controller* controller;  // nullptr: it has gone, or this is the subsystem's
    std::uint64_t ticket;
    controller::DiskWork work;
    std::function<void(bool good)> then = nullptr;  // what follows, of the subsystem's
    bool submitted = false;
    bool good = false;
    std::atomic<bool> wanted = true;
    std::atomic<bool> done = false;
  };
  bool is_beside(const media::Media& media) const;
  void end_disk_work();
  bool submit_disk_work(Beside& one);
  void submit_next(const controller::Controller& controller);
  void forget(std::span<controller::Controller* const> controllers);
  void choose_idle_spin();
  class Pause;

  bool admin_round();
  std::uint64_t admin_deadline_ns() const;

  DeviceConfig config_;
  const command_set::EngineLimits limits_;
  const Clock& clock_;
  std::unique_ptr<timing::TimingModel> model_;
  FaultInjector faults_;
  std::array<std::uint64_t, kPhases> phase_ns_{};  // how long each has lasted until it was over last
  std::uint64_t phase_began_ns_;
  std::array<std::optional<timing::FlashCounters>, kPhases + 1> flash_at_;  // when each phase began; the last: never
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<std::uint64_t> door_worked_ns_{0};
  DoorDelays door_delays_{config_.timing.path_ns};
  std::unique_ptr<HostUnits> units_;
  std::list<Beside> beside_;  // the admin thread's, and whoever has parked it
  std::atomic<std::uint32_t> beside_done_{0};
  SyncThread syncs_;  // behind what it uses
  std::vector<std::unique_ptr<Attached>> attached_;
  std::size_t next_polled_ = 0;  // whose turn it is, where one round was too short for all
  std::mutex control_mutex_;  // one control thread at a time
  std::atomic<std::uint64_t> pauses_{0};
  bool running_ = false;
  bool shares_cores_ = false;
  std::unique_ptr<IoServer> other_;  // nullptr: the units serve I/O queues, too
  IoServer* io_ = nullptr;  // who serves them
  std::vector<IoServer*> servers_;
  std::vector<IoServer*> polled_;  // the one besides the units, if any
};

}  // namespace flashmob::engine
