// An SSD on threads whose medium takes its time, or stands still when a test wants it to.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "controller/subsystem.h"
#include "driver/data_buffer.h"
#include "driver/nvme_driver.h"
#include "engine/engine.h"
#include "media/block_store_test_support.h"
#include "media/direct_media.h"
#include "nvme/io_command.h"
#include "nvme/opcode.h"
#include "transport/in_process/in_process_device.h"

namespace flashmob::api::direct_media {

using std::chrono::milliseconds;

inline constexpr std::uint64_t kBytes = 8 << 20;

struct Shape {
  std::uint32_t units = 1;
  std::uint32_t workers = 0;
  std::uint32_t alignment = 4096;
  std::uint64_t cache_bytes = 256 << 10;
  std::uint32_t lba_bytes = 512;
  std::uint64_t bytes = kBytes;
  std::string model = "none";
  std::uint32_t unit_bytes = 512;
  std::uint64_t zone_bytes = 0;  // unless 0, its namespace has zones
};

inline DeviceConfig config_of(const Shape& shape) {
  DeviceConfig config;
  // Whatever has no bytes at an address; the tests put their own in its place.
  config.subsystem.namespaces[0] = {.size_bytes = shape.bytes, .lba_bytes = shape.lba_bytes, .media = "generated"};
  if (shape.zone_bytes != 0) {
    config.subsystem.namespaces[0].media = "memory";
    config.subsystem.namespaces[0].command_set = "zns";
    config.subsystem.namespaces[0].zoned.zone_bytes = shape.zone_bytes;
  }
  config.controller.max_queue_pairs = 8;
  config.controller.interrupt_vectors = 4;
  config.timing.model = shape.model;
  config.timing.unit_bytes = shape.unit_bytes;
  config.engine.units = shape.units;
  config.engine.workers = shape.workers;
  return config;
}

inline bool within(milliseconds limit, const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

class Machine {
 public:
  explicit Machine(const Shape& shape)
      : Machine(shape, std::make_unique<media::StoreInMemory>(kBytes, shape.alignment).release()) {}
  // With other media than those that take their time.
  Machine(const Shape& shape, std::unique_ptr<media::Media> media)
      : config_(config_of(shape)),
        subsystem_(config_.subsystem, config_.seed, config_.timing.unit_bytes),
        media_(std::move(media)),
        engine_(config_, clock_),
        interrupts_(config_.controller.interrupt_vectors),
        controller_(subsystem_, config_.controller, engine_),
        door(controller_, {&engine_.sleeping(), [this] { engine_.wake(); }}, interrupts_) {
    ns().media = media_.get();
    ns().base = media_->base();
    ns().writable = true;
    engine_.attach(controller_, [this](std::uint16_t vector) { interrupts_.fire(vector); });
    engine_.start();
    driver = std::make_unique<driver::NvmeDriver>(
        door, driver::Waiter{[] { std::this_thread::yield(); }, [this] { return clock_.now_ns(); }});
    driver->enable();
  }
  ~Machine() {
    if (store != nullptr) store->stands_still = false;
    driver.reset();
    engine_.stop();
    engine_.detach(controller_);
  }
  // Whether no slot is in use, or soon none will be: one that a worker had when its queue was taken away comes back
  // with that thread's next round. Counted with the engine's threads stopped, whose own the counts are.
  bool comes_to_rest() {
    return within(milliseconds(20'000), [this] {
      engine_.stop();
      const std::uint64_t slots = engine_.outstanding();
      engine_.start();
      return slots == 0;
    });
  }
  const engine::Engine& engine() const { return engine_; }
  void stop() { engine_.stop(); }
  void restart() { engine_.start(); }
  command_set::Namespace& ns() { return *subsystem_.info(1).current; }
  timing::TimingModel& model() { return engine_.model(); }

  media::StoreInMemory* store = nullptr;

  // Another host, with a controller of its own.
  class Other {
   public:
    explicit Other(Machine& machine)
        : machine_(machine),
          interrupts_(machine.config_.controller.interrupt_vectors),
          controller_(machine.subsystem_, machine.config_.controller, machine.engine_),
          door(controller_, {&machine.engine_.sleeping(), [&machine] { machine.engine_.wake(); }}, interrupts_) {
      machine.stop();
      machine.engine_.attach(controller_, [this](std::uint16_t vector) { interrupts_.fire(vector); });
      machine.restart();
      driver = std::make_unique<driver::NvmeDriver>(
          door, driver::Waiter{[] { std::this_thread::yield(); }, [&machine] { return machine.clock_.now_ns(); }});
      driver->enable();
    }
    ~Other() {
      driver.reset();
      machine_.stop();
      machine_.engine_.detach(controller_);
      machine_.restart();
    }

   private:
    Machine& machine_;
    driver::InterruptTable interrupts_;
    controller::Controller controller_;

   public:
    transport::InProcessDevice door;
    std::unique_ptr<driver::NvmeDriver> driver;
  };

 private:
  Machine(const Shape& shape, media::StoreInMemory* made)  // its own from here on
      : Machine(shape, std::make_unique<media::DirectMedia>(std::unique_ptr<media::BlockStore>(made), kBytes,
                                                            shape.cache_bytes)) {
    store = made;
  }

  DeviceConfig config_;
  Clock clock_ = Clock::real();
  controller::Subsystem subsystem_;
  std::unique_ptr<media::Media> media_;
  engine::Engine engine_;
  driver::InterruptTable interrupts_;
  controller::Controller controller_;

 public:
  transport::InProcessDevice door;
  std::unique_ptr<driver::NvmeDriver> driver;
};

inline nvme::Sqe command(nvme::NvmOpcode opcode, std::uint16_t cid, std::uint64_t lba, std::uint32_t blocks) {
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  sqe.cid = cid;
  sqe.nsid = 1;
  sqe.cdw10 = static_cast<std::uint32_t>(lba);
  sqe.cdw12 = blocks == 0 ? 0 : blocks - 1;
  return sqe;
}

// Waits for one completion; returns its status.
inline std::uint16_t next_status(driver::QueuePair& pair) {
  std::uint16_t status = 0xFFFF;
  EXPECT_TRUE(within(milliseconds(20000),
                     [&] { return pair.reap(1, [&](const nvme::Cqe& cqe) { status = cqe.status_phase >> 1; }) != 0; }));
  pair.ring_cq();
  return status & 0x7FF;
}

inline std::uint16_t run(driver::QueuePair& pair, const nvme::Sqe& sqe) {
  pair.submit() = sqe;
  pair.ring_sq();
  return next_status(pair);
}

}  // namespace flashmob::api::direct_media
