// Queues as kernels on the backend in use have them, a GPU's included: what schedules and memory of a real machine do
// to the protocol that seeds_test.cpp proves on fibres.
#include <vector>

#include "host/attach/virtual_ssd.h"
#include "nvme/status.h"
#include "on_backend.h"
#include "queue/kernels.h"

namespace flashmob::gpu::testing {
namespace {

constexpr std::uint32_t kLanes = 64;

std::unique_ptr<Gpu> make_gpu(std::uint32_t depth, const std::string& service = "kernel", std::uint64_t seed = 1) {
  GpuOptions options = test::backend_options(seed);
  options.queue_depth = depth;
  options.service = service;
  if (depth > 8) options.schedule = "timed";  // random schedules take long, and short queues are where they find most
  return attach({small_ssd()}, options);
}

// Every thread writes and reads back as often as it should.
template <class Kernel>
void expect_all_done(Gpu& gpu, std::uint32_t rounds, Kernel kernel) {
  const Memory data = gpu.allocate(kLanes * 512);
  const Memory done = gpu.allocate(kLanes * sizeof(std::uint32_t));
  kernel(data.data(), done.as<std::uint32_t>());
  for (std::uint32_t i = 0; i < kLanes; ++i) ASSERT_EQ(done.as<std::uint32_t>()[i], rounds) << "thread " << i;
  ASSERT_TRUE(gpu.drain());
}

TEST(QueueOnBackend, AnyDepthWorksWhoeverServes) {
  for (const std::string service : {"kernel", "host", "callers"}) {
    if (service == "host" && test::backend() == "cuda") {
      EXPECT_THROW(make_gpu(2, service), ConfigError);
      continue;
    }
    for (const std::uint32_t depth : {2u, 3u, 32u, 33u}) {
      const auto gpu = make_gpu(depth, service);
      expect_all_done(*gpu, 2, [&](std::byte* data, std::uint32_t* done) {
        gpu->run({.blocks = 2}, WriteRead{}, gpu->ssd(0), data, 2u, done);
      });
      const GpuStats stats = gpu->stats();
      EXPECT_EQ(stats.completed, kLanes * 4u) << depth << " " << service;
      EXPECT_EQ(stats.unexpected, 0u);
    }
  }
}

TEST(QueueOnBackend, ASlotTakenByALaneThatIsHeldUpLeavesNoHole) {
  for (const std::uint32_t depth : {3u, 8u}) {
    const auto gpu = make_gpu(depth);
    const Memory finished = gpu->allocate(sizeof(simt::Word<std::uint32_t>));
    const Memory data = gpu->allocate(32 * 512);
    const Memory done = gpu->allocate(32 * sizeof(std::uint32_t));
    gpu->run({.blocks = 1}, HeldUp{}, gpu->ssd(0), data.data(), finished.as<simt::Word<std::uint32_t>>(),
             done.as<std::uint32_t>());
    for (std::uint32_t i = 0; i < 32; ++i) ASSERT_EQ(done.as<std::uint32_t>()[i], 4u) << "thread " << i;
  }
}

TEST(QueueOnBackend, LanesOfAWarpNeedNotRunInStep) {
  for (std::uint64_t seed = 1; seed <= test::seeds(5); ++seed) {
    const auto gpu = make_gpu(7, "kernel", seed);
    expect_all_done(*gpu, 2, [&](std::byte* data, std::uint32_t* done) {
      gpu->run({.blocks = 2}, OwnWays{}, gpu->ssd(0), data, done);
    });
  }
}

TEST(QueueOnBackend, EveryErrorReachesTheCallerWithTypeAndCode) {
  const auto gpu = make_gpu(4);
  const Memory data = gpu->allocate(4096);
  const Memory out = gpu->allocate(4 * sizeof(IoStatus));
  gpu->run({.blocks = 1, .block_threads = 1}, MakeErrors{}, gpu->ssd(0), data.data(), out.as<IoStatus>());
  const auto* const status = out.as<IoStatus>();
  EXPECT_EQ(nvme::status_of(status[0].field), nvme::Status::lba_out_of_range);
  EXPECT_EQ(nvme::status_of(status[1].field), nvme::Status::prp_offset_invalid);
  EXPECT_EQ(nvme::status_of(status[2].field), nvme::Status::data_transfer_error);
  EXPECT_TRUE(status[3].ok());
  EXPECT_EQ(gpu->stats().failed, 3u);
}

TEST(QueueOnBackend, StopDrainsWhatIsInFlight) {
  const auto gpu = make_gpu(33);
  const Memory data = gpu->allocate(32 * 4096);
  const Memory completions = gpu->allocate(32 * sizeof(Completion));
  auto* const each = completions.as<Completion>();
  for (int i = 0; i < 32; ++i) new (each + i) Completion;
  gpu->run({.blocks = 1}, FireAndForget{}, gpu->ssd(0), data.data(), each);
  gpu->stop_service();
  EXPECT_EQ(gpu->stats().in_flight, 0u);
  for (int i = 0; i < 32; ++i) {
    EXPECT_NE(each[i].word.value & Completion::kFinished, 0u);
    EXPECT_TRUE(IoStatus::from_bits(each[i].word.value).ok());
  }
}

}  // namespace
}  // namespace flashmob::gpu::testing
