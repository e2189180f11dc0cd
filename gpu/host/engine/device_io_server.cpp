// Controllers and queues on their way to the GPU engine.
#include "host/engine/device_io_server.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "flashmob/gpu.h"
#include "host/engine/limits.h"

namespace flashmob::gpu {

using controller::QueueOp;
using engine::QueueState;
using nvme::Status;

namespace {

// Of the kernel's own time, between two looks at whether it has taken up a change.
constexpr std::uint64_t kWaitStepNs = 500;

void clear_doorbell(std::uint32_t* doorbell) {
  std::atomic_ref<std::uint32_t>(*doorbell).store(0, std::memory_order_relaxed);
}

std::byte* translate(memory::AddressSpace::Reader& reader, std::uint64_t iova, std::uint64_t bytes, bool for_write) {
  reader.enter();
  std::byte* const memory = reader.translate(iova, bytes, for_write);
  reader.leave();
  return memory;
}

bool are_equal(const controller::Arbitration& a, const controller::Arbitration& b) {
  return a.weighted_round_robin == b.weighted_round_robin && a.burst_log2 == b.burst_log2 &&
         a.low_weight == b.low_weight && a.medium_weight == b.medium_weight && a.high_weight == b.high_weight;
}

}  // namespace

void enable_engine() {
  declare_limits();
  flashmob::engine::register_io_server("gpu", [](const DeviceConfig& config, const Clock& clock) {
    return std::make_unique<DeviceIoServer>(config, clock);
  });
}

DeviceIoServer::DeviceIoServer(const DeviceConfig& config, const Clock& clock, MachineMaker make_machine)
    : config_((config.validate(), config)), clock_(clock), make_machine_(std::move(make_machine)) {}

DeviceIoServer::~DeviceIoServer() { FLASHMOB_CHECK(ports_.empty()); }

DeviceIoServer::Port* DeviceIoServer::find(const controller::Controller& controller) {
  for (const auto& port : ports_)
    if (&port->controller == &controller) return port.get();
  return nullptr;
}

std::uint32_t DeviceIoServer::free_number() const {
  for (std::uint32_t number = 0; number < engine::kMaxControllers; ++number) {
    const auto has_it = [&](const auto& port) { return port->number == number; };
    if (std::none_of(ports_.begin(), ports_.end(), has_it)) return number;
  }
  throw ConfigError("engine.kind = \"gpu\" serves " + std::to_string(engine::kMaxControllers) +
                    " controllers at once: take one off first, or use \"host\"");
}

void DeviceIoServer::attach(controller::Controller& controller, const flashmob::engine::InterruptSink& interrupt) {
  Port* port = nullptr;
  {
    const std::lock_guard lock(mutex_);
    ports_.push_back(std::make_unique<Port>(controller, interrupt, free_number()));
    port = ports_.back().get();
    try {
      if (engine_)
        join(*port);
      else
        start(*port);
    } catch (...) {
      remove(*port);
      throw;
    }
  }
  try {
    // Regions are told with their own lock held, so not with ours.
    controller.address_space().set_mirror([this, port](const auto& regions) {
      const std::lock_guard lock(mutex_);
      take_regions(*port, regions);
    });
  } catch (...) {
    leave(controller);
    throw;
  }
}

// The first controller brings the engine.
void DeviceIoServer::start(Port& port) {
  machine_ = make_machine_(config_, clock_);
  DeviceEngineOptions options = machine_->options(config_.engine);
  options.controllers = engine::kMaxControllers;
  engine_ = std::make_unique<DeviceEngine>(machine_->memory(), config_.timing, options);
  lost_ = false;
  pace_ = {};
  rests_ = false;
  engine_->set_phase(phase_);
  join(port);
  machine_->launch(*engine_);
  launched_ = true;
}

void DeviceIoServer::join(Port& port) {
  port.controller.offer_doorbell_buffers(false);
  publish_namespaces(port);
  take_arbitration(port);
  machine_->share(port.controller.doorbells(), port.controller.doorbell_bytes());
  port.doorbells_shared = true;
  // Twice, because warps enter what they have counted for those before when they have answered (engine/completer.h).
  settle();
  settle();
  port.before = engine_->counts(port.number);
}

void DeviceIoServer::detach(std::span<controller::Controller* const> controllers) {
  for (controller::Controller* const controller : controllers) leave(*controller);
}

void DeviceIoServer::leave(controller::Controller& controller) {
  Port* port = nullptr;
  {
    const std::lock_guard lock(mutex_);
    port = find(controller);
  }
  if (port == nullptr) return;
  controller.address_space().set_mirror({});
  const std::lock_guard lock(mutex_);
  remove(*port);
}

// Also of a port that has not come so far as to be served.
void DeviceIoServer::remove(Port& port) {
  if (engine_) {
    delete_all(port);
    // What it has left goes to its own log, not to that of the next one that has its number.
    take_faults();
    engine_->set_regions({}, port.number);
    engine_->set_namespaces({}, 0, 0, port.number);
    engine_->set_arbitration({}, port.number);
    settle();
    for (const memory::Region& region : port.regions) machine_->unshare(region.host, region.bytes);
    if (port.doorbells_shared) machine_->unshare(port.controller.doorbells(), port.controller.doorbell_bytes());
  }
  std::erase_if(ports_, [&](const auto& held) { return held.get() == &port; });
  if (ports_.empty()) stop();
}

// The last controller has gone: what the engine has counted stays.
void DeviceIoServer::stop() {
  if (launched_ && !lost_) {
    engine_->end(engine::Run::stop);
    engine_->commit();
    machine_->join();
    for (unsigned phase = 0; phase < past_.size(); ++phase) past_[phase].append(engine_->fidelity(phase));
    const EngineTotals totals = engine_->totals();
    past_live_.completions += totals.completions;
    past_live_.lateness_sum_ns += totals.lateness_sum_ns;
  }
  launched_ = false;
  if (machine_) return_media();
  engine_.reset();
  machine_.reset();
}

bool DeviceIoServer::wait_until(const std::function<bool()>& done) {
  while (!done()) {
    if (lost_ || !launched_) return false;
    lost_ = !machine_->step(kWaitStepNs);
  }
  return true;
}

bool DeviceIoServer::settle() {
  const std::uint32_t epoch = engine_->commit();
  return !launched_ || wait_until([&] { return engine_->taken_up(epoch); });
}

// --- Queues ---

Status DeviceIoServer::request(controller::Controller& controller, const controller::QueueRequest& request,
                               bool& aborted) {
  const std::lock_guard lock(mutex_);
  Port* const port = find(controller);
  FLASHMOB_CHECK(port != nullptr);
  switch (request.op) {
    case QueueOp::create_cq:
      return create_cq(*port, request.cq);
    case QueueOp::create_sq:
      return create_sq(*port, request.sq);
    case QueueOp::delete_sq:
      return delete_sq(*port, request.sq.sqid);
    case QueueOp::delete_cq:
      return delete_cq(*port, request.cq.cqid);
    case QueueOp::delete_all:
      delete_all(*port);
      return Status::success;
    case QueueOp::abort_command:
      aborted = abort(*port, request.sq.sqid, request.cid);
      return Status::success;
  }
  return Status::internal_error;
}

Status DeviceIoServer::create_cq(Port& port, const controller::CqSpec& spec) {
  upload_media(port);
  Cq cq;
  cq.spec = spec;
  const std::uint64_t bytes = std::uint64_t{spec.entries} * sizeof(nvme::Cqe);
  cq.ring = reinterpret_cast<nvme::Cqe*>(translate(port.reader, spec.iova, bytes, true));
  if (cq.ring == nullptr) return Status::data_transfer_error;
  std::uint32_t* const doorbell = port.controller.doorbells() + 2u * spec.cqid + 1;
  clear_doorbell(doorbell);
  if (!engine_->add_cq(cq.ring, spec.entries, doorbell, true, cq.queue, port.number)) return Status::internal_error;
  port.cqs.emplace(spec.cqid, cq);
  return Status::success;
}

Status DeviceIoServer::create_sq(Port& port, const controller::SqSpec& spec) {
  const auto cq = port.cqs.find(spec.cqid);
  if (cq == port.cqs.end()) return Status::completion_queue_invalid;
  Sq sq;
  sq.spec = spec;
  const std::uint64_t bytes = std::uint64_t{spec.entries} * sizeof(nvme::Sqe);
  sq.ring = reinterpret_cast<const nvme::Sqe*>(translate(port.reader, spec.iova, bytes, false));
  if (sq.ring == nullptr) return Status::data_transfer_error;
  std::uint32_t* const doorbell = port.controller.doorbells() + 2u * spec.sqid;
  clear_doorbell(doorbell);
  if (!engine_->add_sq(sq.ring, spec.entries, doorbell, spec.sqid, cq->second.queue, sq.queue, port.number,
                       spec.priority))
    return Status::internal_error;
  port.sqs.emplace(spec.sqid, sq);
  return settle() ? Status::success : Status::internal_error;
}

// Closes the queues that are asked for, and returns when nothing of them is left in the engine.
void DeviceIoServer::close_queues(Port& port, QueueState how, const std::function<bool(const Sq&)>& which) {
  std::vector<DeviceEngine::Queue> closing;
  for (auto& [sqid, sq] : port.sqs) {
    if (!sq.open || !which(sq)) continue;
    sq.open = false;
    engine_->close_sq(sq.queue, how);
    closing.push_back(sq.queue);
  }
  if (closing.empty() || !settle()) return;
  wait_until([&] {
    return std::all_of(closing.begin(), closing.end(), [&](const auto& queue) { return engine_->closed(queue); });
  });
}

Status DeviceIoServer::delete_sq(Port& port, std::uint16_t sqid) {
  const auto found = port.sqs.find(sqid);
  if (found == port.sqs.end()) return Status::invalid_queue_identifier;
  close_queues(port, QueueState::cancelling, [&](const Sq& sq) { return &sq == &found->second; });
  engine_->remove_sq(found->second.queue);
  port.sqs.erase(found);
  return Status::success;
}

Status DeviceIoServer::delete_cq(Port& port, std::uint16_t cqid) {
  const auto found = port.cqs.find(cqid);
  if (found == port.cqs.end()) return Status::invalid_queue_identifier;
  engine_->remove_cq(found->second.queue);
  port.cqs.erase(found);
  return Status::success;
}

void DeviceIoServer::delete_all(Port& port) {
  close_queues(port, QueueState::dropping, [](const Sq&) { return true; });
  for (const auto& [sqid, sq] : port.sqs) engine_->remove_sq(sq.queue);
  for (const auto& [cqid, cq] : port.cqs) engine_->remove_cq(cq.queue);
  port.sqs.clear();
  port.cqs.clear();
  // As the host's engine does: work that was dropped with the last host's queues keeps nobody waiting.
  const bool is_unused = std::ranges::all_of(ports_, [](const auto& held) { return held->sqs.empty(); });
  if (is_unused && !lost_) engine_->reset_model();
}

bool DeviceIoServer::abort(Port& port, std::uint16_t sqid, std::uint16_t cid) {
  const auto found = port.sqs.find(sqid);
  if (found == port.sqs.end() || !found->second.open) return false;
  engine_->abort(found->second.queue, cid);
  engine_->commit();
  wait_until([&] { return engine_->aborted() != engine::Abort::pending; });
  engine_->finish_abort();
  settle();
  return engine_->aborted() == engine::Abort::done;
}

void DeviceIoServer::features_changed(controller::Controller& controller) {
  const std::lock_guard lock(mutex_);
  Port* const port = find(controller);
  if (port != nullptr && take_arbitration(*port)) settle();
}

// True if it is not what the engine knows.
bool DeviceIoServer::take_arbitration(Port& port) {
  const controller::Arbitration rule = port.controller.arbitration();
  if (are_equal(rule, port.arbitration)) return false;
  port.arbitration = rule;
  engine_->set_arbitration({.weighted = rule.weighted_round_robin,
                            .burst = std::min(1u << rule.burst_log2, engine::kBatch),
                            .high_weight = rule.high_weight,
                            .medium_weight = rule.medium_weight,
                            .low_weight = rule.low_weight},
                           port.number);
  return true;
}

}  // namespace flashmob::gpu
