// Whole SSDs whose I/O queues are on the GPU engine, on fibres: benchmarks in virtual time that verify their data and
// can be repeated, an SSD in real time, kernels that use one. Queue by queue: gpu/tests/conformance.
#include "host/engine/device_io_server.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "api/bench_test_support.h"
#include "flashmob/bench.h"
#include "flashmob/error.h"
#include "flashmob/gpu.h"
#include "flashmob/server.h"
#include "flashmob/ssd.h"
#include "host/attach/virtual_ssd.h"

namespace flashmob::gpu {
namespace {

class OnGpuEngine : public testing::Test {
 protected:
  static void SetUpTestSuite() { enable_engine(); }
};

using flashmob::test::small_device;

BenchOptions short_run() {
  static const BenchOptions options = flashmob::test::virtual_run(100'000, 1'000'000);
  return options;
}

// The value of the first field of that name, as text.
std::string text(const std::string& document, const std::string& name) {
  const std::size_t at = document.find("\"" + name + "\":");
  if (at == std::string::npos) return "(none)";
  const std::size_t begin = at + name.size() + 3;
  return document.substr(begin, document.find_first_of(",}", begin) - begin);
}
double number(const std::string& document, const std::string& name) {
  return std::strtod(text(document, name).c_str(), nullptr);
}
// The mean of one of the result's distributions.
double mean(const std::string& document, const std::string& distribution) {
  return number(document.substr(document.find("\"" + distribution + "\":")), "mean");
}

std::string run(const DeviceConfig& device, const BenchOptions& options) { return Bench(device, options).run(); }

TEST_F(OnGpuEngine, ASaturatedRunIsVerifiedAndTrueToItsModel) {
  BenchOptions options = short_run();
  options.queue_depth = 32;
  options.runtime_ns = 3'000'000;
  const std::string result = run(on_gpu_engine(small_device(), 1), options);
  EXPECT_EQ(text(result, "verify_errors"), "0") << result;
  EXPECT_GT(number(result, "verified"), 2'000) << result;
  EXPECT_EQ(text(result, "verdict"), "\"VALID\"") << text(result, "verdict_cause") << result;
  EXPECT_NEAR(number(result, "iops"), 1e6, 0.01e6);
  EXPECT_EQ(text(result, "kind"), "\"gpu\"");
}

TEST_F(OnGpuEngine, EqualSeedsGiveEqualResults) {
  const DeviceConfig device = on_gpu_engine(small_device(), 2);
  const auto reproducible = [](const std::string& document) {
    return document.substr(0, document.find("\"wall_seconds\""));
  };
  const std::string first = reproducible(run(device, short_run()));
  EXPECT_EQ(first, reproducible(run(device, short_run())));
  EXPECT_NE(first.find("\"latency_cdf\""), std::string::npos);
}

TEST_F(OnGpuEngine, WritesAndMixesVerify) {
  for (const std::string media : {"host", "device"}) {
    DeviceConfig device = on_gpu_engine(small_device(), 1);
    device.engine.gpu_media = media;
    device.subsystem.namespaces[0].size_bytes = 64 << 10;  // 128 sectors for 64 commands
    BenchOptions options = short_run();
    options.rw = "randrw";
    options.read_share = 0.5;
    options.queue_depth = 32;
    const std::string result = run(device, options);
    EXPECT_EQ(text(result, "verify_errors"), "0") << media << result;
    EXPECT_GT(number(result, "write_ios"), 200) << media;
    EXPECT_GT(number(result, "verified"), 200) << media;
  }
}

// One requester at a time: every request meets an idle model, so both engines owe it the same latency.
TEST_F(OnGpuEngine, AloneARequestTakesWhatItTakesOnTheHostEngine) {
  BenchOptions options = short_run();
  options.queues = 1;
  options.queue_depth = 1;
  options.runtime_ns = 4'000'000;
  DeviceConfig device = small_device();
  device.fidelity.max_error_ns = 2'000;  // of a kernel on fibres
  const std::string host = run(device, options);
  const std::string gpu = run(on_gpu_engine(device, 1), options);
  EXPECT_EQ(mean(gpu, "target_ns"), mean(host, "target_ns"));
  EXPECT_EQ(mean(gpu, "target_ns"), 20'000);
  // What the kernel takes to see a doorbell and to post an entry, on its clock.
  EXPECT_NEAR(mean(gpu, "latency_ns"), mean(host, "latency_ns"), 1'500);
  EXPECT_EQ(text(gpu, "verdict"), "\"VALID\"") << text(gpu, "verdict_cause");
}

TEST_F(OnGpuEngine, AnSsdInRealTimeKeepsItsData) {
  DeviceConfig config = on_gpu_engine(small_device(), 1);
  config.timing.read_iops = config.timing.write_iops = 100'000;
  Ssd ssd(config);
  const auto queue = ssd.queue(4);
  std::vector<std::byte> data(16 << 10), back(data.size());
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + (i >> 9));
  std::uint16_t status = 0xFFFF;
  queue->write(1, 8, data.data(), data.size(), [&](std::uint16_t s) { status = s; });
  queue->drain();
  EXPECT_EQ(status, 0);
  queue->read(1, 8, back.data(), back.size(), [&](std::uint16_t s) { status = s; });
  queue->drain();
  EXPECT_EQ(status, 0);
  EXPECT_EQ(std::memcmp(data.data(), back.data(), data.size()), 0);
  EXPECT_THROW(queue->read(1, 0, back.data(), 100, {}), std::invalid_argument);
}

// A folder for a socket, removed with everything in it.
struct SocketFolder {
  ~SocketFolder() { std::filesystem::remove_all(path); }
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("flashmob-gpu-served-" + std::to_string(getpid()));
};

TEST_F(OnGpuEngine, TwoProcessesAreServedAtOnce) {
  const SocketFolder folder;
  DeviceConfig config = on_gpu_engine(small_device(), 1);
  config.subsystem.namespaces[0].size_bytes = 64 << 10;
  ServerOptions doors;
  doors.vfio_user_path = (folder.path / "cntrl").string();
  Server server(config, doors);
  server.start();
  BenchOptions options = short_run();
  options.clock = "real";
  options.target = "vfio-user:" + doors.vfio_user_path;
  options.queues = 1;
  options.queue_depth = 4;
  options.ramp_ns = 1'000'000;
  options.runtime_ns = 600'000'000'000;
  options.ios = 200;
  std::string results[2];
  results[0] = run(small_device(), options);  // fills the store
  std::vector<std::thread> clients;
  for (std::string& result : results) clients.emplace_back([&] { result = run(small_device(), options); });
  for (std::thread& client : clients) client.join();
  for (const std::string& result : results) {
    EXPECT_EQ(text(result, "verify_errors"), "0") << result;
    EXPECT_GE(number(result, "verified"), 200) << result;
  }
  // What clients did who have gone is still counted.
  EXPECT_GE(server.stats().read_commands, 3 * 200u);
  EXPECT_EQ(server.stats().hosts_seen, 3u);
  server.stop();
}

TEST_F(OnGpuEngine, WhatADoorCannotDoIsSaidBeforeItOpens) {
  const DeviceConfig config = on_gpu_engine(small_device(), 1);
  const SocketFolder folder;
  ServerOptions doors;
  doors.vfio_user_path = (folder.path / "cntrl").string();
  Server server(config, doors);
  doors.tcp_address = "127.0.0.1:0";
  EXPECT_THROW(Server(config, doors), ConfigError);
  EXPECT_THROW(server.set_faults({"delay on=write every=100 delay=5ms"}), ConfigError);
  EXPECT_NO_THROW(server.set_faults({}));
}

struct ReadBlocks {
  template <class Lane>
  void operator()(Lane& t, SsdRef ssd, std::uint64_t count, std::byte* out, std::uint32_t* bad) const {
    for (std::uint64_t lba = t.thread(); lba < count; lba += t.threads()) {
      const IoStatus status = ssd.read(t, 0, lba, 1, out + lba * ssd.block_bytes(0)).wait(t);
      if (!status.ok()) simt::WordRef<std::uint32_t>(*bad).fetch_add(t, 1);
    }
  }
};

TEST_F(OnGpuEngine, KernelsReadWhatTheHostWrote) {
  GpuOptions options;
  options.queues = 2;
  options.queue_depth = 16;
  options.backend = "fibres";
  const auto gpu = attach({on_gpu_engine(small_ssd(), 1)}, options);
  constexpr std::uint64_t kBlocks = 64;
  std::vector<std::byte> data(kBlocks * 512);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 13 + (i >> 8));
  gpu->write(0, 0, 0, data.data(), data.size());
  const Memory out = gpu->allocate(data.size());
  const Memory bad = gpu->allocate(4);
  gpu->run({.blocks = 1, .block_threads = 32}, ReadBlocks{}, gpu->ssd(0), kBlocks, out.as<std::byte>(),
           bad.as<std::uint32_t>());
  EXPECT_EQ(*bad.as<std::uint32_t>(), 0u);
  EXPECT_EQ(std::memcmp(out.data(), data.data(), data.size()), 0);
}

TEST_F(OnGpuEngine, WhatItCannotDoIsSaidBeforeItStarts) {
  const auto refused = [](const std::function<void(DeviceConfig&)>& change) {
    DeviceConfig config = on_gpu_engine(small_device(), 1);
    change(config);
    try {
      config.validate();
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused([](DeviceConfig&) {}), "accepted");
  EXPECT_NE(refused([](DeviceConfig& c) { c.controller.max_queue_pairs = 257; }).find("raise engine.sms"),
            std::string::npos);
  EXPECT_NE(refused([](DeviceConfig& c) { c.controller.max_transfer_bytes = 1 << 20; }).find("131072"),
            std::string::npos);
  EXPECT_NE(refused([](DeviceConfig& c) { c.subsystem.namespaces[0].media = "generated"; }).find("memory"),
            std::string::npos);
  EXPECT_NE(refused([](DeviceConfig& c) { c.engine.move_data = false; }).find("move_data"), std::string::npos);
  EXPECT_NE(refused([](DeviceConfig& c) { c.engine.sms = 0; }).find("engine.sms"), std::string::npos);
}

}  // namespace
}  // namespace flashmob::gpu
