// One emulated SSD with its in-process door, assembled: what Ssd and Bench are both built on.
#pragma once

#include <memory>

#include "base/clock.h"
#include "controller/controller.h"
#include "controller/subsystem.h"
#include "driver/interrupt_table.h"
#include "engine/engine.h"
#include "flashmob/config.h"
#include "transport/in_process/in_process_device.h"

namespace flashmob::api {

// What namespaces of files and generated content hold, their timing model takes for written; what a GPU is to touch, no
// other process can take away. Before the engine starts. Throws ConfigError.
void prepare_media(engine::Engine& engine, controller::Subsystem& subsystem);

// The shape for the engine's timing model. Throws ConfigError where so many models of it do not fit into free memory.
timing::DeviceShape shape_that_fits(const DeviceConfig& config, const controller::Subsystem& subsystem,
                                    std::uint64_t models);

// Owns everything in the order of dependence. Real time: start() runs the engine's threads. Not thread-safe.
class Device {
 public:
  // `clock` outlives the device. `models`: timing models of this shape that there will be, the engine's among them.
  // Throws ConfigError.
  Device(const DeviceConfig& config, const Clock& clock, std::uint64_t models = 1);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void start() { engine_.start(); }
  void stop() { engine_.stop(); }

  engine::Engine& engine() { return engine_; }
  controller::Subsystem& subsystem() { return subsystem_; }
  driver::PciDevice& pci() { return door_; }
  const Clock& clock() const { return clock_; }

 private:
  const Clock& clock_;
  controller::Subsystem subsystem_;  // first: the engine's timing model is built for its size
  engine::Engine engine_;
  controller::Controller controller_;
  driver::InterruptTable interrupts_;
  transport::InProcessDevice door_;
};

}  // namespace flashmob::api
