// A served SSD: hosts of other processes attach (here: of this one, through the same sockets), what they do is counted,
// and stopping is clean at any moment.
#include "flashmob/server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "api/socket_address.h"
#include "base/check.h"
#include "base/clock.h"
#include "driver/nvme_driver.h"
#include "flashmob/bench.h"
#include "initiator/vfio_user/vfio_user_device.h"
#include "nvme/opcode.h"

namespace flashmob {
namespace {

DeviceConfig small_device() {
  DeviceConfig config;
  config.subsystem.namespaces[0].size_bytes = 4 << 20;
  config.controller.max_queue_pairs = 16;
  config.controller.interrupt_vectors = 17;
  config.timing.read_iops = config.timing.write_iops = 200'000;
  config.timing.read_latency_ns = config.timing.write_latency_ns = 20'000;
  return config;
}

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder = std::filesystem::temp_directory_path() / ("flashmob-server-" + std::to_string(getpid()));
    options.vfio_user_path = (folder / "ssd0" / "cntrl").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  BenchOptions bench() const {
    BenchOptions o;
    o.target = "vfio-user:" + (folder / "ssd0").string();
    o.queues = 2;
    o.queue_depth = 16;
    o.ramp_ns = 20'000'000;
    o.runtime_ns = 150'000'000;
    o.verify_percent = 100;
    return o;
  }

  std::filesystem::path folder;
  ServerOptions options;
};

std::string field(const std::string& json, const std::string& name) {
  const std::size_t at = json.find("\"" + name + "\":");
  if (at == std::string::npos) return "(none)";
  const std::size_t begin = at + name.size() + 3;
  return json.substr(begin, json.find_first_of(",}", begin) - begin);
}

driver::Waiter waiter() {
  return {[] { std::this_thread::yield(); }, [clock = Clock::real()] { return clock.now_ns(); }};
}

// A host of its own, one 4 KiB command after the other.
class OneHost {
 public:
  explicit OneHost(const std::string& path) : device_(path), driver_(device_, waiter()), memory_(device_, 4096) {
    driver_.enable();
    pair_ = &driver_.create_queue_pair({.sq_entries = 4});
  }

  void submit(nvme::NvmOpcode opcode) {
    nvme::Sqe& sqe = pair_->submit();
    sqe = {};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.nsid = 1;
    sqe.prp1 = memory_.iova();
    pair_->ring_sq();
  }
  void wait_for_one() {
    while (pair_->reap(1, [](const nvme::Cqe&) {}) == 0) std::this_thread::yield();
  }

