#include "host/attach/virtual_ssd.h"

#include <algorithm>

namespace flashmob::gpu {
DeviceConfig small_ssd() {
  DeviceConfig config;
  config.profile = "small";
  config.subsystem.namespaces.clear();
  for (const std::uint32_t lba_bytes : {512u, 4096u}) {
    NamespaceConfig ns;
    ns.size_bytes = 4 << 20;
    ns.lba_bytes = lba_bytes;
    config.subsystem.namespaces.push_back(ns);
  }
  config.controller.max_queue_pairs = 16;
  config.controller.interrupt_vectors = 1;
  config.controller.max_transfer_bytes = 128 << 10;
  config.timing.read_latency_ns = 10'000;
  config.timing.write_latency_ns = 10'000;
  config.timing.read_iops = 10e6;
  config.timing.write_iops = 10e6;
  config.engine.copy = "memcpy";
  return config;
}

VirtualSsd::VirtualSsd(VirtualWorld& world, const DeviceConfig& config)
    : world_(world), config_(config), device_(config, world.clock()), driver_(device_.pci(), world.waiter()) {
  world_.actors_.add(device_.engine());
  try {
    driver_.enable();
  } catch (...) {
    world_.actors_.remove(device_.engine());
    throw;
  }
}

VirtualSsd::~VirtualSsd() {
  try {
    driver_.disable();
  } catch (const std::exception&) {
    // The controller was left dead; detaching it ends all access to the host's memory.
  }
  world_.actors_.remove(device_.engine());
}

VirtualWorld::VirtualWorld(std::uint64_t start_ns) : clock_(Clock::virtual_from(start_ns)), actors_(clock_) {}

VirtualWorld::~VirtualWorld() {
  while (!ssds_.empty()) ssds_.pop_back();
}

VirtualSsd& VirtualWorld::add(const DeviceConfig& config) {
  ssds_.push_back(std::make_unique<VirtualSsd>(*this, config));
  return *ssds_.back();
}

std::uint64_t VirtualWorld::next_event_ns() {
  const std::uint64_t deadline_ns = actors_.deadline_ns();
  return deadline_ns == UINT64_MAX ? deadline_ns : std::max(deadline_ns, clock_.now_ns() + 1);
}

driver::Waiter VirtualWorld::waiter() {
  return {[this] { pump(); }, [this] { return now_ns(); }};
}

}  // namespace flashmob::gpu
