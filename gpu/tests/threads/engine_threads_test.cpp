// The GPU engine on threads of the operating system, with an application and a service beside it: for ThreadSanitizer,
// and for what a seeded scheduler cannot show. Small, for every lane is a thread.
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/platform.h"
#include "evaluation/point_run.h"
#include "flashmob/gpu/simt/threads.h"

namespace flashmob::gpu::evaluation {
namespace {

struct EngineThreads : ::testing::Test {
  Measured run() {
    simt::ThreadDevice device(Clock::real());
    HostEngineMemory memory;
    Surroundings around;
    around.media = static_cast<std::byte*>(memory.allocate_device(options.media_bytes));
    around.step_ns = 1'000'000;
    around.patience_ns = 120'000'000'000;
    around.resident_threads = options.threads;
    device.run({.blocks = 1, .block_threads = 1}, FillMedia{}, around.media, options.media_bytes);
    return PointRun<simt::ThreadDevice>(device, memory, around, options).run();
  }
  void expect_right(const Measured& measured) {
    EXPECT_GT(measured.account.checked.value, 0u);
    EXPECT_EQ(measured.account.wrong.value, 0u);
    EXPECT_EQ(measured.account.failed.value, 0u);
    EXPECT_EQ(measured.account.reads.value, total(measured.account));
  }
  static std::uint64_t total(const ReadAccount& account) {
    std::uint64_t sum = 0;
    for (const auto& count : account.latency_ns) sum += count.value;
    return sum;
  }

  PointOptions options = [] {
    PointOptions small;
    small.threads = 6;
    small.queues = 2;
    small.entries = 4;
    small.media_bytes = 64 << 10;
    small.units = 1;
    small.movers = 1;
    small.service_warps = 1;
    small.iops = 1e6;
    small.ramp_ns = 100'000'000;
    small.measure_ns = FLASHMOB_TSAN ? 400'000'000 : 200'000'000;
    return small;
  }();
};

TEST_F(EngineThreads, ServesAnApplicationBesideAService) { expect_right(run()); }

TEST_F(EngineThreads, TwoUnitsShareTheModel) {
  options.units = 2;
  options.bytes = 1024;
  options.per_request_updates = true;
  expect_right(run());
}

}  // namespace
}  // namespace flashmob::gpu::evaluation
