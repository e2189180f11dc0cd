// What a host finds of command sets and zoned namespaces (NVMe Base 2.0c, 3.1.3.5 and 5.17; Zoned Namespace Command Set
// 1.1, 4.1.5): only those that it has enabled.
#include "conformance/zns_fixture.h"
#include "nvme/features.h"
#include "nvme/identify_controller.h"
#include "nvme/identify_namespace.h"

namespace flashmob::conformance {
namespace {

using nvme::Cns;
using nvme::Csi;

TEST_F(ZnsTest, CommandSetsOfTheController) {
  const auto sets = identify<nvme::IdentifyIoCommandSet>(Cns::io_command_sets, 0, 0xFFFF);
  EXPECT_EQ(sets.iocsc[0], 0b101u) << "NVM and Zoned Namespaces";
  EXPECT_EQ(sets.iocsc[1], 0u);
  constexpr auto kProfile = static_cast<std::uint8_t>(nvme::Feature::io_command_set_profile);
  EXPECT_EQ(driver().get_feature(kProfile), 0u);
  Sqe other = make(AdminOpcode::set_features);
  other.cdw10 = kProfile;
  other.cdw11 = 1;
  EXPECT_EQ(admin(other), Status::io_command_set_combination_rejected);
}

TEST_F(ZnsTest, NamespacesByCommandSet) {
  EXPECT_EQ(listed(Cns::active_namespace_list), (std::vector<std::uint32_t>{1, 2, 3}));
  EXPECT_EQ(listed(Cns::csi_active_namespace_list, Csi::nvm), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(listed(Cns::csi_active_namespace_list, Csi::zoned), (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(listed(Cns::csi_allocated_namespace_list, Csi::zoned), (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(identify_set<nvme::NamespaceList>(Cns::csi_active_namespace_list, 0, Csi::key_value).first,
            Status::invalid_field);
}

TEST_F(ZnsTest, DescriptorsNameTheCommandSet) {
  const auto list = identify<std::array<std::uint8_t, 4096>>(Cns::namespace_identification_descriptors, kNsZoned);
  std::size_t at = 0;
  while (list[at + 1] != 0 && list[at] != static_cast<std::uint8_t>(nvme::NamespaceIdentifierType::csi))
    at += 4u + list[at + 1];
  ASSERT_EQ(list[at + 1], 1);
  EXPECT_EQ(list[at + 4], static_cast<std::uint8_t>(Csi::zoned));
}

TEST_F(ZnsTest, IdentifyNamespace) {
  const auto [status, n] = identify_set<nvme::IdentifyNamespaceZoned>(Cns::csi_namespace, kNsZoned, Csi::zoned);
  ASSERT_EQ(status, Status::success);
  EXPECT_EQ(n.zoc, 0);
  EXPECT_EQ(n.ozcs, 1);
  EXPECT_EQ(n.mor, kMaxOpen - 1);
  EXPECT_EQ(n.mar, kMaxActive - 1);
  EXPECT_EQ(n.lbafe[1].zsze, kZoneBlocks);
  EXPECT_EQ(n.lbafe[1].zdes, 2);
  EXPECT_EQ(n.lbafe[0].zsze, kZoneBlocks * 8) << "in the blocks of each format";
  const auto strict = identify_set<nvme::IdentifyNamespaceZoned>(Cns::csi_namespace, kNsStrict, Csi::zoned).second;
  EXPECT_EQ(strict.ozcs, 0);
  EXPECT_EQ(strict.mor, UINT32_MAX);
  EXPECT_EQ(strict.mar, UINT32_MAX);
  EXPECT_EQ(strict.lbafe[0].zdes, 0);
  const auto common = identify<nvme::IdentifyNamespace>(Cns::identify_namespace, kNsZoned);
  EXPECT_EQ(common.nsze, kZones * kZoneBlocks);
  EXPECT_EQ(common.flbas & 0xF, 1);
}

TEST_F(ZnsTest, WhatAnotherSetSaysOfANamespaceIsNotToBeHad) {
  EXPECT_EQ(identify_set<nvme::IdentifyNamespaceZoned>(Cns::csi_namespace, kNsNvm, Csi::zoned).first,
            Status::invalid_field);
  EXPECT_EQ(identify_set<nvme::IdentifyNamespaceZoned>(Cns::csi_namespace, kNsZoned, Csi::key_value).first,
            Status::invalid_field);
  EXPECT_EQ(identify_set<nvme::IdentifyNamespaceNvm>(Cns::csi_namespace, kNsZoned, Csi::nvm).first, Status::success)
      << "a zoned namespace has logical blocks, too";
}

TEST_F(ZnsTest, IdentifyController) {
  const auto [status, c] = identify_set<nvme::IdentifyControllerZoned>(Cns::csi_controller, 0, Csi::zoned);
  ASSERT_EQ(status, Status::success);
  EXPECT_EQ(c.zasl, 3) << "32 KiB in pages of 4 KiB";
}

TEST_F(ZnsTest, EffectsLogNamesTheCommandsOfTheSet) {
  const auto effects = [this](Csi csi) {
    nvme::CommandsSupportedAndEffects page{};
    Sqe sqe = make(AdminOpcode::get_log_page);
    nvme::encode_get_log_page({.lid = static_cast<std::uint8_t>(nvme::LogPage::commands_supported_and_effects),
                               .numd = sizeof(page) / 4 - 1,
                               .csi = static_cast<std::uint8_t>(csi)},
                              sqe);
    EXPECT_EQ(admin_read(sqe, std::as_writable_bytes(std::span(&page, 1))), Status::success);
    return page;
  };
  const auto zoned = effects(Csi::zoned), nvm = effects(Csi::nvm);
  for (const ZonedOpcode opcode :
       {ZonedOpcode::zone_append, ZonedOpcode::zone_management_send, ZonedOpcode::zone_management_receive}) {
    EXPECT_NE(zoned.iocs[static_cast<std::size_t>(opcode)] & nvme::kEffectSupported, 0u);
    EXPECT_EQ(nvm.iocs[static_cast<std::size_t>(opcode)], 0u);
  }
  for (std::size_t opcode = 0; opcode < 0x79; ++opcode) EXPECT_EQ(zoned.iocs[opcode], nvm.iocs[opcode]) << opcode;
}

TEST_F(ZnsTest, CommandsOfZonesAreNotTheNvmSets) {
  EXPECT_EQ(send(ZoneSendAction::reset, 0, true, kNsNvm), Status::invalid_opcode);
  EXPECT_EQ(report({.nsid = kNsNvm}).status, Status::invalid_opcode);
  Buffer data = buffer(512);
  EXPECT_EQ(io(data.attach(append_command(0, 1, kNsNvm), 512)), Status::invalid_opcode);
}

TEST_F(ZnsTest, ChangedZoneListIsKeptForZonedNamespaces) {
  EXPECT_EQ(log_page<nvme::ChangedZoneList>(nvme::LogPage::changed_zone_list, kNsStrict).nrzid, 0);
  nvme::ChangedZoneList list{};
  Sqe sqe = make(AdminOpcode::get_log_page, kNsNvm);
  nvme::encode_get_log_page(
      {.lid = static_cast<std::uint8_t>(nvme::LogPage::changed_zone_list), .numd = sizeof(list) / 4 - 1}, sqe);
  EXPECT_EQ(admin_read(sqe, std::as_writable_bytes(std::span(&list, 1))), Status::invalid_field);
  const auto supported = log_page<nvme::SupportedLogPages>(nvme::LogPage::supported_log_pages);
  EXPECT_NE(supported.lid[static_cast<std::size_t>(nvme::LogPage::changed_zone_list)], 0u);
}

// A host that enables the NVM command set alone.
class NvmHostTest : public ZnsTest {
 protected:
  NvmHostTest() {
    driver().disable();
    write_cc(nvme::kCcCssNvm);
  }
  // As the driver does, but for CC.CSS; its own enable() comes first, for the queues.
  void write_cc(std::uint8_t css) {
    driver().enable();
    const nvme::Cc enabled = nvme::decode_cc(read32(nvme::kRegCc));
    nvme::Cc cc = enabled;
    cc.en = false;
    write32(nvme::kRegCc, nvme::encode_cc(cc));
    EXPECT_TRUE(device.pump_until([&] { return !csts().rdy; }));
    cc.css = css;
    cc.en = true;
    write32(nvme::kRegCc, nvme::encode_cc(cc));
    EXPECT_TRUE(device.pump_until([&] { return csts().rdy; }));
  }
  std::vector<std::uint32_t> visible() {
    std::vector<std::uint32_t> list;
    for (std::uint32_t nsid = 1; nsid <= 3; ++nsid)
      if (host().controller.attached(nsid) != nullptr) list.push_back(nsid);
    return list;
  }
};

TEST_F(NvmHostTest, SeesNoZonedNamespace) {
  EXPECT_EQ(visible(), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(host().controller.attached_shape(kNsZoned).block_bytes, 0u);
}

TEST_F(NvmHostTest, OneThatEnablesAllSeesThemAgain) {
  write_cc(nvme::kCcCssAllSupported);
  EXPECT_EQ(visible(), (std::vector<std::uint32_t>{1, 2, 3}));
  EXPECT_EQ(host().controller.attached_shape(kNsZoned).csi, Csi::zoned);
}

}  // namespace
}  // namespace flashmob::conformance
