// flashmob::Server: one SSD, its doors, and what is known of both.
#include "flashmob/server.h"

#include <map>
#include <mutex>
#include <utility>

#include "api/device.h"
#include "api/doors.h"
#include "api/lease.h"
#include "api/served_device.h"
#include "command_set/engine_limits.h"
#include "fabrics/idle_spin.h"
#include "flashmob/error.h"

namespace flashmob {
namespace api {
namespace {

const DeviceConfig& validated(const DeviceConfig& config) {
  config.validate();
  return config;
}

// The network's hosts speak SGLs alone.
const DeviceConfig& for_hosts(const DeviceConfig& config, const ServerOptions& options) {
  if (command_set::engine_limits(config.engine.kind).basic_commands_only && !options.tcp_address.empty())
    throw ConfigError("engine.kind = \"" + config.engine.kind +
                      "\" is not possible with an NVMe/TCP door; leave tcp out, or use \"host\"");
  if (options.lends && (!options.tcp_address.empty() || !options.vfio_user_path.empty()))
    throw ConfigError("an SSD that is lent has no other doors: leave vfio_user and tcp out");
  if (options.lends && config.engine.kind != "host")
    throw ConfigError("engine.kind = \"" + config.engine.kind + "\" cannot lend parts of an SSD; use \"host\"");
  if (config.timing.path_ns != 0 && !options.tcp_address.empty() && !options.vfio_user_path.empty())
    throw ConfigError("timing.path_ns is what one way to the SSD costs, and this one has two doors; leave it out");
  return config;
}

// True if the network's loop and the units have to share cores, and nobody has said how long units are to spin.
bool must_share_cores(const EngineConfig& config) {
  const unsigned threads = config.units * (config.workers + 1) + 1;
  return fabrics::idle_spin_ns(fabrics::kIdleSpinAuto, threads) == 0 &&
         config.idle_spin_ns == EngineConfig{}.idle_spin_ns;
}

}  // namespace

ServedDevice::ServedDevice(const DeviceConfig& config)
    : subsystem_(validated(config).subsystem, config.seed, config.timing.unit_bytes),
      engine_(config, clock_, nullptr, {}, api::shape_that_fits(config, subsystem_, 1)),
      monitor_(engine_, subsystem_, config.fidelity, engine_.is_timed(), clock_) {
  prepare_media(engine_, subsystem_);
}

}  // namespace api

struct Server::Impl {
  Impl(const DeviceConfig& device_config, const ServerOptions& server_options)
      : config(api::for_hosts(device_config, server_options)), options(server_options), device(config) {
    if (options.vfio_user_path.empty() && options.tcp_address.empty() && !options.lends)
      throw ConfigError("the SSD has no door: give vfio_user or tcp");
    if (api::must_share_cores(config.engine)) device.engine().share_cores();
  }

  const DeviceConfig config;
  const ServerOptions options;
  mutable std::mutex mutex;
  bool started = false, stopped = false;
  api::ServedDevice device;
  std::vector<std::unique_ptr<api::Door>> doors;  // last: they take leave of hosts while the device runs
  std::map<std::string, std::unique_ptr<api::Lease>> leases;

  std::vector<std::unique_ptr<api::Lease>> leaving;  // whose commands are not over

  void reap() {
    std::erase_if(leaving, [](const auto& lease) { return lease->is_forgotten(); });
  }
  void end_leases() {
    for (auto& [name, lease] : leases) {
      lease->leave();
      leaving.push_back(std::move(lease));
    }
    leases.clear();
  }

  std::vector<LeaseStats> lease_stats() const {
    std::vector<LeaseStats> all;
    for (const auto& [name, lease] : leases) all.push_back(lease->stats());
    return all;
  }
};

Server::Server(const DeviceConfig& device, const ServerOptions& options)
    : impl_(std::make_unique<Impl>(device, options)) {}

Server::~Server() { stop(); }

void Server::start() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->stopped || std::exchange(impl_->started, true)) return;
  impl_->device.start();
  impl_->doors =
      api::open_doors(impl_->options, impl_->device.subsystem(), impl_->device.engine(), impl_->config.controller);
}

void Server::stop() {
  const std::lock_guard lock(impl_->mutex);
  impl_->stopped = true;
  impl_->end_leases();
  impl_->doors.clear();
  impl_->device.stop();
  impl_->leaving.clear();
}

ServerStats Server::stats() {
  const std::lock_guard lock(impl_->mutex);
  impl_->reap();
  ServerStats stats = impl_->device.monitor().look();
  stats.leases = impl_->lease_stats();
  stats.faults = impl_->device.engine().faults().counts();
  return stats;
}

void Server::set_faults(const std::vector<std::string>& rules) {
  if (impl_->config.engine.kind != "host" && !rules.empty())
    throw ConfigError("faults are not possible with engine.kind = \"" + impl_->config.engine.kind +
                      "\"; only the host's engine shows them");
  impl_->device.engine().faults().set(rules);
}

void Server::open_lease(const LeaseOptions& options) {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->options.lends) throw ConfigError("this SSD is not lent: its doors are open to others");
  if (!impl_->started || impl_->stopped) throw ConfigError("the SSD does not run; leases are of one that does");
  if (impl_->leases.contains(options.name)) throw ConfigError("there is a lease called " + options.name + " already");
  const LeaseOptions whole = api::Lease::of_whole(options, impl_->device.subsystem());
  impl_->reap();
  for (const auto& [name, other] : impl_->leases) other->check_beside(whole);
  for (const auto& other : impl_->leaving) other->check_beside(whole);
  auto lease = std::make_unique<api::Lease>(whole, impl_->device, impl_->config.controller);
  impl_->leases.emplace(options.name, std::move(lease));
}

void Server::close_lease(const std::string& name) {
  const std::lock_guard lock(impl_->mutex);
  const auto found = impl_->leases.find(name);
  if (found == impl_->leases.end()) return;
  found->second->leave();
  impl_->leaving.push_back(std::move(found->second));
  impl_->leases.erase(found);
  impl_->reap();
}

std::vector<LeaseStats> Server::leases() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->lease_stats();
}

std::uint64_t Server::namespace_bytes(std::uint32_t nsid) {
  const std::lock_guard lock(impl_->device.subsystem().mutex());
  if (!controller::is_valid_nsid(nsid)) return 0;
  const controller::NamespaceInfo& info = impl_->device.subsystem().info(nsid);
  return info.current == nullptr ? 0 : info.media->size_bytes();
}

std::vector<std::string> Server::addresses() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::string> all;
  for (const auto& door : impl_->doors) all.push_back(door->address());
  return all;
}

}  // namespace flashmob
