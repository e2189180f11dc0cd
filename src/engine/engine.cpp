#include "engine/engine.h"

#include <algorithm>

namespace flashmob::engine {

// Parks a unit for the time of a control operation.
class Engine::UnitPause {
 public:
  explicit UnitPause(ServiceUnit& unit) : unit_(unit) { unit_.park(); }
  ~UnitPause() { unit_.unpark(); }
  UnitPause(const UnitPause&) = delete;
  UnitPause& operator=(const UnitPause&) = delete;

 private:
  ServiceUnit& unit_;
};

// Parks every unit, the first one first, for a control operation from outside the engine.
class Engine::EnginePause {
 public:
  explicit EnginePause(Engine& engine) : engine_(engine), lock_(engine.control_mutex_) {
    for (auto& unit : engine_.units_) unit->park();
  }
  ~EnginePause() {
    for (auto unit = engine_.units_.rbegin(); unit != engine_.units_.rend(); ++unit) (*unit)->unpark();
  }
  EnginePause(const EnginePause&) = delete;
  EnginePause& operator=(const EnginePause&) = delete;

 private:
  Engine& engine_;
  std::lock_guard<std::mutex> lock_;
};

namespace {

timing::DeviceShape configured_shape(const DeviceConfig& config) {
  timing::DeviceShape shape{config.subsystem.spare_capacity_bytes, config.seed};
  for (const NamespaceConfig& ns : config.subsystem.namespaces) shape.capacity_bytes += ns.size_bytes;
  return shape;
}

}  // namespace

Engine::Engine(const DeviceConfig& config, const Clock& clock, const CopyEngineFactory& copies, SlotLimits limits,
               timing::DeviceShape shape)
    : config_(config), clock_(clock), phase_began_ns_(clock.now_ns()) {
  config_.engine.validate();
  io_server_ = make_io_server(config_, clock);
  if (io_server_) {
    // What is left for units is the admin queues.
    config_.engine.units = 1;
    config_.engine.workers = 0;
  }
  const unsigned threads = config_.engine.units * (config_.engine.workers + 1);
  // One reader of guest memory is the controller's own.
  constexpr unsigned kMaxThreads = memory::AddressSpace::kMaxReaders - 1;
  if (threads > kMaxThreads)
    throw ConfigError("engine.units * (engine.workers + 1) is " + std::to_string(threads) + "; keep it within " +
                      std::to_string(kMaxThreads));
  if (shape.capacity_bytes == 0) shape = configured_shape(config_);
  model_ = timing::make_model(config_.timing, threads > 1, shape);
  const CopyEngineFactory configured = [this] { return make_copy_engine(config_.engine.copy); };
  for (unsigned u = 0; u < config_.engine.units; ++u) {
    units_.push_back(std::make_unique<ServiceUnit>(u, config_, *model_, clock_, phase_, sleepers_,
                                                   copies ? copies : configured, limits));
    for (unsigned a = 0; a < units_[u]->actors(); ++a) actors_.emplace_back(u, a);
  }
  if (!clock_.is_virtual())
    for (auto& unit : units_) unit->set_syncs(syncs_);
  if (config_.engine.units * std::max(1u, config_.engine.workers) > 1) {
    locks_ = std::make_unique<command_set::PieceLocks>();
    for (auto& unit : units_)
      for (auto& worker : unit->workers()) worker->set_locks(*locks_);
  }
  faults_.set(config_.faults);
  for (auto& unit : units_) unit->dispatcher().set_faults(faults_);
  units_[0]->set_side_work([this] { return admin_round(); }, [this] { return admin_deadline_ns(); });
}

Engine::~Engine() { stop(); }

void Engine::attach(controller::Controller& controller, InterruptSink interrupt, Doorbells doorbells) {
  auto added = std::make_unique<Attached>();
  added->doorbells = doorbells;
  added->controller = &controller;
  added->interrupt = std::move(interrupt);
  controller.set_wake([this] { wake(); });
  const EnginePause pause(*this);
  try {
    if (io_server_) io_server_->attach(controller, added->interrupt);
    for (auto& unit : units_) unit->attach(controller, &added->interrupt);
    attached_.push_back(std::move(added));
  } catch (...) {
    forget(controller);
    throw;
  }
  choose_idle_spin();
}

void Engine::detach(controller::Controller& controller) {
  const EnginePause pause(*this);
  forget(controller);
}

// With the engine paused. Of a controller that is not attached, or not in whole, what there is.
void Engine::forget(controller::Controller& controller) {
  if (io_server_) io_server_->detach(controller);
  for (auto& unit : units_) unit->detach(controller);
  std::erase_if(attached_, [&](const auto& held) { return held->controller == &controller; });
  forget_disk_work(controller);
  for (Beside& one : beside_)
    if (one.controller == &controller) one.controller = nullptr;
  choose_idle_spin();
}

void Engine::choose_idle_spin() {
  if (!shares_cores_) return;
  const bool all_announced = std::all_of(attached_.begin(), attached_.end(),
                                         [](const auto& held) { return held->doorbells == Doorbells::announced; });
  for (auto& unit : units_) unit->set_idle_spin(all_announced ? 0 : config_.engine.idle_spin_ns);
}

void Engine::start() {
  FLASHMOB_CHECK(!clock_.is_virtual());
  if (running_) return;
  // Not by a unit's thread, whose core it would have to share.
  syncs_.start();
  running_ = true;
  std::size_t next_core = 0;
  for (auto& unit : units_) unit->start(next_core);
}

void Engine::stop() {
  if (!running_) return;
  running_ = false;
  // The first unit parks others for queue operations, so it goes first.
  for (auto& unit : units_) unit->stop();
  syncs_.stop();
}

void Engine::wake() {
  for (auto& unit : units_) unit->wake();
}

unsigned Engine::actors() const { return static_cast<unsigned>(actors_.size()); }

bool Engine::poll_actor(unsigned actor) { return units_[actors_[actor].first]->poll_actor(actors_[actor].second); }

std::uint64_t Engine::actor_deadline_ns(unsigned actor) const {
  return units_[actors_[actor].first]->actor_deadline_ns(actors_[actor].second);
}

void Engine::taken(unsigned actor, std::uint64_t from_ns, std::uint64_t to_ns) {
  units_[actors_[actor].first]->time().gaps.take(from_ns, to_ns);
}

void Engine::note_quiet(std::uint64_t now_ns) {
  for (auto& unit : units_) unit->note_quiet(now_ns);
  if (io_server_) io_server_->note_quiet(now_ns);
}

void Engine::set_phase(Phase phase) {
  const EnginePause pause(*this);
  for (auto& unit : units_) unit->close_gaps(phase_.load());
  phase_ns_[phase_.load()] += clock_.now_ns() - phase_began_ns_;
  phase_.store(phase);
  flash_at_[phase] = model_->flash_counters();
  if (io_server_) io_server_->set_phase(phase);
  phase_began_ns_ = clock_.now_ns();
}

void Engine::set_path_ns(std::uint64_t path_ns) {
  const EnginePause pause(*this);
  model_->set_path_ns(path_ns);
}

std::unique_ptr<timing::TimingModel> Engine::clone_model() {
  const EnginePause pause(*this);
  return model_->clone();
}

std::optional<timing::FlashCounters> Engine::flash_counters(Phase phase) const {
  const auto& begun = flash_at_[phase];
  const auto& over = flash_at_[phase + 1];
  if (!begun || !over) return std::nullopt;
  return over->since(*begun);
}

FidelityStats Engine::stats(Phase phase) {
  FidelityStats sum;
  for (auto& unit : units_)
    for (auto& worker : unit->workers()) sum.join(worker->account().stats(phase));
  if (io_server_) io_server_->add_stats(phase, sum);
  sum.span_ns = phase_ns_[phase] + (phase == phase_.load() ? clock_.now_ns() - phase_began_ns_ : 0);
  return sum;
}

std::uint64_t Engine::outstanding() const {
  std::uint64_t sum = 0;
  for (const auto& unit : units_)
    for (auto& worker : unit->workers()) sum += worker->slab().in_use();
  if (io_server_) sum += io_server_->outstanding();
  return sum;
}

Unanswered Engine::unanswered(std::uint64_t now_ns, FidelityStats& late) {
  const EnginePause pause(*this);
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

std::vector<std::pair<std::string, std::uint64_t>> Engine::cpu_times() const {
  std::vector<std::pair<std::string, std::uint64_t>> all;
  for (const auto& unit : units_)
    for (auto& entry : unit->cpu_times()) all.push_back(std::move(entry));
  return all;
}

LiveFigures Engine::live() const {
  LiveFigures sum;
  if (io_server_) sum = io_server_->live();
  for (const auto& unit : units_) {
    const LiveFigures one = unit->live();
    sum.completions += one.completions;
    sum.lateness_sum_ns += one.lateness_sum_ns;
  }
  return sum;
}

CopyReport Engine::copies() {
  if (io_server_) return {};
  const EnginePause pause(*this);
  CopyReport report;
  for (const auto& unit : units_) {
    for (const auto& worker : unit->workers()) {
      const CopyEngine& one = worker->mover().copy_engine();
      if (const std::string name = one.describe(); report.engine.find(name) == std::string::npos)
        report.engine += (report.engine.empty() ? "" : ", ") + name;
      report.counters.add(one.counters());
    }
  }
  return report;
}

Engine::Attached& Engine::attached(const controller::Controller& controller) {
  for (auto& held : attached_)
    if (held->controller == &controller) return *held;
  FLASHMOB_CHECK(false && "controller is not attached");
  return *attached_[0];
}

void Engine::request(controller::Controller& controller, const controller::QueueRequest& request) {
  Attached& port = attached(controller);
  bool aborted = false;
  const nvme::Status status = answer(port, request, aborted);
  controller.on_queue_reply({request.ticket, status, aborted});
}

nvme::Status Engine::answer(Attached& port, const controller::QueueRequest& request, bool& aborted) {
  using controller::QueueOp;
  if (!io_server_) return execute(port, request, aborted);
  const bool is_of_cq = request.op == QueueOp::create_cq || request.op == QueueOp::delete_cq;
  const bool everything = request.op == QueueOp::delete_all;
  if (!everything && (is_of_cq ? request.cq.cqid : request.sq.sqid) == 0) return execute(port, request, aborted);
  if (everything) execute(port, request, aborted);
  return io_server_->request(*port.controller, request, aborted);
}

nvme::Status Engine::execute(Attached& port, const controller::QueueRequest& request, bool& aborted) {
  using controller::QueueOp;
  controller::Controller& controller = *port.controller;
  switch (request.op) {
    case QueueOp::create_cq: {
      // Queues go round the units, and within a unit round its workers; admin queues stay on the first.
      const unsigned index = request.cq.cqid == 0 ? 0 : request.cq.cqid - 1u;
      const unsigned units = static_cast<unsigned>(units_.size());
      const unsigned workers = static_cast<unsigned>(units_[0]->workers().size());
      const Place place{index % units, index / units % workers};
      const UnitPause pause(*units_[place.unit]);
      const nvme::Status status = units_[place.unit]->create_cq(controller, request.cq, place.worker);
      if (status == nvme::Status::success) port.cqs[request.cq.cqid] = place;
      return status;
    }
    case QueueOp::create_sq: {
      const auto cq = port.cqs.find(request.sq.cqid);
      if (cq == port.cqs.end()) return nvme::Status::completion_queue_invalid;
      const Place place = cq->second;
      const UnitPause pause(*units_[place.unit]);
      const nvme::Status status = units_[place.unit]->create_sq(controller, request.sq, place.worker);
      if (status == nvme::Status::success) port.sqs[request.sq.sqid] = place;
      return status;
    }
    case QueueOp::delete_sq: {
      const auto sq = port.sqs.find(request.sq.sqid);
      if (sq == port.sqs.end()) return nvme::Status::invalid_queue_identifier;
      const UnitPause pause(*units_[sq->second.unit]);
      units_[sq->second.unit]->delete_sq(controller, request.sq.sqid);
      port.sqs.erase(sq);
      return nvme::Status::success;
    }
    case QueueOp::delete_cq: {
      const auto cq = port.cqs.find(request.cq.cqid);
      if (cq == port.cqs.end()) return nvme::Status::invalid_queue_identifier;
      const UnitPause pause(*units_[cq->second.unit]);
      units_[cq->second.unit]->delete_cq(controller, request.cq.cqid, cq->second.worker);
      port.cqs.erase(cq);
      return nvme::Status::success;
    }
    case QueueOp::delete_all:
      for (auto& unit : units_) {
        const UnitPause pause(*unit);
        unit->delete_all(controller);
      }
      port.cqs.clear();
      port.sqs.clear();
      reset_model_if_unused();
      return nvme::Status::success;
    case QueueOp::abort_command: {
      const auto sq = port.sqs.find(request.sq.sqid);
      if (sq == port.sqs.end()) return nvme::Status::success;
      const UnitPause pause(*units_[sq->second.unit]);
      aborted = units_[sq->second.unit]->abort(controller, request.sq.sqid, request.cid);
      return nvme::Status::success;
    }
  }
  return nvme::Status::internal_error;
}

// Work that was dropped with the last host's queues would keep the modelled instances busy for the next one.
void Engine::reset_model_if_unused() {
  for (const auto& held : attached_)
    if (std::any_of(held->sqs.begin(), held->sqs.end(), [](const auto& sq) { return sq.first != 0; })) return;
  std::vector<std::unique_ptr<UnitPause>> pauses;
  for (auto& unit : units_) pauses.push_back(std::make_unique<UnitPause>(*unit));
  model_->reset();
}

void Engine::complete_admin(controller::Controller& controller, std::uint16_t cid, std::uint16_t status_field,
                            std::uint32_t dw0) {
  Dispatcher& dispatcher = units_[0]->dispatcher();
  if (Sq* const sq = dispatcher.find_sq(controller, 0)) dispatcher.complete_admin(*sq, cid, status_field, dw0);
}

void Engine::features_changed(controller::Controller& controller) {
  if (io_server_) io_server_->features_changed(controller);
  for (auto& unit : units_) {
    const UnitPause pause(*unit);
    unit->dispatcher().sort_queues();
  }
}

controller::IoCounters Engine::counters(const controller::Controller& controller) const {
  controller::IoCounters sum;
  for (const auto& unit : units_) {
    const controller::IoCounters one = unit->counters(controller);
    sum.read_commands += one.read_commands;
    sum.write_commands += one.write_commands;
    sum.read_bytes += one.read_bytes;
    sum.written_bytes += one.written_bytes;
    sum.busy_ns = std::max(sum.busy_ns, one.busy_ns);
  }
  if (io_server_) io_server_->add_counters(controller, sum);
  return sum;
}

void Engine::namespaces_changed(controller::Controller& controller) {
  if (io_server_) io_server_->namespaces_changed(controller);
}

bool Engine::knows(const media::Media& media) {
  if (io_server_) return true;  // it has made the media its device's
  for (const Beside& one : beside_)
    if (std::find(one.work.media.begin(), one.work.media.end(), &media) != one.work.media.end()) return true;
  for (auto& unit : units_) {
    const UnitPause pause(*unit);
    if (unit->knows(media)) return true;
  }
  return false;
}

void Engine::end_commands(const command_set::Namespace& ns, nvme::Status status, controller::CommandsToEnd which) {
  units_[0]->settle_own();
  for (auto& unit : units_) {
    const UnitPause pause(*unit);
    for (auto& worker : unit->workers()) worker->end_commands(ns, status, which);
  }
}

nvme::Status Engine::set_shadow_doorbells(controller::Controller& controller, std::uint64_t shadow_iova,
                                          std::uint64_t event_index_iova) {
  for (auto& unit : units_) {
    const UnitPause pause(*unit);
    unit->set_shadow_doorbells(controller, shadow_iova, event_index_iova);
  }
  return nvme::Status::success;
}

}  // namespace flashmob::engine
