// What the host does beside the GPU engine: its pace on fibres, interrupts, faults, statistics.
#include <algorithm>
#include <atomic>
#include <utility>

#include "host/device_io_server.h"

namespace flashmob::gpu {
namespace {

// A kernel that has been let run for so long without any change, in its own time, can do nothing by itself before its
// next target. Longer than its longest pause and a whole turn of the timing wheel, which follows a jump of the clock,
// take together.
constexpr std::uint64_t kQuietNs = 6'000;
// The kernel gets as much time as has passed on the SSD's clock, but not for what it has slept through.
constexpr std::uint64_t kLongestRunNs = 500;
// A kernel that runs by itself does not say when it has posted something.
constexpr std::uint64_t kInterruptLookNs = 10'000;

bool has_phase(const nvme::Cqe& entry, std::uint16_t phase) {
  auto& word = const_cast<std::uint16_t&>(entry.status_phase);
  return (std::atomic_ref<std::uint16_t>(word).load(std::memory_order_acquire) & 1) == phase;
}

}  // namespace

bool DeviceIoServer::poll(std::uint64_t now_ns) {
  bool worked = false, gone = false;
  {
    const std::lock_guard lock(mutex_);
    if (controller_ == nullptr) return false;
    worked = !machine_->runs_by_itself() && let_run(now_ns);
    worked |= look_for_completions(now_ns);
    worked |= take_faults();
    gone = lost_ && controller_->state() != controller::ControllerState::fatal;
  }
  // Handlers and the controller may come back to us.
  for (const std::uint16_t vector : due_vectors_)
    if (*interrupt_) (*interrupt_)(vector);
  due_vectors_.clear();
  if (gone) controller_->set_fatal();
  return worked;
}

// True while the kernel has anything to do.
bool DeviceIoServer::let_run(std::uint64_t now_ns) {
  const std::uint64_t elapsed_ns = now_ns - std::exchange(last_run_ns_, now_ns);
  const std::uint64_t passed_ns = std::min(elapsed_ns, kLongestRunNs);
  last_run_ns_ = now_ns;
  const EngineActivity before = engine_->activity();
  if (before.print != print_ || now_ns >= due_ns_) quiet_ns_ = 0;
  busy_ns_ += before.in_flight != 0 ? elapsed_ns : 0;
  print_ = before.print;
  due_ns_ = now_ns >= due_ns_ ? UINT64_MAX : due_ns_;
  if (quiet_ns_ >= kQuietNs) return false;
  if (passed_ns == 0) return true;
  lost_ = lost_ || !machine_->step(passed_ns);
  const EngineActivity after = engine_->activity();
  quiet_ns_ = after.print == print_ && !after.moving ? quiet_ns_ + passed_ns : 0;
  print_ = after.print;
  if (quiet_ns_ < kQuietNs) return true;
  due_ns_ = engine_->next_due_ns(now_ns);
  return false;
}

std::uint64_t DeviceIoServer::deadline_ns() const {
  const std::lock_guard lock(mutex_);
  if (controller_ == nullptr) return UINT64_MAX;
  const std::uint64_t kernel_ns = machine_->runs_by_itself() ? UINT64_MAX : quiet_ns_ < kQuietNs ? 0 : due_ns_;
  return std::min(kernel_ns, interrupt_deadline_ns_);
}

// Raises interrupts for new entries, as the engine's workers do (Base 2.0c, 5.27.1.6: coalescing).
bool DeviceIoServer::look_for_completions(std::uint64_t now_ns) {
  const controller::Coalescing rule = controller_->coalescing();
  bool any = false;
  interrupt_deadline_ns_ = UINT64_MAX;
  for (auto& [cqid, cq] : cqs_) {
    if (!cq.spec.interrupts_enabled || cq.ring == nullptr) continue;
    for (std::uint32_t looked = 0; looked < cq.spec.entries && has_phase(cq.ring[cq.head], cq.phase); ++looked) {
      if (cq.coalesced++ == 0) cq.coalescing_since_ns = now_ns;
      if (++cq.head < cq.spec.entries) continue;
      cq.head = 0;
      cq.phase ^= 1;
    }
    if (machine_->runs_by_itself()) interrupt_deadline_ns_ = now_ns + kInterruptLookNs;
    if (cq.coalesced == 0) continue;
    const std::uint64_t until_ns = cq.coalescing_since_ns + rule.time_100us * 100'000ull;
    const bool waits = rule.time_100us != 0 && cq.coalesced <= rule.threshold &&
                       !controller_->coalescing_disabled(cq.spec.vector) && now_ns < until_ns;
    if (waits) {
      interrupt_deadline_ns_ = std::min(interrupt_deadline_ns_, until_ns);
      continue;
    }
    cq.coalesced = 0;
    due_vectors_.push_back(cq.spec.vector);
    any = true;
  }
  return any;
}

bool DeviceIoServer::take_faults() {
  const std::vector<EngineFault> faults = engine_->take_faults();
  for (const EngineFault& fault : faults) {
    if (fault.bad_doorbell)
      controller_->raise_error_event(nvme::AsyncErrorInfo::invalid_doorbell_value);
    else
      controller_->record_error(fault.sqid, fault.cid, fault.status, fault.nsid, fault.lba);
  }
  return !faults.empty();
}

// --- Statistics ---

void DeviceIoServer::set_phase(flashmob::engine::Phase phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  if (controller_ == nullptr) return;
  engine_->set_phase(phase);
  settle();
}

void DeviceIoServer::add_stats(flashmob::engine::Phase phase, flashmob::engine::FidelityStats& sum) {
  const std::lock_guard lock(mutex_);
  if (!engine_) return;
  // A warp answers before it enters what it has added up for the phase before; with the next answer that is done.
  if (launched_) settle();
  sum.merge(engine_->fidelity(phase));
}

void DeviceIoServer::add_counters(const controller::Controller& controller, controller::IoCounters& sum) {
  const std::lock_guard lock(mutex_);
  if (controller_ != &controller) return;
  const EngineTotals totals = engine_->totals();
  sum.read_commands += totals.read_commands;
  sum.write_commands += totals.write_commands;
  sum.read_bytes += totals.read_bytes;
  sum.written_bytes += totals.written_bytes;
  sum.busy_ns = std::max(sum.busy_ns, busy_ns_);
}

flashmob::engine::LiveFigures DeviceIoServer::live() {
  const std::lock_guard lock(mutex_);
  if (!engine_) return {};
  const EngineTotals totals = engine_->totals();
  return {totals.completions, totals.lateness_sum_ns};
}

std::uint64_t DeviceIoServer::outstanding() {
  const std::lock_guard lock(mutex_);
  return controller_ == nullptr ? 0 : engine_->in_flight();
}

}  // namespace flashmob::gpu
