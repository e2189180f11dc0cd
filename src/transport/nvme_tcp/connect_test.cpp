// Setting up: the initial exchange, Connect with everything that can be wrong with it, properties, discovery, host
// access, authentication, and what ends an association.
#include "fabrics/dhchap.h"
#include "gtest/gtest.h"
#include "nvme/async_event.h"
#include "nvme/features.h"
#include "nvme/identify_controller.h"
#include "transport/nvme_tcp/target_test_support.h"

namespace flashmob::transport::testing {
namespace {

using nvme::Status;

// Two keys of 32 bytes in the form of the specification.
constexpr char kSecret[] = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
constexpr char kControllerSecret[] = "DHHC-1:01:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj/jBqb2:";

struct Fixture : ::testing::Test {
  Rig rig;
  std::string nqn = rig.subsystem().config().nqn;
};
using NvmeTcpConnect = Fixture;

TEST_F(NvmeTcpConnect, InitialExchange) {
  Host host(rig);
  const auto response = host.initialize({true, true}, 3);
  ASSERT_TRUE(response);
  EXPECT_EQ(response->pfv, 0);
  EXPECT_EQ(response->cpda, 0);
  EXPECT_EQ(response->dgst, nvme::tcp::kDigestHeader | nvme::tcp::kDigestData);
  EXPECT_EQ(response->maxh2cdata, 256u * 1024u);
  EXPECT_EQ(response->ch.plen, 128u);
}

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

TEST_F(NvmeTcpConnect, Properties) {
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

TEST_F(NvmeTcpConnect, AControllerResetKeepsTheAdminQueueAndEndsTheOthers) {
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

TEST_F(NvmeTcpConnect, Shutdown) {
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

TEST_F(NvmeTcpConnect, ASubsystemResetEndsEveryAssociation) {
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

TEST_F(NvmeTcpConnect, KeepAlive) {
  Host silent(rig);
  Host lively(rig);
  ASSERT_TRUE(silent.initialize());
  ASSERT_TRUE(lively.initialize());
  ASSERT_NE(silent.attach(1000), 0);
  ASSERT_NE(lively.attach(1000), 0);
  nvme::Sqe keep_alive{};
  keep_alive.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::keep_alive);
  Host::transport_sgl(keep_alive, 0);
  for (int i = 0; i < 4; ++i) {
    rig.pass_ns(400'000'000);
    EXPECT_EQ(lively.command(keep_alive).status(), Status::success);
  }
  EXPECT_TRUE(silent.closed());
  EXPECT_EQ(lively.command(keep_alive).status(), Status::success);
  EXPECT_EQ(rig.controllers(), 1u);
}

TEST_F(NvmeTcpConnect, AbortAndEvents) {
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

TEST_F(NvmeTcpConnect, CommandsOfPciExpressDoNotExist) {
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

TEST_F(NvmeTcpConnect, AHostWithoutANameAttachesWhereThereIsNoList) {
  Host anonymous(rig);
  ASSERT_TRUE(anonymous.initialize());
  const auto nameless = Host::connect_data(nqn, nvme::kCntlidDynamic, "");
  EXPECT_EQ(anonymous.connect(Host::connect_sqe(0, 32), nameless).status(), Status::success);

  NvmeTcpTargetOptions options;
  options.hosts = {{.nqn = kHostNqn, .dhchap_secret = {}, .dhchap_controller_secret = {}}};
  Rig guarded(options);
  Host stranger(guarded);
  ASSERT_TRUE(stranger.initialize());
  EXPECT_EQ(stranger.connect(Host::connect_sqe(0, 32), nameless).status(), nvme::kConnectInvalidParameters);
}

TEST_F(NvmeTcpConnect, Discovery) {
  Host host(rig);
  ASSERT_TRUE(host.initialize({true, true}));
  ASSERT_EQ(host.connect(Host::connect_sqe(0, 32), Host::connect_data(nvme::kDiscoveryNqn)).status(), Status::success);
  EXPECT_EQ(rig.controllers(), 0u) << "it needs no controller of the subsystem";
  nvme::Sqe log{};
  log.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::get_log_page);
  nvme::encode_get_log_page({.lid = nvme::kLidDiscovery, .numd = 2048 / 4 - 1}, log);
  Host::transport_sgl(log, 2048);
  EXPECT_EQ(host.command(log).status(), Status::command_sequence_error) << "not enabled";
  EXPECT_EQ(host.enable(true).status(), Status::success);
  EXPECT_EQ(host.csts(), 1u);
  const Reply identified = host.command(Host::identify(1));
  ASSERT_EQ(identified.data.size(), 4096u);
  nvme::IdentifyController c;
  std::memcpy(&c, identified.data.data(), sizeof(c));
  EXPECT_EQ(c.cntrltype, nvme::kCntrltypeDiscovery);
  EXPECT_STREQ(c.subnqn, nvme::kDiscoveryNqn);
  const Reply reply = host.command(log);
  ASSERT_EQ(reply.status(), Status::success);
  nvme::DiscoveryHeader header;
  nvme::DiscoveryEntry entry;
  std::memcpy(&header, reply.data.data(), sizeof(header));
  std::memcpy(&entry, reply.data.data() + sizeof(header), sizeof(entry));
  EXPECT_EQ(header.numrec, 1u);
  EXPECT_EQ(entry.trtype, nvme::kTrtypeTcp);
  EXPECT_EQ(entry.subtype, nvme::kSubtypeNvm);
  EXPECT_STREQ(entry.subnqn, nqn.c_str());
  EXPECT_EQ(std::string(entry.trsvcid, 32).substr(0, 6), std::to_string(rig.target().port()) + " ");
  // Parts of it.
  nvme::encode_get_log_page({.lid = nvme::kLidDiscovery, .numd = 3, .lpo = 1024 + 512}, log);
  Host::transport_sgl(log, 16);
  const Reply part = host.command(log);
  ASSERT_EQ(part.data.size(), 16u);
  EXPECT_EQ(std::memcmp(part.data.data(), "127.0.0.1", 9), 0);
  nvme::encode_get_log_page({.lid = nvme::kLidDiscovery, .numd = 3, .lpo = 4096}, log);
  EXPECT_EQ(host.command(log).status(), Status::invalid_field);
  nvme::encode_get_log_page({.lid = 2, .numd = 3}, log);
  EXPECT_EQ(host.command(log).status(), Status::invalid_log_page);
  EXPECT_EQ(host.command(Host::identify(0, 1)).status(), Status::invalid_field);
  EXPECT_EQ(host.command(Host::io(nvme::NvmOpcode::read, 0, 1)).status(), Status::invalid_log_page) << "opcode 02h";
}

NvmeTcpTargetOptions only(NvmeTcpHost host) {
  NvmeTcpTargetOptions options;
  options.hosts.push_back(std::move(host));
  return options;
}

TEST(NvmeTcpAccess, OnlyListedHostsAttach) {
  Rig rig(only({.nqn = "nqn.2014-08.org.example:guest", .dhchap_secret = {}, .dhchap_controller_secret = {}}));
  Host stranger(rig);
  ASSERT_TRUE(stranger.initialize());
  EXPECT_EQ(stranger.connect(Host::connect_sqe(0, 32), Host::connect_data(rig.subsystem().config().nqn)).status(),
            nvme::kConnectInvalidHost);
  Host guest(rig);
  ASSERT_TRUE(guest.initialize());
  EXPECT_NE(guest.attach(0, 0, "nqn.2014-08.org.example:guest"), 0);
}

// Runs the host's end; returns whether the controller let it in.
bool authenticate(Host& host, const std::string& nqn, const char* secret, const char* controller_secret,
                  std::vector<nvme::AuthHash> hashes, std::vector<nvme::AuthDhGroup> groups) {
  fabrics::DhchapParties parties{kHostNqn, nqn, fabrics::DhchapSecret(secret), std::nullopt};
  if (controller_secret != nullptr) parties.controller_secret = fabrics::DhchapSecret(controller_secret);
  fabrics::DhchapHost dhchap(std::move(parties));
  dhchap.offer(std::move(hashes), std::move(groups));
  const auto send = [&](const fabrics::Bytes& message) {
    nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::authentication_send);
    nvme::encode_authentication({.length_bytes = static_cast<std::uint32_t>(message.size())}, sqe);
    return host.in_capsule(sqe, std::as_bytes(std::span(message))).status() == Status::success;
  };
  const auto receive = [&] {
    nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::authentication_receive);
    nvme::encode_authentication({.length_bytes = 4096}, sqe);
    Host::transport_sgl(sqe, 4096);
    const Reply reply = host.command(sqe);
    const auto* data = reinterpret_cast<const std::uint8_t*>(reply.data.data());
    return fabrics::Bytes(data, data + reply.data.size());
  };
  try {
    if (!send(dhchap.negotiate(42)) || !send(dhchap.reply(receive()))) return false;
    const fabrics::Bytes last = dhchap.finish(receive());
    return last.empty() || send(last);
  } catch (const fabrics::AuthenticationError&) {
    return false;
  }
}

TEST(NvmeTcpAccess, AuthenticationOneWayAndBothWays) {
  for (const char* controller_secret : {static_cast<const char*>(nullptr), kControllerSecret}) {
    for (const auto group : {nvme::AuthDhGroup::null, nvme::AuthDhGroup::ffdhe2048}) {
      Rig rig(only({.nqn = kHostNqn, .dhchap_secret = kSecret, .dhchap_controller_secret = kControllerSecret}));
      const std::string nqn = rig.subsystem().config().nqn;
      Host admin(rig);
      ASSERT_TRUE(admin.initialize());
      const Reply reply = admin.connect(Host::connect_sqe(0, 32), Host::connect_data(nqn));
      ASSERT_EQ(reply.status(), Status::success);
      EXPECT_NE(reply.cqe.dw0 & nvme::kConnectAuthRequired, 0u);
      const auto cntlid = static_cast<std::uint16_t>(reply.cqe.dw0);
      EXPECT_EQ(admin.enable(true).status(), nvme::kAuthenticationRequired);
      EXPECT_EQ(admin.command(Host::identify(1)).status(), nvme::kAuthenticationRequired);
      Host early(rig);
      ASSERT_TRUE(early.initialize());
      EXPECT_EQ(early.attach_io(cntlid).status(), nvme::kAuthenticationRequired);
      EXPECT_TRUE(authenticate(admin, nqn, kSecret, controller_secret, {nvme::AuthHash::sha384}, {group}));
      EXPECT_EQ(admin.enable(true).status(), Status::success);
      EXPECT_EQ(admin.command(Host::identify(1)).status(), Status::success);
      Host io(rig);
      ASSERT_TRUE(io.initialize());
      EXPECT_NE(io.attach_io(cntlid).cqe.dw0 & nvme::kConnectAuthRequired, 0u);
      EXPECT_EQ(io.read(0, 512).status(), nvme::kAuthenticationRequired);
      EXPECT_TRUE(authenticate(io, nqn, kSecret, controller_secret, {nvme::AuthHash::sha256}, {group}));
      EXPECT_EQ(io.read(0, 512).status(), Status::success);
    }
  }
}

TEST(NvmeTcpAccess, WhoDoesNotKnowTheSecretIsSentAway) {
  Rig rig(only({.nqn = kHostNqn, .dhchap_secret = kSecret, .dhchap_controller_secret = {}}));
  const std::string nqn = rig.subsystem().config().nqn;
  const std::vector<nvme::AuthHash> hashes = {nvme::AuthHash::sha512};
  const std::vector<nvme::AuthDhGroup> groups = {nvme::AuthDhGroup::null};
  for (const bool wrong_secret : {true, false}) {
    Host host(rig);
    ASSERT_TRUE(host.initialize());
    ASSERT_EQ(host.connect(Host::connect_sqe(0, 32), Host::connect_data(nqn)).status(), Status::success);
    // The second asks for the controller's secret, and there is none.
    EXPECT_FALSE(authenticate(host, nqn, wrong_secret ? kControllerSecret : kSecret,
                              wrong_secret ? nullptr : kControllerSecret, hashes, groups));
    EXPECT_TRUE(host.closed());
    host.hang_up();
    rig.pump();
    EXPECT_EQ(rig.controllers(), 0u);
  }
}

TEST(NvmeTcpAccess, AuthenticationWhereNoneIsAskedFor) {
  Rig rig;
  Host host(rig);
  ASSERT_TRUE(host.initialize());
  ASSERT_NE(host.attach(), 0);
  nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::authentication_receive);
  nvme::encode_authentication({.length_bytes = 4096}, sqe);
  Host::transport_sgl(sqe, 4096);
  EXPECT_EQ(host.command(sqe).status(), Status::command_sequence_error);
}

TEST(NvmeTcpOptions, Mistakes) {
  const auto bad = [](auto change) {
    NvmeTcpTargetOptions options;
    change(options);
    EXPECT_THROW(Rig rig(options), ConfigError);
  };
  bad([](auto& o) { o.address = "localhost"; });
  bad([](auto& o) { o.address = "192.0.2.1"; });  // of nobody's machine
  bad([](auto& o) { o.in_capsule_bytes = 8; });
  bad([](auto& o) { o.max_queue_entries = 1; });
  bad([](auto& o) { o.max_h2c_data_bytes = 1024; });
  bad([](auto& o) { o.hosts = {{.nqn = "", .dhchap_secret = {}, .dhchap_controller_secret = {}}}; });
  bad([](auto& o) { o.hosts = {{.nqn = "nqn.x", .dhchap_secret = "secret", .dhchap_controller_secret = {}}}; });
  bad([](auto& o) { o.hosts = {{.nqn = "nqn.x", .dhchap_secret = {}, .dhchap_controller_secret = kSecret}}; });
}

}  // namespace
}  // namespace flashmob::transport::testing
