// A Gpu on fibres: kernels read what the host wrote and the other way round, whoever takes completions in; mistakes are
// named; what fails leaves the Gpu in working order. Real time and real threads: gpu/tests/threads.
#include "flashmob/gpu.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>

#include "flashmob/error.h"
#include "host/attach/virtual_ssd.h"
#include "host/attached_gpu.h"

namespace flashmob::gpu {
namespace {

using simt::Shape;

struct CopyBlocks {
  std::uint64_t first = 0;
  template <class Lane>
  void operator()(Lane& t, SsdRef from, SsdRef to, std::uint64_t end, std::byte* buffers, std::uint32_t* bad) const {
    for (std::uint64_t lba = first + t.thread(); lba < end; lba += t.threads()) {
      std::byte* const buffer = buffers + t.thread() * from.block_bytes(0);
      IoStatus status = from.read(t, 0, lba, 1, buffer).wait(t);
      if (status.ok()) status = to.write(t, 0, lba, 1, buffer).wait(t);
      if (!status.ok()) simt::WordRef<std::uint32_t>(*bad).fetch_add(t, 1);
    }
  }
};

// Reads and leaves without waiting.
struct LeaveInFlight {
  template <class Lane>
  void operator()(Lane& t, SsdRef ssd, std::byte* buffers) const {
    ssd.read(t, 0, t.thread(), 1, buffers + t.thread() * ssd.block_bytes(0)).abandon(t);
  }
};

struct WaitForever {
  template <class Lane>
  void operator()(Lane& t) const {
    if (t.lane() == 0) t.sync(3);
  }
};

struct Throw {
  template <class Lane>
  void operator()(Lane& t) const {
    if (t.lane() == 1) throw std::logic_error("a fault in a kernel");
  }
};

std::vector<std::byte> pattern(std::size_t bytes, std::uint32_t seed) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>((i * 2654435761u + seed) >> 13);
  return out;
}

GpuOptions fibres(const std::string& service = "kernel") {
  GpuOptions options;
  options.backend = "fibres";
  options.service = service;
  options.queues = 3;
  options.queue_depth = 31;
  return options;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

class GpuService : public ::testing::TestWithParam<const char*> {};

TEST_P(GpuService, KernelsAndHostSeeEachOthersData) {
  const auto gpu = attach({small_ssd(), small_ssd()}, fibres(GetParam()));
  constexpr std::uint64_t kBlocks = 500;
  const auto data = pattern(kBlocks * 512, 7);
  gpu->write(0, 0, 0, data.data(), data.size());
  const Memory buffers = gpu->allocate(256 * 512);
  const Memory bad = gpu->allocate(sizeof(std::uint32_t), Placement::host);
  gpu->run({.blocks = 2, .block_threads = 128}, CopyBlocks{}, gpu->ssd(0), gpu->ssd(1), kBlocks, buffers.data(),
           bad.as<std::uint32_t>());
  EXPECT_EQ(*bad.as<std::uint32_t>(), 0u);
  std::vector<std::byte> back(data.size());
  gpu->read(1, 0, 0, back.data(), back.size());
  EXPECT_EQ(back, data);
  const GpuStats stats = gpu->stats();
  EXPECT_EQ(stats.submitted, 2 * kBlocks);
  EXPECT_EQ(stats.completed, 2 * kBlocks);
  EXPECT_EQ(stats.failed, 0u);
  EXPECT_EQ(stats.in_flight, 0u);
  EXPECT_EQ(stats.unexpected, 0u);
  EXPECT_EQ(stats.service, GetParam());
  EXPECT_TRUE(stats.service_running);
  gpu->stop_service();
  EXPECT_FALSE(gpu->service_running());
  // run() starts it again.
  gpu->run({}, CopyBlocks{}, gpu->ssd(0), gpu->ssd(1), 5, buffers.data(), bad.as<std::uint32_t>());
  EXPECT_EQ(gpu->stats().completed, 2 * kBlocks + 10);
}

TEST_P(GpuService, ErrorsOfTheSsdReachKernelsAndFigures) {
  const auto gpu = attach({small_ssd()}, fibres(GetParam()));
  const Memory buffers = gpu->allocate(32 * 512);
  const Memory bad = gpu->allocate(sizeof(std::uint32_t));
  const std::uint64_t blocks = gpu->ssd(0).ns(0).blocks;
  // One block beyond the end.
  gpu->run({}, CopyBlocks{blocks - 40}, gpu->ssd(0), gpu->ssd(0), blocks + 1, buffers.data(), bad.as<std::uint32_t>());
  EXPECT_EQ(*bad.as<std::uint32_t>(), 1u);
  EXPECT_EQ(gpu->stats().failed, 1u);
}

TEST_P(GpuService, DrainsWhatKernelsLeaveInFlight) {
  const auto gpu = attach({small_ssd()}, fibres(GetParam()));
  const Memory buffers = gpu->allocate(64 * 512);
  gpu->run({.blocks = 1, .block_threads = 64}, LeaveInFlight{}, gpu->ssd(0), buffers.data());
  EXPECT_TRUE(gpu->drain());
  EXPECT_EQ(gpu->stats().in_flight, 0u);
  EXPECT_EQ(gpu->stats().completed, 64u);
  gpu->run({.blocks = 1, .block_threads = 64}, LeaveInFlight{}, gpu->ssd(0), buffers.data());
  gpu->stop_service();
  EXPECT_EQ(gpu->stats().completed, 128u);
}

TEST_P(GpuService, GoesDownWithCommandsInFlight) {
  const auto gpu = attach({small_ssd()}, fibres(GetParam()));
  const Memory buffers = gpu->allocate(64 * 512);
  gpu->run({.blocks = 1, .block_threads = 64}, LeaveInFlight{}, gpu->ssd(0), buffers.data());
}

INSTANTIATE_TEST_SUITE_P(All, GpuService, ::testing::Values("kernel", "host", "callers"));

TEST(Gpu, ARunIsTheSameForTheSameSeed) {
  const auto length = [](std::uint64_t seed) {
    GpuOptions options = fibres();
    options.schedule = "random";
    options.seed = seed;
    const auto gpu = attach({small_ssd()}, options);
    const Memory buffers = gpu->allocate(64 * 512);
    const Memory bad = gpu->allocate(sizeof(std::uint32_t));
    gpu->run({.blocks = 1, .block_threads = 64}, CopyBlocks{}, gpu->ssd(0), gpu->ssd(0), 200, buffers.data(),
             bad.as<std::uint32_t>());
    return gpu->now_ns();
  };
  EXPECT_EQ(length(5), length(5));
  EXPECT_NE(length(5), length(6));
}

TEST(Gpu, AStuckKernelIsReported) {
  const auto gpu = attach({small_ssd()}, fibres("callers"));
  EXPECT_THROW(gpu->run({.blocks = 1, .block_threads = 2}, WaitForever{}), simt::StuckError);
}

TEST(Gpu, AServiceThatWentDownWithAnotherKernelIsStartedAgain) {
  const auto gpu = attach({small_ssd()}, fibres());
  EXPECT_THROW(gpu->run({}, Throw{}), std::logic_error);
  EXPECT_FALSE(gpu->service_running());
  const Memory buffers = gpu->allocate(32 * 512);
  const Memory bad = gpu->allocate(sizeof(std::uint32_t));
  gpu->run({}, CopyBlocks{}, gpu->ssd(0), gpu->ssd(0), 10, buffers.data(), bad.as<std::uint32_t>());
  EXPECT_EQ(*bad.as<std::uint32_t>(), 0u);
  EXPECT_TRUE(gpu->service_running());
}

TEST(Gpu, TimePassesForTheHostToo) {
  const auto gpu = attach({small_ssd()}, fibres("host"));
  gpu->start_service();
  const std::uint64_t before = gpu->now_ns();
  gpu->pass(300'000'000);
  EXPECT_EQ(gpu->now_ns(), before + 300'000'000);
}

TEST(Gpu, MemoryIsZeroedCountedAndOutlivesTheGpu) {
  auto gpu = attach({small_ssd()}, fibres());
  Memory memory = gpu->allocate(10'000, Placement::host);
  EXPECT_EQ(memory.size(), 10'000u);
  EXPECT_EQ(memory.placement(), Placement::host);
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(memory.data()) % 4096, 0u);
  for (std::size_t i = 0; i < memory.size(); ++i) ASSERT_EQ(memory.data()[i], std::byte{0});
  EXPECT_EQ(gpu->stats().allocated_bytes, 10'000u);
  Memory copy = memory;
  memory = Memory();
  EXPECT_EQ(gpu->stats().allocated_bytes, 10'000u);
  EXPECT_EQ(gpu->allocate(1).placement(), Placement::device);
  EXPECT_EQ(gpu->stats().allocated_bytes, 10'000u);
  gpu.reset();
  copy.data()[9'999] = std::byte{1};
}

TEST(Gpu, MemoryOfTheCallersIsReachedWhileItIsShared) {
  const auto gpu = attach({small_ssd()}, fibres());
  const auto data = pattern(64 * 512, 3);
  gpu->write(0, 0, 0, data.data(), data.size());
  std::vector<std::byte> mine(64 * 512 + 4);
  std::byte* const odd = mine.data() + 4;  // dword-aligned is enough
  const Memory bad = gpu->allocate(sizeof(std::uint32_t));
  const auto run = [&] {
    gpu->run({.blocks = 1, .block_threads = 64}, CopyBlocks{}, gpu->ssd(0), gpu->ssd(0), 64, odd,
             bad.as<std::uint32_t>());
  };
  {
    const Memory shared = gpu->share(odd, 64 * 512);
    const Memory again = gpu->share(odd + 512, 512);  // reached already
    run();
    EXPECT_EQ(*bad.as<std::uint32_t>(), 0u);
    EXPECT_EQ(std::memcmp(odd, data.data(), data.size()), 0);
  }
  run();
  EXPECT_EQ(*bad.as<std::uint32_t>(), 64u) << "the SSD may not reach memory that is shared no more";
}

class LoadedFile : public ::testing::TestWithParam<std::size_t> {
 protected:
  LoadedFile() : path_(std::filesystem::temp_directory_path() / ("flashmob_gpu_test_" + std::to_string(getpid()))) {}
  ~LoadedFile() override { std::filesystem::remove(path_); }
  std::filesystem::path path_;
};

TEST_P(LoadedFile, LiesInTheNamespace) {
  const auto data = pattern(GetParam(), 11);
  std::ofstream(path_, std::ios::binary).write(reinterpret_cast<const char*>(data.data()), std::ssize(data));
  DeviceConfig ssd = small_ssd();
  ssd.subsystem.namespaces[1].size_bytes = 8 << 20;
  const auto gpu = attach({ssd}, fibres());
  const auto ones = std::vector<std::byte>(8 << 20, std::byte{0xFF});
  gpu->write(0, 1, 0, ones.data(), ones.size());
  EXPECT_EQ(gpu->load_file(0, 1, 3, path_.string()), data.size());
  const std::size_t padded = (data.size() + 4095) / 4096 * 4096;
  std::vector<std::byte> back(padded + 4096);
  gpu->read(0, 1, 3, back.data(), back.size());
  EXPECT_TRUE(std::equal(data.begin(), data.end(), back.begin()));
  for (std::size_t i = data.size(); i < padded; ++i) ASSERT_EQ(back[i], std::byte{0});
  EXPECT_EQ(back[padded], std::byte{0xFF});
}

INSTANTIATE_TEST_SUITE_P(Sizes, LoadedFile,
                         ::testing::Values(0, 1, 4095, 4096, 4097, 4 << 20, (4 << 20) + 1, 5'000'000));

TEST_F(LoadedFile, ThatCannotBeIsNamed) {
  const auto gpu = attach({small_ssd()}, fibres());
  EXPECT_NE(message_of([&] { gpu->load_file(0, 0, 0, "/nonexistent/file"); }).find("/nonexistent/file"),
            std::string::npos);
  std::ofstream(path_, std::ios::binary) << "x";
  EXPECT_NE(message_of([&] { gpu->load_file(0, 0, 8192, path_.string()); }).find("8192 blocks"), std::string::npos);
}

TEST(Gpu, MistakesNameKeyAndFix) {
  const std::vector<std::pair<std::function<void(GpuOptions&)>, std::string>> wrong = {
      {[](GpuOptions& o) { o.backend = "opencl"; }, "gpu.backend = \"opencl\" is not possible: use one of auto"},
      {[](GpuOptions& o) { o.clock = "wall"; }, "gpu.clock"},
      {[](GpuOptions& o) { o.service = "none"; }, "gpu.service"},
      {[](GpuOptions& o) { o.queue_placement = "disk"; }, "gpu.queue_placement"},
      {[](GpuOptions& o) { o.schedule = "fair"; }, "gpu.schedule"},
      {[](GpuOptions& o) { o.queues = 0; }, "gpu.queues = 0 is not possible: use 1 to 4096"},
      {[](GpuOptions& o) { o.queue_depth = 1; }, "gpu.queue_depth = 1 is not possible: use 2 to 65536"},
      {[](GpuOptions& o) { o.queue_depth = 65537; }, "gpu.queue_depth"},
      {[](GpuOptions& o) { o.service_blocks = 65; }, "gpu.service_blocks"},
      {[](GpuOptions& o) { o.max_transfer_bytes = 512; }, "gpu.max_transfer_bytes"},
      {[](GpuOptions& o) { o.clock = "real"; }, "fibres run in virtual time"},
      {[](GpuOptions& o) { o.backend = "threads", o.clock = "virtual"; }, "threads run in real time"},
      {[](GpuOptions& o) { o.backend = "cuda", o.clock = "virtual"; }, "a GPU runs in real time"},
      {[](GpuOptions& o) { o.queues = 16; }, "has 15 queue pairs for kernels"},
  };
  for (const auto& [change, expected] : wrong) {
    GpuOptions options = fibres();
    change(options);
    EXPECT_NE(message_of([&] { attach({small_ssd()}, options); }).find(expected), std::string::npos)
        << message_of([&] { attach({small_ssd()}, options); });
  }
  EXPECT_NE(message_of([] { attach({}, fibres()); }).find("1 to 16"), std::string::npos);
  EXPECT_NE(message_of([] { attach(std::vector<DeviceConfig>(17, small_ssd()), fibres()); }).find("1 to 16"),
            std::string::npos);
}

TEST(Gpu, PlacesThatAreNotThereAreNamed) {
  const auto gpu = attach({small_ssd()}, fibres());
  std::vector<std::byte> data(8192);
  EXPECT_NE(message_of([&] { gpu->ssd(1); }).find("SSDs 0 to 0"), std::string::npos);
  EXPECT_NE(message_of([&] { gpu->ssd_info(7); }).find("ssd = 7"), std::string::npos);
  EXPECT_NE(message_of([&] { gpu->read(1, 0, 0, data.data(), 512); }).find("ssd = 1"), std::string::npos);
  EXPECT_NE(message_of([&] { gpu->read(0, 2, 0, data.data(), 512); }).find("namespace = 2"), std::string::npos);
  EXPECT_NE(message_of([&] { gpu->read(0, 1, 0, data.data(), 512); }).find("whole blocks of 4096"), std::string::npos);
  EXPECT_NE(message_of([&] { gpu->write(0, 0, 8191, data.data(), 1024); }).find("8192 blocks"), std::string::npos);
  EXPECT_NE(message_of([&] { gpu->write(0, 0, UINT64_MAX, data.data(), 512); }).find("8192 blocks"), std::string::npos);
  EXPECT_NE(message_of([&] { gpu->allocate(0); }).find("bytes = 0"), std::string::npos);
  EXPECT_NE(message_of([&] { gpu->share(nullptr, 8); }).find("bytes = 0"), std::string::npos);
}

TEST(Gpu, SaysWhatItIsMadeOf) {
  GpuOptions options = fibres();
  options.queue_placement = "device";
  options.max_transfer_bytes = 1 << 20;
  const auto gpu = attach({small_ssd(), small_ssd()}, options);
  EXPECT_EQ(gpu->ssds(), 2u);
  const SsdInfo& info = gpu->ssd_info(1);
  EXPECT_EQ(info.profile, "small");
  EXPECT_EQ(info.queues, 3u);
  EXPECT_EQ(info.queue_depth, 31u);
  EXPECT_EQ(info.queue_placement, Placement::device);
  EXPECT_EQ(info.max_transfer_bytes, 128u << 10);  // the SSD's own limit
  EXPECT_EQ(info.lba_bytes, (std::vector<std::uint32_t>{512, 4096}));
  EXPECT_EQ(info.namespace_bytes, (std::vector<std::uint64_t>{4 << 20, 4 << 20}));
  EXPECT_EQ(gpu->backend().name, "fibres");
  EXPECT_EQ(gpu->backend().clock, "virtual");
  EXPECT_FALSE(gpu->backend().device.empty());
}

TEST(Gpu, QueuesInAGpusMemoryNeedAnEngineAndAServiceThatReachThem) {
  DeviceConfig on_host = small_ssd(), on_gpu = small_ssd();
  on_gpu.engine.kind = "gpu";
  EXPECT_EQ(message_of([&] { check_device_queues({on_gpu, on_gpu}, "kernel"); }), "no ConfigError");
  const std::string engine = message_of([&] { check_device_queues({on_gpu, on_host}, "kernel"); });
  EXPECT_NE(engine.find("gpu.queue_placement = \"device\" is not possible: SSD 1"), std::string::npos) << engine;
  EXPECT_NE(engine.find("--engine gpu"), std::string::npos) << engine;
  const std::string service = message_of([&] { check_device_queues({on_gpu}, "host"); });
  EXPECT_NE(service.find("use service \"kernel\""), std::string::npos) << service;
}

// Rings apart from the rest, as where they lie in a GPU's own memory.
TEST(Gpu, RingsHaveMemoryOfTheirOwn) {
  struct TwoKinds final : QueueMemory {
    explicit TwoKinds(driver::PciDevice& device) : all(device) {}
    std::byte* allocate(std::size_t bytes) override { return all.allocate(bytes); }
    std::byte* allocate_ring(std::size_t bytes) override {
      rings.push_back(bytes);
      return all.allocate(bytes);
    }
    bool rings_are_seen_by_host() const override { return false; }
    DmaQueueMemory all;
    std::vector<std::size_t> rings;
  };
  VirtualWorld world;
  VirtualSsd& ssd = world.add(small_ssd());
  TwoKinds memory(ssd.pci());
  SsdQueues queues(ssd.driver(), {.queues = 2, .entries = 5, .cq_entries = 7}, &memory);
  EXPECT_EQ(memory.rings, (std::vector<std::size_t>{5 * 64, 7 * 16, 5 * 64, 7 * 16}));
  EXPECT_FALSE(queues.queue(1).host_sees_rings);
}

TEST(Gpu, TheBackendsReasonIsGiven) {
  EXPECT_NE(choose_backend("fibres").reason.find("asked for"), std::string::npos);
  EXPECT_NE(choose_backend("auto", "virtual").reason.find("virtual clock"), std::string::npos);
  const BackendInfo automatic = choose_backend();
  if (automatic.backend == Backend::cuda) return;
  EXPECT_EQ(automatic.backend, Backend::fibres);
  EXPECT_FALSE(automatic.reason.empty());
  EXPECT_EQ(choose_backend("auto", "real").backend, Backend::threads);
  // What is missing is said where a GPU is insisted on, too.
  const std::string why = automatic.reason.substr(0, automatic.reason.find(';'));
  EXPECT_NE(message_of([] { choose_backend("cuda"); }).find(why), std::string::npos);
}

}  // namespace
}  // namespace flashmob::gpu
