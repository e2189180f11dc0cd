#include "engine/host_units.h"

#include <algorithm>

#include "base/check.h"

namespace flashmob::engine {

// Parks a unit for the time of a queue operation.
class HostUnits::Pause {
 public:
  explicit Pause(ServiceUnit& unit) : unit_(unit) { unit_.park(); }
  ~Pause() { unit_.unpark(); }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  ServiceUnit& unit_;
};

HostUnits::AllPaused::AllPaused(HostUnits& units) : units_(units) {
  for (auto& unit : units_.units_) unit->park();
}

HostUnits::AllPaused::~AllPaused() {
  for (auto unit = units_.units_.rbegin(); unit != units_.units_.rend(); ++unit) (*unit)->unpark();
}

HostUnits::HostUnits(const DeviceConfig& config, timing::TimingModel& model, const Clock& clock,
                     std::atomic<std::uint32_t>& sleepers, SyncThread& syncs, FaultInjector& faults,
                     const CopyEngineFactory& copies, SlotLimits limits)
    : model_(model) {
  if (config.engine.units * std::max(1u, config.engine.workers) > 1)
    locks_ = std::make_unique<command_set::PieceLocks>();
  for (unsigned u = 0; u < config.engine.units; ++u) {
    units_.push_back(std::make_unique<ServiceUnit>(u, config, model_, clock, phase_, sleepers, copies, limits));
    ServiceUnit& unit = *units_.back();
    for (unsigned a = 0; a < unit.actors(); ++a) actors_.emplace_back(u, a);
    if (!clock.is_virtual()) unit.set_syncs(syncs);
    for (auto& worker : unit.workers())
      if (locks_) worker->set_locks(*locks_);
    unit.dispatcher().set_faults(faults);
  }
}

void HostUnits::attach(controller::Controller& controller, const InterruptSink& interrupt) {
  places_[&controller];
  for (auto& unit : units_) unit->attach(controller, &interrupt);
}

void HostUnits::detach(std::span<controller::Controller* const> controllers) {
  for (auto& unit : units_) unit->detach(controllers);
  for (const controller::Controller* const controller : controllers) places_.erase(controller);
}

nvme::Status HostUnits::request(controller::Controller& controller, const controller::QueueRequest& request,
                                bool& aborted) {
  using controller::QueueOp;
  using nvme::Status;
  const auto found = places_.find(&controller);
  FLASHMOB_CHECK(found != places_.end());
  Places& places = found->second;
  switch (request.op) {
    case QueueOp::create_cq: {
      // Queues go round the units, and within a unit round its workers; admin queues stay on the first.
      const unsigned index = request.cq.cqid == 0 ? 0 : request.cq.cqid - 1u;
      const unsigned units = static_cast<unsigned>(units_.size());
      const unsigned workers = static_cast<unsigned>(units_[0]->workers().size());
      const Place place{index % units, index / units % workers};
      const Pause pause(*units_[place.unit]);
      const Status status = units_[place.unit]->create_cq(controller, request.cq, place.worker);
      if (status == Status::success) places.cqs[request.cq.cqid] = place;
      return status;
    }
    case QueueOp::create_sq: {
      const auto cq = places.cqs.find(request.sq.cqid);
      if (cq == places.cqs.end()) return Status::completion_queue_invalid;
      const Place place = cq->second;
      const Pause pause(*units_[place.unit]);
      const Status status = units_[place.unit]->create_sq(controller, request.sq, place.worker);
      if (status == Status::success) places.sqs[request.sq.sqid] = place;
      return status;
    }
    case QueueOp::delete_sq: {
      const auto sq = places.sqs.find(request.sq.sqid);
      if (sq == places.sqs.end()) return Status::invalid_queue_identifier;
      const Pause pause(*units_[sq->second.unit]);
      units_[sq->second.unit]->delete_sq(controller, request.sq.sqid);
      places.sqs.erase(sq);
      return Status::success;
    }
    case QueueOp::delete_cq: {
      const auto cq = places.cqs.find(request.cq.cqid);
      if (cq == places.cqs.end()) return Status::invalid_queue_identifier;
      const Pause pause(*units_[cq->second.unit]);
      units_[cq->second.unit]->delete_cq(controller, request.cq.cqid, cq->second.worker);
      places.cqs.erase(cq);
      return Status::success;
    }
    case QueueOp::delete_all:
      for (auto& unit : units_) {
        controller::Controller* const held = &controller;
        const Pause pause(*unit);
        unit->delete_all({&held, 1});
      }
      places = {};
      reset_model_if_unused();
      return Status::success;
    case QueueOp::abort_command: {
      const auto sq = places.sqs.find(request.sq.sqid);
      if (sq == places.sqs.end()) return Status::success;
      const Pause pause(*units_[sq->second.unit]);
      aborted = units_[sq->second.unit]->abort(controller, request.sq.sqid, request.cid);
      return Status::success;
    }
  }
  return Status::internal_error;
}

// Work that was dropped with the last host's queues would keep the modelled instances busy for the next one.
void HostUnits::reset_model_if_unused() {
  for (const auto& [controller, places] : places_)
    if (std::any_of(places.sqs.begin(), places.sqs.end(), [](const auto& sq) { return sq.first != 0; })) return;
  const AllPaused pause(*this);
  model_.reset();
}

void HostUnits::features_changed(controller::Controller&) {
  for (auto& unit : units_) {
    const Pause pause(*unit);
    unit->dispatcher().sort_queues();
  }
}

bool HostUnits::knows(const media::Media& media) {
  return std::ranges::any_of(units_, [&](auto& unit) {
    const Pause pause(*unit);
    return unit->knows(media);
  });
}

bool HostUnits::parked_know(const media::Media& media) {
  return std::ranges::any_of(units_, [&](auto& unit) { return unit->knows(media); });
}

void HostUnits::end_commands(const command_set::Namespace& ns, nvme::Status status, controller::CommandsToEnd which) {
  units_[0]->settle_own();
  for (auto& unit : units_) {
    const Pause pause(*unit);
    for (auto& worker : unit->workers()) worker->end_commands(ns, status, which);
  }
}

void HostUnits::set_shadow_doorbells(controller::Controller& controller, std::uint64_t shadow_iova,
                                     std::uint64_t event_index_iova) {
  for (auto& unit : units_) {
    const Pause pause(*unit);
    unit->set_shadow_doorbells(controller, shadow_iova, event_index_iova);
  }
}

void HostUnits::note_quiet(std::uint64_t now_ns) {
  for (auto& unit : units_) unit->note_quiet(now_ns);
}

// --- Statistics ---

void HostUnits::set_phase(Phase phase) {
  for (auto& unit : units_) unit->close_gaps(phase_.load());
  phase_.store(phase);
}

void HostUnits::add_stats(Phase phase, FidelityStats& sum) {
  for (auto& unit : units_)
    for (auto& worker : unit->workers()) sum.join(worker->account().stats(phase));
}

void HostUnits::add_copies(CopyReport& sum) {
  for (const auto& unit : units_) {
    for (const auto& worker : unit->workers()) {
      const CopyEngine& one = worker->mover().copy_engine();
      if (const std::string name = one.describe(); sum.engine.find(name) == std::string::npos)
        sum.engine += (sum.engine.empty() ? "" : ", ") + name;
      sum.counters.add(one.counters());
    }
  }
}

void HostUnits::add_counters(const controller::Controller& controller, controller::IoCounters& sum) {
  for (const auto& unit : units_) {
    sum.add(unit->counters(controller));
  }
}

void HostUnits::add_live(LiveFigures& sum) {
  for (const auto& unit : units_) {
    for (const auto& worker : unit->workers()) {
      const LiveFigures one = worker->account().live();
      sum.completions += one.completions;
      sum.lateness_sum_ns += one.lateness_sum_ns;
    }
  }
}

std::uint64_t HostUnits::outstanding() {
  std::uint64_t sum = 0;
  for (const auto& unit : units_)
    for (auto& worker : unit->workers()) sum += worker->slab().in_use();
  return sum;
}

Unanswered HostUnits::unanswered(std::uint64_t now_ns, FidelityStats& late) {
  Unanswered sum;
  for (auto& unit : units_) {
    for (auto& worker : unit->workers()) worker->completer().add_unanswered(now_ns, sum, late);
    for (const auto& sq : unit->dispatcher().queues()) {
      if (sq->lost == 0) continue;
      sum.lost += sq->lost;
      sum.oldest_ns = std::max(sum.oldest_ns, now_ns - std::min(now_ns, sq->lost_since_ns));
    }
  }
  return sum;
}

}  // namespace flashmob::engine
