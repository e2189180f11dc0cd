#include "support/virtual_device.h"

#include <algorithm>
#include <string_view>

namespace flashmob::suite {
namespace {

constexpr std::uint64_t kBusyStepNs = 50;  // between two rounds while there is work
// While nothing happens, steps grow from the one to the other: long time-outs pass quickly, short ones stay exact.
constexpr std::uint64_t kFirstIdleStepNs = 200;
constexpr std::uint64_t kLastIdleStepNs = 5'000'000;

}  // namespace

DeviceConfig small_device() {
  DeviceConfig config;
  config.profile = "small";
  config.subsystem.namespaces.clear();
  for (const std::uint32_t lba_bytes : {512u, 4096u}) {
    NamespaceConfig ns;
    ns.size_bytes = 4 << 20;
    ns.lba_bytes = lba_bytes;
    config.subsystem.namespaces.push_back(ns);
  }
  config.subsystem.spare_capacity_bytes = 16 << 20;
  config.controller.max_queue_pairs = 16;
  config.controller.max_queue_entries = 1024;
  config.controller.interrupt_vectors = 8;
  config.controller.max_transfer_bytes = 128 << 10;
  config.timing.read_latency_ns = 10'000;
  config.timing.write_latency_ns = 10'000;
  config.timing.read_iops = 10e6;
  config.timing.write_iops = 10e6;
  config.engine.copy = "memcpy";
  if (std::string_view(small_device_engine) == "gpu") return on_gpu_engine(config, 1);
  return config;
}

Host::Host(VirtualDevice& owner)
    : device(owner),
      interrupts(owner.config().controller.interrupt_vectors),
      controller(owner.subsystem(), owner.config().controller, owner.engine()),
      door(controller, {&owner.engine().sleeping(), [this] { device.engine().wake(); }}, interrupts),
      driver(door, owner.waiter()),
      interrupt_counts(owner.config().controller.interrupt_vectors) {
  device.engine().attach(controller, [this](std::uint16_t vector) {
    ++interrupt_counts[vector];
    interrupts.fire(vector);
  });
}

Host::~Host() {
  try {
    driver.disable();
  } catch (const std::exception&) {
    // A test has left the controller dead; detaching it ends all access to the host's memory.
  }
  device.engine().detach(controller);
}

VirtualDevice::VirtualDevice(const DeviceConfig& config, unsigned controllers, const engine::CopyEngineFactory& copies)
    : config_(config), clock_(Clock::virtual_from(1'000'000)), idle_step_ns_(kFirstIdleStepNs) {
  config_.validate();
  subsystem_ = std::make_unique<controller::Subsystem>(config_.subsystem, config_.seed, config_.timing.unit_bytes);
  engine_ = std::make_unique<engine::Engine>(config_, clock_, copies);
  for (unsigned i = 0; i < controllers; ++i) hosts_.push_back(std::make_unique<Host>(*this));
}

VirtualDevice::~VirtualDevice() {
  while (!hosts_.empty()) hosts_.pop_back();
}

void VirtualDevice::pump() { pump_before(UINT64_MAX); }

bool VirtualDevice::poll_actors() {
  const unsigned actors = engine_->actors();
  bool worked = false;
  const auto first = static_cast<unsigned>(scheduler_ ? scheduler_->below(actors) : 0);
  for (unsigned i = 0; i < actors; ++i) {
    if (scheduler_ && scheduler_->below(4) == 0) continue;
    worked |= engine_->poll_actor((first + i) % actors);
  }
  return worked;
}

void VirtualDevice::pump_before(std::uint64_t limit_ns) {
  const bool worked = poll_actors();
  std::uint64_t deadline_ns = UINT64_MAX;
  for (unsigned actor = 0; actor < engine_->actors(); ++actor)
    deadline_ns = std::min(deadline_ns, engine_->actor_deadline_ns(actor));
  const std::uint64_t now = now_ns();
  if (worked) {
    idle_step_ns_ = kFirstIdleStepNs;
    const std::uint64_t step_ns = scheduler_ ? 1 + scheduler_->below(20 * kBusyStepNs) : kBusyStepNs;
    clock_.advance_to(std::min(now + step_ns, limit_ns));
    return;
  }
  std::uint64_t next_ns = now + idle_step_ns_;
  if (deadline_ns > now) next_ns = std::min(next_ns, deadline_ns);
  idle_step_ns_ = std::min(idle_step_ns_ * 2, kLastIdleStepNs);
  clock_.advance_to(std::min(next_ns, limit_ns));
}

bool VirtualDevice::pump_until(const std::function<bool()>& done, std::uint64_t timeout_ns) {
  const std::uint64_t limit_ns = now_ns() + timeout_ns;
  while (!done()) {
    if (now_ns() >= limit_ns) return false;
    pump_before(limit_ns);
  }
  return true;
}

void VirtualDevice::pump_for(std::uint64_t duration_ns) {
  const std::uint64_t limit_ns = now_ns() + duration_ns;
  while (now_ns() < limit_ns) pump_before(limit_ns);
}

driver::Waiter VirtualDevice::waiter() {
  return {[this] { pump(); }, [this] { return now_ns(); }};
}

}  // namespace flashmob::suite
