// A whole SSD behind its NVMe/TCP door and hosts that reach it through sockets, all on real threads.
//
// One test thread drives the hosts; the engine, the target and the devices' pumps run on threads of their own.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "controller/subsystem.h"
#include "driver/data_buffer.h"
#include "driver/nvme_driver.h"
#include "engine/engine.h"
#include "flashmob/config.h"
#include "initiator/nvme_tcp/nvme_tcp_device.h"
#include "nvme/io_command.h"
#include "nvme/opcode.h"
#include "transport/nvme_tcp/nvme_tcp_target.h"

namespace flashmob::doors {

inline constexpr std::uint32_t kBlockBytes = 512;
inline constexpr std::uint64_t kNamespaceBytes = 64 << 20;

inline DeviceConfig small_ssd() {
  DeviceConfig config;
  config.subsystem.namespaces[0].size_bytes = kNamespaceBytes;
  config.subsystem.namespaces[0].lba_bytes = kBlockBytes;
  config.controller.max_queue_pairs = 32;
  config.controller.max_transfer_bytes = 1 << 20;
  config.timing.model = "none";
  config.engine.idle_spin_ns = 20'000;
  return config;
}

// The SSD; its target can be stopped and started again on the same port.
struct Ssd {
  explicit Ssd(const transport::NvmeTcpTargetOptions& target_options = {},
               const DeviceConfig& device_config = small_ssd())
      : config(device_config),
        clock(Clock::real()),
        options(target_options),
        subsystem(config.subsystem, config.seed, config.timing.unit_bytes),
        engine(config, clock) {
    options.port = 0;
    engine.start();
    start_target();
  }
  ~Ssd() {
    target.reset();
    engine.stop();
  }
  void start_target() {
    target = std::make_unique<transport::NvmeTcpTarget>(subsystem, engine, config.controller, options);
    options.port = target->port();
    target->start();
  }

  DeviceConfig config;
  Clock clock;
  transport::NvmeTcpTargetOptions options;
  controller::Subsystem subsystem;
  engine::Engine engine;
  std::unique_ptr<transport::NvmeTcpTarget> target;
};

inline initiator::NvmeTcpOptions host_options(const Ssd& ssd) {
  initiator::NvmeTcpOptions options;
  options.address = ssd.options.address;
  options.port = ssd.target->port();
  options.subsystem_nqn = ssd.config.subsystem.nqn;
  options.timeout_ms = 3000;
  options.idle_spin_ns = 20'000;
  return options;
}

// A driver with queues and, for each command slot, a buffer.
class Host {
 public:
  static constexpr std::uint32_t kMaxIoBytes = 1 << 20;

  Host(const initiator::NvmeTcpOptions& options, unsigned queues, std::uint32_t depth)
      : device(options),
        driver(device, {[] { std::this_thread::yield(); }, now_ns}),
        depth_(depth),
        memory_(device, std::size_t{queues} * depth * kSlotBytes),
        lists_(device, queues * depth, kMaxIoBytes) {
    slots_.resize(std::size_t{queues} * depth);
    bring_up();
  }

  static std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                      std::chrono::nanoseconds(1));
  }
  // Resets the controller, if it ran, and makes the queues.
  void bring_up() {
    pairs.clear();
    driver.enable();
    for (Slot& slot : slots_) slot.busy = false;
    const auto queues = static_cast<unsigned>(slots_.size() / depth_);
    driver.request_queues(queues);
    for (unsigned q = 0; q < queues; ++q) pairs.push_back(&driver.create_queue_pair({.sq_entries = depth_ + 1}));
  }

  struct Slot {
    bool busy = false;
    std::uint16_t status = 0;
  };
  Slot& slot(unsigned queue, std::uint32_t index) { return slots_[std::size_t{queue} * depth_ + index]; }
  std::byte* data(unsigned queue, std::uint32_t index) { return memory_.data() + at(queue, index) * kSlotBytes; }
  std::uint32_t depth() const { return depth_; }

  // Starts a command; `bytes` of the slot's buffer are its data.
  void submit(unsigned queue, std::uint32_t index, nvme::NvmOpcode opcode, std::uint64_t slba, std::uint32_t bytes,
              const std::function<void(nvme::Sqe&)>& edit = nullptr) {
    nvme::Sqe& sqe = pairs[queue]->submit();
    sqe = {};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.nsid = 1;
    sqe.cid = static_cast<std::uint16_t>(index);
    if (bytes != 0) {
      nvme::set_lba_range(sqe, slba, bytes / kBlockBytes);
      lists_.describe(static_cast<std::uint32_t>(at(queue, index)), sqe, memory_.iova() + at(queue, index) * kSlotBytes,
                      bytes);
    }
    if (edit) edit(sqe);
    slot(queue, index).busy = true;
  }
  void ring() {
    for (driver::QueuePair* pair : pairs) pair->ring_sq();
  }
  unsigned reap() {
    unsigned count = 0;
    for (unsigned q = 0; q < pairs.size(); ++q) {
      count += pairs[q]->reap(1000, [&](const nvme::Cqe& entry) {
        Slot& ended = slot(q, entry.cid);
        EXPECT_TRUE(ended.busy);
        ended.busy = false;
        ended.status = static_cast<std::uint16_t>(entry.status_phase >> 1);
      });
      pairs[q]->ring_cq();
    }
    return count;
  }
  // Waits until nothing is outstanding; false if that takes longer than ten seconds.
  bool drain() {
    ring();
    const std::uint64_t until_ns = now_ns() + 10'000'000'000;
    for (;;) {
      bool busy = false;
      for (driver::QueuePair* pair : pairs) busy |= pair->outstanding() != 0;
      if (!busy) return true;
      if (reap() == 0) std::this_thread::yield();
      if (now_ns() > until_ns) return false;
    }
  }
  // One command, to its end.
  std::uint16_t run(nvme::NvmOpcode opcode, std::uint64_t slba, std::uint32_t bytes,
                    const std::function<void(nvme::Sqe&)>& edit = nullptr) {
    submit(0, 0, opcode, slba, bytes, edit);
    EXPECT_TRUE(drain());
    return slot(0, 0).status;
  }

  initiator::NvmeTcpDevice device;
  driver::NvmeDriver driver;
  std::vector<driver::QueuePair*> pairs;

 private:
  // Not a multiple of the page, so that transfers begin anywhere.
  static constexpr std::size_t kSlotBytes = kMaxIoBytes + 4096 + 512;
  std::size_t at(unsigned queue, std::uint32_t index) const { return std::size_t{queue} * depth_ + index; }

  std::uint32_t depth_;
  driver::DmaMemory memory_;
  driver::PrpLists lists_;
  std::vector<Slot> slots_;
};

// What stands in the block at `lba` after its `version`-th write.
inline void fill_blocks(std::byte* to, std::uint64_t lba, std::uint32_t bytes, std::uint64_t version) {
  for (std::uint32_t done = 0; done < bytes; done += kBlockBytes, ++lba) {
    const std::uint64_t word = splitmix64(lba * 1000003 + version);
    for (std::uint32_t i = 0; i < kBlockBytes; i += 8) {
      const std::uint64_t value = word + i;
      std::memcpy(to + done + i, &value, sizeof value);
    }
  }
}
inline bool holds_blocks(const std::byte* data, std::uint64_t lba, std::uint32_t bytes, std::uint64_t version) {
  std::vector<std::byte> expected(bytes);
  fill_blocks(expected.data(), lba, bytes, version);
  return std::memcmp(data, expected.data(), bytes) == 0;
}

}  // namespace flashmob::doors
