// A whole emulated SSD in virtual time: subsystem, engine, controllers, in-process doors and drivers, in one thread.
//
// Nothing runs unless pump() is called, so a test sees every intermediate state it wants to see, and every run is the
// same. For one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "controller/controller.h"
#include "controller/subsystem.h"
#include "driver/nvme_driver.h"
#include "engine/engine.h"
#include "engine/virtual_world.h"
#include "flashmob/config.h"
#include "transport/in_process/in_process_device.h"

namespace flashmob::suite {

// A small device: namespace 1 with 512-byte blocks, namespace 2 with 4096-byte blocks, 4 MiB each, 10 us per request.
DeviceConfig small_device();
// Fits it to an engine other than the host's, which then serves its I/O queues. Set before the first test.
inline DeviceConfig (*on_other_engine)(const DeviceConfig& config) = nullptr;

class VirtualDevice;

// One controller and the host that drives it.
struct Host {
  explicit Host(VirtualDevice& device);
  Host(VirtualDevice& device, controller::Subsystem& subsystem, const controller::ControllerRole& role = {});
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  VirtualDevice& device;
  driver::InterruptTable interrupts;
  controller::Controller controller;
  transport::InProcessDevice door;
  driver::NvmeDriver driver;
  std::vector<std::uint64_t> interrupt_counts;  // by vector
};

class VirtualDevice {
 public:
  explicit VirtualDevice(const DeviceConfig& config, unsigned controllers = 1,
                         const engine::CopyEngineFactory& copies = nullptr);
  ~VirtualDevice();
  VirtualDevice(const VirtualDevice&) = delete;
  VirtualDevice& operator=(const VirtualDevice&) = delete;

  const DeviceConfig& config() const { return config_; }
  controller::Subsystem& subsystem() { return *subsystem_; }
  engine::Engine& engine() { return *engine_; }
  Host& host(unsigned index = 0) { return *hosts_[index]; }
  // Adds a host that sees a part of a namespace as a drive of its own; it comes after those that there are.
  Host& lend(std::uint32_t nsid, std::uint64_t first_byte, std::uint64_t size_bytes,
             const controller::HostRights& rights = {.access = controller::Access::io});
  // Takes leave of them.
  void end_leases();
  unsigned hosts() const { return static_cast<unsigned>(hosts_.size()); }

  std::uint64_t now_ns() const { return clock_.now_ns(); }
  // Polls every actor once and lets a little time pass; jumps ahead when the device has nothing to do.
  void pump();
  // Pumps until done() or until so much virtual time has passed; answers done().
  bool pump_until(const std::function<bool()>& done, std::uint64_t timeout_ns = 1'000'000'000);
  // Pumps for exactly this much virtual time.
  void pump_for(std::uint64_t duration_ns);
  // Time passes, and nobody looks.
  void skip(std::uint64_t duration_ns) { clock_.advance_to(clock_.now_ns() + duration_ns); }
  driver::Waiter waiter();
  // From now on actors are polled in random order and now and then left out, and time passes unevenly.
  void shuffle(std::uint64_t seed);

 private:
  // Like pump(), but time never passes `limit_ns`.
  void pump_before(std::uint64_t limit_ns);

  DeviceConfig config_;
  Clock clock_;
  engine::VirtualWorld world_;
  std::optional<Rng> scheduler_;
  std::unique_ptr<controller::Subsystem> subsystem_;
  std::unique_ptr<engine::Engine> engine_;
  std::vector<std::unique_ptr<controller::Subsystem>> windows_;
  std::vector<std::unique_ptr<Host>> hosts_;
};

}  // namespace flashmob::suite
