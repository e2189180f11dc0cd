// The completer's wheel: whatever a request's target is, it comes out of the bucket of that target.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "flashmob/gpu/engine/wheel.h"
#include "flashmob/gpu/simt/fibre.h"

namespace flashmob::gpu::engine {
namespace {

struct Walk {
  Request* requests;
  UnitShared* shared;
  std::uint64_t* out_ticks;  // by slot: the bucket that it came out of
  std::uint32_t count;
  std::uint32_t most_step;  // ticks that the clock goes on by at once, at most
  std::uint64_t seed;
};

// One warp puts all requests in, 32 at a time, and takes them out as the clock goes on, as the completer does.
struct WalkWheel {
  template <class Lane>
  void operator()(Lane& t, const Walk& walk) const {
    Wheel<Lane> wheel(walk.requests, *walk.shared);
    wheel.begin(t, 0);
    Rng rng(walk.seed);  // every lane draws the same
    std::uint32_t put = 0, taken = 0;
    for (std::uint64_t now = 0; taken < walk.count;) {
      const std::uint32_t slot = put + t.lane();
      if (slot < walk.count) wheel.insert(t, slot, walk.requests[slot].target_ns >> kWheelShift);
      put += simt::kWarpLanes;
      now += rng.below(walk.most_step) + 1;
      if (now - wheel.tick() >= kWheelBuckets) wheel.advance(t, now - (kWheelBuckets - 1));
      while (wheel.tick() < now) {
        const std::uint64_t left = now - wheel.tick();
        std::uint32_t mine = 0;
        const std::uint64_t bucket = wheel.tick() + t.lane();
        Slot next = t.lane() < left ? wheel.take(bucket) : kNoSlot;
        while (next != kNoSlot) {
          const Slot each = next;
          next = walk.requests[each].next;
          walk.out_ticks[each] = bucket;
          ++mine;
        }
        for (std::uint32_t lane = 0; lane < simt::kWarpLanes; ++lane) taken += t.shuffle(t.lanes(), mine, lane);
        wheel.advance(t, wheel.tick() + (left < simt::kWarpLanes ? left : simt::kWarpLanes));
      }
    }
  }
};

TEST(Wheel, ARequestComesOutOfTheBucketOfItsTarget) {
  constexpr std::uint32_t kCount = 3000;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    // From the next bucket to far beyond all lists, which hold 4.2 ms: most of them near, some all at one time.
    const std::uint32_t most_step = seed % 3 == 0 ? 20 : seed % 3 == 1 ? 200 : 900;
    Rng rng(seed);
    std::vector<Request> requests(kCount);
    for (std::uint32_t i = 0; i < kCount; ++i) {
      // Not before the clock has got there: it goes on by at most so much for each 32 that are put in.
      const std::uint64_t earliest = std::uint64_t{i / simt::kWarpLanes + 1} * most_step + 1;
      const std::uint64_t span = i % 4 == 0 ? 80'000 : i % 4 == 1 ? 30'000 : 1'200;
      const std::uint64_t tick = i % 7 == 0 ? earliest / 60'000 * 60'000 + 60'000 : earliest + rng.below(span);
      requests[i].target_ns = tick << kWheelShift;
    }
    auto shared = std::make_unique<UnitShared>();
    std::vector<std::uint64_t> out(kCount, UINT64_MAX);
    simt::EmptyWorld world;
    simt::FibreDevice device(world, {.seed = seed, .schedule = simt::Schedule::timed});
    device.run({.blocks = 1}, WalkWheel{}, Walk{requests.data(), shared.get(), out.data(), kCount, most_step, seed});
    for (std::uint32_t i = 0; i < kCount; ++i)
      ASSERT_EQ(out[i], requests[i].target_ns >> kWheelShift) << "seed " << seed << ", request " << i;
  }
}

}  // namespace
}  // namespace flashmob::gpu::engine
