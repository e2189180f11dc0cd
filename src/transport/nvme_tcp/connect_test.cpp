// Connect with everything that can be wrong with it, and queues that come and go by it and by Disconnect.
#include "gtest/gtest.h"
#include "transport/nvme_tcp/target_test_support.h"

namespace flashmob::transport::testing {
namespace {

using nvme::Status;

struct Fixture : ::testing::Test {
  Rig rig;
  std::string nqn = rig.subsystem().config().nqn;
};
using NvmeTcpConnect = Fixture;

TEST_F(NvmeTcpConnect, AdminQueueMakesAController) {
  Host host(rig);
  ASSERT_TRUE(host.initialize());
  EXPECT_EQ(rig.controllers(), 0u);
  const Reply reply = host.connect(Host::connect_sqe(0, 32), Host::connect_data(nqn));
  EXPECT_EQ(reply.status(), Status::success);
  EXPECT_EQ(reply.cqe.dw0, 1u) << "the controller's identifier, and no authentication";
  EXPECT_EQ(rig.controllers(), 1u);
  EXPECT_EQ(host.csts(), 0u);
  EXPECT_EQ(host.command(Host::identify(1)).status(), Status::command_sequence_error) << "not enabled yet";
  EXPECT_EQ(host.enable(true).status(), Status::success);
  EXPECT_EQ(host.csts(), 1u);
  host.hang_up();
  rig.pump();
  EXPECT_EQ(rig.controllers(), 0u);
}

TEST_F(NvmeTcpConnect, WhatConnectRefuses) {
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  ASSERT_EQ(cntlid, 1);
  constexpr std::uint32_t kInData = 1u << 16;
  struct Case {
    const char* what;
    nvme::Sqe sqe;
    nvme::ConnectData data;
    Status status;
    std::uint32_t where;
  };
  auto recfmt = Host::connect_sqe(0, 32);
  recfmt.cdw10 |= 1;
  auto no_subsystem = Host::connect_data("");
  auto endless = Host::connect_data(nqn);
  std::memset(endless.hostnqn, 'x', sizeof(endless.hostnqn));
  auto other_id = Host::connect_data(nqn, cntlid);
  other_id.hostid[3] = 9;
  const auto good = Host::connect_data(nqn);
  const auto io = Host::connect_data(nqn, cntlid);
  const Case cases[] = {
      {"record format", recfmt, good, nvme::kConnectIncompatibleFormat, 0},
      {"no subsystem", Host::connect_sqe(0, 32), no_subsystem, nvme::kConnectInvalidParameters, kInData | 256},
      {"another subsystem", Host::connect_sqe(0, 32), Host::connect_data("nqn.2014-08.org.example:other"),
       nvme::kConnectInvalidParameters, kInData | 256},
      {"endless name", Host::connect_sqe(0, 32), endless, nvme::kConnectInvalidParameters, kInData | 512},
      {"a name that is not UTF-8", Host::connect_sqe(0, 32), Host::connect_data(nqn, nvme::kCntlidDynamic, "nqn.\xFF"),
       nvme::kConnectInvalidParameters, kInData | 512},
      {"a name that steers terminals", Host::connect_sqe(0, 32),
       Host::connect_data(nqn, nvme::kCntlidDynamic, "nqn.\x1B[2J"), nvme::kConnectInvalidParameters, kInData | 512},
      {"a subsystem's name that is not UTF-8", Host::connect_sqe(0, 32), Host::connect_data("nqn.\xFF"),
       nvme::kConnectInvalidParameters, kInData | 256},
      {"one entry", Host::connect_sqe(0, 1), good, nvme::kConnectInvalidParameters, 44},
      {"admin queue too long", Host::connect_sqe(0, 1025), good, nvme::kConnectInvalidParameters, 44},
      {"static controller", Host::connect_sqe(0, 32), Host::connect_data(nqn, 5), nvme::kConnectInvalidParameters,
       kInData | 16},
      {"no such controller", Host::connect_sqe(1, 16), Host::connect_data(nqn, 77), nvme::kConnectInvalidParameters,
       kInData | 16},
      {"another host's controller", Host::connect_sqe(1, 16), Host::connect_data(nqn, cntlid, "nqn.other:host"),
       nvme::kConnectInvalidParameters, kInData | 512},
      {"another host identifier", Host::connect_sqe(1, 16), other_id, nvme::kConnectInvalidParameters, kInData | 0},
      {"queue identifier", Host::connect_sqe(9, 16), io, nvme::kConnectInvalidParameters, 42},
      {"I/O queue too long", Host::connect_sqe(1, 1025), io, nvme::kConnectInvalidParameters, 44},
      {"I/O queue of the discovery controller", Host::connect_sqe(1, 16), Host::connect_data(nvme::kDiscoveryNqn),
       nvme::kConnectInvalidParameters, 42},
  };
  for (const Case& c : cases) {
    Host host(rig);
    ASSERT_TRUE(host.initialize()) << c.what;
    const Reply reply = host.connect(c.sqe, c.data);
    EXPECT_EQ(reply.status(), c.status) << c.what;
    EXPECT_EQ(reply.cqe.dw0, c.where) << c.what;
    // The host may try again on the same connection.
    EXPECT_EQ(host.connect(Host::connect_sqe(2, 16), io).status(), Status::success) << c.what;
    EXPECT_EQ(host.connect(Host::connect_sqe(3, 16), io).status(), Status::command_sequence_error) << c.what;
    host.hang_up();
    rig.pump();
  }
  EXPECT_EQ(rig.controllers(), 1u);
}

TEST_F(NvmeTcpConnect, ConnectDataMustBeWholeAndInTheCapsule) {
  Host host(rig);
  ASSERT_TRUE(host.initialize());
  const auto data = Host::connect_data(nqn);
  const auto bytes = std::as_bytes(std::span(&data, 1));
  auto sqe = Host::connect_sqe(0, 32);
  EXPECT_EQ(host.in_capsule(sqe, bytes.first(1023)).status(), Status::data_sgl_length_invalid);
  Host::transport_sgl(sqe, 1024);
  EXPECT_EQ(host.finish(host.submit(sqe, bytes), {}).status(), Status::sgl_descriptor_type_invalid);
  Host::capsule_sgl(sqe, 1024, 8);
  EXPECT_EQ(host.finish(host.submit(sqe, bytes), {}).status(), Status::sgl_descriptor_type_invalid);
  EXPECT_EQ(host.command(nvme::fabrics_sqe(nvme::FabricsType::property_get)).status(), Status::command_sequence_error);
  EXPECT_EQ(host.command(Host::identify(1)).status(), Status::command_sequence_error);
  EXPECT_EQ(rig.controllers(), 0u);
}

TEST_F(NvmeTcpConnect, QueuesComeAndGo) {
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Host>> hosts;
    for (std::uint16_t qid = 1; qid <= 8; ++qid) {
      hosts.push_back(std::make_unique<Host>(rig));
      ASSERT_TRUE(hosts.back()->initialize());
      ASSERT_EQ(hosts.back()->attach_io(cntlid, qid).status(), Status::success) << qid;
      EXPECT_EQ(hosts.back()->read(0, 512).status(), Status::success);
    }
    Host again(rig);
    ASSERT_TRUE(again.initialize());
    EXPECT_EQ(again.attach_io(cntlid, 3).status(), Status::command_sequence_error) << "in use";
    if (round % 2 == 0) {
      // With commands under way.
      for (auto& host : hosts) host->submit(Host::io(nvme::NvmOpcode::flush, 0, 1));
    }
    hosts.clear();
    rig.pump();
  }
  EXPECT_EQ(admin.command(Host::identify(1)).status(), Status::success);
}

TEST_F(NvmeTcpConnect, AConnectionThatEndsWhileItsQueueIsMade) {
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  for (int rounds = 0; rounds < 8; ++rounds) {
    Host io(rig);
    ASSERT_TRUE(io.initialize());
    auto sqe = Host::connect_sqe(1, 16);
    Host::capsule_sgl(sqe, 1024);
    auto pdu = fabrics::make_pdu<nvme::tcp::CapsuleCmd>(nvme::tcp::PduType::capsule_cmd);
    pdu.sqe = sqe;
    const auto data = Host::connect_data(nqn, cntlid);
    io.send_pdu(pdu, std::as_bytes(std::span(&data, 1)));
    // Some of the way, by turns of target and engine.
    for (int i = 0; i < rounds; ++i) {
      rig.target().poll();
      if (i % 2 == 1) rig.engine().poll_actor(0);
    }
    io.hang_up();
    rig.pump();
  }
  Host io(rig);
  ASSERT_TRUE(io.initialize());
  EXPECT_EQ(io.attach_io(cntlid, 1).status(), Status::success);
  EXPECT_EQ(io.read(0, 512).status(), Status::success);
}

TEST_F(NvmeTcpConnect, Disconnect) {
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  Host io(rig);
  ASSERT_TRUE(io.initialize());
  ASSERT_EQ(io.attach_io(cntlid).status(), Status::success);
  auto sqe = nvme::fabrics_sqe(nvme::FabricsType::disconnect);
  EXPECT_EQ(admin.command(sqe).status(), nvme::kInvalidQueueType);
  sqe.cdw10 = 1;
  EXPECT_EQ(io.command(sqe).status(), nvme::kConnectIncompatibleFormat);
  sqe.cdw10 = 0;
  EXPECT_EQ(io.command(sqe).status(), Status::success);
  EXPECT_TRUE(io.closed());
  io.hang_up();
  Host next(rig);
  ASSERT_TRUE(next.initialize());
  EXPECT_EQ(next.attach_io(cntlid).status(), Status::success);
}

TEST_F(NvmeTcpConnect, DisconnectIsAnsweredAfterAShutdown) {
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  Host io(rig);
  ASSERT_TRUE(io.initialize());
  ASSERT_EQ(io.attach_io(cntlid).status(), Status::success);
  const nvme::Cc shut_down{.en = true, .shn = nvme::kCcShnNormal, .iosqes = 6, .iocqes = 4};
  ASSERT_EQ(admin.set_property(nvme::kRegCc, nvme::encode_cc(shut_down)).status(), Status::success);
  rig.pump();
  ASSERT_EQ(nvme::decode_csts(admin.csts()).shst, nvme::kCstsShstComplete);
  EXPECT_EQ(io.command(nvme::fabrics_sqe(nvme::FabricsType::disconnect)).status(), Status::success);
  EXPECT_TRUE(io.closed());
}

TEST_F(NvmeTcpConnect, AQueueThatHasJustEndedCanBeMadeAgain) {
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  Host next(rig);
  ASSERT_TRUE(next.initialize());
  Host io(rig);
  ASSERT_TRUE(io.initialize());
  ASSERT_EQ(io.attach_io(cntlid).status(), Status::success);
  io.submit(nvme::fabrics_sqe(nvme::FabricsType::disconnect));
  auto sqe = Host::connect_sqe(1, 16);
  Host::capsule_sgl(sqe, 1024);
  const auto data = Host::connect_data(nqn, cntlid);
  // The target looks before the engine has deleted anything.
  for (int i = 0; i < 3; ++i) rig.target().poll();
  io.hang_up();
  rig.target().poll();
  const std::uint16_t cid = next.submit(sqe, std::as_bytes(std::span(&data, 1)));
  rig.target().poll();
  EXPECT_EQ(next.finish(cid, {}).status(), Status::success);
  EXPECT_EQ(next.read(0, 512).status(), Status::success);
}

}  // namespace
}  // namespace flashmob::transport::testing
