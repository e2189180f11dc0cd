// Faults through the public interfaces: results of benchmarks, a running Ssd, hosts of a served SSD that lose their
// connection.
#include "flashmob/faults.h"

#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "api/open_target.h"
#include "driver/nvme_driver.h"
#include "flashmob/bench.h"
#include "flashmob/error.h"
#include "flashmob/server.h"
#include "flashmob/ssd.h"
#include "nvme/status.h"

namespace flashmob {
namespace {

DeviceConfig small_device(std::vector<std::string> faults = {}) {
  DeviceConfig config;
  config.subsystem.namespaces[0].size_bytes = 1 << 20;
  config.controller.max_queue_pairs = 16;
  config.controller.interrupt_vectors = 17;
  config.timing.read_latency_ns = config.timing.write_latency_ns = 20'000;
  config.faults = std::move(faults);
  return config;
}

BenchOptions short_run(const std::string& clock) {
  BenchOptions options;
  options.clock = clock;
  options.queues = 2;
  options.queue_depth = 16;
  options.ramp_ns = 100'000;
  options.runtime_ns = 2'000'000;
  options.verify_percent = 100;
  return options;
}

// A result without what depends on wall time.
std::string result_of(const std::string& fault, const std::string& clock = "virtual") {
  const std::string all = Bench(small_device({fault}), short_run(clock)).run();
  return all.substr(0, all.find("\"wall_seconds\""));
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Faults, ShowInTheResult) {
  const std::string errors = result_of("error on=read p=0.1 seed=3");
  EXPECT_TRUE(has(errors, "\"errors\":{\"0x281\":")) << errors.substr(0, 2000);
  EXPECT_TRUE(has(errors, "\"rule\":\"error on=read p=0.1 seed=3\",\"matched\":"));
  EXPECT_TRUE(has(errors, "\"unanswered\":0,"));
  EXPECT_EQ(errors, result_of("error on=read p=0.1 seed=3")) << "equal seeds, equal faults";
  EXPECT_FALSE(has(result_of("corrupt every=100"), "\"verify_errors\":0,"));
  EXPECT_TRUE(has(result_of("delay at=5 delay=1ms"), "\"injected\":1"));
}

TEST(Faults, ARunEndsAlthoughCompletionsAreLost) {
  for (const char* clock : {"virtual", "real"}) {
    const std::string result = result_of("lose at=20", clock);
    EXPECT_TRUE(has(result, "\"unanswered\":1,")) << clock;
    EXPECT_TRUE(has(result, "\"injected\":1}")) << clock;
  }
  // Every requester waits for ever, long before the run should end.
  EXPECT_TRUE(has(result_of("lose"), "\"unanswered\":32,"));
}

TEST(Faults, AControllerThatFailsEndsTheRun) {
  const auto look = [](const std::string& result, const std::string& what) {
    EXPECT_TRUE(has(result, "\"device_failed\":true")) << what;
    EXPECT_FALSE(has(result, "\"unanswered\":0,")) << what;
    EXPECT_FALSE(has(result, "\"verdict\":\"VALID")) << what;
  };
  for (const char* fault : {"fatal at=5", "fatal at=50", "drop at=50"}) {
    look(result_of(fault), fault);
    BenchOptions real = short_run("real");
    real.runtime_ns = 60'000'000'000;  // a busy machine may not come to the 50th command in less
    look(Bench(small_device({fault}), real).run(), fault);
  }
  EXPECT_TRUE(has(result_of("delay at=5 delay=1ms"), "\"device_failed\":false"));
  // An open loop's requests that nobody would have answered are none of the run's, and the model knows no failure.
  BenchOptions open = short_run("virtual");
  open.rate_iops = 100'000;
  open.runtime_ns = 1'000'000'000;
  const std::string cut = Bench(small_device({"fatal at=2000"}), open).run();
  look(cut, "open loop");
  EXPECT_TRUE(has(cut, "\"model_iops\":null")) << cut.substr(0, 3000);
  EXPECT_TRUE(has(cut, "\"backlog\":0,")) << cut.substr(0, 3000);
  // What was measured ends with the last answer, and is told; the model does not fail.
  for (const char* fault : {"fatal at=2000", "drop at=2000"}) {
    const std::string late = result_of(fault);
    look(late, fault);
    EXPECT_TRUE(has(late, "\"verdict\":\"INVALID\"")) << late.substr(0, 3000);
    EXPECT_TRUE(has(late, "the device failed before the end, by an injected fault")) << late.substr(0, 3000);
  }
  // Of nothing there is nothing to say.
  EXPECT_TRUE(has(result_of("fatal at=1"), "\"verdict\":\"NONE\""));
}

TEST(Faults, ARunningSsdIsSwitched) {
  Ssd ssd(small_device());
  const auto queue = ssd.queue(4);
  std::vector<std::byte> data(512);
  std::uint16_t status = 0;
  const auto read = [&] {
    queue->read(1, 0, data.data(), data.size(), [&](std::uint16_t field) { status = field; });
    queue->drain();
    return nvme::status_of(status);
  };
  EXPECT_EQ(read(), nvme::Status::success);
  EXPECT_TRUE(ssd.faults().empty());
  ssd.set_faults({"error"});
  EXPECT_EQ(read(), nvme::Status::unrecovered_read_error);
  EXPECT_THROW(ssd.set_faults({"err"}), ConfigError);
  ASSERT_EQ(ssd.faults().size(), 1u);
  EXPECT_EQ(ssd.faults()[0].injected, 1u);
  ssd.set_faults({});
  EXPECT_EQ(read(), nvme::Status::success);
  EXPECT_THROW(Ssd(small_device({"error on=nothing"})), ConfigError);
  EXPECT_THROW(check_faults({"error", "delay"}), ConfigError);
}

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

// One of the reads that look at the store is lost, then some of the load's: neither is waited for for ever, and whoever
// waits leaves the core alone.
TEST(Faults, ARunOnAServedSsdThatLosesCommandsEnds) {
  const auto folder = std::filesystem::temp_directory_path() / ("flashmob-lost-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  ServerOptions doors;
  doors.vfio_user_path = folder / "cntrl";
  Server server(small_device({"lose on=read every=100"}), doors);
  server.start();
  BenchOptions options = short_run("real");
  options.target = server.addresses().at(0);
  options.runtime_ns = 1'000'000'000;  // for enough reads beside whatever else runs
  options.silence_ns = 2'500'000'000;
  const double before = cpu_seconds();
  const std::string result = Bench(DeviceConfig{}, options).run();
  EXPECT_FALSE(has(result, "\"unanswered\":0,"));
  EXPECT_LT(cpu_seconds() - before, 3.5) << "of at least 5 s of waiting";
  server.stop();
  std::filesystem::remove_all(folder);
}

TEST(Faults, WhatIsLostKeepsNobody) {
  Ssd ssd(small_device());
  ssd.set_timeout(3'600'000'000'000);
  std::vector<std::byte> data(512);
  const auto count = [](std::uint16_t) {};
  auto other = ssd.queue(4);
  ssd.set_faults({"lose at=2"});
  {
    auto queue = ssd.queue(4);
    for (int i = 0; i < 3; ++i) queue->read(1, 0, data.data(), data.size(), count);
  }  // would wait for an hour
  ssd.set_faults({});
  EXPECT_FALSE(ssd.only_lost_left()) << "what went with a queue is no longer outstanding";
  unsigned completed = 0;
  for (int i = 0; i < 3; ++i)
    other->read(1, 0, data.data(), data.size(), [&](std::uint16_t status) { completed += status == 0; });
  other.reset();
  EXPECT_EQ(completed, 3u) << "what is not lost is waited for";
  ssd.close();
}

TEST(Faults, AResetBringsTheControllerBack) {
  for (const char* fault : {"lose", "fatal"}) {
    Ssd ssd(small_device());
    std::vector<std::byte> data(512);
    const auto before = ssd.queue(4);
    ssd.set_faults({fault});
    before->read(1, 0, data.data(), data.size(), [](std::uint16_t) {});
    while (ssd.faults().at(0).injected == 0) std::this_thread::yield();
    ssd.set_faults({});
    ssd.reset();
    EXPECT_FALSE(ssd.fatal()) << fault;
    EXPECT_THROW(before->poll(), std::runtime_error) << fault;
    EXPECT_THROW(before->read(1, 0, data.data(), data.size(), {}), std::runtime_error) << fault;
    const auto after = ssd.queue(4);
    std::uint16_t status = 0xFFFF;
    after->read(1, 0, data.data(), data.size(), [&](std::uint16_t field) { status = field; });
    after->drain();
    EXPECT_EQ(status, 0) << fault;
  }
}

// The host's connection ends in the middle of its work; it attaches again, and nobody else has noticed.
TEST(Faults, AServedHostLosesItsConnection) {
  const auto folder = std::filesystem::temp_directory_path() / ("flashmob-faults-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  ServerOptions doors;
  doors.vfio_user_path = folder / "cntrl";
  doors.tcp_address = "127.0.0.1:0";
  Server server(small_device(), doors);
  server.start();
  for (const std::string& address : server.addresses()) {
    const driver::Waiter waiter{
        [] { std::this_thread::yield(); },
        [] { return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()); }};
    const auto attach = [&] {
      auto device = api::open_target({.address = address});
      auto driver = std::make_unique<driver::NvmeDriver>(*device, waiter);
      driver->enable();
      return std::pair(std::move(device), std::move(driver));
    };
    auto hit = attach();
    server.set_faults({"drop on=identify times=1"});
    std::vector<std::byte> data(4096);
    EXPECT_ANY_THROW(hit.second->identify(1, 0, data)) << address;
    EXPECT_EQ(server.stats().faults.at(0).injected, 1u);
    auto again = attach();
    again.second->identify(1, 0, data);
    EXPECT_NE(data[4], std::byte{0}) << address;
    server.set_faults({});
  }
  server.stop();
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace flashmob
