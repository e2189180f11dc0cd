// Several units that write and read the same blocks: no block is ever seen half-written, whatever the media.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "flashmob/ssd.h"
#include "media/block_content.h"

namespace flashmob {
namespace {

constexpr std::uint32_t kLbaBytes = 4096;
constexpr std::uint32_t kDepth = 64;  // so that both units have much to copy at the same time
constexpr std::uint64_t kSeed = 7;

struct Scene {
  const char* name;
  std::string media;
  std::uint64_t blocks_read;  // by one command: one is a plain transfer, more are not
  std::uint32_t units, workers;
};

class Units : public testing::TestWithParam<Scene> {};

// A writer of two contents and a reader of the same blocks, each on a queue of another unit.
TEST_P(Units, NeverShowHalfABlock) {
  const Scene& scene = GetParam();
  const std::string path =
      std::filesystem::temp_directory_path() / ("flashmob-units-" + std::to_string(::getpid()) + "-" + scene.name);
  DeviceConfig config;
  config.subsystem.namespaces[0] = {
      .size_bytes = 1 << 20, .lba_bytes = kLbaBytes, .media = scene.media == "file" ? "file:" + path : scene.media};
  config.controller.max_queue_pairs = 4;
  config.controller.interrupt_vectors = 5;
  config.timing.model = "none";
  config.engine.units = scene.units;
  config.engine.workers = scene.workers;
  config.engine.idle_spin_ns = 20'000;
  {
    Ssd ssd(config);
    const auto fine = [](std::uint16_t status) { EXPECT_EQ(status, 0); };
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> rounds{0};
    std::thread writer([&] {
      const auto queue = ssd.queue(kDepth);
      std::array<std::vector<std::byte>, 2> data;
      for (std::uint32_t i = 0; i < 2; ++i) {
        data[i].resize(2 * kLbaBytes);
        media::fill_sectors(data[i], 0, 1, i + 1, kSeed);
      }
      for (; !stop; ++rounds) {
        for (std::uint32_t i = 0; i < kDepth; ++i) queue->write(1, 0, data[i % 2].data(), data[i % 2].size(), fine);
        queue->drain();
      }
    });
    while (rounds == 0) std::this_thread::yield();
    const auto queue = ssd.queue(kDepth);
    std::vector<std::byte> data(kDepth * scene.blocks_read * kLbaBytes);
    constexpr int kRounds = 2000;
    int torn = 0;
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t bytes = scene.blocks_read * kLbaBytes;
      for (std::uint32_t i = 0; i < kDepth; ++i) queue->read(1, 0, data.data() + i * bytes, bytes, fine);
      queue->drain();
      for (std::uint64_t block = 0; block < kDepth * scene.blocks_read; ++block) {
        const auto found = std::span(data).subspan(block * kLbaBytes, kLbaBytes);
        const auto who = media::identify_block(found.first(media::kSectorBytes));
        const std::uint64_t first = block % scene.blocks_read * (kLbaBytes / media::kSectorBytes);
        torn += !who || media::check_sectors(found, first, 1, who->generation, kSeed) != media::kNoBadSector;
      }
    }
    stop = true;
    writer.join();
    EXPECT_EQ(torn, 0) << "of " << kRounds * kDepth * scene.blocks_read << " blocks";
  }
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Media, Units,
                         testing::Values(Scene{"memory", "memory", 1, 2, 0}, Scene{"long_reads", "memory", 2, 2, 0},
                                         Scene{"workers", "memory", 1, 1, 2}, Scene{"file", "file", 1, 2, 0}),
                         [](const auto& scene) { return std::string(scene.param.name); });

}  // namespace
}  // namespace flashmob
