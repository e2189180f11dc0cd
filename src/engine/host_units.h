// The host's service units as a server of queues: hands each queue to a unit and a worker, and parks the unit for the
// time of a queue operation. The first unit has the admin queues.
//
// Thread rule: as IoServer has it; what needs the units parked says so.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/io_server.h"
#include "engine/service_unit.h"
#include "flashmob/config.h"
#include "timing/model.h"

namespace flashmob::engine {

class HostUnits final : public IoServer {
 public:
  // All of these outlive it.
  HostUnits(const DeviceConfig& config, timing::TimingModel& model, const Clock& clock,
            std::atomic<std::uint32_t>& sleepers, SyncThread& syncs, FaultInjector& faults,
            const CopyEngineFactory& copies, SlotLimits limits);

  // --- IoServer ---
  void attach(controller::Controller& controller, const InterruptSink& interrupt) override;
  void detach(std::span<controller::Controller* const> controllers) override;
  nvme::Status request(controller::Controller& controller, const controller::QueueRequest& request,
                       bool& aborted) override;
  void features_changed(controller::Controller& controller) override;
  bool knows(const media::Media& media) override;
  // The same, while all of them are paused.
  bool parked_know(const media::Media& media);
  void end_commands(const command_set::Namespace& ns, nvme::Status status, controller::CommandsToEnd which) override;
  void note_quiet(std::uint64_t now_ns) override;
  void set_phase(Phase phase) override;
  void add_stats(Phase phase, FidelityStats& sum) override;
  void add_copies(CopyReport& sum) override;
  void add_counters(const controller::Controller& controller, controller::IoCounters& sum) override;
  void add_live(LiveFigures& sum) override;
  std::uint64_t outstanding() override;

  // --- What only they do ---
  ServiceUnit& first() { return *units_[0]; }
  std::vector<std::unique_ptr<ServiceUnit>>& all() { return units_; }
  // Parks them all, in order; who does so from outside the engine parks the first one first.
  class AllPaused {
   public:
    explicit AllPaused(HostUnits& units);
    ~AllPaused();
    AllPaused(const AllPaused&) = delete;
    AllPaused& operator=(const AllPaused&) = delete;

   private:
    HostUnits& units_;
  };
  void set_shadow_doorbells(controller::Controller& controller, std::uint64_t shadow_iova,
                            std::uint64_t event_index_iova);
  // As of now_ns; while parked.
  Unanswered unanswered(std::uint64_t now_ns, FidelityStats& late);
  unsigned phase() const { return phase_.load(); }

  // Virtual time: each thread that there would be.
  unsigned actors() const { return static_cast<unsigned>(actors_.size()); }
  std::pair<ServiceUnit&, unsigned> actor(unsigned index) const {
    return {*units_[actors_[index].first], actors_[index].second};
  }

 private:
  struct Place {
    unsigned unit;
    unsigned worker;
  };
  struct Places {
    std::map<std::uint16_t, Place> cqs;
    std::map<std::uint16_t, Place> sqs;
  };
  class Pause;

  void reset_model_if_unused();

  timing::TimingModel& model_;
  std::atomic<unsigned> phase_{kWarmUp};
  std::unique_ptr<command_set::PieceLocks> locks_;  // where more than one thread copies
  std::vector<std::unique_ptr<ServiceUnit>> units_;
  std::map<const controller::Controller*, Places> places_;
  std::vector<std::pair<unsigned, unsigned>> actors_;  // (unit, actor within it)
};

}  // namespace flashmob::engine
