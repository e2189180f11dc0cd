// The target with its thread, the engine's threads and TCP: several hosts at once, hosts that vanish, stopping under
// load.
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fabrics/dhchap.h"
#include "gtest/gtest.h"
#include "transport/nvme_tcp/authenticator.h"
#include "transport/nvme_tcp/target_test_support.h"

namespace flashmob::transport::testing {
namespace {

using nvme::Status;

// Of this process's thread of that name; -1 where there is none.
int nice_of(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string found;
    std::getline(std::ifstream(task.path() / "comm"), found);
    if (found == name) return ::getpriority(PRIO_PROCESS, static_cast<id_t>(std::stoul(task.path().filename())));
  }
  return -1;
}

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

// Sixteen hosts ask for a dear challenge at once, on a machine that may be full of other work. Meanwhile another one
// goes on reading.
TEST(NvmeTcpThreads, AuthenticationDelaysNobodyElse) {
  constexpr char kSecret[] = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
  NvmeTcpTargetOptions options;
  options.hosts = {{.nqn = kHostNqn, .dhchap_secret = {}, .dhchap_controller_secret = {}},
                   {.nqn = "nqn.proven", .dhchap_secret = kSecret, .dhchap_controller_secret = {}}};
  Rig rig(options, Rig::small_device(), true);
  const std::string nqn = rig.subsystem().config().nqn;
  Host admin(rig);
  Host io(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  while (admin.csts() != 1) rig.pump();
  ASSERT_TRUE(io.initialize());
  ASSERT_EQ(io.attach_io(cntlid).status(), Status::success);

  std::vector<std::unique_ptr<Host>> asking;
  fabrics::DhchapHost dhchap({"nqn.proven", nqn, fabrics::DhchapSecret(kSecret), std::nullopt});
  dhchap.offer({nvme::AuthHash::sha256}, {nvme::AuthDhGroup::ffdhe4096});
  nvme::Sqe receive = nvme::fabrics_sqe(nvme::FabricsType::authentication_receive);
  nvme::encode_authentication({.length_bytes = 4096}, receive);
  Host::transport_sgl(receive, 4096);
  for (std::uint16_t i = 0; i < 16; ++i) {
    asking.push_back(std::make_unique<Host>(rig));
    ASSERT_TRUE(asking.back()->initialize());
    const auto data = Host::connect_data(nqn, nvme::kCntlidDynamic, "nqn.proven");
    ASSERT_EQ(asking.back()->connect(Host::connect_sqe(0, 32), data).status(), Status::success);
    const fabrics::Bytes message = dhchap.negotiate(i);
    nvme::Sqe send = nvme::fabrics_sqe(nvme::FabricsType::authentication_send);
    nvme::encode_authentication({.length_bytes = static_cast<std::uint32_t>(message.size())}, send);
    ASSERT_EQ(asking.back()->in_capsule(send, std::as_bytes(std::span(message))).status(), Status::success);
  }
  std::vector<std::uint16_t> cids;
  for (auto& host : asking) cids.push_back(host->submit(receive));
  std::atomic<bool> answered{false};
  std::thread waiter([&] {
    for (std::size_t i = 0; i < asking.size(); ++i) {
      // Long, where the machine is full; at once where the connection has ended.
      Reply reply = asking[i]->finish(cids[i], {});
      for (int more = 0; more < 50 && reply.status() == Status{Host::kLost}; ++more)
        reply = asking[i]->finish(cids[i], {});
      EXPECT_EQ(reply.status(), Status::success);
      EXPECT_GT(reply.data.size(), 512u);
    }
    answered = true;
  });
  do EXPECT_EQ(io.read(0, 512).status(), Status::success);
  while (!answered);
  waiter.join();
  EXPECT_EQ(nice_of("fm-nvme-auth"), Authenticator::kNice);
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
