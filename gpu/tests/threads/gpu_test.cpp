// A Gpu in real time: SSDs whose engines run on threads of their own, kernels whose lanes are threads of the operating
// system, and each of the three services.
#include "flashmob/gpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace flashmob::gpu {
namespace {

// Each lane reverses a block's bytes in place.
struct ReverseBlocks {
  template <class Lane>
  void operator()(Lane& t, SsdRef ssd, std::uint64_t blocks, std::byte* buffers, std::uint32_t* bad) const {
    for (std::uint64_t lba = t.thread(); lba < blocks; lba += t.threads()) {
      std::byte* const buffer = buffers + t.thread() * ssd.block_bytes(0);
      IoStatus status = ssd.read(t, 0, lba, 1, buffer).wait(t);
      for (std::uint64_t i = 0; i < ssd.block_bytes(0) / 2; ++i)
        std::swap(buffer[i], buffer[ssd.block_bytes(0) - 1 - i]);
      if (status.ok()) status = ssd.write(t, 0, lba, 1, buffer).wait(t);
      if (!status.ok()) simt::WordRef<std::uint32_t>(*bad).fetch_add(t, 1);
    }
  }
};

DeviceConfig fast_ssd() {
  DeviceConfig config;
  config.profile = "fast";
  config.subsystem.namespaces[0].size_bytes = 1 << 20;
  config.controller.max_queue_pairs = 8;
  config.controller.interrupt_vectors = 1;
  config.timing.model = "none";
  return config;
}

class RealGpu : public ::testing::TestWithParam<const char*> {};

TEST_P(RealGpu, KernelsAndHostSeeEachOthersData) {
  GpuOptions options;
  options.backend = "threads";
  options.service = GetParam();
  options.queues = 2;
  options.queue_depth = 7;
  const auto gpu = attach({fast_ssd(), fast_ssd()}, options);
  EXPECT_EQ(gpu->backend().clock, "real");
  constexpr std::uint64_t kBlocks = 200;
  std::vector<std::byte> data(kBlocks * 512);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 2654435761u >> 11);
  const Memory buffers = gpu->allocate(32 * 512);
  const Memory bad = gpu->allocate(sizeof(std::uint32_t));
  for (std::uint32_t ssd = 0; ssd < 2; ++ssd) {
    gpu->write(ssd, 0, 0, data.data(), data.size());
    gpu->run({.blocks = 1, .block_threads = 16}, ReverseBlocks{}, gpu->ssd(ssd), kBlocks, buffers.data(),
             bad.as<std::uint32_t>());
    std::vector<std::byte> back(data.size());
    gpu->read(ssd, 0, 0, back.data(), back.size());
    for (std::uint64_t lba = 0; lba < kBlocks; ++lba)
      ASSERT_TRUE(
          std::equal(&back[lba * 512], &back[lba * 512] + 512, std::make_reverse_iterator(&data[lba * 512] + 512)))
          << "block " << lba;
  }
  EXPECT_EQ(*bad.as<std::uint32_t>(), 0u);
  EXPECT_TRUE(gpu->drain());
  EXPECT_EQ(gpu->stats().completed, 4 * kBlocks);
  gpu->stop_service();
  EXPECT_FALSE(gpu->service_running());
  gpu->run({.blocks = 1, .block_threads = 4}, ReverseBlocks{}, gpu->ssd(0), 8, buffers.data(), bad.as<std::uint32_t>());
  EXPECT_EQ(gpu->stats().completed, 4 * kBlocks + 16);
}

INSTANTIATE_TEST_SUITE_P(All, RealGpu, ::testing::Values("kernel", "host", "callers"));

}  // namespace
}  // namespace flashmob::gpu
