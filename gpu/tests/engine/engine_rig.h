// A GPU engine on fibres with namespaces, registered memory and queues, and a host that submits and reaps: what the
// suites of the engine share. For one thread; deterministic.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "flashmob/gpu/simt/fibre.h"
#include "host/engine/device_engine.h"
#include "nvme/io_command.h"
#include "nvme/opcode.h"
#include "nvme/status.h"

namespace flashmob::gpu {

// A queue pair as a host uses it.
class RigQueue {
 public:
  RigQueue(std::uint32_t sq_entries, std::uint32_t cq_entries) : sq_(sq_entries), cq_(cq_entries) {}

  nvme::Sqe* sq() { return sq_.data(); }
  nvme::Cqe* cq() { return cq_.data(); }
  std::uint32_t sq_entries() const { return static_cast<std::uint32_t>(sq_.size()); }
  std::uint32_t cq_entries() const { return static_cast<std::uint32_t>(cq_.size()); }
  std::uint32_t* doorbells() { return doorbells_; }
  std::uint32_t outstanding() const { return outstanding_; }
  std::uint32_t free_slots() const { return sq_entries() - 1 - outstanding_; }

  void submit(const nvme::Sqe& sqe) {
    sq_[tail_] = sqe;
    tail_ = (tail_ + 1) % sq_entries();
    ++outstanding_;
  }
  void ring() { std::atomic_ref(doorbells_[0]).store(tail_, std::memory_order_release); }
  void ring_with(std::uint32_t tail) { std::atomic_ref(doorbells_[0]).store(tail, std::memory_order_release); }
  // What is new.
  std::vector<nvme::Cqe> reap(std::uint32_t limit = UINT32_MAX) {
    std::vector<nvme::Cqe> found;
    while (found.size() < limit) {
      const nvme::Cqe& entry = cq_[head_];
      if ((entry.status_phase & 1) != phase_) break;
      found.push_back(entry);
      if (++head_ == cq_entries()) {
        head_ = 0;
        phase_ ^= 1;
      }
      --outstanding_;
    }
    std::atomic_ref(doorbells_[1]).store(head_, std::memory_order_release);
    return found;
  }

  DeviceEngine::Queue device_cq, device_sq;

 private:
  std::vector<nvme::Sqe> sq_;
  std::vector<nvme::Cqe> cq_;
  std::uint32_t doorbells_[2] = {};
  std::uint32_t tail_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t phase_ = 1;
  std::uint32_t outstanding_ = 0;
};

struct RigOptions {
  DeviceEngineOptions engine{.units = 1, .movers = 1, .slots = 256, .longest_pause_ns = 400, .trace_entries = 4096};
  simt::FibreOptions fibres{.seed = 1, .schedule = simt::Schedule::timed, .patience_ns = 1'000'000'000};
  TimingConfig timing;
  std::uint64_t namespace_bytes = 1 << 20;
  std::uint64_t host_bytes = 1 << 20;
};

inline TimingConfig rig_timing() {
  TimingConfig timing;
  timing.read_latency_ns = 10'000;
  timing.write_latency_ns = 6'000;
  timing.read_iops = 10e6;
  timing.write_iops = 5e6;
  return timing;
}

class EngineRig {
 public:
  static constexpr std::uint32_t kMaxNsid = 256;
  static constexpr std::uint64_t kMaxTransfer = 128 << 10;
  // Where the host's memory lies for the SSD: not where it lies.
  static constexpr std::uint64_t kHostIova = 0x7'0000'0000;

