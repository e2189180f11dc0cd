#include <chrono>
#include <cstddef>
#include <span>
#include <thread>

#include "api/open_target.h"
#include "soak/hosts/host.h"

namespace flashmob::soak {
namespace {

DeviceConfig own_config(const HostPlan& plan) {
  DeviceConfig config;
  config.subsystem.namespaces[0] = {.size_bytes = std::uint64_t{kPartPages} * kPageBytes, .media = plan.media};
  config.controller.max_queue_pairs = 4;
  config.controller.interrupt_vectors = 5;
  config.timing.model = "none";
  config.engine.idle_spin_ns = 20'000;
  return config;
}

}  // namespace

Attachment::Attachment(const HostPlan& plan) {
  driver::PciDevice* device = nullptr;
  if (plan.door.address.empty()) {
    own_ = std::make_unique<api::Device>(own_config(plan), clock_);
    own_->start();
    device = &own_->pci();
  } else {
    theirs_ = api::open_target(plan.door);
    device = theirs_.get();
  }
  const driver::Waiter waiter{[this] { pause(); }, [this] { return now_ns(); }};
  driver_ = std::make_unique<driver::NvmeDriver>(*device, waiter, 16);
  driver_->least_ready_timeout_ns = driver_->shutdown_timeout_ns = driver_->admin_timeout_ns = kUnansweredNs;
  driver_->enable();
  queue_ = &driver_->create_queue_pair({.sq_entries = 2 * kSlots});
  memory_ = std::make_unique<driver::DmaMemory>(*device, std::size_t{kSlots} * kPageBytes);
}

Attachment::~Attachment() {
  memory_.reset();
  driver_.reset();
  if (own_) own_->stop();
}

// Passes the processor on: there are more hosts than cores, and the device needs one too.
void Attachment::pause() {
  if (++idle_rounds_ < 32)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

std::uint64_t* Attachment::words(std::uint32_t slot) const {
  return reinterpret_cast<std::uint64_t*>(memory_->data() + std::size_t{slot} * kPageBytes);
}

nvme::Sqe& Attachment::submit(std::uint32_t slot, nvme::NvmOpcode opcode, std::uint32_t nsid) {
  nvme::Sqe& sqe = queue_->submit();
  sqe = {};
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  sqe.cid = static_cast<std::uint16_t>(slot);
  sqe.nsid = nsid;
  sqe.prp1 = memory_->iova() + std::uint64_t{slot} * kPageBytes;
  return sqe;
}

bool Attachment::reap(const std::function<void(std::uint32_t, unsigned)>& done) {
  const std::uint32_t count =
      queue_->reap(kSlots, [&](const nvme::Cqe& entry) { done(entry.cid, (entry.status_phase >> 1) & 0x7FF); });
  if (count == 0) {
    pause();
    return false;
  }
  idle_rounds_ = 0;
  queue_->ring_cq();
  return true;
}

unsigned Attachment::run(nvme::NvmOpcode opcode, std::uint32_t nsid, std::uint64_t lba, std::uint32_t blocks,
                         std::uint32_t cdw11) {
  nvme::Sqe& sqe = submit(0, opcode, nsid);
  sqe.cdw10 = static_cast<std::uint32_t>(lba);
  sqe.cdw11 = cdw11;
  sqe.cdw12 = blocks - 1;
  queue_->ring_sq();
  const std::uint64_t begin = now_ns();
  unsigned status = ~0u;
  while (!reap([&](std::uint32_t, unsigned answer) { status = answer; }))
    if (now_ns() - begin > kUnansweredNs) throw driver::NvmeTimeout("a command was not answered in a minute");
  return status;
}

unsigned Attachment::admin(nvme::AdminOpcode opcode, std::uint32_t nsid, std::uint32_t cdw10, std::uint32_t cdw11,
                           std::span<std::byte> data, std::uint32_t* dw0) {
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  sqe.nsid = nsid;
  sqe.cdw10 = cdw10;
  sqe.cdw11 = cdw11;
  const driver::AdminResult result = driver_->admin(sqe, data, false);
  if (dw0 != nullptr) *dw0 = result.dw0;
  return result.status_field & 0x7FF;
}

void Attachment::reset() {
  driver_->disable();
  driver_->enable();
  queue_ = &driver_->create_queue_pair({.sq_entries = 2 * kSlots});
}

}  // namespace flashmob::soak
