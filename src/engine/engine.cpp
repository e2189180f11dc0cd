#include "engine/engine.h"

#include <algorithm>

#include "command_set/placement.h"

namespace flashmob::engine {

// Parks every unit for a control operation from outside the engine.
class Engine::Pause {
 public:
  explicit Pause(Engine& engine) : lock_(engine.control_mutex_), pause_(*engine.units_) {
    engine.pauses_.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  std::lock_guard<std::mutex> lock_;
  HostUnits::AllPaused pause_;
};

namespace {

timing::DeviceShape configured_shape(const DeviceConfig& config) {
  timing::DeviceShape shape{config.subsystem.spare_capacity_bytes, config.seed,
                            command_set::streams_of(config.subsystem.placement)};
  for (const NamespaceConfig& ns : config.subsystem.namespaces) shape.capacity_bytes += ns.size_bytes;
  return shape;
}

}  // namespace

Engine::Engine(const DeviceConfig& config, const Clock& clock, const CopyEngineFactory& copies, SlotLimits limits,
               timing::DeviceShape shape)
    : config_(config),
      limits_(command_set::engine_limits(config.engine.kind)),
      clock_(clock),
      phase_began_ns_(clock.now_ns()) {
  config_.engine.validate();
  other_ = make_io_server(config_, clock);
  if (other_) {
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
  faults_.set(config_.faults);
  const CopyEngineFactory configured = [this] { return make_copy_engine(config_.engine.copy); };
  units_ = std::make_unique<HostUnits>(config_, *model_, clock_, sleepers_, syncs_, faults_,
                                       copies ? copies : configured, limits);
  units_->first().set_side_work([this] { return admin_round(); }, [this] { return admin_deadline_ns(); });
  if (other_) polled_.push_back(other_.get());
  servers_ = polled_;
  servers_.push_back(units_.get());
  io_ = servers_.front();
}

Engine::~Engine() { stop(); }

void Engine::attach(controller::Controller& controller, InterruptSink interrupt, Doorbells doorbells) {
  auto added = std::make_unique<Attached>();
  added->doorbells = doorbells;
  added->controller = &controller;
  added->interrupt = std::move(interrupt);
  controller.set_wake([this] { wake(); });
  const Pause pause(*this);
  if (command_set::Placement* const placement = controller.subsystem().placement()) placement->use(model_->placement());
  try {
    for (IoServer* const server : servers_) server->attach(controller, added->interrupt);
    attached_.push_back(std::move(added));
  } catch (...) {
    controller::Controller* const half_attached = &controller;
    forget({&half_attached, 1});
    throw;
  }
  choose_idle_spin();
}

void Engine::detach(controller::Controller& controller) {
  controller::Controller* const leaving = &controller;
  detach({&leaving, 1});
}

void Engine::detach(std::span<controller::Controller* const> controllers) {
  if (controllers.empty()) return;
  const Pause pause(*this);
  forget(controllers);
}

// With the engine paused. Of a controller that is not attached, or not in whole, what there is.
void Engine::forget(std::span<controller::Controller* const> controllers) {
  for (controller::Controller* const controller : controllers) controller->keep_counters();
  for (IoServer* const server : servers_) server->detach(controllers);
  const auto leaves = [&](const controller::Controller* one) {
    return std::ranges::find(controllers, one) != controllers.end();
  };
  std::erase_if(attached_, [&](const auto& held) { return leaves(held->controller); });
  for (controller::Controller* const controller : controllers) forget_disk_work(*controller);
  for (Beside& one : beside_)
    if (leaves(one.controller)) one.controller = nullptr;
  choose_idle_spin();
}

void Engine::choose_idle_spin() {
  if (!shares_cores_) return;
  const bool all_announced = std::all_of(attached_.begin(), attached_.end(),
                                         [](const auto& held) { return held->doorbells == Doorbells::announced; });
  for (auto& unit : units_->all()) unit->set_idle_spin(all_announced ? 0 : config_.engine.idle_spin_ns);
}

void Engine::start() {
  FLASHMOB_CHECK(!clock_.is_virtual());
  if (running_) return;
  // Not by a unit's thread, whose core it would have to share.
  syncs_.start();
  running_ = true;
  std::size_t next_core = 0;
  for (auto& unit : units_->all()) unit->start(next_core);
}

void Engine::stop() {
  if (!running_) return;
  running_ = false;
  // The first unit parks others for queue operations, so it goes first.
  for (auto& unit : units_->all()) unit->stop();
  syncs_.stop();
}

void Engine::wake() {
  for (auto& unit : units_->all()) unit->wake();
}

bool Engine::poll_actor(unsigned actor) {
  const auto [unit, index] = units_->actor(actor);
  return unit.poll_actor(index);
}

std::uint64_t Engine::actor_deadline_ns(unsigned actor) const {
  const auto [unit, index] = units_->actor(actor);
  return unit.actor_deadline_ns(index);
}

void Engine::taken(unsigned actor, std::uint64_t from_ns, std::uint64_t to_ns) {
  units_->actor(actor).first.time().gaps.take(from_ns, to_ns);
}

void Engine::note_quiet(std::uint64_t now_ns) {
  for (IoServer* const server : servers_) server->note_quiet(now_ns);
}

void Engine::move_at_once() {
  for (const auto& unit : units_->all())
    for (const auto& worker : unit->workers()) worker->move_at_once();
}

void Engine::set_phase(Phase phase) {
  const Pause pause(*this);
  phase_ns_[units_->phase()] += clock_.now_ns() - phase_began_ns_;
  flash_at_[phase] = model_->flash_counters();
  for (IoServer* const server : servers_) server->set_phase(phase);
  phase_began_ns_ = clock_.now_ns();
}

void Engine::set_path_ns(std::uint64_t path_ns) {
  const Pause pause(*this);
  model_->set_path_ns(path_ns);
}

std::unique_ptr<timing::TimingModel> Engine::clone_model() {
  const Pause pause(*this);
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
  for (IoServer* const server : servers_) server->add_stats(phase, sum);
  sum.span_ns = phase_ns_[phase] + (phase == units_->phase() ? clock_.now_ns() - phase_began_ns_ : 0);
  return sum;
}

std::uint64_t Engine::outstanding() const {
  std::uint64_t sum = 0;
  for (IoServer* const server : servers_) sum += server->outstanding();
  return sum;
}

Unanswered Engine::unanswered(std::uint64_t now_ns, FidelityStats& late) {
  const Pause pause(*this);
  return units_->unanswered(now_ns, late);
}

std::vector<std::pair<std::string, std::uint64_t>> Engine::cpu_times() const {
  std::vector<std::pair<std::string, std::uint64_t>> all;
  for (const auto& unit : units_->all())
    for (auto& entry : unit->cpu_times()) all.push_back(std::move(entry));
  return all;
}

LiveFigures Engine::live() const {
  LiveFigures sum;
  for (IoServer* const server : servers_) server->add_live(sum);
  return sum;
}

CopyReport Engine::copies() {
  const Pause pause(*this);
  CopyReport report;
  io_->add_copies(report);
  return report;
}

void Engine::request(controller::Controller& controller, const controller::QueueRequest& request) {
  using controller::QueueOp;
  const bool is_of_cq = request.op == QueueOp::create_cq || request.op == QueueOp::delete_cq;
  const bool is_admin = (is_of_cq ? request.cq.cqid : request.sq.sqid) == 0;
  nvme::Status status = nvme::Status::success;
  bool aborted = false;
  if (request.op != QueueOp::delete_all)
    status = (is_admin ? units_.get() : io_)->request(controller, request, aborted);
  else
    for (IoServer* const server : servers_) server->request(controller, request, aborted);
  controller.on_queue_reply({request.ticket, status, aborted});
}

void Engine::complete_admin(controller::Controller& controller, std::uint16_t cid, std::uint16_t status_field,
                            std::uint32_t dw0) {
  Dispatcher& dispatcher = units_->first().dispatcher();
  if (Sq* const sq = dispatcher.find_sq(controller, 0)) dispatcher.complete_admin(*sq, cid, status_field, dw0);
}

void Engine::features_changed(controller::Controller& controller) {
  for (IoServer* const server : servers_) server->features_changed(controller);
}

controller::IoCounters Engine::counters(const controller::Controller& controller) const {
  controller::IoCounters sum;
  for (IoServer* const server : servers_) server->add_counters(controller, sum);
  // One on a GPU counts reads and writes alone, and while units run each counter is of another moment.
  sum.commands = std::max(sum.commands, sum.read_commands + sum.write_commands);
  return sum;
}

void Engine::namespaces_changed(controller::Controller& controller) {
  for (IoServer* const server : servers_) server->namespaces_changed(controller);
}

bool Engine::is_beside(const media::Media& media) const {
  return std::ranges::any_of(
      beside_, [&](const Beside& one) { return std::ranges::find(one.work.media, &media) != one.work.media.end(); });
}

bool Engine::still_knows(const media::Media& media) {
  const Pause pause(*this);
  return is_beside(media) || units_->parked_know(media);
}

bool Engine::knows(const media::Media& media) {
  if (is_beside(media)) return true;
  return std::ranges::any_of(servers_, [&](IoServer* server) { return server->knows(media); });
}

void Engine::end_commands(const command_set::Namespace& ns, nvme::Status status, controller::CommandsToEnd which) {
  for (IoServer* const server : servers_) server->end_commands(ns, status, which);
}

nvme::Status Engine::set_shadow_doorbells(controller::Controller& controller, std::uint64_t shadow_iova,
                                          std::uint64_t event_index_iova) {
  units_->set_shadow_doorbells(controller, shadow_iova, event_index_iova);
  return nvme::Status::success;
}

}  // namespace flashmob::engine
