// What hosts of each level may do, and what they are shown of it; which namespaces they see.
#include "controller/rights.h"

#include <gtest/gtest.h>

#include "controller/controller_test_support.h"
#include "controller/effects.h"
#include "flashmob/error.h"
#include "nvme/identify_controller.h"
#include "nvme/identify_namespace.h"
#include "nvme/log_page.h"
#include "nvme/placement.h"

namespace flashmob::controller::testing {
namespace {

using nvme::AdminOpcode;
using nvme::Cns;
using nvme::Feature;
using nvme::Status;

constexpr Access kAll[] = {Access::read_only, Access::io, Access::admin, Access::manage};

// Controller 0 has the rights, controller 1 may do everything. Two namespaces.
DeviceOptions device_for(HostRights rights) {
  DeviceOptions options;
  options.subsystem.namespaces = {NamespaceConfig{.size_bytes = 1 << 20}, NamespaceConfig{.size_bytes = 2 << 20}};
  options.controllers = 2;
  options.rights = {std::move(rights)};
  return options;
}

class Device : public TestDevice {
 public:
  explicit Device(HostRights rights) : TestDevice(device_for(std::move(rights))) {
    enable(0);
    enable(1);
  }

  Status format(unsigned i = 0) { return run(command(AdminOpcode::format_nvm, 1), i).status(); }
  Status remove(std::uint32_t nsid, unsigned i = 0) {
    nvme::Sqe sqe = command(AdminOpcode::namespace_management, nsid);
    sqe.cdw10 = nvme::kNamespaceDelete;
    return run(sqe, i).status();
  }
  Status attachment(std::uint32_t nsid, std::uint16_t cntlid, std::uint8_t select, unsigned i = 0) {
    nvme::ControllerList list{};
    list.num = 1;
    list.identifier[0] = cntlid;
    put(list);
    nvme::Sqe sqe = command(AdminOpcode::namespace_attachment, nsid);
    sqe.cdw10 = select;
    sqe.prp1 = kData;
    return run(sqe, i).status();
  }
  nvme::IdentifyController describe(unsigned i = 0) {
    EXPECT_EQ(identify(Cns::identify_controller, 0, 0, 0, i).status(), Status::success);
    return data<nvme::IdentifyController>();
  }
  std::uint8_t nsattr(std::uint32_t nsid, unsigned i = 0) {
    EXPECT_EQ(identify(Cns::identify_namespace, nsid, 0, 0, i).status(), Status::success);
    return data<nvme::IdentifyNamespace>().nsattr;
  }
  std::vector<std::uint32_t> listed(Cns cns, unsigned i = 0) {
    EXPECT_EQ(identify(cns, 0, 0, 0, i).status(), Status::success);
    const auto list = data<nvme::NamespaceList>();
    return {list.nsid, std::find(std::begin(list.nsid), std::end(list.nsid), 0u)};
  }
};

TEST(Rights, TheNamesOfLevels) {
  EXPECT_EQ(parse_access("read-only", "allow"), Access::read_only);
  EXPECT_EQ(parse_access("manage", "allow"), Access::manage);
  EXPECT_THROW(parse_access("root", "allow"), ConfigError);
}

TEST(Rights, ManagingCommandsDoNotExistForOthers) {
  for (const Access access : kAll) {
    Device d({.access = access});
    const Status expected = access == Access::manage ? Status::success : Status::invalid_opcode;
    EXPECT_EQ(d.format(), expected);
    EXPECT_EQ(d.attachment(1, d.controller(1).cntlid(), nvme::kNamespaceDetach), expected);
    EXPECT_EQ(d.remove(1), expected);
    EXPECT_EQ(d.subsystem.info(1).current == nullptr, access == Access::manage);
  }
}

TEST(Rights, WhatIsNotAllowedIsNotOffered) {
  for (const Access access : kAll) {
    Device d({.access = access});
    const bool manages = access == Access::manage, lists = access >= Access::admin;
    const nvme::IdentifyController c = d.describe();
    EXPECT_EQ((c.oacs & nvme::kOacsFormatNvm) != 0, manages);
    EXPECT_EQ((c.oacs & nvme::kOacsNamespaceManagement) != 0, manages);
    EXPECT_NE(c.oacs & nvme::kOacsDoorbellBufferConfig, 0);
    EXPECT_EQ(c.nwpc, manages ? 7 : 0);
    EXPECT_EQ(nvme::decode_cap(d.controller().read_register(nvme::kRegCap, 8)).nssrs, manages);
    EXPECT_EQ(c.tnvmcap.low != 0, lists);
    ASSERT_EQ(d.log_page(nvme::LogPage::commands_supported_and_effects, 4096).status(), Status::success);
    const auto effects = d.data<nvme::CommandsSupportedAndEffects>();
    for (const AdminOpcode opcode :
         {AdminOpcode::format_nvm, AdminOpcode::namespace_management, AdminOpcode::namespace_attachment})
      EXPECT_EQ(effects.acs[static_cast<std::size_t>(opcode)] != 0, manages);
    ASSERT_EQ(d.log_page(nvme::LogPage::feature_identifiers_supported_and_effects, 1024).status(), Status::success);
    EXPECT_EQ(d.data<FeatureIdentifiersEffects>().fid[0x84] != 0, manages);
    for (const Cns cns : {Cns::allocated_namespace_list, Cns::controller_list, Cns::namespace_controller_list,
                          Cns::allocated_namespace, Cns::csi_allocated_namespace_list})
      EXPECT_EQ(d.identify(cns, 1).status(), lists ? Status::success : Status::invalid_field);
    EXPECT_EQ(d.identify(Cns::io_command_sets, 0, 0xFFFF).status(), Status::success);
  }
}

TEST(Rights, OnlyManagersResetTheSubsystem) {
  for (const Access access : kAll) {
    Device d({.access = access});
    d.write(nvme::kRegNssr, nvme::kNssrReset);
    d.poll(0);
    d.poll(1);
    EXPECT_EQ(nvme::decode_csts(d.csts(1)).rdy, access != Access::manage);
  }
}

TEST(Rights, OnlyAdministratorsSaveFeatures) {
  for (const Access access : kAll) {
    Device d({.access = access});
    const bool saves = access >= Access::admin;
    EXPECT_EQ(d.set_feature(Feature::temperature_threshold, 300).status(), Status::success);
    EXPECT_EQ(d.set_feature(Feature::temperature_threshold, 300, true).status(),
              saves ? Status::success : Status::feature_not_saveable);
    constexpr unsigned kCapabilities = 3;
    EXPECT_EQ(d.get_feature(Feature::temperature_threshold, kCapabilities).dw0 & nvme::kFeatureSaveable, saves);
  }
}

TEST(Rights, NamespacesOfReadersAreWriteProtected) {
  for (const Access access : kAll) {
    Device d({.access = access});
    const bool writes = access != Access::read_only;
    EXPECT_EQ(d.controller().io_limits().read_only, !writes);
    EXPECT_EQ(d.nsattr(1), writes ? 0 : nvme::kNsattrWriteProtected);
    EXPECT_EQ(d.nsattr(1, 1), 0);
    ASSERT_EQ(d.identify(Cns::independent_namespace, 1).status(), Status::success);
    EXPECT_EQ(d.data<nvme::IdentifyNamespaceIndependent>().nsattr, writes ? 0 : nvme::kNsattrWriteProtected);
  }
}

TEST(Rights, EventsOfPlacementAreSwitchedByAdministratorsAndShownToWhoSeesTheNamespace) {
  for (const Access access : kAll) {
    DeviceOptions options = device_for({.access = access, .namespaces = {1}});
    options.subsystem.placement = {.handles = 4};
    TestDevice d(std::move(options));
    for (const unsigned i : {0u, 1u}) d.enable(i);
    const auto report = [&](unsigned i, std::uint32_t nsid) {
      d.put(static_cast<std::uint8_t>(nvme::FdpEventType::not_fully_written));
      nvme::Sqe sqe = d.command(AdminOpcode::set_features, nsid);
      sqe.cdw10 = static_cast<std::uint32_t>(Feature::fdp_events);
      sqe.cdw11 = 1u << 16;
      sqe.cdw12 = nvme::kFdpEventEnable;
      sqe.prp1 = kData;
      return d.run(sqe, i).status();
    };
    EXPECT_EQ(report(0, 1), access >= Access::admin ? Status::success : Status::feature_not_changeable);
    ASSERT_EQ(report(1, 2), Status::success);
    for (const std::uint32_t nsid : {1u, 2u})
      d.subsystem.placement()->record(
          {.type = nvme::FdpEventType::not_fully_written, .nsid = nsid, .identifier = 0, .target = {}, .at_ns = 0});
    const auto shown = [&](unsigned i) {
      nvme::Sqe sqe = d.command(AdminOpcode::get_log_page, 0);
      nvme::encode_get_log_page({.lid = static_cast<std::uint8_t>(nvme::LogPage::fdp_events),
                                 .lsp = nvme::kFdpHostEvents,
                                 .numd = 4096 / 4 - 1,
                                 .lsi = 1},
                                sqe);
      sqe.prp1 = kData;
      EXPECT_EQ(d.run(sqe, i).status(), Status::success);
      return d.data<nvme::FdpEvents>().num;
    };
    EXPECT_EQ(shown(0), access == Access::manage ? 2u : 1u);
    EXPECT_EQ(shown(1), 2u);
  }
}

TEST(Rights, AHostSeesItsNamespacesAlone) {
  Device d({.access = Access::admin, .namespaces = {2}});
  using List = std::vector<std::uint32_t>;
  EXPECT_EQ(d.listed(Cns::active_namespace_list), List{2});
  EXPECT_EQ(d.listed(Cns::allocated_namespace_list), List{2});
  EXPECT_EQ(d.listed(Cns::active_namespace_list, 1), (List{1, 2}));
  EXPECT_EQ(d.controller().attached(1), nullptr);
  EXPECT_EQ(d.describe().tnvmcap.low, 0u);
  ASSERT_EQ(d.identify(Cns::allocated_namespace, 1).status(), Status::success);
  EXPECT_EQ(d.data<nvme::IdentifyNamespace>().nsze, 0u);
  ASSERT_EQ(d.identify(Cns::namespace_controller_list, 1).status(), Status::success);
  EXPECT_EQ(d.data<nvme::ControllerList>().num, 0);
}

TEST(Rights, NobodyAttachesWhatAHostIsNotToSee) {
  Device d({.access = Access::io, .namespaces = {2}});
  const std::uint16_t reader = d.controller().cntlid();
  EXPECT_EQ(d.attachment(1, reader, nvme::kNamespaceAttach, 1), Status::controller_list_invalid);
  EXPECT_EQ(d.attachment(2, reader, nvme::kNamespaceDetach, 1), Status::success);
  EXPECT_EQ(d.attachment(2, reader, nvme::kNamespaceAttach, 1), Status::success);
}

TEST(Rights, NobodyManagesWhatHeIsNotToSee) {
  Device d({.access = Access::manage, .namespaces = {2, 4}});
  const std::uint16_t other = d.controller(1).cntlid();
  EXPECT_EQ(d.remove(1), Status::invalid_field) << "for this host it does not exist";
  EXPECT_EQ(d.attachment(1, other, nvme::kNamespaceDetach), Status::invalid_field);
  EXPECT_NE(d.controller(1).attached(1), nullptr);
  EXPECT_EQ(d.remove(nvme::kNsidBroadcast), Status::success) << "all that it sees";
  EXPECT_NE(d.controller(1).attached(1), nullptr);
  EXPECT_EQ(d.controller(1).attached(2), nullptr);
  // What it makes is its own to delete.
  nvme::IdentifyNamespace wanted{};
  wanted.nsze = wanted.ncap = 8;
  for (const std::uint32_t nsid : {2u, 4u, 0u}) {
    d.put(wanted);
    nvme::Sqe sqe = d.command(AdminOpcode::namespace_management, 0);
    sqe.cdw10 = nvme::kNamespaceCreate;
    sqe.prp1 = kData;
    const auto made = d.run(sqe, 0);
    EXPECT_EQ(made.status(), nsid != 0 ? Status::success : Status::namespace_identifier_unavailable);
    EXPECT_EQ(made.dw0, nsid);
  }
  EXPECT_EQ(d.remove(4), Status::success);
}

TEST(Rights, APrivateNamespaceGoesToAHostThatSeesIt) {
  DeviceOptions options = device_for({.namespaces = {2}});
  options.subsystem.namespaces[0].shared = false;
  TestDevice d(options);
  EXPECT_EQ(d.controller(0).attached(1), nullptr);
  EXPECT_NE(d.controller(1).attached(1), nullptr);
}

}  // namespace
}  // namespace flashmob::controller::testing
