// Whole programs under CUDA's rules: SSDs, services and an application on one GPU that stands in for a real one. Real
// time: every wait is for progress.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "flashmob/error.h"
#include "flashmob/gpu.h"
#include "flashmob/gpu/cache_owner.h"
#include "flashmob/gpu/cache_policy/clock.h"
#include "flashmob/gpu_server.h"
#include "rules/on_stand_in.h"

namespace flashmob::gpu {
namespace {

class Attached : public rules::OnStandIn {
 protected:
  void SetUp() override {
    enable_engine();
    rules::OnStandIn::SetUp();
    if (gpu_ == nullptr) return;
    stand_in::Model usual;
    usual.multiprocessors = 8;
    gpu_->reset(usual);
  }
  static DeviceConfig ssd(const std::string& engine, const std::string& media = "device") {
    DeviceConfig config;
    config.subsystem.namespaces[0].size_bytes = 1 << 20;
    config.timing.model = "none";
    config.controller.max_queue_pairs = 8;
    config.controller.max_transfer_bytes = 128 << 10;
    config.engine.kind = engine;
    config.engine.sms = 1;
    config.engine.gpu_media = media;
    return config;
  }
  static GpuOptions options(const std::string& placement = "host") {
    GpuOptions made;
    made.backend = "cuda";
    made.queue_depth = 8;
    made.queue_placement = placement;
    return made;
  }
  // Blocks that host code has written come back to kernels, and what is allocated and freed meanwhile disturbs nobody.
  static void work_on(Gpu& gpu) {
    std::vector<std::byte> data(8 * 512);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7);
    gpu.write(0, 0, 0, data.data(), data.size());
    const Memory buffer = gpu.allocate(data.size(), Placement::host);
    gpu.run({.blocks = 1, .block_threads = 8}, rules::ReadBlocks{}, gpu.ssd(0), buffer.data());
    EXPECT_EQ(std::memcmp(buffer.data(), data.data(), data.size()), 0);
    for (int round = 0; round < 3; ++round) {
      const Memory more = gpu.allocate(8192, Placement::host);
      std::memset(more.data(), 1, 8192);
    }
  }
  static std::string refusal(const std::vector<DeviceConfig>& ssds, const GpuOptions& options) {
    try {
      attach(ssds, options);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(Attached, AnEngineOnTheHostServesKernels) { work_on(*attach({ssd("host")}, options())); }

TEST_F(Attached, AnEngineOnTheGpuSharesTheApplicationsMemory) {
  work_on(*attach({ssd("gpu")}, options()));
  EXPECT_EQ(gpu_->take_findings(), "");
  work_on(*attach({ssd("gpu", "host")}, options()));
}

TEST_F(Attached, QueuesOfTheGpusMemoryAreGivenBackBesideTheEngine) {
  work_on(*attach({ssd("gpu")}, options("device")));
}

// A word of the host's memory costs a GPU seven times one of its own, and looks of many warps at it wait for each
// other.
TEST_F(Attached, WhatOnlyKernelsUpdateLiesInTheGpusMemoryWhichTheHostCopies) {
  stand_in::Model strict;
  strict.multiprocessors = 8;
  strict.hides_device_memory = true;
  gpu_->reset(strict);
  for (const auto& [engine, placement] : {std::pair{"host", "host"}, {"gpu", "device"}}) {
    GpuOptions two = options(placement);
    two.queues = 2;
    const auto gpu = attach({ssd(engine)}, two);
    const SsdRef ref = gpu->ssd(0);
    EXPECT_TRUE(gpu_->is_device_memory(ref.queue(1).get()) && gpu_->is_device_memory(&ref.ns(0)));
    Queue queue;
    gpu->copy(&queue, ref.queue(1).get(), sizeof(queue));
    EXPECT_TRUE(gpu_->is_device_memory(queue.slots) && gpu_->is_device_memory(queue.free_slots));
    EXPECT_TRUE(gpu_->is_device_memory(queue.abort));
    EXPECT_EQ(gpu_->is_device_memory(queue.sq), placement == std::string("device"));
    EXPECT_EQ(gpu_->is_device_memory(queue.lists), placement == std::string("device"));
    EXPECT_FALSE(gpu_->is_device_memory(queue.sq_doorbell));
    work_on(*gpu);
    EXPECT_TRUE(gpu->drain());
    gpu->stop_service();
    const GpuStats stats = gpu->stats();
    EXPECT_EQ(stats.completed, 8u);
    EXPECT_EQ(stats.in_flight + stats.failed + stats.unexpected, 0u);
    std::byte block[512];
    EXPECT_THROW(gpu->read(0, 1, 0, block, sizeof(block)), ConfigError);
  }
}

// Data, too, where the SSD's engine is on the GPU: then no host code looks at them, or can.
TEST_F(Attached, NearMemoryIsTheGpusOwnWhereTheEnginesAre) {
  stand_in::Model strict;
  strict.multiprocessors = 8;
  strict.hides_device_memory = true;
  gpu_->reset(strict);
  for (const std::string engine : {"host", "gpu"}) {
    const Placement where = engine == "gpu" ? Placement::device : Placement::host;
    const auto gpu = attach({ssd(engine)}, options());
    std::vector<std::byte> data(8 * 512);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 5);
    gpu->write(0, 0, 0, data.data(), data.size());
    const Memory buffer = gpu->allocate_near(data.size(), true);
    EXPECT_EQ(buffer.placement(), where);
    EXPECT_EQ(gpu_->is_device_memory(buffer.data()), where == Placement::device);
    gpu->run({.blocks = 1, .block_threads = 8}, rules::ReadBlocks{}, gpu->ssd(0), buffer.data());
    std::vector<std::byte> got(data.size());
    gpu->copy(got.data(), buffer.data(), got.size());
    EXPECT_EQ(got, data);
    const Memory kernels_own = gpu->allocate_near(100);
    EXPECT_EQ(kernels_own.placement(), Placement::device);
    EXPECT_TRUE(gpu_->is_device_memory(kernels_own.data()));
  }
}

TEST_F(Attached, LinesOfACacheLieThereToo) {
#if defined(FLASHMOB_ASAN)
  GTEST_SKIP() << "the stand-in's library has no kernels of caches in a sanitized build (gpu/tests/stand_in)";
#endif
  stand_in::Model strict;
  strict.multiprocessors = 8;
  strict.hides_device_memory = true;
  gpu_->reset(strict);
  for (const std::string engine : {"host", "gpu"}) {
    const auto gpu = attach({ssd(engine)}, options());
    Cache<ClockPolicy> cache(*gpu, {.line_bytes = 512, .lines = 64, .ways = 8});
    EXPECT_EQ(cache.placement(), engine == "gpu" ? Placement::device : Placement::host);
    EXPECT_TRUE(cache.flush().ok());
    EXPECT_EQ(cache.audit().text(), "");
    EXPECT_EQ(cache.audit().lines, 64u);
    EXPECT_EQ(cache.statistics()[CacheCount::misses], 0u);
    EXPECT_TRUE(cache.drain().ok());
  }
}

// With an SSD of another process the flag that ends waits is the GPU's, too, and a thread that no kernel belongs to
// raises it.
TEST_F(Attached, KernelsOfAClientAreToldThatTheServerIsGone) {
  stand_in::Model strict;
  strict.hides_device_memory = true;
  gpu_->reset(strict);
  char folder[] = "/tmp/flashmob_stand_in_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  {
    auto server = serve(ssd("gpu"), std::string(folder) + "/ssd", "fibres");
    const auto gpu = attach_remote(std::string(folder) + "/ssd", options());
    EXPECT_EQ(gpu->backend().name, "cuda");
    const SsdRef ref = gpu->ssd(0);
    EXPECT_TRUE(gpu_->is_device_memory(ref.queue(0).get()) && gpu_->is_device_memory(&ref.ns(0)));
    work_on(*gpu);
    EXPECT_EQ(gpu->stats().completed, 8u);
    const Memory buffer = gpu->allocate(8 * 512, Placement::host);
    server.reset();
    gpu->run({.blocks = 1, .block_threads = 8}, rules::ReadBlocks{}, gpu->ssd(0), buffer.data());
    EXPECT_EQ(gpu->stats().completed, 8u);
  }
  std::filesystem::remove_all(folder);
}

TEST_F(Attached, MemoryOutlivesTheGpuThatGaveIt) {
  Memory kept, shared;
  std::vector<std::byte> mine(8192);
  {
    const auto gpu = attach({ssd("gpu")}, options());
    kept = gpu->allocate(4096, Placement::host);
    shared = gpu->share(mine.data(), mine.size());
    gpu->start_service();
  }
  EXPECT_EQ(gpu_->take_findings(), "");
}

TEST_F(Attached, EnginesOfAllSsdsAndTheServiceMustFit) {
  stand_in::Model small;
  small.multiprocessors = 2;
  gpu_->reset(small);
  DeviceConfig wide = ssd("gpu");
  wide.engine.sms = 2;
  const std::string why = refusal({ssd("gpu"), wide}, options());
  EXPECT_NE(why.find("2 multiprocessors"), std::string::npos) << why;
}

TEST_F(Attached, MediaThatCannotBePinnedAreRefused) {
  stand_in::Model small;
  small.most_registered_bytes = 512 << 10;
  gpu_->reset(small);
  const std::string why = refusal({ssd("gpu", "host")}, options());
  EXPECT_NE(why.find("cannot be shared with the GPU (1048576 bytes)"), std::string::npos) << why;
  EXPECT_NE(why.find("ulimit -l"), std::string::npos) << why;
}

}  // namespace
}  // namespace flashmob::gpu
