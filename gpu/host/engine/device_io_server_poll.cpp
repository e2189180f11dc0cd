// What the host does beside the GPU engine: its pace on fibres, interrupts, faults, statistics.
#include <algorithm>
#include <atomic>
#include <utility>

#include "host/engine/device_io_server.h"

namespace flashmob::gpu {
namespace {

// A kernel that runs by itself does not say when it has posted something.
constexpr std::uint64_t kInterruptLookNs = 10'000;

bool has_phase(const nvme::Cqe& entry, std::uint16_t phase) {
  auto& word = const_cast<std::uint16_t&>(entry.status_phase);
  return (std::atomic_ref<std::uint16_t>(word).load(std::memory_order_acquire) & 1) == phase;
}

}  // namespace

bool DeviceIoServer::poll(std::uint64_t now_ns) {
  bool worked = false, lost = false;
  {
    const std::lock_guard lock(mutex_);
    if (!engine_) return false;
    worked = !machine_->runs_by_itself() && let_run(now_ns);
    interrupt_deadline_ns_ = UINT64_MAX;
    for (const auto& port : ports_) worked |= look_for_completions(*port, now_ns);
    worked |= take_faults();
    lost = lost_;
  }
  // Handlers and controllers may come back to us.
  for (const auto& port : ports_) {
    for (const std::uint16_t vector : port->due_vectors)
      if (port->interrupt) port->interrupt(vector);
    port->due_vectors.clear();
    if (lost && port->controller.state() != controller::ControllerState::fatal) port->controller.set_fatal();
  }
  return worked;
}

void DeviceIoServer::note_quiet(std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (engine_) engine_->note_quiet(now_ns);
}

// True while the kernel has anything to do.
bool DeviceIoServer::let_run(std::uint64_t now_ns) {
  const std::uint64_t elapsed_ns = now_ns - std::exchange(last_poll_ns_, now_ns);
  if (lost_) return false;
  const KernelPace::Turn turn = pace_.let_run(*engine_, *machine_, now_ns);
  for (const auto& port : ports_) port->busy_ns += ((pace_.busy() >> port->number) & 1) != 0 ? elapsed_ns : 0;
  lost_ = turn == KernelPace::Turn::lost;
  rests_ = turn == KernelPace::Turn::rested;
  return turn == KernelPace::Turn::ran;
}

std::uint64_t DeviceIoServer::deadline_ns() const {
  const std::lock_guard lock(mutex_);
  if (!engine_) return UINT64_MAX;
  const std::uint64_t kernel_ns = machine_->runs_by_itself() ? UINT64_MAX : !rests_ ? 0 : pace_.due_ns();
  return std::min(kernel_ns, interrupt_deadline_ns_);
}

// Raises interrupts for new entries, as the engine's workers do (Base 2.0c, 5.27.1.6: coalescing).
bool DeviceIoServer::look_for_completions(Port& port, std::uint64_t now_ns) {
  const controller::Coalescing rule = port.controller.coalescing();
  bool any = false;
  for (auto& [cqid, cq] : port.cqs) {
    if (!cq.spec.interrupts_enabled || cq.ring == nullptr) continue;
    for (std::uint32_t looked = 0; looked < cq.spec.entries && has_phase(cq.ring[cq.head], cq.phase); ++looked) {
      if (cq.coalesced++ == 0) cq.coalescing_since_ns = now_ns;
      if (++cq.head < cq.spec.entries) continue;
      cq.head = 0;
      cq.phase ^= 1;
    }
    if (machine_->runs_by_itself())
      interrupt_deadline_ns_ = std::min(interrupt_deadline_ns_, now_ns + kInterruptLookNs);
    if (cq.coalesced == 0) continue;
    const std::uint64_t until_ns = cq.coalescing_since_ns + rule.time_100us * 100'000ull;
    const bool waits = rule.time_100us != 0 && cq.coalesced <= rule.threshold &&
                       !port.controller.coalescing_disabled(cq.spec.vector) && now_ns < until_ns;
    if (waits) {
      interrupt_deadline_ns_ = std::min(interrupt_deadline_ns_, until_ns);
      continue;
    }
    cq.coalesced = 0;
    port.due_vectors.push_back(cq.spec.vector);
    any = true;
  }
  return any;
}

bool DeviceIoServer::take_faults() {
  const std::vector<EngineFault> faults = engine_->take_faults();
  for (const EngineFault& fault : faults) {
    const auto its = [&](const auto& port) { return port->number == fault.controller; };
    const auto found = std::find_if(ports_.begin(), ports_.end(), its);
    if (found == ports_.end()) continue;
    controller::Controller& controller = (*found)->controller;
    if (fault.bad_doorbell)
      controller.raise_error_event(nvme::AsyncErrorInfo::invalid_doorbell_value);
    else
      controller.record_error(fault.sqid, fault.cid, fault.status, fault.nsid, fault.lba);
  }
  return !faults.empty();
}

// --- Statistics ---

void DeviceIoServer::set_phase(flashmob::engine::Phase phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  if (!engine_) return;
  engine_->set_phase(phase);
  settle();
}

void DeviceIoServer::add_stats(flashmob::engine::Phase phase, flashmob::engine::FidelityStats& sum) {
  const std::lock_guard lock(mutex_);
  sum.join(past_[phase]);
  if (!engine_) return;
  // A warp answers before it enters what it has added up for the phase before; with the next answer that is done.
  if (launched_) settle();
  sum.join(engine_->fidelity(phase));
}

void DeviceIoServer::add_counters(const controller::Controller& controller, controller::IoCounters& sum) {
  const std::lock_guard lock(mutex_);
  const Port* const port = find(controller);
  if (port == nullptr) return;
  const controller::IoCounters now = engine_->counts(port->number);
  sum.read_commands += now.read_commands - port->before.read_commands;
  sum.write_commands += now.write_commands - port->before.write_commands;
  sum.read_bytes += now.read_bytes - port->before.read_bytes;
  sum.written_bytes += now.written_bytes - port->before.written_bytes;
  sum.busy_ns = std::max(sum.busy_ns, port->busy_ns);
}

void DeviceIoServer::add_live(flashmob::engine::LiveFigures& sum) {
  const std::lock_guard lock(mutex_);
  const EngineTotals totals = engine_ ? engine_->totals() : EngineTotals{};
  sum.completions += past_live_.completions + totals.completions;
  sum.lateness_sum_ns += past_live_.lateness_sum_ns + totals.lateness_sum_ns;
}

std::uint64_t DeviceIoServer::outstanding() {
  const std::lock_guard lock(mutex_);
  return engine_ ? engine_->in_flight() : 0;
}

}  // namespace flashmob::gpu
