// What an association is and what ends it: properties, resets, shutdown, the keep alive timer, aborts and events.
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "nvme/async_event.h"
#include "nvme/features.h"
#include "transport/nvme_tcp/target_test_support.h"

namespace flashmob::transport::testing {
namespace {

using nvme::Status;

TEST(NvmeTcpAssociation, Properties) {
  Rig rig;
  Host host(rig);
  ASSERT_TRUE(host.initialize());
  ASSERT_NE(host.attach(), 0);
  const Reply cap = host.get_property(nvme::kRegCap, true);
  EXPECT_EQ(cap.status(), Status::success);
  const nvme::Cap c = nvme::decode_cap(cap.cqe.dw0 | (std::uint64_t{cap.cqe.dw1} << 32));
  EXPECT_EQ(c.mqes, 1023);
  EXPECT_TRUE(c.cqr);
  EXPECT_EQ(host.get_property(nvme::kRegVs).cqe.dw0, 0x20000u);
  EXPECT_EQ(host.get_property(nvme::kRegCap, false).status(), Status::invalid_field);
  EXPECT_EQ(host.get_property(nvme::kRegVs, true).status(), Status::invalid_field);
  for (const std::uint32_t offset : {nvme::kRegAqa, nvme::kRegAsq, nvme::kRegAcq, nvme::kRegIntms, 0x1000u, 0x14u + 1})
    EXPECT_EQ(host.get_property(offset).status(), Status::invalid_field) << offset;
  for (const std::uint32_t offset : {nvme::kRegVs, nvme::kRegAqa, nvme::kRegAsq, 0x1000u})
    EXPECT_EQ(host.set_property(offset, 1).status(), Status::invalid_field) << offset;
  EXPECT_EQ(host.set_property(nvme::kRegCc, 1, true).status(), Status::invalid_field);
}

TEST(NvmeTcpAssociation, AControllerResetKeepsTheAdminQueueAndEndsTheOthers) {
  Rig rig;
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  for (int round = 0; round < 5; ++round) {
    Host io(rig);
    ASSERT_TRUE(io.initialize());
    ASSERT_EQ(io.attach_io(cntlid).status(), Status::success);
    ASSERT_EQ(io.write(0, pattern(16'384, 1)).status(), Status::success);
    nvme::Sqe event{};
    event.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::async_event_request);
    Host::transport_sgl(event, 0);
    admin.submit(event);
    nvme::Sqe write = Host::io(nvme::NvmOpcode::write, 0, 32);
    Host::transport_sgl(write, 16'384);
    io.submit(write);
    EXPECT_EQ(admin.enable(false).status(), Status::success);
    EXPECT_EQ(admin.csts(), 0u);
    EXPECT_TRUE(io.closed());
    EXPECT_EQ(admin.command(Host::identify(1)).status(), Status::command_sequence_error);
    EXPECT_EQ(admin.enable(true).status(), Status::success);
    EXPECT_EQ(admin.csts(), 1u);
    EXPECT_EQ(admin.command(Host::identify(1)).status(), Status::success);
  }
}

TEST(NvmeTcpAssociation, Shutdown) {
  Rig rig;
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  ASSERT_NE(admin.attach(), 0);
  admin.set_property(nvme::kRegCc, nvme::encode_cc({.en = true, .shn = 1, .iosqes = 6, .iocqes = 4}));
  EXPECT_EQ(nvme::decode_csts(admin.csts()).shst, nvme::kCstsShstComplete);
  EXPECT_EQ(admin.command(Host::identify(1)).status(), Status::command_sequence_error);
  EXPECT_EQ(admin.enable(false).status(), Status::success);
  EXPECT_EQ(admin.enable(true).status(), Status::success);
  EXPECT_EQ(admin.command(Host::identify(1)).status(), Status::success);
}

TEST(NvmeTcpAssociation, ASubsystemResetEndsEveryAssociation) {
  Rig rig;
  Host first(rig);
  Host second(rig);
  ASSERT_TRUE(first.initialize());
  ASSERT_TRUE(second.initialize());
  ASSERT_NE(first.attach(), 0);
  ASSERT_NE(second.attach(), 0);
  first.set_property(nvme::kRegNssr, nvme::kNssrReset);
  EXPECT_TRUE(first.closed());
  EXPECT_TRUE(second.closed());
  EXPECT_EQ(rig.controllers(), 0u);
}

TEST(NvmeTcpAssociation, KeepAlive) {
  Rig rig;
  Host silent(rig);
  Host lively(rig);
  ASSERT_TRUE(silent.initialize());
  ASSERT_TRUE(lively.initialize());
  ASSERT_NE(silent.attach(1000), 0);
  ASSERT_NE(lively.attach(1000), 0);
  nvme::Sqe keep_alive{};
  keep_alive.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::keep_alive);
  Host::transport_sgl(keep_alive, 0);
  // Whoever looks in larger steps stood still, and gives hosts another time.
  for (int i = 0; i < 4 * 20; ++i) {
    rig.pass_ns(20'000'000);
    rig.pump();
    if (i % 20 == 19) {
      EXPECT_EQ(lively.command(keep_alive).status(), Status::success);
    }
  }
  EXPECT_TRUE(silent.closed());
  EXPECT_EQ(lively.command(keep_alive).status(), Status::success);
  EXPECT_EQ(rig.controllers(), 1u);
}

TEST(NvmeTcpAssociation, AbortAndEvents) {
  Rig rig;
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  ASSERT_NE(admin.attach(), 0);
  nvme::Sqe event{};
  event.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::async_event_request);
  Host::transport_sgl(event, 0);
  const std::uint16_t cid = admin.submit(event);
  nvme::Sqe abort{};
  abort.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::abort);
  abort.cdw10 = std::uint32_t{cid} << 16;
  Host::transport_sgl(abort, 0);
  const Reply reply = admin.command(abort);
  EXPECT_EQ(reply.status(), Status::success);
  EXPECT_EQ(reply.cqe.dw0 & 1, 0u) << "aborted";
  ASSERT_EQ(admin.others.size(), 1u);
  EXPECT_EQ(admin.others[0].cid, cid);

  nvme::Sqe configure{};
  configure.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::set_features);
  configure.cdw10 = static_cast<std::uint32_t>(nvme::Feature::async_event_configuration);
  configure.cdw11 = nvme::kAsyncEventNamespaceAttribute;
  Host::transport_sgl(configure, 0);
  ASSERT_EQ(admin.command(configure).status(), Status::success);
  const std::uint16_t waiting = admin.submit(event);
  rig.pump();
  {
    const std::lock_guard lock(rig.subsystem().mutex());
    rig.subsystem().notify_attached(1);
  }
  const Reply told = admin.finish(waiting, {});
  EXPECT_EQ(told.status(), Status::success);
  EXPECT_EQ(nvme::decode_async_event(told.cqe.dw0).type, nvme::AsyncEventType::notice);
}

TEST(NvmeTcpAssociation, CommandsOfPciExpressDoNotExist) {
  Rig rig;
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  ASSERT_NE(admin.attach(), 0);
  for (const unsigned opcode : {0x00u, 0x01u, 0x04u, 0x05u, 0x7Cu}) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    Host::transport_sgl(sqe, 0);
    EXPECT_EQ(admin.command(sqe).status(), Status::invalid_opcode) << opcode;
  }
  for (const auto feature : {nvme::Feature::interrupt_coalescing, nvme::Feature::interrupt_vector_configuration}) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::get_features);
    sqe.cdw10 = static_cast<std::uint32_t>(feature);
    Host::transport_sgl(sqe, 0);
    EXPECT_EQ(admin.command(sqe).status(), Status::invalid_field);
  }
}

