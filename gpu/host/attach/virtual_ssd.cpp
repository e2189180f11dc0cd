#include "host/attach/virtual_ssd.h"

#include <algorithm>

namespace flashmob::gpu {
namespace {

constexpr std::uint64_t kBusyStepNs = 50;  // between two rounds of the actors while there is work
// While nothing happens, the host's steps grow from the one to the other.
constexpr std::uint64_t kFirstIdleStepNs = 200;
constexpr std::uint64_t kLastIdleStepNs = 5'000'000;

}  // namespace

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
  world_.engines_.push_back(&device_.engine());
  try {
    driver_.enable();
  } catch (...) {
    world_.engines_.pop_back();
    throw;
  }
}

VirtualSsd::~VirtualSsd() {
  try {
    driver_.disable();
  } catch (const std::exception&) {
    // The controller was left dead; detaching it ends all access to the host's memory.
  }
  std::erase(world_.engines_, &device_.engine());
}

VirtualWorld::VirtualWorld(std::uint64_t start_ns)
    : clock_(Clock::virtual_from(start_ns)), idle_step_ns_(kFirstIdleStepNs) {}

VirtualWorld::~VirtualWorld() {
  while (!ssds_.empty()) ssds_.pop_back();
}

VirtualSsd& VirtualWorld::add(const DeviceConfig& config) {
  ssds_.push_back(std::make_unique<VirtualSsd>(*this, config));
  return *ssds_.back();
}

std::size_t VirtualWorld::add_actor(std::function<bool()> poll) {
  host_actors_.push_back(std::move(poll));
  return host_actors_.size() - 1;
}

void VirtualWorld::remove_actor(std::size_t number) { host_actors_[number] = nullptr; }

bool VirtualWorld::poll_actors() {
  bool worked = false;
  for (flashmob::engine::Engine* engine : engines_) {
    for (unsigned actor = 0; actor < engine->actors(); ++actor) worked |= engine->poll_actor(actor);
  }
  for (const auto& poll : host_actors_) {
    if (poll) worked |= poll();
  }
  return worked;
}

std::uint64_t VirtualWorld::next_deadline_ns() const {
  std::uint64_t deadline_ns = UINT64_MAX;
  for (const flashmob::engine::Engine* engine : engines_) {
    for (unsigned actor = 0; actor < engine->actors(); ++actor)
      deadline_ns = std::min(deadline_ns, engine->actor_deadline_ns(actor));
  }
  return deadline_ns;
}

// Doorbells may have been rung since the last call, so the actors have a turn before time moves, and one after it.
bool VirtualWorld::pass(std::uint64_t to_ns) {
  bool worked = poll_actors();
  bool anything = worked;
  while (clock_.now_ns() < to_ns) {
    const std::uint64_t now = clock_.now_ns();
    std::uint64_t next_ns = to_ns;
    if (worked)
      next_ns = std::min(next_ns, now + kBusyStepNs);
    else if (const std::uint64_t deadline_ns = next_deadline_ns(); deadline_ns > now)
      next_ns = std::min(next_ns, deadline_ns);
    clock_.advance_to(next_ns);
    worked = poll_actors();
    anything |= worked;
  }
  return anything;
}

std::uint64_t VirtualWorld::next_event_ns() {
  const std::uint64_t deadline_ns = next_deadline_ns();
  return deadline_ns == UINT64_MAX ? deadline_ns : std::max(deadline_ns, clock_.now_ns() + 1);
}

void VirtualWorld::pump() {
  const std::uint64_t now = clock_.now_ns();
  if (poll_actors()) {
    idle_step_ns_ = kFirstIdleStepNs;
    clock_.advance_to(now + kBusyStepNs);
    return;
  }
  std::uint64_t next_ns = now + idle_step_ns_;
  if (const std::uint64_t deadline_ns = next_deadline_ns(); deadline_ns > now) next_ns = std::min(next_ns, deadline_ns);
  idle_step_ns_ = std::min(idle_step_ns_ * 2, kLastIdleStepNs);
  clock_.advance_to(next_ns);
}

driver::Waiter VirtualWorld::waiter() {
  return {[this] { pump(); }, [this] { return now_ns(); }};
}

}  // namespace flashmob::gpu
