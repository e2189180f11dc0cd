#include "simulation/world.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "driver/names.h"
#include "engine/dsa_copy_engine.h"
#include "engine/dsa_queue_model.h"
#include "nvme/opcode.h"
#include "nvme/status.h"

namespace flashmob::simulation {
namespace {

constexpr std::uint64_t kNamespaceBytes = 256 << 10;
constexpr unsigned kSteps = 300;

// A small device whose every parameter is drawn from the seed.
DeviceConfig random_device(Rng& rng) {
  DeviceConfig config;
  config.profile = "simulation";
  config.seed = rng.next();
  config.subsystem.namespaces.clear();
  for (const std::uint32_t lba_bytes : {512u, 4096u}) {
    NamespaceConfig ns;
    ns.size_bytes = kNamespaceBytes;
    ns.lba_bytes = lba_bytes;
    config.subsystem.namespaces.push_back(ns);
  }
  config.controller.max_queue_pairs = 8;
  config.controller.max_queue_entries = 64;
  config.controller.interrupt_vectors = 4;
  config.controller.max_transfer_bytes = rng.below(2) == 0 ? 8 << 10 : 32 << 10;
  config.controller.abort_limit = static_cast<std::uint32_t>(1 + rng.below(8));
  config.timing.model = rng.below(4) == 0 ? "none" : "simple";
  config.timing.read_iops = config.timing.write_iops = rng.below(2) == 0 ? 1e5 : 2e6;
  config.timing.instances = 1u << rng.below(4);
  const std::uint64_t slowest_ns = 10'000 * config.timing.instances;  // a latency is at least the service time
  config.timing.read_latency_ns = slowest_ns + rng.below(50'000);
  config.timing.write_latency_ns = slowest_ns + rng.below(50'000);
  config.engine.units = static_cast<std::uint32_t>(1 + rng.below(2));
  config.engine.workers = static_cast<std::uint32_t>(rng.below(3));
  config.engine.fetch_limit = rng.below(2) == 0 ? 1024 : static_cast<std::uint32_t>(1 + rng.below(8));
  config.engine.wheel_shift = static_cast<std::uint32_t>(4 + rng.below(5));
  constexpr const char* kCopies[] = {"auto", "memcpy", "nontemporal", "dsa"};
  config.engine.copy = kCopies[rng.below(std::size(kCopies))];
  return config;
}

// DSA over a work queue in software that meets missing pages and reports errors, as the seed has it.
engine::CopyEngineFactory copy_engines(const DeviceConfig& config) {
  if (config.engine.copy != "dsa") return nullptr;
  return [fortune = std::make_shared<Rng>(config.seed)] {
    auto queue = std::make_unique<engine::dsa::ModelQueue>(engine::dsa::Pace::at_once);
    queue->fate = [fortune](const engine::dsa::Descriptor& d) {
      engine::dsa::Fate fate;
      if (fortune->below(20) == 0) fate.error = engine::dsa::Status::invalid_flags;
      if (d.opcode() == engine::dsa::Opcode::memory_move && fortune->below(10) == 0)
        fate.fault_after = static_cast<std::uint32_t>(fortune->below(d.size));
      return fate;
    };
    return std::make_unique<engine::dsa::DsaCopyEngine>(std::move(queue));
  };
}

class World {
 public:
  World(std::uint64_t seed, Counters& counters, const Trace& trace)
      : rng_(seed),
        config_(random_device(rng_)),
        oracle_(config_.engine.units * std::max(1u, config_.engine.workers) > 1, config_.engine.copy == "dsa"),
        device_(config_, static_cast<unsigned>(1 + rng_.below(2)), copy_engines(config_)) {
    device_.shuffle(rng_.next());
    for (std::uint32_t nsid = 1; nsid <= kNamespaces; ++nsid)
      oracle_.format(nsid, kNamespaceBytes / lba_bytes(nsid), lba_bytes(nsid));
    for (unsigned i = 0; i < device_.hosts(); ++i)
      hosts_.push_back(std::make_unique<HostSimulation>(device_.host(i), oracle_, rng_.next(), counters, trace));
  }

  void run() {
    for (auto& host : hosts_) host->start();
    for (unsigned step = 0; step < kSteps; ++step) {
      HostSimulation& host = *hosts_[rng_.below(hosts_.size())];
      host.act();
      for (std::uint64_t pumps = rng_.below(4); pumps > 0; --pumps) device_.pump();
      if (rng_.below(60) == 0) device_.pump_for(rng_.below(100'000));
      if (rng_.below(150) == 0)
        host.set_attached(static_cast<std::uint32_t>(1 + rng_.below(kNamespaces)), rng_.below(4) != 0);
      if (rng_.below(200) == 0) format();
      if (rng_.below(400) == 0) reset_subsystem(host);
      oracle_.forget_before(oldest());
    }
    drain();
    for (std::uint32_t nsid = 1; nsid <= kNamespaces; ++nsid)
      for (auto& host : hosts_) host->set_attached(nsid, true);
    hosts_[rng_.below(hosts_.size())]->read_everything();
    // What a reset dropped keeps its slot until it would have been due, which a device that forgot its load may
    // overtake.
    for (int i = 0; i < 100 && device_.engine().outstanding() != 0; ++i) device_.pump_for(10'000'000);
    if (device_.engine().outstanding() != 0)
      throw Failure("the idle engine still holds " + std::to_string(device_.engine().outstanding()) + " requests");
    for (unsigned i = 0; i < device_.hosts(); ++i) {
      if (device_.host(i).driver.fatal()) throw Failure("a controller ended in fatal status");
      if (device_.host(i).driver.unexpected_completions() != 0)
        throw Failure("an admin completion that nobody asked for");
    }
  }

 private:
  std::uint32_t lba_bytes(std::uint32_t nsid) const { return config_.subsystem.namespaces[nsid - 1].lba_bytes; }
  void drain() {
    for (auto& host : hosts_) host->drain();
  }
  std::uint64_t oldest() const {
    std::uint64_t moment = oracle_.now();
    for (const auto& host : hosts_) moment = std::min(moment, host->oldest());
    return moment;
  }
  // Gives a namespace another block size while nobody uses it, as a careful host does.
  void format() {
    drain();
    const auto nsid = static_cast<std::uint32_t>(1 + rng_.below(kNamespaces));
    const std::uint32_t format = static_cast<std::uint32_t>(rng_.below(3));
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::format_nvm);
    sqe.nsid = nsid;
    sqe.cdw10 = format;
    const auto status = nvme::status_of(device_.host(0).driver.admin(sqe, {}, false).status_field);
    if (format == 2 && status == nvme::Status::success) throw Failure("an unknown format was accepted");
    if (status == nvme::Status::success) {
      const std::uint32_t bytes = format == 0 ? 512 : 4096;
      oracle_.format(nsid, kNamespaceBytes / bytes, bytes);
    }
  }
  void reset_subsystem(HostSimulation& by) {
    by.reset_subsystem();
    // A host that touches its controller before the reset has reached it would race with it.
    const auto all_reset = [this] { return std::ranges::all_of(hosts_, [](auto& host) { return host->is_reset(); }); };
    if (!device_.pump_until(all_reset)) throw Failure("a subsystem reset did not reach every controller");
    for (auto& host : hosts_) host->subsystem_was_reset();
  }

  Rng rng_;
  DeviceConfig config_;
  Oracle oracle_;
  suite::VirtualDevice device_;
  std::vector<std::unique_ptr<HostSimulation>> hosts_;
};

}  // namespace

void run_world(std::uint64_t seed, Counters& counters, const Trace& trace) {
  World world(seed, counters, trace);
  world.run();
}

}  // namespace flashmob::simulation
