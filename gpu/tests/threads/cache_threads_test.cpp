// The cache's protocol on threads of the operating system, over SSDs whose commands end on a thread of their own: for
// ThreadSanitizer, and for what a seeded scheduler cannot show.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "base/platform.h"
#include "cache/traffic.h"
#include "flashmob/gpu/simt/threads.h"

namespace flashmob::gpu::test {
namespace {

constexpr std::uint32_t kLineBytes = 512;
constexpr std::uint32_t kThreads = 8;

// Ends commands as the real clock passes, until it goes away.
class Pump {
 public:
  Pump(FakeDevices& devices, const Clock& clock)
      : thread_([this, &devices, &clock] {
          while (!stop_.load()) {
            devices.pass(clock.now_ns());
            std::this_thread::yield();
          }
        }) {}
  ~Pump() {
    stop_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

template <class Fixture>
void run_threads(Fixture& fixture, const TrafficOptions& options, std::uint64_t seed) {
  const Clock clock = Clock::real();
  fixture.devices.set_clock([&clock] { return clock.now_ns(); });
  mark_media(fixture.devices, kLineBytes);
  TrafficModel model(options, kThreads, kLineBytes, seed);
  auto cache = fixture.ref();
  simt::ThreadDevice device(clock);
  {
    const Pump pump(fixture.devices, clock);
    device.run({.blocks = 2, .block_threads = kThreads / 2}, Traffic<decltype(cache)>{cache, &model});
    ASSERT_EQ(model.fault(), "");
    fixture.devices.stop_errors();
    run_one(device, [&](auto& t) {
      ASSERT_TRUE(cache.drain(t).ok());
      ASSERT_TRUE(cache.flush(t).ok());
    });
  }
  ASSERT_EQ(fixture.devices.fault(), "");
  ASSERT_EQ(fixture.audit().text(), "");
  ASSERT_EQ(model.compare(fixture.devices, kLineBytes), "");
}

TrafficOptions traffic(std::uint32_t rounds) {
  TrafficOptions options;
  options.rounds = FLASHMOB_TSAN ? rounds / 4 : rounds;
  options.buffers = false;  // a buffer is copied while others change words of the line that are not looked at
  return options;
}

template <class Policy>
class CacheThreads : public testing::Test {};
using Policies = testing::Types<DirectMapped, Lru, ClockPolicy, Fifo, S3Fifo>;
TYPED_TEST_SUITE(CacheThreads, Policies);

TYPED_TEST(CacheThreads, KeepEveryWrite) {
  const std::uint32_t ways = std::min(4u, TypeParam::kMaxWays);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    FakeOptions options{.seed = seed, .ssds = 2};
    options.timeout_ns = 60'000'000'000;
    if (seed == 3) options.read_error_one_in = options.write_error_one_in = 5;
    CacheFixture<TypeParam> fixture({kLineBytes, 4 / ways, ways}, options);
    TrafficOptions o = traffic(200);
    o.ssds = 2;
    run_threads(fixture, o, seed);
  }
}

TEST(CacheThreadsSecondTier, KeepEveryWrite) {
  FakeOptions options;
  options.timeout_ns = 60'000'000'000;
  TwoTierFixture<Lru, ClockPolicy> fixture({kLineBytes, 1, 3}, {kLineBytes, 1, 4}, options);
  run_threads(fixture, traffic(200), 7);
}

}  // namespace
}  // namespace flashmob::gpu::test
