// NvmeTcpDevice and a target that is slow, silent, wrong, or gone at any moment; and options that cannot be used.
#include <atomic>
#include <chrono>
#include <thread>

#include "initiator/nvme_tcp/nvme_tcp_discovery.h"
#include "initiator/nvme_tcp/nvme_tcp_session.h"

namespace flashmob::initiator {
namespace {

using namespace testing_tcp;

TEST(NvmeTcpDevice, MistakesInOptionsAndAddressesAreToldClearly) {
  NvmeTcpOptions options;
  EXPECT_THROW(NvmeTcpDevice{options}, ConfigError) << "no subsystem";
  options.subsystem_nqn = "nqn.2014-08.org.nvmexpress:test";
  options.pump_threads = 0;
  EXPECT_THROW(NvmeTcpDevice{options}, ConfigError);
  options.pump_threads = 1;
  {
    FakeTcpTarget gone;
    options.port = gone.port();
  }
  try {
    NvmeTcpDevice device(options);
    FAIL() << "nobody listens there";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("127.0.0.1:" + std::to_string(options.port)), std::string::npos);
  }
  FakeTcpTarget target;
  target.connect_status = nvme::to_field(nvme::kConnectInvalidHost);
  try {
    NvmeTcpDevice device(options_for(target));
    FAIL() << "the host is not allowed";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("does not allow host"), std::string::npos) << error.what();
  }
}

TEST(NvmeTcpDevice, ASilentTargetIsGivenUpInTime) {
  FakeTcpTarget target;
  target.silent = true;
  NvmeTcpOptions options = options_for(target);
  options.timeout_ms = 100;
  const std::uint64_t start_ns = now_ns();
  EXPECT_THROW(NvmeTcpDevice{options}, ConfigError);
  EXPECT_LT(now_ns() - start_ns, 2'000'000'000u);
}

// Neither while it attaches nor in the middle of a question.
TEST(NvmeTcpDevice, AHurriedHostDoesNotWait) {
  constexpr std::uint32_t kLongMs = 600'000;
  std::atomic<bool> is_hurried{false};
  const auto begun = std::chrono::steady_clock::now();
  std::thread leaving;
  const auto leave = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    is_hurried = true;
  };
  {
    FakeTcpTarget target;
    NvmeTcpOptions options = options_for(target);
    options.timeout_ms = kLongMs;
    options.is_hurried = &is_hurried;
    options.keep_alive_ms = 0;
    NvmeTcpDevice device(options);
    target.silent = true;
    leaving = std::thread(leave);
    EXPECT_EQ(device.read32(nvme::kRegCsts), 0u);
    EXPECT_NE(device.failure(), "");
    leaving.join();
  }
  FakeTcpTarget target;
  target.silent = true;
  NvmeTcpOptions options = options_for(target);
  options.timeout_ms = kLongMs;
  options.is_hurried = &is_hurried;
  is_hurried = false;
  leaving = std::thread(leave);
  EXPECT_THROW(NvmeTcpDevice{options}, ConfigError);
  leaving.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(kLongMs / 2));
}

TEST(NvmeTcpDevice, ALostConnectionFailsCommandsAndAResetHeals) {
  FakeTcpTarget target;
  Session session(options_for(target));
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(session.io(NvmOpcode::read, 0, 8), 0);
    target.drop_all();
    ASSERT_TRUE(wait_for([&] { return session.driver.fatal(); }));
    EXPECT_NE(session.device.failure(), "");
    EXPECT_EQ(session.io(NvmOpcode::read, 0, 8), nvme::to_field(Status::transient_transport_error));
    EXPECT_THROW(session.driver.shutdown(false), driver::NvmeFatal);
    session.driver.enable();
    EXPECT_EQ(session.device.failure(), "");
    session.pair = &session.driver.create_queue_pair({.sq_entries = 16});
  }
}

TEST(NvmeTcpDevice, ATargetThatStaysAwayKeepsTheControllerFatal) {
  FakeTcpTarget target;
  Session session(options_for(target));
  target.refuse = true;
  target.drop_all();
  ASSERT_TRUE(wait_for([&] { return session.driver.fatal(); }));
  EXPECT_THROW(session.driver.enable(), driver::NvmeFatal);
  EXPECT_TRUE(session.driver.fatal());
  target.refuse = false;
  session.driver.enable();
  session.pair = &session.driver.create_queue_pair({.sq_entries = 16});
  EXPECT_EQ(session.io(NvmOpcode::read, 0, 8), 0);
}

TEST(NvmeTcpDevice, KeepAliveIsSentAndItsSilenceNoticed) {
  FakeTcpTarget target;
  NvmeTcpOptions options = options_for(target);
  options.keep_alive_ms = 40;
  Session session(options);
  ASSERT_TRUE(wait_for([&] { return target.keep_alives >= 4; }));
  target.silent = true;
  ASSERT_TRUE(wait_for([&] { return !session.device.failure().empty(); }));
  EXPECT_NE(session.device.failure().find("Keep Alive"), std::string::npos) << session.device.failure();
  EXPECT_TRUE(session.driver.fatal());
}

// The target breaks off after every possible number of bytes, from the first of the first response on: whatever was
// going on ends with an error or is done, and nothing hangs.
TEST(NvmeTcpDevice, DropsAtAnyMomentNeverHang) {
  for (std::int64_t bytes = 0; bytes < 9000; bytes += bytes < 1200 ? 13 : 311) {
    FakeTcpTarget target;
    target.header_digest = target.data_digest = bytes % 2 == 0;
    target.bytes_until_drop = bytes;
    NvmeTcpOptions options = options_for(target);
    options.header_digest = options.data_digest = true;
    try {
      Session session(options);
      session.fill(0, 16384, 1);
      for (int i = 0; i < 4; ++i) {
        const auto written = session.io(NvmOpcode::write, 0, 32);
        ASSERT_TRUE(written.has_value()) << bytes;
        const auto read = session.io(NvmOpcode::read, 0, 4, 65536);
        ASSERT_TRUE(read.has_value()) << bytes;
        if (*written != 0 || *read != 0) continue;
        ASSERT_EQ(std::memcmp(session.buffer.data(), session.buffer.data() + 65536, 2048), 0);
      }
    } catch (const ConfigError&) {
    } catch (const driver::NvmeFatal&) {
    } catch (const driver::NvmeError&) {
    }
  }
}

TEST(NvmeTcpDevice, DiscoveryNeedsADiscoveryController) {
  FakeTcpTarget target;
  EXPECT_THROW(discover(options_for(target)), ConfigError);
}

}  // namespace
}  // namespace flashmob::initiator
