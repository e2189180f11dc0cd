#include "support/virtual_device.h"

namespace flashmob::suite {
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
  return on_other_engine != nullptr ? on_other_engine(config) : config;
}

Host::Host(VirtualDevice& owner) : Host(owner, owner.subsystem()) {}

Host::Host(VirtualDevice& owner, controller::Subsystem& subsystem, const controller::ControllerRole& role)
    : device(owner),
      interrupts(owner.config().controller.interrupt_vectors),
      controller(subsystem, owner.config().controller, owner.engine(), role),
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
    : config_(config), clock_(Clock::virtual_from(1'000'000)), world_(clock_) {
  config_.validate();
  subsystem_ = std::make_unique<controller::Subsystem>(config_.subsystem, config_.seed, config_.timing.unit_bytes);
  engine_ = std::make_unique<engine::Engine>(config_, clock_, copies);
  world_.add(*engine_);
  for (unsigned i = 0; i < controllers; ++i) hosts_.push_back(std::make_unique<Host>(*this));
}

VirtualDevice::~VirtualDevice() {
  while (!hosts_.empty()) hosts_.pop_back();
}

Host& VirtualDevice::lend(std::uint32_t nsid, std::uint64_t first_byte, std::uint64_t size_bytes,
                          const controller::HostRights& rights) {
  windows_.push_back(std::make_unique<controller::Subsystem>(
      controller::Window{.of = *subsystem_,
                         .nsid = nsid,
                         .first_byte = first_byte,
                         .size_bytes = size_bytes,
                         .nqn = "nqn.2014-08.org.nvmexpress:window" + std::to_string(windows_.size()),
                         .serial = "WINDOW" + std::to_string(windows_.size())}));
  hosts_.push_back(std::make_unique<Host>(*this, *windows_.back(), controller::ControllerRole{.rights = rights}));
  return *hosts_.back();
}

void VirtualDevice::end_leases() {
  hosts_.resize(hosts_.size() - windows_.size());
  windows_.clear();
}

void VirtualDevice::pump() { pump_before(UINT64_MAX); }

void VirtualDevice::shuffle(std::uint64_t seed) {
  scheduler_.emplace(seed);
  world_.shuffle(scheduler_->next());
  world_.set_hold_back([this](engine::VirtualWorld::ActorKind, std::uint64_t now_ns) {
    return scheduler_->below(4) == 0 ? now_ns + 1 : now_ns;
  });
}

void VirtualDevice::pump_before(std::uint64_t limit_ns) {
  constexpr std::uint64_t kBusyStepNs = engine::VirtualWorld::kBusyStepNs;
  world_.pump(scheduler_ ? 1 + scheduler_->below(20 * kBusyStepNs) : kBusyStepNs, limit_ns);
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
