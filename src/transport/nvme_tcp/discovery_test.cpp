// The discovery controller and its log.
#include "gtest/gtest.h"
#include "nvme/identify_controller.h"
#include "transport/nvme_tcp/target_test_support.h"

namespace flashmob::transport::testing {
namespace {

using nvme::Status;

TEST(NvmeTcpDiscovery, TheLogNamesTheSubsystem) {
  Rig rig;
  const std::string nqn = rig.subsystem().config().nqn;
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

TEST(NvmeTcpDiscovery, AResetTakesBackTheShutdownBeforeIt) {
  Rig rig;
  Host host(rig);
  ASSERT_TRUE(host.initialize());
  ASSERT_EQ(host.connect(Host::connect_sqe(0, 32), Host::connect_data(nvme::kDiscoveryNqn)).status(), Status::success);
  EXPECT_EQ(host.enable(true).status(), Status::success);
  for (const bool enabled : {true, false}) {
    const nvme::Cc cc{.en = enabled, .shn = nvme::kCcShnNormal, .iosqes = 6, .iocqes = 4};
    EXPECT_EQ(host.set_property(nvme::kRegCc, nvme::encode_cc(cc)).status(), Status::success);
    EXPECT_EQ(nvme::decode_csts(host.csts()).shst, enabled ? nvme::kCstsShstComplete : nvme::kCstsShstNormal);
  }
  EXPECT_EQ(host.csts(), 0u);
}

}  // namespace
}  // namespace flashmob::transport::testing
