// A drive on files with a driver of its own, and queues whose commands a test makes itself.
#pragma once

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>

#include "api/device.h"
#include "atomicity/kill_load.h"
#include "base/check.h"
#include "driver/data_buffer.h"
#include "driver/nvme_driver.h"
#include "nvme/features.h"
#include "nvme/identify_namespace.h"
#include "nvme/io_command.h"
#include "nvme/opcode.h"
#include "nvme/status.h"

namespace flashmob::atomicity {

inline constexpr std::uint32_t kBlocksNs = 1, kFormattedNs = 2, kProtectedNs = 3;
inline constexpr std::uint32_t kLanes = 5;

// A queue with a buffer for each command that may be in flight. One thread.
class Lane {
 public:
  static constexpr std::uint32_t kDepth = 8;
  static constexpr std::uint64_t kSlotBytes = 32 * kLbaBytes;

  Lane(driver::NvmeDriver& driver, std::atomic<std::uint64_t>* steps)
      : steps_(steps),
        queue_(driver.create_queue_pair({.sq_entries = 4 * kDepth})),
        memory_(driver.device(), kDepth * kSlotBytes),
        lists_(driver.device(), kDepth, kSlotBytes) {}

  std::span<std::byte> data(std::uint32_t slot, std::uint64_t bytes) {
    return {memory_.data() + slot * kSlotBytes, static_cast<std::size_t>(bytes)};
  }
  // `done` gets the status, 0 where all is well. The block is in units of the namespace's format.
  void submit(std::uint32_t slot, nvme::NvmOpcode opcode, std::uint32_t nsid, std::uint64_t lba, std::uint32_t blocks,
              std::uint64_t bytes, std::function<void(unsigned)> done, std::uint8_t flags = 0, bool fua = false) {
    const std::uint16_t cid = static_cast<std::uint16_t>(2 * slot + (flags == nvme::kFlagFuseSecond ? 1 : 0));
    done_.at(cid) = std::move(done);
    nvme::Sqe& sqe = queue_.submit();
    sqe = {};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.flags = flags;
    sqe.cid = cid;
    sqe.nsid = nsid;
    if (bytes != 0) lists_.describe(slot, sqe, memory_.iova() + slot * kSlotBytes, bytes);
    sqe.cdw10 = static_cast<std::uint32_t>(lba);
    if (blocks != 0) sqe.cdw12 = (blocks - 1) | (fua ? nvme::kIoForceUnitAccess : 0);
  }
  void ring() { queue_.ring_sq(); }
  void poll() {
    const std::uint32_t count = queue_.reap(kDepth, [this](const nvme::Cqe& entry) {
      const auto done = std::move(done_.at(entry.cid));
      done((entry.status_phase >> 1) & 0x7FF);
    });
    if (count == 0) std::this_thread::yield();
    if (steps_ != nullptr) *steps_ += count;
    queue_.ring_cq();
  }
  void drain() {
    ring();
    while (queue_.outstanding() != 0) poll();
  }
  // One command by itself; its status.
  unsigned run(nvme::NvmOpcode opcode, std::uint32_t nsid, std::uint64_t lba, std::uint32_t blocks, std::uint64_t bytes,
               bool fua = false) {
    unsigned status = ~0u;
    submit(0, opcode, nsid, lba, blocks, bytes, [&](unsigned s) { status = s; }, 0, fua);
    drain();
    return status;
  }

 private:
  std::atomic<std::uint64_t>* steps_;
  driver::QueuePair& queue_;
  driver::DmaMemory memory_;
  driver::PrpLists lists_;
  std::array<std::function<void(unsigned)>, 2 * kDepth> done_;
};

class Drive {
 public:
  explicit Drive(const Scene& scene, std::atomic<std::uint64_t>* steps = nullptr) : device_(config(scene), clock_) {
    device_.start();
    const driver::Waiter waiter{[] { std::this_thread::yield(); }, [this] { return clock_.now_ns(); }};
    driver_ = std::make_unique<driver::NvmeDriver>(device_.pci(), waiter);
    // Flushes and formats wait for a disk that may be slow; what is looked for here are blocks, not times.
    constexpr std::uint64_t kPatienceNs = 60'000'000'000;
    driver_->least_ready_timeout_ns = driver_->shutdown_timeout_ns = driver_->admin_timeout_ns = kPatienceNs;
    driver_->enable();
    driver_->request_queues(kLanes);
    for (auto& lane : lanes_) lane = std::make_unique<Lane>(*driver_, steps);
  }
  ~Drive() {
    driver_->shutdown(false);
    driver_->disable();
    for (auto& lane : lanes_) lane.reset();
    driver_.reset();
    device_.stop();
  }
  Drive(const Drive&) = delete;
  Drive& operator=(const Drive&) = delete;

  Lane& lane(std::uint32_t index) { return *lanes_.at(index); }
  driver::NvmeDriver& driver() { return *driver_; }
  unsigned admin(nvme::AdminOpcode opcode, std::uint32_t nsid, std::uint32_t cdw10, std::uint32_t cdw11 = 0) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.nsid = nsid;
    sqe.cdw10 = cdw10;
    sqe.cdw11 = cdw11;
    return driver_->admin(sqe, {}, false).status_field & 0x7FF;
  }
  std::uint32_t lba_bytes(std::uint32_t nsid) {
    nvme::IdentifyNamespace data;
    driver_->identify(static_cast<std::uint8_t>(nvme::Cns::identify_namespace), nsid,
                      std::as_writable_bytes(std::span(&data, 1)));
    return 1u << data.lbaf[nvme::lba_format_index(data.flbas)].lbads;
  }

 private:
  static DeviceConfig config(const Scene& scene) {
    const auto ns = [&](const char* name, std::uint64_t blocks) {
      return NamespaceConfig{.size_bytes = blocks * kLbaBytes,
                             .lba_bytes = kLbaBytes,
                             .media = scene.media + ":" + scene.folder + "/" + name};
    };
    DeviceConfig config;
    config.subsystem.namespaces = {ns("blocks", kBlocks + 1), ns("formatted", kFormatted), ns("protected", 1)};
    config.controller.max_queue_pairs = kLanes;
    config.controller.interrupt_vectors = kLanes + 1;
    config.timing.model = "none";
    config.engine.units = scene.units;
    config.engine.idle_spin_ns = 20'000;
    return config;
  }

  Clock clock_ = Clock::real();
  api::Device device_;
  std::unique_ptr<driver::NvmeDriver> driver_;
  std::array<std::unique_ptr<Lane>, kLanes> lanes_;
};

}  // namespace flashmob::atomicity
