// The target with its thread, the engine's threads and TCP: several hosts at once, hosts that vanish, stopping under
// load.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "transport/nvme_tcp/target_test_support.h"

namespace flashmob::transport::testing {
namespace {

using nvme::Status;

TEST(NvmeTcpThreads, SeveralHostsReadWhatTheyWrote) {
  DeviceConfig config = Rig::small_device();
  config.engine.units = 2;
  Rig rig({}, config, true);
  std::vector<std::thread> hosts;
  std::atomic<int> failures{0};
  for (unsigned h = 0; h < 3; ++h) {
    hosts.emplace_back([&, h] {
      Host admin(rig);
      Host io(rig);
      const fabrics::Digests digests{h % 2 == 0, h % 2 == 1};
      if (!admin.initialize(digests)) ++failures;
      const std::uint16_t cntlid = admin.attach(5000);
      while (admin.csts() != 1) rig.pump();
      if (!io.initialize(digests) || io.attach_io(cntlid).status() != Status::success) ++failures;
      for (unsigned i = 0; i < 60 && failures == 0; ++i) {
        const auto data = pattern(512u << (i % 10), h * 100 + i);
        const std::uint64_t lba = h * 4096ull;
        if (io.write(lba, data).status() != Status::success) ++failures;
        if (io.read(lba, static_cast<std::uint32_t>(data.size())).data != data) ++failures;
      }
    });
  }
  for (auto& host : hosts) host.join();
  EXPECT_EQ(failures, 0);
  for (int i = 0; i < 1000 && rig.controllers() != 0; ++i) rig.pump();
  EXPECT_EQ(rig.controllers(), 0u);
}

TEST(NvmeTcpThreads, HostsThatVanishUnderLoadLeaveNothing) {
  Rig rig({}, Rig::small_device(), true);
  Host steady(rig);
  ASSERT_TRUE(steady.initialize());
  ASSERT_NE(steady.attach(), 0);
  for (int round = 0; round < 20; ++round) {
    Host admin(rig);
    Host io(rig);
    ASSERT_TRUE(admin.initialize());
    const std::uint16_t cntlid = admin.attach();
    while (admin.csts() != 1) rig.pump();
    ASSERT_TRUE(io.initialize());
    ASSERT_EQ(io.attach_io(cntlid).status(), Status::success);
    for (int i = 0; i < 8; ++i) {
      nvme::Sqe sqe = Host::io(i % 2 == 0 ? nvme::NvmOpcode::read : nvme::NvmOpcode::write, 0, 256);
      Host::transport_sgl(sqe, 128 * 1024);
      io.submit(sqe);
    }
    if (round % 2 == 0)
      io.hang_up();
    else
      admin.hang_up();
  }
  for (int i = 0; i < 1000 && rig.controllers() != 1; ++i) rig.pump();
  EXPECT_EQ(rig.controllers(), 1u);
  EXPECT_EQ(steady.command(Host::identify(1)).status(), Status::success);
}

TEST(NvmeTcpThreads, HostsThatFallSilentUnderLoadAreDropped) {
  Rig rig({}, Rig::small_device(), true);
  std::vector<std::unique_ptr<Host>> silent;
  for (int i = 0; i < 4; ++i) {
    auto& admin = *silent.emplace_back(std::make_unique<Host>(rig));
    auto& io = *silent.emplace_back(std::make_unique<Host>(rig));
    ASSERT_TRUE(admin.initialize());
    const std::uint16_t cntlid = admin.attach(100);
    while (admin.csts() != 1) rig.pump();
    ASSERT_TRUE(io.initialize());
    ASSERT_EQ(io.attach_io(cntlid).status(), Status::success);
    nvme::Sqe sqe = Host::io(nvme::NvmOpcode::write, 0, 256);
    Host::transport_sgl(sqe, 128 * 1024);
    for (int k = 0; k < 4; ++k) io.submit(sqe);
  }
  // Meanwhile others come, reset their controllers, and go.
  for (int round = 0; round < 12; ++round) {
    Host admin(rig);
    ASSERT_TRUE(admin.initialize());
    ASSERT_NE(admin.attach(), 0);
    while (admin.csts() != 1) rig.pump();
    EXPECT_EQ(admin.enable(false).status(), Status::success);
    for (int i = 0; i < 200; ++i) rig.pump();
  }
  for (auto& host : silent) EXPECT_TRUE(host->closed());
  EXPECT_LE(rig.controllers(), 1u);
}

TEST(NvmeTcpThreads, StopsUnderLoadAndCanBeStartedAgain) {
  Rig rig({}, Rig::small_device(), true);
  for (int round = 0; round < 3; ++round) {
    Host admin(rig);
    Host io(rig);
    ASSERT_TRUE(admin.initialize());
    const std::uint16_t cntlid = admin.attach();
    while (admin.csts() != 1) rig.pump();
    ASSERT_TRUE(io.initialize());
    ASSERT_EQ(io.attach_io(cntlid).status(), Status::success);
    for (int i = 0; i < 8; ++i) io.submit(Host::io(nvme::NvmOpcode::flush, 0, 1));
    rig.target().stop();
    EXPECT_EQ(rig.controllers(), 0u);
    EXPECT_TRUE(io.closed());
    rig.target().start();
  }
}

}  // namespace
}  // namespace flashmob::transport::testing
