#include "engine/service_unit.h"

#include <algorithm>
#include <utility>

namespace flashmob::engine {

ServiceUnit::ServiceUnit(unsigned index, const DeviceConfig& config, timing::TimingModel& model, const Clock& clock,
                         const std::atomic<unsigned>& phase, std::atomic<std::uint32_t>& sleepers,
                         const CopyEngineFactory& copies, SlotLimits limits)
    : index_(index),
      config_(config.engine),
      limits_(limits),
      threaded_(config.engine.workers != 0),
      time_(clock, config.fidelity.gap_ns) {
  const unsigned workers = std::max(1u, config_.workers);
  for (unsigned w = 0; w < workers; ++w) {
    if (threaded_) worker_times_.push_back(std::make_unique<ThreadClock>(clock, config.fidelity.gap_ns));
    ThreadClock& time = threaded_ ? *worker_times_.back() : time_;
    workers_.push_back(
        std::make_unique<Worker>(index * workers + w, config_, model, time, phase, threaded_, copies(), limits_.slots));
  }
  dispatcher_ = std::make_unique<Dispatcher>(config_, model, time_, workers_);
  const IdleRule idle{config_.idle_spin_ns, config_.idle_sleep_ns};
  const std::string name = "fm-unit" + std::to_string(index);
  dispatcher_thread_ = std::make_unique<EngineThread>(
      name, time_, idle, sleepers, [this] { return dispatcher_round(); }, [this] { return actor_deadline_ns(0); });
  // A round begins when the thread is awake.
  dispatcher_thread_->set_on_resumed([this](std::uint64_t now_ns) { last_round_ns_ = now_ns; });
  for (unsigned w = 0; threaded_ && w < workers; ++w) {
    worker_threads_.push_back(std::make_unique<EngineThread>(
        name + "w" + std::to_string(w), *worker_times_[w], idle, sleepers, [this, w] { return worker_round(w); },
        [this, w] { return workers_[w]->next_deadline_ns(); }));
  }
}

void ServiceUnit::set_side_work(std::function<bool()> round, std::function<std::uint64_t()> deadline_ns) {
  side_work_ = std::move(round);
  side_deadline_ns_ = std::move(deadline_ns);
}

void ServiceUnit::set_syncs(SyncThread& syncs) {
  for (std::size_t w = 0; w < workers_.size(); ++w)
    workers_[w]->set_syncs(syncs, [this, w] { (threaded_ ? worker_threads_[w] : dispatcher_thread_)->wake(); });
}

void ServiceUnit::start(std::size_t& next_core) {
  const auto core = [&] {
    return next_core < config_.cores.size() ? static_cast<int>(config_.cores[next_core++]) : -1;
  };
  dispatcher_thread_->start(core());
  for (auto& thread : worker_threads_) thread->start(core());
}

void ServiceUnit::stop() {
  dispatcher_thread_->stop();
  for (unsigned w = 0; w < workers_.size(); ++w) {
    if (threaded_) worker_threads_[w]->stop();
    settle(w);
  }
}

void ServiceUnit::wake() { dispatcher_thread_->wake(); }

void ServiceUnit::set_idle_spin(std::uint64_t spin_ns) {
  dispatcher_thread_->set_spin(spin_ns);
  for (auto& thread : worker_threads_) thread->set_spin(spin_ns);
}

// One worker after the other, in stop() too: a worker's command may wait for blocks that belong to transfers of another
// one, and would never come to its end if that one stood before they were done.
void ServiceUnit::park() {
  dispatcher_thread_->park();
  for (unsigned w = 0; w < workers_.size(); ++w) {
    if (threaded_) worker_threads_[w]->park();
    settle(w);
    workers_[w]->accept_all();
  }
}

void ServiceUnit::unpark() {
  for (auto& thread : worker_threads_) thread->unpark();
  dispatcher_thread_->unpark();
}

// Opens the guard on a controller's memory and looks rings up again if that memory changed.
void ServiceUnit::enter(PortContext& port, Dispatcher* dispatcher, Worker* worker) {
  if (port.reader.inside()) {
    // Copies of an earlier round are still in flight. They go on, unless somebody may be waiting for the memory.
    if (!port.reader.stale() && port.reader.generation() == port.generation) return;
    if (worker != nullptr) worker->mover().finish_copies();
    port.reader.leave();
  }
  port.reader.enter();
  if (port.reader.generation() == port.generation) [[likely]]
    return;
  port.generation = port.reader.generation();
  if (dispatcher != nullptr) dispatcher->refresh_rings(port);
  if (worker != nullptr) worker->refresh_rings(port);
}

// Closes the guards on guest memory that a worker's copies go to, unless some are still in flight.
void ServiceUnit::leave(unsigned worker) {
  if (workers_[worker]->mover().copies_in_flight()) [[unlikely]]
    return;
  for (auto& port : ports_)
    if (port->worker(worker).reader.inside()) port->worker(worker).reader.leave();
}

void ServiceUnit::settle(unsigned worker) {
  if (workers_[worker]->media().any()) [[unlikely]] {
    Dispatcher* const dispatcher = threaded_ ? nullptr : dispatcher_.get();
    for (auto& port : ports_) enter(port->worker(worker), dispatcher, workers_[worker].get());
    workers_[worker]->media().finish();
    leave(worker);
  }
  if (!workers_[worker]->mover().copies_in_flight()) return;
  workers_[worker]->mover().finish_copies();
  leave(worker);
}

void ServiceUnit::settle_own() {
  if (!threaded_) settle(0);
}

bool ServiceUnit::dispatcher_round() {
  time_.refresh();
  bool worked = side_work_ ? side_work_() : false;
  Worker* const inline_worker = threaded_ ? nullptr : workers_[0].get();
  for (auto& port : ports_) enter(*port->dispatcher, dispatcher_.get(), inline_worker);
  if (inline_worker != nullptr) worked |= inline_worker->poll();
  worked |= dispatcher_->pass();
  if (threaded_)
    for (auto& port : ports_) port->dispatcher->reader.leave();
  else
    leave(0);
  if (dispatcher_->has_admin_commands()) {
    settle_own();
    time_.gaps.note_work();
    dispatcher_->run_admin_commands();
    worked = true;
  }
  if (worked && threaded_) {
    for (auto& thread : worker_threads_)
      if (thread->asleep()) thread->wake();
  }
  account_until(time_.now_ns, worked);
  return worked;
}

// Counts the time since it was last asked to: as the unit's work or not, and as a time with requests if it has any.
void ServiceUnit::account_until(std::uint64_t now_ns, bool worked) {
  if (last_round_ns_ != 0) {
    const std::uint64_t passed_ns = now_ns - last_round_ns_;
    const bool holding =
        std::any_of(workers_.begin(), workers_.end(), [](const auto& worker) { return worker->slab().in_use() != 0; });
    if (holding) busy_ns_.store(busy_ns_.load(std::memory_order_relaxed) + passed_ns, std::memory_order_relaxed);
    FidelityStats::UnitTime& time = workers_[0]->account().stats_now().units[index_];
    time.polled_ns += passed_ns;
    if (worked) time.worked_ns += passed_ns;
  }
  last_round_ns_ = now_ns;
}

void ServiceUnit::note_quiet(std::uint64_t now_ns) {
  dispatcher_->note_quiet(now_ns);
  // What the unit finds there it has not been at since its last round.
  account_until(now_ns, false);
}

bool ServiceUnit::worker_round(unsigned index) {
  worker_times_[index]->refresh();
  for (auto& port : ports_) enter(port->worker(index), nullptr, workers_[index].get());
  const bool worked = workers_[index]->poll();
  leave(index);
  return worked;
}

bool ServiceUnit::poll_actor(unsigned index) { return index == 0 ? dispatcher_round() : worker_round(index - 1); }

std::uint64_t ServiceUnit::actor_deadline_ns(unsigned index) const {
  if (index != 0) return workers_[index - 1]->next_deadline_ns();
  const std::uint64_t own =
      std::min(dispatcher_->next_deadline_ns(), threaded_ ? UINT64_MAX : workers_[0]->next_deadline_ns());
  return side_deadline_ns_ ? std::min(own, side_deadline_ns_()) : own;
}

ServiceUnit::Port* ServiceUnit::find_port(const controller::Controller& controller) {
  for (auto& held : ports_)
    if (&held->dispatcher->controller == &controller) return held.get();
  return nullptr;
}

ServiceUnit::Port& ServiceUnit::port(const controller::Controller& controller) {
  Port* const found = find_port(controller);
  FLASHMOB_CHECK(found != nullptr && "controller is not attached");
  return *found;
}

void ServiceUnit::attach(controller::Controller& controller, const InterruptSink* sink) {
  auto added = std::make_unique<Port>();
  added->dispatcher = std::make_unique<PortContext>(controller, sink, workers_.size());
  for (std::size_t w = 0; threaded_ && w < workers_.size(); ++w)
    added->workers.push_back(std::make_unique<PortContext>(controller, sink));
  for (unsigned w = 0; w < workers_.size(); ++w) added->worker(w).moves = std::make_unique<MoveQueue>();
  const std::lock_guard lock(ports_mutex_);
  ports_.push_back(std::move(added));
  reserve_slots();
}

void ServiceUnit::detach(std::span<controller::Controller* const> controllers) {
  // Not all may be here: where memory was lacking for all of attach().
  delete_all(controllers);
  for (controller::Controller* const controller : controllers)
    if (Port* const found = find_port(*controller)) found->dispatcher->is_leaving = true;
  const std::lock_guard lock(ports_mutex_);
  std::erase_if(ports_, [](const auto& held) { return held->dispatcher->is_leaving; });
  reserve_slots();
}

void ServiceUnit::reserve_slots() {
  // Of all that may come, not of those that are there: by the time one comes, others might have all the slots.
  std::uint32_t each = 0;
  for (const auto& held : ports_) each = std::max(each, held->dispatcher->admin_limit() + Requests::kLeastSlots);
  const std::uint32_t slots = each * limits_.controllers;
  FLASHMOB_CHECK(slots < limits_.slots);
  for (auto& worker : workers_) worker->reserve(slots, ports_.size());
}

nvme::Status ServiceUnit::create_cq(controller::Controller& controller, const controller::CqSpec& spec,
                                    unsigned worker) {
  PortContext& context = port(controller).worker(worker);
  auto cq = std::make_unique<Cq>();
  cq->entries = spec.entries;
  cq->iova = spec.iova;
  cq->cqid = spec.cqid;
  cq->vector = spec.vector;
  cq->interrupts_enabled = spec.interrupts_enabled;
  cq->controller = &controller;
  cq->port = &context;
  cq->bar_doorbell = controller.doorbells() + 2u * spec.cqid + 1;
  std::atomic_ref<std::uint32_t>(*cq->bar_doorbell).store(0, std::memory_order_relaxed);
  // Guards do not nest: queue operations run before or after the part of a round that has them open.
  context.reader.enter();
  cq->ring = reinterpret_cast<nvme::Cqe*>(
      context.reader.translate(spec.iova, std::uint64_t{spec.entries} * sizeof(nvme::Cqe), true));
  cq->head_doorbell = context.doorbell(2u * spec.cqid + 1, cq->bar_doorbell, cq->event_index);
  const bool mapped = cq->ring != nullptr;
  if (mapped) workers_[worker]->completer().queues().add(std::move(cq));
  context.reader.leave();
  return mapped ? nvme::Status::success : nvme::Status::data_transfer_error;
}

nvme::Status ServiceUnit::create_sq(controller::Controller& controller, const controller::SqSpec& spec,
                                    unsigned worker) {
  Port& views = port(controller);
  Cq* const cq = workers_[worker]->completer().queues().find(controller, spec.cqid);
  if (cq == nullptr) return nvme::Status::completion_queue_invalid;
  auto sq = std::make_unique<Sq>();
  sq->entries = spec.entries;
  sq->iova = spec.iova;
  sq->sqid = spec.sqid;
  sq->cqid = spec.cqid;
  sq->priority = spec.priority;
  sq->admin = spec.sqid == 0;
  sq->is_limited = !sq->admin && controller.rate_gate().limits();
  sq->controller = &controller;
  sq->port = views.dispatcher.get();
  sq->worker = static_cast<std::uint16_t>(worker);
  sq->slots_held = sq->admin ? &views.dispatcher->admin_held : &views.dispatcher->slots_held[worker];
  sq->bar_doorbell = controller.doorbells() + 2u * spec.sqid;
  std::atomic_ref<std::uint32_t>(*sq->bar_doorbell).store(0, std::memory_order_relaxed);
  PortContext& context = *views.dispatcher;
  context.reader.enter();
  sq->ring = reinterpret_cast<const nvme::Sqe*>(
      context.reader.translate(spec.iova, std::uint64_t{spec.entries} * sizeof(nvme::Sqe), false));
  sq->doorbell = context.doorbell(2u * spec.sqid, sq->bar_doorbell, sq->event_index);
  context.reader.leave();
  if (sq->ring == nullptr) return nvme::Status::data_transfer_error;
  workers_[worker]->requests().add_queue(*sq, *cq);
  dispatcher_->add_sq(std::move(sq));
  return nvme::Status::success;
}

void ServiceUnit::delete_sq(controller::Controller& controller, std::uint16_t sqid) {
  Sq* const sq = dispatcher_->find_sq(controller, sqid);
  if (sq == nullptr) return;
  note_unfetched(*sq);
  dispatcher_->drop_fused(*sq);
  Worker& worker = *workers_[sq->worker];
  worker.accept_all();
  PortContext& context = port(controller).worker(sq->worker);
  context.reader.enter();
  worker.cancel_sq(*sq, true);
  context.reader.leave();
  dispatcher_->remove_sq(*sq);
}

// Doorbells may lie in the host's memory, which may have changed since the last round.
void ServiceUnit::note_unfetched(Sq& sq) {
  PortContext& context = *port(*sq.controller).dispatcher;
  enter(context, dispatcher_.get(), threaded_ ? nullptr : workers_[0].get());
  dispatcher_->note_unfetched(sq);
  context.reader.leave();
}

void ServiceUnit::delete_cq(controller::Controller& controller, std::uint16_t cqid, unsigned worker) {
  workers_[worker]->completer().remove_queue(controller, cqid);
}

void ServiceUnit::delete_all(std::span<controller::Controller* const> controllers) {
  const auto set_leaving = [&](bool leaves) {
    for (const controller::Controller* const controller : controllers) {
      Port* const found = find_port(*controller);
      if (found == nullptr) continue;
      found->dispatcher->is_leaving = leaves;
      for (auto& context : found->workers) context->is_leaving = leaves;
    }
  };
  set_leaving(true);
  for (const controller::Controller* const controller : controllers) dispatcher_->drop_admin_commands(*controller);
  for (const auto& sq : dispatcher_->queues()) {
    if (!sq->port->is_leaving) continue;
    note_unfetched(*sq);
    dispatcher_->drop_fused(*sq);
  }
  for (unsigned w = 0; w < workers_.size(); ++w) {
    std::vector<PortContext*> leaving;
    for (const auto& held : ports_)
      if (held->worker(w).is_leaving) leaving.push_back(&held->worker(w));
    workers_[w]->accept_all();
    workers_[w]->drop_leaving(leaving);
  }
  dispatcher_->remove_leaving();
  for (const auto& held : ports_) {
    PortContext& context = *held->dispatcher;
    if (!context.is_leaving) continue;
    context.admin_held = 0;
    std::fill(context.slots_held.begin(), context.slots_held.end(), 0);
    set_shadow_doorbells(context.controller, 0, 0);
  }
  set_leaving(false);
}

bool ServiceUnit::abort(controller::Controller& controller, std::uint16_t sqid, std::uint16_t cid) {
  Sq* const sq = dispatcher_->find_sq(controller, sqid);
  if (sq == nullptr) return false;
  Worker& worker = *workers_[sq->worker];
  worker.accept_all();
  PortContext& context = port(controller).worker(sq->worker);
  context.reader.enter();
  const bool aborted = worker.abort(*sq, cid);
  context.reader.leave();
  return aborted;
}

bool ServiceUnit::knows(const media::Media& media) {
  return dispatcher_->knows(media) ||
         std::any_of(workers_.begin(), workers_.end(), [&](const auto& worker) { return worker->knows(media); });
}

void ServiceUnit::set_shadow_doorbells(controller::Controller& controller, std::uint64_t shadow_iova,
                                       std::uint64_t event_iova) {
  Port& views = port(controller);
  // They go before their queues do, and what hosts wrote to the BAR's meanwhile is no tail.
  for (const auto& sq : dispatcher_->queues())
    if (shadow_iova == 0 && views.dispatcher->shadow_iova != 0 && sq->controller == &controller) note_unfetched(*sq);
  const auto set = [&](PortContext& context) {
    context.shadow_iova = shadow_iova;
    context.event_index_iova = event_iova;
    context.generation = ~std::uint64_t{0};  // rings and doorbells are looked up again in the next round
  };
  set(*views.dispatcher);
  for (auto& context : views.workers) set(*context);
}

const controller::IoCounters ServiceUnit::counters(const controller::Controller& controller) const {
  controller::IoCounters sum;
  const auto add = [&](const PortContext& context) {
    sum.commands += context.commands.load(std::memory_order_relaxed);
    sum.read_commands += context.read_commands.load(std::memory_order_relaxed);
    sum.write_commands += context.write_commands.load(std::memory_order_relaxed);
    sum.read_bytes += context.read_bytes.load(std::memory_order_relaxed);
    sum.written_bytes += context.written_bytes.load(std::memory_order_relaxed);
  };
  const std::lock_guard lock(ports_mutex_);
  for (const auto& held : ports_) {
    if (&held->dispatcher->controller != &controller) continue;
    add(*held->dispatcher);
    for (const auto& context : held->workers) add(*context);
  }
  sum.busy_ns = busy_ns_.load(std::memory_order_relaxed);
  return sum;
}

void ServiceUnit::close_gaps(unsigned phase) {
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    SpanSums gaps, long_work;
    const auto join = [&](ThreadClock& time) {
      gaps.join(time.gaps.gaps());
      long_work.join(time.gaps.long_work());
      time.gaps.clear();
    };
    if (w == 0) join(time_);
    if (threaded_) join(*worker_times_[w]);
    FidelityStats& stats = workers_[w]->account().stats(phase);
    stats.gaps.append(gaps);
    stats.long_work.append(long_work);
  }
}

std::vector<std::pair<std::string, std::uint64_t>> ServiceUnit::cpu_times() const {
  std::vector<std::pair<std::string, std::uint64_t>> times;
  const std::string name = "unit" + std::to_string(index_);
  times.emplace_back(name, dispatcher_thread_->cpu_time_ns());
  for (std::size_t w = 0; w < worker_threads_.size(); ++w)
    times.emplace_back(name + ".worker" + std::to_string(w), worker_threads_[w]->cpu_time_ns());
  return times;
}

}  // namespace flashmob::engine