 private:
  initiator::VfioUserDevice device_;
  driver::NvmeDriver driver_;
  driver::DmaMemory memory_;
  driver::QueuePair* pair_ = nullptr;
};

TEST_F(ServerTest, NeedsADoor) {
  EXPECT_THROW(Server(small_device(), ServerOptions{}), ConfigError);
  DeviceConfig wrong = small_device();
  wrong.engine.units = 0;
  EXPECT_THROW(Server(wrong, options), ConfigError);
}

TEST_F(ServerTest, AFolderThatCannotBeMadeIsAConfigurationMistake) {
  std::filesystem::create_directories(folder);
  options.vfio_user_path = "/proc/nobody-makes-folders-here/cntrl";
  Server server(small_device(), options);
  EXPECT_THROW(server.start(), ConfigError);
  server.stop();
}

TEST_F(ServerTest, AddressesAreThoseOfTheDoors) {
  Server server(small_device(), options);
  EXPECT_TRUE(server.addresses().empty());
  server.start();
  EXPECT_EQ(server.addresses(), std::vector<std::string>{"vfio-user:" + options.vfio_user_path});
  server.stop();
  EXPECT_TRUE(server.addresses().empty());
  EXPECT_FALSE(std::filesystem::exists(options.vfio_user_path)) << "the socket goes with the door";
  server.stop();
}

TEST_F(ServerTest, IdleStatistics) {
  Server server(small_device(), options);
  server.start();
  const ServerStats stats = server.stats();
  EXPECT_EQ(stats.completions, 0u);
  EXPECT_TRUE(stats.hosts.empty());
  EXPECT_EQ(stats.verdict_so_far, "NONE");
  EXPECT_EQ(stats.iops, 0);
}

TEST_F(ServerTest, ABenchmarkThroughTheDoorIsVerifiedAndNotJudged) {
  Server server(small_device(), options);
  server.start();
  BenchOptions load = bench();
  load.rw = "randrw";
  load.read_share = 0.5;
  Bench run(small_device(), load);
  const std::string json = run.run();
  EXPECT_EQ(field(json, "verify_errors"), "0") << field(json, "verify_first_error");
  EXPECT_GT(std::atoll(field(json, "verified").c_str()), 100);
  EXPECT_EQ(field(json, "verdict"), "\"NOT JUDGED\"");
  for (const char* unknown : {"model_iops", "target_ns", "processing_ns", "lateness_ns", "gaps", "poll_gap_max_ns",
                              "late_by_copy_share", "timing", "engine", "media"})
    EXPECT_EQ(field(json, unknown), "null") << unknown;
  EXPECT_EQ(field(json, "jobname"), "\"" + load.target + "\"");
  EXPECT_EQ(field(json, "size_bytes"), std::to_string(4 << 20));
  EXPECT_NE(json.find("\"errors\":{}"), std::string::npos);
  const ServerStats stats = server.stats();
  EXPECT_GT(stats.read_commands, 100u) << "what the host did before it left is counted";
  EXPECT_GT(stats.write_commands, (4u << 20) / (128u * 1024));
  EXPECT_GT(stats.completions, stats.read_commands);
}

TEST_F(ServerTest, StatisticsTellWhatAHostDoes) {
  Server server(small_device(), options);
  server.start();
  BenchOptions load = bench();
  load.runtime_ns = 600'000'000'000;  // until it is cancelled
  load.verify_percent = 0;
  Bench run(small_device(), load);
  std::thread host([&] { run.run(); });
  // An interval in all of which the host was at work.
  ServerStats stats;
  for (int looks = 0; looks < 3'000; ++looks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const bool began = run.progress().phase == "run" && stats.hosts.size() == 1 && stats.hosts[0].read_commands != 0;
    stats = server.stats();
    if (began && stats.hosts.size() == 1 && stats.iops != 0) break;
  }
  run.cancel();
  host.join();
  ASSERT_EQ(stats.hosts.size(), 1u);
  const HostStats& one = stats.hosts[0];
  EXPECT_EQ(one.queues, 2u);
  EXPECT_EQ(one.state, "ready");
  EXPECT_EQ(one.controller_id, 1u);
  EXPECT_EQ(one.door, "vfio-user");
  EXPECT_NE(one.host, "");
  // Two queues of 16 keep at most 32 commands in a device that serves 200,000 a second; how many fewer, and how much
  // more after a pause, is the machine's affair.
  EXPECT_GT(stats.iops, 0);
  EXPECT_LE(stats.iops * stats.interval_s, 200'000 * stats.uptime_s + 64);
  EXPECT_EQ(one.iops, stats.iops);
  EXPECT_EQ(one.read_iops, stats.read_iops);
  // The engine goes on while its counters are read: commands that it takes meanwhile may be in one of them alone.
  EXPECT_LE(std::abs(one.read_iops - one.iops) * stats.interval_s, 64);
  EXPECT_EQ(stats.read_bytes_per_s, one.read_bytes_per_s);
  EXPECT_EQ(one.write_iops, 0);
  EXPECT_GT(stats.queue_depth, 0);
  EXPECT_GT(stats.latency.mean_ns, 20'000);
  EXPECT_GE(stats.latency.p99_ns, stats.latency.p50_ns);
  EXPECT_NEAR(stats.latency.mean_ns, stats.target.mean_ns + stats.lateness.mean_ns, 1);
  EXPECT_NE(stats.verdict_so_far, "NONE");
  EXPECT_GE(stats.total_lateness.p99_ns, stats.total_lateness.p50_ns);
  EXPECT_EQ(stats.hosts_seen, 1u);

  const ServerStats after = server.stats();
  EXPECT_GE(after.completions, stats.completions) << "sums never shrink";
  EXPECT_GE(after.read_commands, stats.read_commands);
}

TEST_F(ServerTest, WhatIsNeverAnsweredIsTold) {
  DeviceConfig config = small_device();
  config.faults = {"lose on=read"};
  config.fidelity.max_error_ns = 10'000'000'000;  // whatever this machine does meanwhile
  Server server(config, options);
  server.start();
  OneHost host(options.vfio_user_path);
  host.submit(nvme::NvmOpcode::read);
  host.submit(nvme::NvmOpcode::write);
  host.wait_for_one();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const ServerStats stats = server.stats();
  const std::string& cause = stats.verdict_so_far_cause;
  EXPECT_NE(cause.find("1 command has no answer (lost by a fault), for "), std::string::npos) << cause;
  const ServerStats later = server.stats();
  EXPECT_EQ(later.verdict, "NONE");
  EXPECT_NE(later.verdict_cause.find("1 command has no answer"), std::string::npos) << later.verdict_cause;
}

// Between two looks: what they did is part of what hosts saw. Rules that have hit nothing are not.
TEST_F(ServerTest, FaultsThatCameAndWentAreTold) {
  DeviceConfig config = small_device();
  config.faults = {"error at=1000000"};
  config.fidelity.max_error_ns = 10'000'000'000;  // whatever this machine does meanwhile
  Server server(config, options);
  server.start();
  OneHost host(options.vfio_user_path);
  const auto read = [&] {
    host.submit(nvme::NvmOpcode::read);
    host.wait_for_one();
  };
  read();
  const ServerStats before = server.stats();
  EXPECT_EQ(before.verdict_so_far_cause.find("faults"), std::string::npos) << before.verdict_so_far_cause;
  EXPECT_GT(before.tolerance_share_so_far, 1) << "10 s of some microseconds";
  EXPECT_DOUBLE_EQ(before.tolerance_share, before.tolerance_share_so_far);
  server.set_faults({"delay delay=1ms"});
  read();
  server.set_faults({});
  const ServerStats after = server.stats();
  EXPECT_EQ(after.verdict_so_far, "VALID (lateness only)");
  EXPECT_NE(after.verdict_so_far_cause.find("faults were injected"), std::string::npos) << after.verdict_so_far_cause;
}

TEST_F(ServerTest, StoppingUnderLoadEndsTheBenchmarkWithItsReport) {
  auto server = std::make_unique<Server>(small_device(), options);
  server->start();
  BenchOptions load = bench();
  load.runtime_ns = 60'000'000'000;
  Bench run(small_device(), load);
  std::string result;
  std::thread host([&] { result = run.run(); });
  while (run.progress().phase != "run") std::this_thread::sleep_for(std::chrono::milliseconds(5));
  server->stop();
  host.join();
  EXPECT_NE(result.find("\"device_failed\":true"), std::string::npos) << result.substr(0, 2000);
}

TEST_F(ServerTest, ForeignContentIsLeftAlone) {
  Server server(small_device(), options);
  server.start();
  const std::string marker(512, 'x');
  {
    initiator::VfioUserDevice device(options.vfio_user_path);
    driver::NvmeDriver driver(device, waiter());
    driver.enable();
    driver::QueuePair& pair = driver.create_queue_pair({.sq_entries = 4});
    driver::DmaMemory memory(device, 4096);
    std::copy_n(reinterpret_cast<const std::byte*>(marker.data()), marker.size(), memory.data());
    nvme::Sqe& sqe = pair.submit();
    sqe = {};
    sqe.opcode = static_cast<std::uint8_t>(nvme::NvmOpcode::write);
    sqe.nsid = 1;
    sqe.prp1 = memory.iova();
    pair.ring_sq();
    std::uint16_t status = 0xFFFF;
    while (pair.reap(1, [&](const nvme::Cqe& entry) { status = entry.status_phase >> 1; }) == 0)
      std::this_thread::yield();
    ASSERT_EQ(status, 0);
  }
  BenchOptions load = bench();
  load.ios = 200;
  const std::string json = Bench(small_device(), load).run();
  EXPECT_EQ(field(json, "verified"), "0");
  EXPECT_EQ(field(json, "verify_errors"), "0");
  load.rw = "randwrite";  // what was asked for is done, whatever is there
  EXPECT_EQ(field(Bench(small_device(), load).run(), "verify_errors"), "0");
}

TEST_F(ServerTest, AStoreOfGeneratedContentIsVerifiedWithoutWriting) {
  DeviceConfig config = small_device();
  config.subsystem.namespaces[0] = {.size_bytes = std::uint64_t{1} << 40, .lba_bytes = 4096, .media = "generated"};
  Server server(config, options);
  server.start();
  BenchOptions load = bench();
  load.block_sizes[0].bytes = 4096;
  load.ios = 1000;
  const std::string json = Bench(config, load).run();
  EXPECT_GT(std::atoll(field(json, "verified").c_str()), 500);
  EXPECT_EQ(field(json, "verify_errors"), "0");
  EXPECT_EQ(server.stats().write_commands, 0u);
}

TEST_F(ServerTest, TargetsThatAreNone) {
  BenchOptions load = bench();
  for (const char* wrong : {"vfio-user:", "ssh:somewhere", "vfio-user", "nvme-tcp:", "nvme-tcp:127.0.0.1:4420",
                            "nvme-tcp:127.0.0.1:4420/", "nvme-tcp:127.0.0.1/nqn.x"}) {
    load.target = wrong;
    EXPECT_THROW(Bench(small_device(), load), ConfigError) << wrong;
  }
  load.target = "vfio-user:" + (folder / "nobody").string();
  Bench nobody(small_device(), load);
  EXPECT_THROW(nobody.run(), ConfigError);
  load.clock = "virtual";
  EXPECT_THROW(Bench(small_device(), load), ConfigError);
}

TEST_F(ServerTest, ABenchmarkOverTheNetworkIsVerified) {
  options.tcp_address = "127.0.0.1:0";
  Server server(small_device(), options);
  server.start();
  ASSERT_EQ(server.addresses().size(), 2u);
  BenchOptions load = bench();
  load.target = server.addresses()[1];
  EXPECT_TRUE(load.target.starts_with("nvme-tcp:127.0.0.1:")) << load.target;
  EXPECT_TRUE(load.target.ends_with("/" + small_device().subsystem.nqn)) << load.target;
  load.host_nqn = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555";
  load.rw = "randrw";
  load.read_share = 0.5;
  load.header_digest = load.data_digest = true;
  Bench run(small_device(), load);
  std::string json;
  std::thread host([&] { json = run.run(); });
  while (run.progress().phase != "run") std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const ServerStats stats = server.stats();
  host.join();
  ASSERT_EQ(stats.hosts.size(), 1u);
  EXPECT_EQ(stats.hosts[0].door, "nvme-tcp");
  EXPECT_EQ(stats.hosts[0].host, load.host_nqn);
  EXPECT_EQ(field(json, "verify_errors"), "0") << field(json, "verify_first_error");
  EXPECT_GT(std::atoll(field(json, "verified").c_str()), 20) << json;
  EXPECT_EQ(field(json, "verdict"), "\"NOT JUDGED\"");
  EXPECT_NE(json.find("\"errors\":{}"), std::string::npos);
}

TEST_F(ServerTest, BothDoorsLeadToTheSameStore) {
  options.tcp_address = "127.0.0.1:0";
  Server server(small_device(), options);
  server.start();
  BenchOptions load = bench();
  load.ios = 300;
  load.verify_percent = 100;
  for (const std::string& address : server.addresses()) {
    load.target = address;
    const std::string json = Bench(small_device(), load).run();
    EXPECT_EQ(field(json, "verify_errors"), "0") << address << field(json, "verify_first_error");
    EXPECT_GT(std::atoll(field(json, "verified").c_str()), 100) << address;
  }
  EXPECT_EQ(server.stats().hosts_seen, 2u) << "although nobody is left";
}

TEST_F(ServerTest, OnlyNamedHostsConnect) {
  options.tcp_address = "127.0.0.1:0";
  options.host_nqns = {"nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555"};
  Server server(small_device(), options);
  server.start();
  BenchOptions load = bench();
  load.ios = 100;
  load.verify_percent = 0;
  load.target = server.addresses()[1];
  load.host_nqn = "nqn.2014-08.org.nvmexpress:uuid:99999999-2222-4333-8444-555555555555";
  EXPECT_THROW(Bench(small_device(), load).run(), ConfigError);
  load.host_nqn = options.host_nqns[0];
  EXPECT_NE(Bench(small_device(), load).run().find("\"errors\":{}"), std::string::npos);
}

// A host of the first door, and what it makes of the SSD.
class Managing {
 public:
  explicit Managing(const std::string& socket) : device_(socket), driver_(device_, waiter()) { driver_.enable(); }
  nvme::Status format() {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::format_nvm);
    sqe.nsid = 1;
    return nvme::status_of(driver_.admin(sqe, {}, false).status_field);
  }

 private:
  initiator::VfioUserDevice device_;
  driver::NvmeDriver driver_;
};

TEST_F(ServerTest, ASharedNamespaceIsNobodysToFormatUnlessSomebodyIsToldSo) {
  struct Case {
    bool shared;
    bool network;
    std::string allow;
    nvme::Status status;
  };
  using nvme::Status;
  for (const Case& c : {Case{true, false, "", Status::invalid_opcode}, Case{false, false, "", Status::success},
                        Case{false, true, "", Status::invalid_opcode}, Case{false, false, "io", Status::invalid_opcode},
                        Case{true, true, "manage", Status::success}}) {
    DeviceConfig config = small_device();
    config.subsystem.namespaces[0].shared = c.shared;
    ServerOptions doors = options;
    if (c.network) doors.tcp_address = "127.0.0.1:0";
    doors.vfio_user_allow = c.allow;
    Server server(config, doors);
    server.start();
    EXPECT_EQ(Managing(doors.vfio_user_path).format(), c.status) << c.shared << c.network << c.allow;
  }
}

TEST_F(ServerTest, RightsThatCannotBe) {
  options.tcp_address = "127.0.0.1:0";
  ServerOptions level = options, host = options, namespaces = options, both = options, mode = options;
  level.vfio_user_allow = "everything";
  mode.vfio_user_mode = "0666";
  host.host_rules = {{.host_nqn = "nqn.host", .allow = "root", .namespaces = {}}};
  namespaces.host_rules = {{.host_nqn = "nqn.host", .allow = "", .namespaces = {257}}};
  both.host_rules = {{.host_nqn = "nqn.host", .allow = "manage", .namespaces = {1}}};
  for (const ServerOptions& wrong : {level, host, namespaces, both, mode}) {
    Server server(small_device(), wrong);
    EXPECT_THROW(server.start(), ConfigError);
  }
}

// By the name in its rule, which also lets the host in.
TEST_F(ServerTest, ARuleMakesAHostAReader) {
  options.tcp_address = "127.0.0.1:0";
  const std::string reader = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555";
  options.host_nqns = {"nqn.2014-08.org.nvmexpress:uuid:22222222-2222-4333-8444-555555555555"};
  options.host_rules = {{.host_nqn = reader, .allow = "read-only", .namespaces = {}}};
  Server server(small_device(), options);
  server.start();
  BenchOptions load = bench();
  load.ios = 50;
  load.rw = "randwrite";
  load.fill = false;
  load.target = server.addresses()[1];
  load.host_nqn = reader;
  const std::string refused = Bench(small_device(), load).run();
  EXPECT_NE(refused.find("Namespace is Write Protected"), std::string::npos) << refused.substr(0, 2000);
  load.host_nqn = options.host_nqns[0];
  EXPECT_NE(Bench(small_device(), load).run().find("\"errors\":{}"), std::string::npos);
}

TEST_F(ServerTest, AnAddressThatCannotBeListenedAtIsAConfigurationMistake) {
  for (const char* wrong : {"203.0.113.1:4420", "127.0.0.1", "nonsense:0x"}) {
    options.tcp_address = wrong;
    Server server(small_device(), options);
    EXPECT_THROW(server.start(), ConfigError) << wrong;
  }
}

TEST(SocketAddress, Parses) {
  EXPECT_EQ(api::text_of(api::parse_socket_address("[::1]:4420")), "[::1]:4420");
  EXPECT_EQ(api::text_of(api::parse_socket_address("127.0.0.1:1")), "127.0.0.1:1");
  EXPECT_EQ(api::parse_socket_address("127.0.0.1:4420").host, "127.0.0.1");
  EXPECT_EQ(api::parse_socket_address("127.0.0.1:0").port, 0);
  EXPECT_EQ(api::parse_socket_address("[::1]:65535").host, "::1");
  EXPECT_EQ(api::parse_socket_address("[::1]:65535").port, 65535);
  EXPECT_EQ(api::parse_socket_address("localhost:1").host, "localhost");
  for (const char* wrong : {"", ":", "4420", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "::1:4420",
                            "[]:1", "[::1:1", "a:1x", ":4420"})
    EXPECT_THROW(api::parse_socket_address(wrong), ConfigError) << wrong;
}

}  // namespace
}  // namespace flashmob