  explicit EngineRig(const RigOptions& options)
      : options_(options),
        device_(world_, options.fibres),
        engine_(memory_, options.timing, options.engine),
        media512_(options.namespace_bytes / sizeof(Block)),
        media4096_(options.namespace_bytes / sizeof(Block)),
        host_(options.host_bytes / sizeof(Block)) {
    const auto shift = static_cast<std::uint8_t>(std::countr_zero(options.timing.unit_bytes));
    // All controllers see the same.
    for (std::uint32_t controller = 0; controller < options.engine.controllers; ++controller) {
      engine_.set_namespaces(
          {{{options.namespace_bytes / 512, bytes(media512_), 0, 1, 9, shift}, true},
           {{options.namespace_bytes / 4096, bytes(media4096_), options.namespace_bytes >> shift, 2, 12, shift}, true}},
          kMaxTransfer, kMaxNsid, controller);
      engine_.set_regions({{kHostIova, options.host_bytes, bytes(host_), true}}, controller);
    }
  }

  RigQueue& add_queue(std::uint32_t sq_entries = 64, std::uint32_t cq_entries = 64,
                      controller::QueuePriority priority = controller::QueuePriority::medium,
                      std::uint32_t controller = 0) {
    queues_.push_back(std::make_unique<RigQueue>(sq_entries, cq_entries));
    RigQueue& queue = *queues_.back();
    EXPECT_TRUE(engine_.add_cq(queue.cq(), cq_entries, queue.doorbells() + 1, true, queue.device_cq, controller));
    EXPECT_TRUE(engine_.add_sq(queue.sq(), sq_entries, queue.doorbells(), static_cast<std::uint16_t>(queues_.size()),
                               queue.device_cq, queue.device_sq, controller, priority));
    return queue;
  }
  // Starts the kernel; queues and tables before it are taken up at once.
  void start() {
    engine_.commit();
    kernel_ = device_.launch(engine_.shape(), engine::EngineKernel{}, engine_.ref());
  }
  // Publishes changes and waits until they are taken up.
  void change() {
    const std::uint32_t epoch = engine_.commit();
    for (int i = 0; i < 1000 && !engine_.taken_up(epoch); ++i) device_.pass(1'000);
    ASSERT_TRUE(engine_.taken_up(epoch));
  }
  void end(engine::Run how = engine::Run::drain) {
    engine_.end(how);
    engine_.commit();
    device_.wait(kernel_);
  }
  void pass(std::uint64_t ns) { device_.pass(ns); }

  DeviceEngine& engine() { return engine_; }
  simt::FibreDevice& device() { return device_; }
  std::uint64_t now_ns() { return world_.now_ns(); }
  std::byte* media(std::uint32_t nsid) { return bytes(nsid == 1 ? media512_ : media4096_); }
  std::byte* host() { return bytes(host_); }
  std::uint64_t iova(std::uint64_t offset) const { return kHostIova + offset; }
  std::uint64_t blocks(std::uint32_t nsid) const { return options_.namespace_bytes >> (nsid == 1 ? 9 : 12); }

 private:
  struct alignas(4096) Block {
    std::byte bytes[4096];
  };
  static std::byte* bytes(std::vector<Block>& blocks) { return blocks.data()->bytes; }

  RigOptions options_;
  simt::EmptyWorld world_{1'000'000};
  HostEngineMemory memory_;
  simt::FibreDevice device_;
  DeviceEngine engine_;
  std::vector<Block> media512_, media4096_, host_;
  std::vector<std::unique_ptr<RigQueue>> queues_;
  simt::FibreDevice::Kernel kernel_ = 0;
};

inline nvme::Sqe command(nvme::NvmOpcode opcode, std::uint16_t cid, std::uint32_t nsid, std::uint64_t lba = 0,
                         std::uint32_t blocks = 1, std::uint64_t prp1 = 0, std::uint64_t prp2 = 0) {
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  sqe.cid = cid;
  sqe.nsid = nsid;
  sqe.prp1 = prp1;
  sqe.prp2 = prp2;
  if (opcode != nvme::NvmOpcode::flush) nvme::set_lba_range(sqe, lba, blocks);
  return sqe;
}

inline nvme::Status status_of(const nvme::Cqe& cqe) {
  return nvme::status_of(static_cast<std::uint16_t>(cqe.status_phase >> 1));
}

}  // namespace flashmob::gpu
