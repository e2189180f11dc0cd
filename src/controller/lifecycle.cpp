// Enable, disable, reset, shutdown and fatal status of a controller (NVMe Base 2.0c, 3.5 to 3.7): the state machine
// that poll() drives from what hosts wrote to CC and NSSR. Each step that needs the engine ends here and goes on in
// on_queue_reply(); advance() is then called again for what was written in the meantime.
#include <utility>

#include "controller/controller.h"

namespace flashmob::controller {
namespace {

constexpr std::uint32_t kReady = nvme::encode_csts({.rdy = true});
constexpr std::uint32_t kFatal = nvme::encode_csts({.cfs = true});
constexpr std::uint32_t kNssro = nvme::encode_csts({.nssro = true});
constexpr std::uint32_t kShutdownMask = nvme::encode_csts({.shst = 3});
constexpr std::uint32_t kShutdownOccurring = nvme::encode_csts({.shst = nvme::kCstsShstOccurring});
constexpr std::uint32_t kShutdownComplete = nvme::encode_csts({.shst = nvme::kCstsShstComplete});

// Who looks at the timer so much later than asked stood still, with what hosts sent in that time yet to be read. And
// who stood still may look no later than that: so a host has as long again, which is within the timer's granularity
// (KAS).
constexpr std::uint64_t kStoodStillNs = 50'000'000;

bool supported(const nvme::Cc& cc) {
  const bool command_set = cc.css == nvme::kCcCssNvm || cc.css == nvme::kCcCssAllSupported;
  const bool arbitration = cc.ams == nvme::kCcAmsRoundRobin || cc.ams == nvme::kCcAmsWeightedRoundRobin;
  return command_set && arbitration && cc.mps == 0;
}

}  // namespace

std::uint64_t Controller::poll(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  subsystem_.note_time(now_ns);
  if (register_event_.exchange(false, std::memory_order_acq_rel)) {
    advance();
    deliver_events();
  }
  if (now_ns >= keep_alive_deadline_ns_ && now_ns - keep_alive_deadline_ns_ >= kStoodStillNs) {
    // The host may well have kept us alive.
    restart_keep_alive();
  } else if (now_ns >= keep_alive_deadline_ns_ && !std::exchange(is_keep_alive_late_, true)) {
    keep_alive_deadline_ns_ = now_ns + kStoodStillNs;
  } else if (now_ns >= keep_alive_deadline_ns_) {
    // 3.9.2: the host is taken to be gone.
    record_error(nvme::kNoQueue, nvme::kNoCommand, nvme::Status::keep_alive_timer_expired, 0, 0);
    set_fatal();
  }
  return keep_alive_deadline_ns_;
}

void Controller::set_csts(std::uint32_t clear, std::uint32_t set) {
  // NSSRO may be cleared by a host at any moment, so the word is never simply stored.
  std::uint32_t before = csts_.load(std::memory_order_acquire);
  while (!csts_.compare_exchange_weak(before, (before & ~clear) | set, std::memory_order_acq_rel)) {
  }
}

void Controller::advance() {
  if (nssr_written_.exchange(false, std::memory_order_acq_rel)) propagate_subsystem_reset();
  if (subsystem_reset_requested_.exchange(false, std::memory_order_acq_rel)) apply_subsystem_reset();
  if (reset_requested_.exchange(false, std::memory_order_acq_rel)) begin_reset();
  if (failure_requested_.exchange(false, std::memory_order_acq_rel) && state() == ControllerState::ready) set_fatal();
  const nvme::Cc cc = nvme::decode_cc(cc_.load(std::memory_order_acquire));
  switch (state()) {
    case ControllerState::disabled: {
      // A host that has gone on to enable it takes its shutdown back, and nothing would come back here for that.
      const bool shuts = shutdown_requested_.exchange(false, std::memory_order_acq_rel);
      if (shuts && !(cc.en && cc.shn == nvme::kCcShnNone))
        shut_down_stopped();
      else if (cc.en)
        begin_enable(cc);
      break;
    }
    case ControllerState::enabling:
      if (!cc.en) begin_reset();
      break;
    case ControllerState::ready:
      if (!cc.en) {
        begin_reset();
      } else if (shutdown_requested_.exchange(false, std::memory_order_acq_rel)) {
        begin_shutdown();
      }
      break;
    case ControllerState::shutting_down:
    case ControllerState::shut_down:
      if (cc.en)
        forget_shutdown();
      else
        begin_reset();
      break;
    case ControllerState::disabling:
      break;  // on_torn_down() comes back here
    case ControllerState::fatal:
      // Only a reset helps; a host that wants to shut down first is told that there is nothing left to save.
      if (shutdown_requested_.exchange(false, std::memory_order_acq_rel)) shut_down_stopped();
      break;
  }
}

void Controller::begin_enable(const nvme::Cc& cc) {
  forget_disk_work();  // of a shutdown that it takes back
  const nvme::Aqa aqa = nvme::decode_aqa(aqa_.load(std::memory_order_acquire));
  set_csts(kShutdownMask, 0);
  // The base addresses are page-aligned by construction: their low bits cannot be written.
  const bool refused = enable_refused_.exchange(false, std::memory_order_acq_rel);
  if (refused || !supported(cc) || aqa.asqs == 0 || aqa.acqs == 0) {
    set_fatal();
    return;
  }
  state_.store(ControllerState::enabling, std::memory_order_release);
  enable_command_sets(cc);
  (void)apply_all_features();  // finish_disable() has done what it could for the cache
  QueueRequest request{.op = QueueOp::create_cq, .ticket = next_ticket_++};
  request.cq.entries = aqa.acqs + 1u;
  request.cq.iova = acq_[0].load(std::memory_order_acquire) |
                    (static_cast<std::uint64_t>(acq_[1].load(std::memory_order_acquire)) << 32);
  request.cq.interrupts_enabled = true;
  queues_.describe_cq(request.cq);
  start(request, {QueueOp::create_cq, true, 0, 0});
}

// CC.CSS: the NVM command set alone, or all of the combination that Identify CNS 1Ch lists at the index that feature
// 19h has, which is the only one.
void Controller::enable_command_sets(const nvme::Cc& cc) {
  const std::uint64_t sets =
      cc.css == nvme::kCcCssAllSupported ? subsystem_.command_sets() : nvme::io_command_set_bit(nvme::Csi::nvm);
  if (sets == enabled_sets_) return;
  const std::lock_guard lock(subsystem_.mutex());
  enabled_sets_ = sets;
  subsystem_.show_namespaces(*this);
}

void Controller::on_admin_queue_created(const PendingOp& op, nvme::Status status) {
  if (status != nvme::Status::success) {
    set_fatal();
    return;
  }
  if (op.op == QueueOp::create_cq) {
    queues_.set_cq(0, QueueTable::State::ready);
    QueueRequest request{.op = QueueOp::create_sq, .ticket = next_ticket_++};
    request.sq.entries = nvme::decode_aqa(aqa_.load(std::memory_order_acquire)).asqs + 1u;
    request.sq.iova = asq_[0].load(std::memory_order_acquire) |
                      (static_cast<std::uint64_t>(asq_[1].load(std::memory_order_acquire)) << 32);
    request.sq.priority = QueuePriority::urgent;
    start(request, {QueueOp::create_sq, true, 0, 0});
    return;
  }
  queues_.set_sq(0, QueueTable::State::ready);
  // A host that has taken the enable back meanwhile must not be told that this one is ready.
  if (reset_requested_.load(std::memory_order_acquire)) return advance();
  state_.store(ControllerState::ready, std::memory_order_release);
  restart_keep_alive();
  set_csts(0, kReady);
  advance();
}

void Controller::begin_reset() {
  if (state() == ControllerState::disabled) {
    forget_disk_work();
    set_csts(kShutdownMask, 0);
    return;
  }
  if (state() == ControllerState::disabling) return;
  state_.store(ControllerState::disabling, std::memory_order_release);
  tear_down();
}

// Stops everything that works for the host. Goes on in on_torn_down(), at once when the engine holds nothing of ours.
void Controller::tear_down() {
  pending_.clear();  // answers to these are no longer wanted
  subsystem_.changes().forget(*this);
  forget_disk_work();
  aborts_outstanding_ = 0;
  events_.reset();
  keep_alive_deadline_ns_ = UINT64_MAX;
  if (shadow_doorbells_) {
    host_.set_shadow_doorbells(*this, 0, 0);
    shadow_doorbells_ = false;
  }
  if (teardown_ticket_ != 0) return;
  if (!engine_has_queues_) {
    on_torn_down();
    return;
  }
  engine_has_queues_ = false;
  teardown_ticket_ = next_ticket_++;
  host_.request(*this, {.op = QueueOp::delete_all, .ticket = teardown_ticket_});
}

void Controller::on_torn_down() {
  teardown_ticket_ = 0;
  queues_.reset();
  keep_counters();  // this host may be about to leave
  if (state() == ControllerState::disabling) finish_disable();
  if (state() == ControllerState::shutting_down) finish_shutdown();
}

void Controller::finish_disable() {
  for (std::size_t i = 0; i < doorbell_bytes() / sizeof(std::uint32_t); ++i) {
    std::atomic_ref<std::uint32_t>(doorbells_[i]).store(0, std::memory_order_relaxed);
  }
  changed_namespaces_.clear();
  reported_warnings_ = 0;
  features_.reset(now_ns_);
  const bool flushes = apply_all_features();
  interrupt_mask_.store(0, std::memory_order_release);
  if (flushes)
    flush_namespaces([this, switched = cache_switches_](bool good) {
      if (good) note_flushed(switched);
      enter_disabled();
    });
  else
    enter_disabled();
}

void Controller::enter_disabled() {
  state_.store(ControllerState::disabled, std::memory_order_release);
  set_csts(kReady | kFatal | kShutdownMask, 0);
  advance();
}

// Another notification has nothing left to shut down, and would be taken for one of the next time that it is enabled.
// Unless it came with the write that clears CC.EN: that write's own poll() is still to come.
void Controller::forget_shutdown() {
  if (!shutdown_requested_.exchange(false, std::memory_order_acq_rel)) return;
  if (!nvme::decode_cc(cc_.load(std::memory_order_acquire)).en)
    shutdown_requested_.store(true, std::memory_order_release);
}

void Controller::begin_shutdown() {
  state_.store(ControllerState::shutting_down, std::memory_order_release);
  set_csts(kShutdownMask, kShutdownOccurring);
  tear_down();
}

void Controller::finish_shutdown() {
  flush_namespaces([this](bool) {
    state_.store(ControllerState::shut_down, std::memory_order_release);
    set_csts(kShutdownMask, kShutdownComplete);
    advance();
  });
}

// Of a controller that does not run, and goes on not to.
void Controller::shut_down_stopped() {
  set_csts(kShutdownMask, kShutdownOccurring);
  if (!disk_work_.empty()) return;  // it has written nothing since that was asked for
  flush_namespaces([this](bool) { set_csts(kShutdownMask, kShutdownComplete); });
}

void Controller::set_fatal() {
  // A reset under way is the way out of it, and nobody would begin another one.
  if (state() == ControllerState::disabling) return;
  state_.store(ControllerState::fatal, std::memory_order_release);
  set_csts(0, kFatal);
  tear_down();
}

void Controller::request_failure() {
  failure_requested_.store(true, std::memory_order_release);
  notify_admin_thread();
}

void Controller::propagate_subsystem_reset() {
  const std::lock_guard lock(subsystem_.mutex());
  for (Controller* controller : subsystem_.controllers()) {
    controller->subsystem_reset_requested_.store(true, std::memory_order_release);
    controller->notify_admin_thread();
  }
}

void Controller::apply_subsystem_reset() {
  cc_.store(0, std::memory_order_release);
  aqa_.store(0, std::memory_order_release);
  for (auto* base : {asq_, acq_}) {
    base[0].store(0, std::memory_order_release);
    base[1].store(0, std::memory_order_release);
  }
  shutdown_requested_.store(false, std::memory_order_release);
  set_csts(0, kNssro);
  begin_reset();
}

}  // namespace flashmob::controller
