// The queue protocol on threads of the operating system, beside an emulated SSD whose engine runs in real time: for
// ThreadSanitizer, and for what a seeded scheduler cannot show. All three ways to take completions.
#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "base/platform.h"
#include "flashmob/gpu/service.h"
#include "flashmob/gpu/simt/host_lane.h"
#include "flashmob/gpu/simt/threads.h"
#include "flashmob/gpu/ssd.h"
#include "host/attach/real_ssd.h"
#include "host/attach/ssd_queues.h"
#include "host/attach/virtual_ssd.h"

namespace flashmob::gpu {
namespace {

constexpr std::uint32_t kBlockBytes = 512;
constexpr std::uint32_t kRounds = FLASHMOB_TSAN ? 6 : 20;

struct WriteRead {
  template <class Lane>
  void operator()(Lane& t, SsdRef ssd, std::byte* data, Completion* completions, std::uint32_t* done) const {
    std::byte* mine = data + std::uint64_t{t.thread()} * kBlockBytes;
    Completion& completion = completions[t.thread()];
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      const int value = static_cast<int>(t.thread() * 5 + round) & 0xFF;
      std::memset(mine, value, kBlockBytes);
      if (!ssd.write(t, 0, t.thread(), 1, mine).wait(t).ok()) return;
      std::memset(mine, 0, kBlockBytes);
      completion.arm(t);
      if (!ssd.read_into(t, 0, t.thread(), 1, mine, completion).ok() || !ssd.wait(t, completion).ok()) return;
      if (mine[0] != std::byte(value) || mine[kBlockBytes - 1] != std::byte(value)) return;
      if (ssd.read(t, 0, ssd.ns(0).blocks, 1, mine).wait(t).code() != 0x80) return;
      ++done[t.thread()];
    }
  }
};

class QueueThreads : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kLanes = 24;

  QueueThreads()
      : ssd(clock, small_ssd()),
        memory(ssd.driver().device()),
        device(clock),
        host([this] { return clock.now_ns(); }, [](std::uint32_t) { std::this_thread::yield(); }) {}

  void use(const QueueLayout& layout) {
    queues.emplace(ssd.driver(), layout);
    ref = queues->ref();
    data = memory.allocate(kLanes * kBlockBytes);
    completions = new (memory.allocate(kLanes * sizeof(Completion))) Completion[kLanes];
    service.control = new (memory.allocate(sizeof(ServiceControl))) ServiceControl();
    auto* handles = reinterpret_cast<QueueRef*>(memory.allocate(layout.queues * sizeof(QueueRef)));
    for (std::uint32_t i = 0; i < layout.queues; ++i) new (handles + i) QueueRef(ref.queue(i));
    service.queues = handles;
    service.queue_count = layout.queues;
  }
  void run() { device.run({.blocks = 1, .block_threads = kLanes}, WriteRead{}, ref, data, completions, done.data()); }
  void expect_all_done() {
    for (const std::uint32_t each : done) ASSERT_EQ(each, kRounds);
    QueueStats sum;
    for (std::uint32_t i = 0; i < ref.queue_count(); ++i) sum += ref.queue(i).stats(host);
    EXPECT_EQ(sum.completed, kLanes * kRounds * 3u);
    EXPECT_EQ(sum.failed, kLanes * kRounds);
    EXPECT_EQ(sum.taken, 0u);
    EXPECT_EQ(sum.unexpected, 0u);
  }

  const Clock clock = Clock::real();
  RealSsd ssd;
  DmaQueueMemory memory;
  simt::ThreadDevice device;
  simt::HostLane host;
  std::optional<SsdQueues> queues;
  SsdRef ref;
  ServiceRef service;
  std::byte* data = nullptr;
  Completion* completions = nullptr;
  std::vector<std::uint32_t> done = std::vector<std::uint32_t>(kLanes);
};

TEST_F(QueueThreads, TheCallersPollOneSharedQueue) {
  use({.queues = 1, .entries = 6});
  run();
  expect_all_done();
}

TEST_F(QueueThreads, AThreadOfTheHostServes) {
  use({.queues = 2, .entries = 9, .mode = ServiceMode::service});
  std::thread server([this] {
    simt::HostLane t([this] { return clock.now_ns(); }, [](std::uint32_t) { std::this_thread::yield(); });
    service.serve(t, 1);
  });
  run();
  service.control->order.store(host, ServiceOrder::drain);
  server.join();
  expect_all_done();
}

TEST_F(QueueThreads, AServiceKernelServes) {
  use({.queues = 2, .entries = 5, .mode = ServiceMode::service});
  const auto server = device.launch({.blocks = 2, .block_threads = 3}, ServiceKernel{}, service);
  while (service.control->started.load(host) != 2) std::this_thread::yield();
  run();
  service.control->order.store(host, ServiceOrder::drain);
  device.wait(server);
  EXPECT_EQ(service.control->left.load(host), 2u);
  expect_all_done();
}

// Nobody serves, so all wait until the flag is raised; what they have submitted is complete when somebody looks.
TEST_F(QueueThreads, TheAbortFlagEndsAllWaits) {
  use({.queues = 1, .entries = 9, .mode = ServiceMode::service});
  const auto wait_for_ever = [](auto& t, SsdRef on, std::byte* to, std::uint32_t* ended) {
    const Token token = on.read(t, 0, 1, 1, to + std::uint64_t{t.thread()} * kBlockBytes);
    const IoStatus status = token.wait(t);
    ended[t.thread()] = status.kind == IoKind::aborted || status.kind == IoKind::refused;
    token.abandon(t);
  };
  const auto kernel = device.launch({.blocks = 1, .block_threads = kLanes}, wait_for_ever, ref, data, done.data());
  device.pass(20'000'000);
  queues->set_abort(true);
  device.wait(kernel);
  for (const std::uint32_t each : done) EXPECT_EQ(each, 1u);
  while (!service.idle(host, 0, 1)) service.pass(host, 1, 0, 1);
  EXPECT_EQ(ref.queue(0).stats(host).taken, 0u);
}

}  // namespace
}  // namespace flashmob::gpu
