// Identify: every CNS value, what it says, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "command_set/nvm.h"
#include "controller/controller_test_support.h"
#include "nvme/identify_controller.h"
#include "nvme/identify_namespace.h"

namespace flashmob::controller::testing {
namespace {

using nvme::Cns;
using nvme::Status;

constexpr std::uint8_t kZoned = 2;

// Namespaces 1 (512 B, shared), 2 (4 KiB, private to the first controller), 3 (generated: read-only); two controllers.
DeviceOptions three_namespaces() {
  DeviceOptions options;
  options.subsystem.namespaces = {
      NamespaceConfig{.size_bytes = 1 << 20},
      NamespaceConfig{.size_bytes = 2 << 20, .lba_bytes = 4096, .shared = false},
      NamespaceConfig{.size_bytes = 1 << 20, .media = "generated"},
  };
  options.controllers = 2;
  return options;
}

class Identify : public ::testing::Test {
 protected:
  Identify() : d(three_namespaces()) {
    d.enable(0);
    d.enable(1);
  }
  bool answer_is_zero() {
    const std::byte* bytes = d.at(kData);
    return std::all_of(bytes, bytes + kPage, [](std::byte b) { return b == std::byte{0}; });
  }
  std::vector<std::uint32_t> list() {
    const auto page = d.data<nvme::NamespaceList>();
    return {page.nsid, std::find(page.nsid, page.nsid + 1024, 0u)};
  }
  std::vector<std::uint16_t> controllers() {
    const auto page = d.data<nvme::ControllerList>();
    return {page.identifier, page.identifier + page.num};
  }
  // An allocated namespace that is attached to nobody.
  std::uint32_t create_unattached() {
    nvme::IdentifyNamespace wanted{};
    wanted.nsze = wanted.ncap = 2048;
    d.put(wanted);
    nvme::Sqe sqe = TestDevice::command(nvme::AdminOpcode::namespace_management);
    d.attach_buffer(sqe, kPage);
    return d.run(sqe).dw0;
  }
  TestDevice d;
};

TEST_F(Identify, Controller) {
  ASSERT_EQ(d.identify(Cns::identify_controller).status_field, 0);
  const auto c = d.data<nvme::IdentifyController>();
  EXPECT_EQ(std::string(c.sn, 20), "FLASHMOB00000001    ");
  EXPECT_EQ(std::string(c.mn, 40), "flashmob software-defined SSD           ");
  EXPECT_EQ(std::string(c.fr, 8), "0.1.0   ");
  EXPECT_STREQ(c.subnqn, "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001");
  EXPECT_EQ(c.cmic, nvme::kCmicMultiplePorts | nvme::kCmicMultipleControllers);
  EXPECT_EQ(c.mdts, 8) << "1 MiB";
  EXPECT_EQ(c.cntlid, 1);
  EXPECT_EQ(c.ver, 0x00020000u);
  EXPECT_EQ(c.cntrltype, 1);
  EXPECT_EQ(c.oacs, (1 << 1) | (1 << 3) | (1 << 8));
  EXPECT_EQ(c.acl, 7);
  EXPECT_EQ(c.aerl, 7);
  EXPECT_EQ(c.elpe, 63);
  EXPECT_EQ(c.npss, 0);
  EXPECT_EQ(c.wctemp, 343);
  EXPECT_EQ(c.cctemp, 353);
  EXPECT_EQ(c.tnvmcap.low, 8u << 20);
  EXPECT_EQ(c.unvmcap.low, 4u << 20);
  EXPECT_EQ(c.kas, 1);
  EXPECT_EQ(c.sqes, 0x66);
  EXPECT_EQ(c.cqes, 0x44);
  EXPECT_EQ(c.nn, 256u);
  EXPECT_EQ(c.mnan, 256u);
  EXPECT_EQ(c.oncs, 0x1DF) << "all but reservations";
  EXPECT_EQ(c.fuses, 1);
  EXPECT_EQ(c.vwc, 7);
  EXPECT_EQ(c.sgls & 3, 2u);
  EXPECT_NE(c.sgls & nvme::kSglsBitBucket, 0u);
  EXPECT_EQ(c.lpa & nvme::kLpaSmartPerNamespace, 0);
  ASSERT_EQ(d.identify(Cns::identify_controller, 0, 0, 0, 1).status_field, 0);
  EXPECT_EQ(d.data<nvme::IdentifyController>().cntlid, 2);
}

TEST(IdentifyAlone, ASingleControllerWithoutCacheSaysSo) {
  DeviceOptions options;
  options.controller.volatile_write_cache = false;
  TestDevice d(options);
  d.enable();
  d.identify(Cns::identify_controller);
  EXPECT_EQ(d.data<nvme::IdentifyController>().cmic, 0);
  EXPECT_EQ(d.data<nvme::IdentifyController>().vwc & nvme::kVwcPresent, 0);
}

TEST_F(Identify, Namespace) {
  ASSERT_EQ(d.identify(Cns::identify_namespace, 1).status_field, 0);
  const auto n = d.data<nvme::IdentifyNamespace>();
  EXPECT_EQ(n.nsze, 2048u);
  EXPECT_EQ(n.ncap, 2048u);
  EXPECT_EQ(n.nuse, 2048u);
  EXPECT_EQ(n.nlbaf, 1);
  EXPECT_EQ(n.flbas, 0);
  EXPECT_EQ(n.lbaf[0].lbads, 9);
  EXPECT_EQ(n.lbaf[1].lbads, 12);
  EXPECT_EQ(n.lbaf[2].lbads, 0);
  EXPECT_EQ(n.nmic, 1);
  EXPECT_EQ(n.dlfeat & 7, 1);
  EXPECT_EQ(n.nvmcap.low, 1u << 20);
  EXPECT_EQ(n.mssrl, command_set::kMaxSingleSourceRangeLength);
  EXPECT_EQ(n.mcl, command_set::kMaxCopyLength);
  EXPECT_EQ(n.msrc, command_set::kMaxSourceRangeCount);
  EXPECT_EQ(n.nsattr, 0);
  ASSERT_EQ(d.identify(Cns::identify_namespace, 2).status_field, 0);
  EXPECT_EQ(d.data<nvme::IdentifyNamespace>().nsze, 512u);
  EXPECT_EQ(d.data<nvme::IdentifyNamespace>().flbas, 1);
  EXPECT_EQ(d.data<nvme::IdentifyNamespace>().nmic, 0);
  ASSERT_EQ(d.identify(Cns::identify_namespace, 3).status_field, 0);
  EXPECT_EQ(d.data<nvme::IdentifyNamespace>().nsattr, 1) << "generated content cannot be written";
}

TEST_F(Identify, NamespaceIdentifiers) {
  EXPECT_EQ(d.identify(Cns::identify_namespace, 0).status(), Status::invalid_namespace_or_format);
  EXPECT_EQ(d.identify(Cns::identify_namespace, 257).status(), Status::invalid_namespace_or_format);
  EXPECT_EQ(d.identify(Cns::identify_namespace, 0xFFFFFFFE).status(), Status::invalid_namespace_or_format);
  EXPECT_EQ(d.identify(Cns::identify_namespace, 256).status_field, 0);
  EXPECT_TRUE(answer_is_zero()) << "inactive";
  EXPECT_EQ(d.identify(Cns::identify_namespace, 2, 0, 0, 1).status_field, 0);
  EXPECT_TRUE(answer_is_zero()) << "private to the other controller";
  ASSERT_EQ(d.identify(Cns::identify_namespace, 0xFFFFFFFF).status_field, 0);
  const auto common = d.data<nvme::IdentifyNamespace>();
  EXPECT_EQ(common.nsze, 0u);
  EXPECT_EQ(common.nlbaf, 1);
  EXPECT_EQ(common.lbaf[1].lbads, 12);
}

TEST_F(Identify, AllocatedNamespace) {
  const std::uint32_t nsid = create_unattached();
  ASSERT_EQ(nsid, 4u);
  d.identify(Cns::identify_namespace, nsid);
  EXPECT_TRUE(answer_is_zero());
  ASSERT_EQ(d.identify(Cns::allocated_namespace, nsid).status_field, 0);
  EXPECT_EQ(d.data<nvme::IdentifyNamespace>().nsze, 2048u);
  EXPECT_EQ(d.identify(Cns::allocated_namespace, 5).status_field, 0);
  EXPECT_TRUE(answer_is_zero());
  EXPECT_EQ(d.identify(Cns::allocated_namespace, 0).status(), Status::invalid_namespace_or_format);
  EXPECT_EQ(d.identify(Cns::allocated_namespace, 0xFFFFFFFF).status(), Status::invalid_namespace_or_format);
}

TEST_F(Identify, CommandSetSpecificStructures) {
  EXPECT_EQ(d.identify(Cns::csi_namespace, 1).status_field, 0);
  EXPECT_TRUE(answer_is_zero());
  EXPECT_EQ(d.identify(Cns::csi_namespace, 0xFFFFFFFF).status_field, 0);
  EXPECT_EQ(d.identify(Cns::csi_namespace, 0).status(), Status::invalid_namespace_or_format);
  EXPECT_EQ(d.identify(Cns::csi_namespace, 1, 0, kZoned).status(), Status::invalid_field);
  EXPECT_EQ(d.identify(Cns::csi_controller).status_field, 0);
  EXPECT_TRUE(answer_is_zero());
  EXPECT_EQ(d.identify(Cns::csi_controller, 0, 0, kZoned).status(), Status::invalid_field);
  EXPECT_EQ(d.identify(Cns::csi_allocated_namespace, 1).status_field, 0);
  EXPECT_TRUE(answer_is_zero());
  EXPECT_EQ(d.identify(Cns::csi_allocated_namespace, 0xFFFFFFFF).status(), Status::invalid_namespace_or_format);
  EXPECT_EQ(d.identify(Cns::csi_allocated_namespace, 1, 0, kZoned).status(), Status::invalid_field);
}

TEST_F(Identify, IndependentNamespace) {
  ASSERT_EQ(d.identify(Cns::independent_namespace, 1).status_field, 0);
  EXPECT_EQ(d.data<nvme::IdentifyNamespaceIndependent>().nmic, 1);
  EXPECT_EQ(d.data<nvme::IdentifyNamespaceIndependent>().nstat, 1);
  d.identify(Cns::independent_namespace, 3);
  EXPECT_EQ(d.data<nvme::IdentifyNamespaceIndependent>().nsattr, 1);
  EXPECT_EQ(d.identify(Cns::independent_namespace, 9).status_field, 0);
  EXPECT_TRUE(answer_is_zero());
  EXPECT_EQ(d.identify(Cns::independent_namespace, 0xFFFFFFFF).status_field, 0);
  EXPECT_TRUE(answer_is_zero());
  EXPECT_EQ(d.identify(Cns::independent_namespace, 0).status(), Status::invalid_namespace_or_format);
}

TEST_F(Identify, NamespaceLists) {
  using Ids = std::vector<std::uint32_t>;
  create_unattached();
  ASSERT_EQ(d.identify(Cns::active_namespace_list).status_field, 0);
  EXPECT_EQ(list(), (Ids{1, 2, 3}));
  d.identify(Cns::active_namespace_list, 1);
  EXPECT_EQ(list(), (Ids{2, 3})) << "greater than the NSID given";
  d.identify(Cns::active_namespace_list, 300);
  EXPECT_EQ(list(), Ids{});
  d.identify(Cns::active_namespace_list, 0, 0, 0, 1);
  EXPECT_EQ(list(), (Ids{1, 3}));
  d.identify(Cns::csi_active_namespace_list);
  EXPECT_EQ(list(), (Ids{1, 2, 3}));
  d.identify(Cns::allocated_namespace_list);
  EXPECT_EQ(list(), (Ids{1, 2, 3, 4}));
  d.identify(Cns::csi_allocated_namespace_list, 3);
  EXPECT_EQ(list(), Ids{4});
  for (const Cns cns : {Cns::active_namespace_list, Cns::allocated_namespace_list, Cns::csi_active_namespace_list,
                        Cns::csi_allocated_namespace_list}) {
    EXPECT_EQ(d.identify(cns, 0xFFFFFFFE).status(), Status::invalid_namespace_or_format);
    EXPECT_EQ(d.identify(cns, 0xFFFFFFFF).status(), Status::invalid_namespace_or_format);
    EXPECT_EQ(d.identify(cns, 0xFFFFFFFD).status_field, 0);
  }
  EXPECT_EQ(d.identify(Cns::csi_active_namespace_list, 0, 0, kZoned).status(), Status::invalid_field);
  EXPECT_EQ(d.identify(Cns::csi_allocated_namespace_list, 0, 0, kZoned).status(), Status::invalid_field);
}

TEST_F(Identify, Descriptors) {
  std::set<std::string> seen;
  for (std::uint32_t nsid = 1; nsid <= 3; ++nsid) {
    ASSERT_EQ(d.identify(Cns::namespace_identification_descriptors, nsid).status_field, 0);
    std::size_t at = 0;
    const std::vector<std::pair<int, std::size_t>> expected = {{1, 8}, {2, 16}, {3, 16}, {4, 1}};
    for (const auto& [type, length] : expected) {
      const auto header = d.data<nvme::NamespaceIdentificationDescriptor>(at);
      EXPECT_EQ(header.nidt, type);
      ASSERT_EQ(header.nidl, length);
      const std::string identifier(reinterpret_cast<const char*>(d.at(kData + at + 4)), length);
      if (type != 4) {
        EXPECT_TRUE(seen.insert(identifier).second) << "identifiers are unique";
      }
      at += 4 + length;
    }
    EXPECT_EQ(d.data<std::uint32_t>(at), 0u) << "the list ends";
  }
  EXPECT_EQ(d.identify(Cns::namespace_identification_descriptors, 0).status(), Status::invalid_namespace_or_format);
  EXPECT_EQ(d.identify(Cns::namespace_identification_descriptors, 0xFFFFFFFF).status(),
            Status::invalid_namespace_or_format);
  EXPECT_EQ(d.identify(Cns::namespace_identification_descriptors, 9).status(), Status::invalid_field);
}

TEST_F(Identify, IdentifiersAgreeAndComeBackInTheNextRun) {
  d.identify(Cns::identify_namespace, 1);
  const auto n = d.data<nvme::IdentifyNamespace>();
  d.identify(Cns::namespace_identification_descriptors, 1);
  EXPECT_EQ(std::memcmp(n.eui64, d.at(kData + 4), 8), 0);
  EXPECT_EQ(std::memcmp(n.nguid, d.at(kData + 16), 16), 0);
  EXPECT_EQ(n.eui64[0], 0x02) << "locally administered OUI";
  EXPECT_EQ(std::memcmp(&n.nguid[8], n.eui64, 3), 0);
  TestDevice again(three_namespaces());
  again.enable();
  again.identify(Cns::identify_namespace, 1);
  EXPECT_EQ(std::memcmp(again.data<nvme::IdentifyNamespace>().nguid, n.nguid, 16), 0);
  DeviceOptions other = three_namespaces();
  other.subsystem.serial = "ANOTHER";
  TestDevice different(other);
  different.enable();
  different.identify(Cns::identify_namespace, 1);
  EXPECT_NE(std::memcmp(different.data<nvme::IdentifyNamespace>().nguid, n.nguid, 16), 0);
}

TEST_F(Identify, ControllerLists) {
  using Ids = std::vector<std::uint16_t>;
  ASSERT_EQ(d.identify(Cns::controller_list).status_field, 0);
  EXPECT_EQ(controllers(), (Ids{1, 2}));
  d.identify(Cns::controller_list, 0, 2);
  EXPECT_EQ(controllers(), Ids{2}) << "CNTID and above";
  d.identify(Cns::controller_list, 0, 3);
  EXPECT_EQ(controllers(), Ids{});
  ASSERT_EQ(d.identify(Cns::namespace_controller_list, 1).status_field, 0);
  EXPECT_EQ(controllers(), (Ids{1, 2}));
  d.identify(Cns::namespace_controller_list, 2);
  EXPECT_EQ(controllers(), Ids{1});
  d.identify(Cns::namespace_controller_list, 100);
  EXPECT_EQ(controllers(), Ids{});
  EXPECT_EQ(d.identify(Cns::namespace_controller_list, 0).status(), Status::invalid_namespace_or_format);
  EXPECT_EQ(d.identify(Cns::namespace_controller_list, 257).status(), Status::invalid_namespace_or_format);
  EXPECT_EQ(d.identify(Cns::namespace_controller_list, 0xFFFFFFFF).status(), Status::invalid_field);
}

TEST_F(Identify, IoCommandSets) {
  for (const unsigned cntid : {1u, 2u, 0xFFFFu}) {
    ASSERT_EQ(d.identify(Cns::io_command_sets, 0, static_cast<std::uint16_t>(cntid)).status_field, 0);
    EXPECT_EQ(d.data<nvme::IdentifyIoCommandSet>().iocsc[0], 1u);
    EXPECT_EQ(d.data<nvme::IdentifyIoCommandSet>().iocsc[1], 0u);
  }
  EXPECT_EQ(d.identify(Cns::io_command_sets, 0, 3).status(), Status::invalid_field);
}

TEST_F(Identify, WhatIsNotSupported) {
  for (const unsigned cns : {0x04u, 0x09u, 0x0Au, 0x14u, 0x15u, 0x16u, 0x17u, 0x18u, 0x19u, 0x20u, 0xFFu}) {
    EXPECT_EQ(d.identify(static_cast<Cns>(cns), 1).status(), Status::invalid_field) << cns;
  }
}

}  // namespace
}  // namespace flashmob::controller::testing
