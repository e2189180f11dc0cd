// The litmus programs of cuda/litmus_kernels.h on every backend there is: fibres under seeded schedules, threads, and a
// GPU beside its host. Skipped, with the reason, where there is no GPU.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "cuda/litmus_kernels.h"
#include "flashmob/gpu/simt/cuda_library.h"
#include "flashmob/gpu/simt/fibre.h"
#include "flashmob/gpu/simt/host_lane.h"
#include "flashmob/gpu/simt/threads.h"

namespace flashmob::gpu::simt {
namespace {

using cuda::Correspond;
using cuda::GiveBack;
using cuda::LitmusPair;
using cuda::PassMessages;

HostLane host_lane() {
  return HostLane([] { return Clock::real().now_ns(); }, [](std::uint32_t) {});
}

TEST(Litmus, HoldsOnFibres) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    EmptyWorld world;
    FibreDevice device(world, {.seed = seed});
    const auto pairs = std::make_unique<LitmusPair<Scope::device>[]>(2);
    Word<std::uint32_t> wrong;
    device.run({.blocks = 4, .block_threads = 1}, PassMessages{}, pairs.get(), 5u, &wrong);
    const auto others = std::make_unique<LitmusPair<Scope::device>[]>(2);
    device.run({.blocks = 4, .block_threads = 1}, GiveBack{}, others.get(), 5u, &wrong);
    ASSERT_EQ(wrong.value, 0u) << "seed " << seed;
  }
}

TEST(Litmus, HoldsOnThreads) {
  ThreadDevice device(Clock::real());
  const auto pairs = std::make_unique<LitmusPair<Scope::device>[]>(2);
  Word<std::uint32_t> wrong;
  device.run({.blocks = 2, .block_threads = 1}, PassMessages{}, pairs.get(), 300u, &wrong);
  device.run({.blocks = 2, .block_threads = 1}, GiveBack{}, pairs.get() + 1, 300u, &wrong);
  EXPECT_EQ(wrong.value, 0u);
  const auto pair = std::make_unique<LitmusPair<Scope::system>>();
  std::uint32_t wrong_there = 0;
  const auto kernel = device.launch({.blocks = 1, .block_threads = 1}, Correspond{}, pair.get(), 300u, &wrong_there);
  HostLane lane = host_lane();
  EXPECT_EQ(cuda::answer_all(lane, *pair, 300), 0u);
  device.wait(kernel);
  EXPECT_EQ(wrong_there, 0u);
}

TEST(Litmus, HoldsOnAGpu) {
  if (const std::string reason = why_no_cuda(); !reason.empty()) GTEST_SKIP() << reason;
  CudaBackend device;
  // The library that stands in for a GPU has no hundreds of multiprocessors.
  const bool is_stand_in = device.describe().rfind("stand-in", 0) == 0;
  const std::uint32_t pairs = is_stand_in ? 2 : 128;
  const std::uint32_t rounds = is_stand_in ? 10 : 20'000;
  using Pair = LitmusPair<Scope::device>;
  auto* const wrong =
      static_cast<Word<std::uint32_t>*>(device.allocate(CudaPlace::pinned_host, sizeof(Word<std::uint32_t>)));
  for (const CudaPlace place : {CudaPlace::device, CudaPlace::pinned_host}) {
    const std::uint32_t here = place == CudaPlace::device ? rounds : (rounds + 9) / 10;
    auto* const memory = static_cast<Pair*>(device.allocate(place, 2 * pairs * sizeof(Pair)));
    device.run({.blocks = 2 * pairs, .block_threads = 1}, PassMessages{}, memory, here, wrong);
    if (place == CudaPlace::device)
      device.run({.blocks = 2 * pairs, .block_threads = 1}, GiveBack{}, memory + pairs, here, wrong);
    EXPECT_EQ(wrong->value, 0u);
    device.release(memory);
  }
  auto* const pair = static_cast<LitmusPair<Scope::system>*>(
      device.allocate(CudaPlace::pinned_host, sizeof(LitmusPair<Scope::system>)));
  auto* const wrong_there = static_cast<std::uint32_t*>(device.allocate(CudaPlace::pinned_host, sizeof(std::uint32_t)));
  const auto kernel = device.launch({.blocks = 1, .block_threads = 1}, Correspond{}, pair, rounds, wrong_there);
  HostLane lane = host_lane();
  EXPECT_EQ(cuda::answer_all(lane, *pair, rounds), 0u);
  device.wait(kernel);
  EXPECT_EQ(*wrong_there, 0u);
  for (void* const memory : {static_cast<void*>(wrong), static_cast<void*>(pair), static_cast<void*>(wrong_there)})
    device.release(memory);
}

}  // namespace
}  // namespace flashmob::gpu::simt
