// flashmob::Server: one SSD, its doors, and what is known of both.
#include "flashmob/server.h"

#include <mutex>
#include <utility>

#include "api/device.h"
#include "api/doors.h"
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
    if (options.vfio_user_path.empty() && options.tcp_address.empty())
      throw ConfigError("the SSD has no door: give vfio_user or tcp");
    if (api::must_share_cores(config.engine)) device.engine().share_cores();
  }

  const DeviceConfig config;
  const ServerOptions options;
  std::mutex mutex;
  bool stopped = false;
  api::ServedDevice device;
  std::vector<std::unique_ptr<api::Door>> doors;  // last: they take leave of hosts while the device runs
};

Server::Server(const DeviceConfig& device, const ServerOptions& options)
    : impl_(std::make_unique<Impl>(device, options)) {}

Server::~Server() { stop(); }

void Server::start() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->stopped || !impl_->doors.empty()) return;
  impl_->device.start();
  impl_->doors =
      api::open_doors(impl_->options, impl_->device.subsystem(), impl_->device.engine(), impl_->config.controller);
}

void Server::stop() {
  const std::lock_guard lock(impl_->mutex);
  impl_->stopped = true;
  impl_->doors.clear();
  impl_->device.stop();
}

ServerStats Server::stats() {
  const std::lock_guard lock(impl_->mutex);
  ServerStats stats = impl_->device.monitor().look();
  stats.faults = impl_->device.engine().faults().counts();
  return stats;
}

void Server::set_faults(const std::vector<std::string>& rules) {
  if (impl_->config.engine.kind != "host" && !rules.empty())
    throw ConfigError("faults are not possible with engine.kind = \"" + impl_->config.engine.kind +
                      "\"; only the host's engine shows them");
  impl_->device.engine().faults().set(rules);
}

std::vector<std::string> Server::addresses() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::string> all;
  for (const auto& door : impl_->doors) all.push_back(door->address());
  return all;
}

}  // namespace flashmob