// Where cores are busy, having the engine's threads stand takes a time slice of others, each time.
TEST(NvmeTcpAssociation, ManyEndTogether) {
  constexpr int kHosts = 20;
  Rig rig;
  for (const bool by_stopping : {false, true}) {
    std::vector<std::unique_ptr<Host>> hosts;
    for (int i = 0; i < kHosts; ++i) {
      Host& admin = *hosts.emplace_back(std::make_unique<Host>(rig));
      ASSERT_TRUE(admin.initialize());
      const std::uint16_t cntlid = admin.attach();
      ASSERT_NE(cntlid, 0);
      Host& io = *hosts.emplace_back(std::make_unique<Host>(rig));
      ASSERT_TRUE(io.initialize());
      ASSERT_EQ(io.attach_io(cntlid).status(), Status::success);
      ASSERT_EQ(io.write(0, pattern(4096, 1)).status(), Status::success);
    }
    ASSERT_EQ(rig.controllers(), std::size_t{kHosts});
    const std::uint64_t before = rig.engine().pauses();
    if (by_stopping) {
      rig.target().stop();
    } else {
      hosts.clear();
      rig.pump();
    }
    EXPECT_LE(rig.engine().pauses() - before, 2u) << by_stopping;
    EXPECT_EQ(rig.controllers(), 0u);
  }
}

}  // namespace
}  // namespace flashmob::transport::testing
