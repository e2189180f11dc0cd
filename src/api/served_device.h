// One emulated SSD without a door of its own: subsystem and engine, running, and a monitor of both. What Server opens
// its doors on.
#pragma once

#include "api/activity.h"
#include "base/clock.h"
#include "controller/subsystem.h"
#include "engine/engine.h"
#include "flashmob/config.h"

namespace flashmob::api {

// Owns everything in the order of dependence. Real time only. Not thread-safe.
class ServedDevice {
 public:
  // Throws ConfigError.
  explicit ServedDevice(const DeviceConfig& config);
  ~ServedDevice() { stop(); }
  ServedDevice(const ServedDevice&) = delete;
  ServedDevice& operator=(const ServedDevice&) = delete;

  void start() { engine_.start(); }
  // Every controller must have been detached.
  void stop() { engine_.stop(); }

  engine::Engine& engine() { return engine_; }
  controller::Subsystem& subsystem() { return subsystem_; }
  ActivityMonitor& monitor() { return monitor_; }

 private:
  Clock clock_ = Clock::real();
  controller::Subsystem subsystem_;  // first: the engine's timing model is built for its size
  engine::Engine engine_;
  ActivityMonitor monitor_;
};

}  // namespace flashmob::api
