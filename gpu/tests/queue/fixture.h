// A real emulated SSD under the virtual clock, queues on it, and memory that kernels and SSD share.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "flashmob/gpu/service.h"
#include "flashmob/gpu/simt/fibre.h"
#include "flashmob/gpu/simt/host_lane.h"
#include "host/attach/ssd_queues.h"
#include "host/attach/virtual_ssd.h"

namespace flashmob::gpu::testing {

class OnVirtualSsd : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kSmall = 0;  // namespace indices: 512-byte blocks
  static constexpr std::uint32_t kLarge = 1;  // and 4096-byte blocks

  OnVirtualSsd() : ssd(world.add(small_ssd())), host([this] { return world.now_ns(); }, [](std::uint32_t) {}) {}

  SsdRef make_queues(const QueueLayout& layout) {
    queues.reset();
    queues = std::make_unique<SsdQueues>(ssd.driver(), layout);
    return queues->ref();
  }
  std::byte* allocate(std::size_t bytes) {
    memory.push_back(std::make_unique<driver::DmaMemory>(ssd.pci(), bytes));
    return memory.back()->data();
  }
  ServiceRef make_service(const SsdRef& ref) {
    ServiceRef service;
    service.control = new (allocate(sizeof(ServiceControl))) ServiceControl();
    auto* handles = reinterpret_cast<QueueRef*>(allocate(ref.queue_count() * sizeof(QueueRef)));
    for (std::uint32_t i = 0; i < ref.queue_count(); ++i) new (handles + i) QueueRef(ref.queue(i));
    service.queues = handles;
    service.queue_count = ref.queue_count();
    return service;
  }
  simt::FibreOptions random_schedule(std::uint64_t seed = 1) {
    return {.seed = seed, .schedule = simt::Schedule::random, .patience_ns = 20'000'000};
  }
  simt::FibreOptions timed_schedule() { return {.schedule = simt::Schedule::timed, .patience_ns = 20'000'000}; }
  QueueStats stats(const SsdRef& ref) {
    QueueStats sum;
    for (std::uint32_t i = 0; i < ref.queue_count(); ++i) sum += ref.queue(i).stats(host);
    return sum;
  }

  VirtualWorld world;
  VirtualSsd& ssd;
  simt::HostLane host;
  std::vector<std::unique_ptr<driver::DmaMemory>> memory;
  std::unique_ptr<SsdQueues> queues;
};

}  // namespace flashmob::gpu::testing
