// Emulated SSDs for the emulated GPU: whole flashmob devices (subsystem, engine, controller, in-process door, driver)
// under one virtual clock, which the fibre scheduler moves as its World.
//
// VirtualWorld owns the clock and any number of SSDs. While a kernel runs, the scheduler calls pass(): every engine
// actor of every SSD is polled, and time comes to where the lanes are. Host code that waits (the driver's admin
// commands, a host's reads and writes) moves the same clock through waiter(). Deterministic; for one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "api/device.h"
#include "base/clock.h"
#include "driver/nvme_driver.h"
#include "engine/virtual_world.h"
#include "flashmob/config.h"
#include "flashmob/gpu/simt/world.h"

namespace flashmob::gpu {

class VirtualWorld;

// A small, fast device for tests: namespace 1 with 512-byte blocks, namespace 2 with 4096-byte blocks, 4 MiB each,
// 10 us per request, transfers up to 128 KiB.
DeviceConfig small_ssd();

class VirtualSsd {
 public:
  // Enabled and ready for queues. Throws ConfigError.
  VirtualSsd(VirtualWorld& world, const DeviceConfig& config);
  ~VirtualSsd();
  VirtualSsd(const VirtualSsd&) = delete;
  VirtualSsd& operator=(const VirtualSsd&) = delete;

  const DeviceConfig& config() const { return config_; }
  VirtualWorld& world() { return world_; }
  driver::PciDevice& pci() { return device_.pci(); }
  driver::NvmeDriver& driver() { return driver_; }
  flashmob::engine::Engine& engine() { return device_.engine(); }

 private:
  VirtualWorld& world_;
  DeviceConfig config_;
  api::Device device_;
  driver::NvmeDriver driver_;
};

class VirtualWorld final : public simt::World {
 public:
  explicit VirtualWorld(std::uint64_t start_ns = 1'000'000);
  ~VirtualWorld() override;

  // The SSD lives as long as the world.
  VirtualSsd& add(const DeviceConfig& config);
  std::size_t size() const { return ssds_.size(); }
  VirtualSsd& ssd(std::size_t index = 0) { return *ssds_[index]; }
  const Clock& clock() const { return clock_; }
  // Host code that works beside the SSDs, a service thread for one: called in every round, true if it did anything.
  // With nothing to do it is called again whenever time passes. Removed by the number that is returned.
  std::size_t add_actor(std::function<bool()> poll) { return actors_.add_actor(std::move(poll)); }
  void remove_actor(std::size_t number) { actors_.remove_actor(number); }

  std::uint64_t now_ns() override { return clock_.now_ns(); }
  bool pass(std::uint64_t to_ns) override { return actors_.run_to(to_ns); }
  std::uint64_t next_event_ns() override;

  // Polls every actor once and lets a little time pass; longer steps while nothing happens.
  void pump() { actors_.pump(); }
  driver::Waiter waiter();

 private:
  friend class VirtualSsd;

  Clock clock_;
  // The engines of living SSDs, the one under construction included, and who else works.
  flashmob::engine::VirtualWorld actors_;
  std::vector<std::unique_ptr<VirtualSsd>> ssds_;
};

}  // namespace flashmob::gpu
