// Identify (Base 2.0c, 5.17; NVM command set 1.0c, 4.1.5): every structure that a 2.0 block device answers.
#include <algorithm>
#include <set>

#include "conformance/device_fixture.h"
#include "nvme/identify_controller.h"
#include "nvme/identify_namespace.h"

namespace flashmob::conformance {
namespace {

using nvme::Cns;

class IdentifyTest : public DeviceTest {
 protected:
  Status identify_status(Cns cns, std::uint32_t nsid = 0, std::uint32_t cdw11 = 0) {
    Sqe sqe = make(AdminOpcode::identify, nsid);
    sqe.cdw10 = static_cast<std::uint8_t>(cns);
    sqe.cdw11 = cdw11;
    std::array<std::byte, 4096> data;
    return admin_read(sqe, data);
  }
  std::vector<std::uint32_t> namespace_list(Cns cns, std::uint32_t after = 0) {
    const auto list = identify<nvme::NamespaceList>(cns, after);
    std::vector<std::uint32_t> result;
    for (const std::uint32_t nsid : list.nsid) {
      if (nsid == 0) break;
      result.push_back(nsid);
    }
    EXPECT_EQ(std::count(std::begin(list.nsid), std::end(list.nsid), 0u), static_cast<long>(1024 - result.size()))
        << "unused entries must be zero";
    return result;
  }
};

std::string padded(const std::string& text, std::size_t length) {
  return text + std::string(length - text.size(), ' ');
}

TEST_F(IdentifyTest, Controller) {
  const auto data = identify<nvme::IdentifyController>(Cns::identify_controller);
  const auto& config = device.config().subsystem;
  EXPECT_EQ(std::string(data.sn, sizeof data.sn), padded(config.serial, sizeof data.sn));
  EXPECT_EQ(std::string(data.mn, sizeof data.mn), padded(config.model, sizeof data.mn));
  EXPECT_EQ(std::string(data.fr, sizeof data.fr), padded(config.firmware, sizeof data.fr));
  EXPECT_EQ(std::string(data.subnqn), config.nqn);
  EXPECT_EQ(data.ver, read32(nvme::kRegVs));
  EXPECT_EQ(data.cntlid, host().controller.cntlid());
  EXPECT_EQ(data.mdts, 5) << "128 KiB are 2^5 pages of 4096 bytes";
  EXPECT_EQ(data.cntrltype, nvme::kCntrltypeIo);
  EXPECT_EQ(data.sqes, 0x66);
  EXPECT_EQ(data.cqes, 0x44);
  EXPECT_EQ(data.acl, device.config().controller.abort_limit - 1);
  EXPECT_EQ(data.aerl, device.config().controller.async_event_limit - 1);
  EXPECT_GE(data.nn, 2u);
  EXPECT_NE(data.kas, 0) << "keep alive is offered";
  EXPECT_GT(data.wctemp, 273);
  EXPECT_GE(data.cctemp, data.wctemp);
}

TEST_F(IdentifyTest, ControllerClaimsExactlyTheCommandsThatWeTest) {
  const auto data = identify<nvme::IdentifyController>(Cns::identify_controller);
  for (const std::uint16_t command : {nvme::kOncsCompare, nvme::kOncsWriteUncorrectable, nvme::kOncsDatasetManagement,
                                      nvme::kOncsWriteZeroes, nvme::kOncsTimestamp, nvme::kOncsVerify, nvme::kOncsCopy})
    EXPECT_NE(data.oncs & command, 0) << command;
  EXPECT_EQ(data.oncs & nvme::kOncsReservations, 0);
  for (const std::uint16_t command :
       {nvme::kOacsFormatNvm, nvme::kOacsNamespaceManagement, nvme::kOacsDoorbellBufferConfig})
    EXPECT_NE(data.oacs & command, 0) << command;
  for (const std::uint16_t command : {nvme::kOacsSecurity, nvme::kOacsDeviceSelfTest, nvme::kOacsDirectives})
    EXPECT_EQ(data.oacs & command, 0) << command;
  EXPECT_EQ(data.fuses, nvme::kFusesCompareAndWrite);
  EXPECT_EQ(data.vwc, nvme::kVwcPresent | nvme::kVwcFlushBroadcastSupported);
  EXPECT_NE(data.sgls & 3, 0u);
  EXPECT_NE(data.sgls & nvme::kSglsBitBucket, 0u);
  EXPECT_NE(data.lpa & nvme::kLpaExtendedData, 0);
  EXPECT_NE(data.oaes & nvme::kOaesNamespaceAttribute, 0u);
}

TEST_F(IdentifyTest, CapacitiesAddUp) {
  const auto data = identify<nvme::IdentifyController>(Cns::identify_controller);
  EXPECT_EQ(data.unvmcap.low, 16u << 20);
  EXPECT_EQ(data.tnvmcap.low, data.unvmcap.low + 2 * kNsBytes);
}

TEST_F(IdentifyTest, NamespaceDescribesItsFormat) {
  for (const std::uint32_t nsid : {kNs512, kNs4096}) {
    const auto data = identify<nvme::IdentifyNamespace>(Cns::identify_namespace, nsid);
    EXPECT_EQ(data.nsze, kNsBytes / lba_bytes(nsid));
    EXPECT_EQ(data.ncap, data.nsze);
    EXPECT_LE(data.nuse, data.nsze);
    EXPECT_EQ(data.nvmcap.low, kNsBytes);
    const auto& format = data.lbaf[nvme::lba_format_index(data.flbas)];
    EXPECT_EQ(std::size_t{1} << format.lbads, lba_bytes(nsid));
    EXPECT_EQ(format.ms, 0);
    EXPECT_LT(nvme::lba_format_index(data.flbas), data.nlbaf + 1);
    EXPECT_EQ(data.dlfeat & 7, nvme::kDlfeatReadsZeroes);
    EXPECT_NE(data.nmic & nvme::kNmicShared, 0);
    EXPECT_GT(data.mssrl, 0);
    EXPECT_GT(data.mcl, 0u);
  }
}

TEST_F(IdentifyTest, InactiveNamespacesReadAsZeroes) {
  const auto data = identify<nvme::IdentifyNamespace>(Cns::identify_namespace, 3);
  const auto bytes = std::as_bytes(std::span(&data, 1));
  EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_F(IdentifyTest, InvalidNamespacesAreErrors) {
  const std::uint32_t nn = identify<nvme::IdentifyController>(Cns::identify_controller).nn;
  EXPECT_EQ(identify_status(Cns::identify_namespace, 0), Status::invalid_namespace_or_format);
  EXPECT_EQ(identify_status(Cns::identify_namespace, nn + 1), Status::invalid_namespace_or_format);
  EXPECT_EQ(identify_status(Cns::namespace_identification_descriptors, 0), Status::invalid_namespace_or_format);
}

TEST_F(IdentifyTest, BroadcastNamespaceHoldsWhatAllHaveInCommon) {
  const auto common = identify<nvme::IdentifyNamespace>(Cns::identify_namespace, nvme::kNsidBroadcast);
  const auto one = identify<nvme::IdentifyNamespace>(Cns::identify_namespace, kNs512);
  EXPECT_EQ(common.nlbaf, one.nlbaf);
  EXPECT_EQ(common.lbaf[0].lbads, one.lbaf[0].lbads);
  EXPECT_EQ(common.nsze, 0u);
}

TEST_F(IdentifyTest, ActiveNamespaceListStartsAfterTheGivenIdentifier) {
  EXPECT_EQ(namespace_list(Cns::active_namespace_list), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(namespace_list(Cns::active_namespace_list, 1), (std::vector<std::uint32_t>{2}));
  EXPECT_TRUE(namespace_list(Cns::active_namespace_list, 2).empty());
  EXPECT_EQ(identify_status(Cns::active_namespace_list, 0xFFFFFFFE), Status::invalid_namespace_or_format);
  EXPECT_EQ(identify_status(Cns::active_namespace_list, 0xFFFFFFFF), Status::invalid_namespace_or_format);
  EXPECT_EQ(namespace_list(Cns::allocated_namespace_list), (std::vector<std::uint32_t>{1, 2}));
}

TEST_F(IdentifyTest, DescriptorsNameTheNamespaceForEver) {
  std::set<std::string> unique;
  for (const std::uint32_t nsid : {kNs512, kNs4096}) {
    std::array<std::byte, 4096> data;
    driver().identify(static_cast<std::uint8_t>(Cns::namespace_identification_descriptors), nsid, data);
    std::set<std::uint8_t> types;
    std::size_t at = 0;
    while (true) {
      nvme::NamespaceIdentificationDescriptor header;
      ASSERT_LE(at + sizeof header, data.size());
      std::memcpy(&header, data.data() + at, sizeof header);
      if (header.nidl == 0) break;
      EXPECT_TRUE(types.insert(header.nidt).second) << "a type is reported once";
      const std::string id(reinterpret_cast<const char*>(data.data()) + at + sizeof header, header.nidl);
      if (header.nidt == static_cast<std::uint8_t>(nvme::NamespaceIdentifierType::csi)) {
        EXPECT_EQ(id, std::string(1, '\0'));
      } else {
        EXPECT_NE(id, std::string(header.nidl, '\0'));
        EXPECT_TRUE(unique.insert(id).second) << "two namespaces share an identifier";
      }
      at += sizeof header + header.nidl;
    }
    EXPECT_TRUE(types.contains(static_cast<std::uint8_t>(nvme::NamespaceIdentifierType::nguid)));
    EXPECT_TRUE(types.contains(static_cast<std::uint8_t>(nvme::NamespaceIdentifierType::uuid)));
    EXPECT_TRUE(types.contains(static_cast<std::uint8_t>(nvme::NamespaceIdentifierType::csi)));
  }
}

TEST_F(IdentifyTest, ControllerLists) {
  const std::uint16_t id = host().controller.cntlid();
  const auto all = identify<nvme::ControllerList>(Cns::controller_list);
  ASSERT_EQ(all.num, 1);
  EXPECT_EQ(all.identifier[0], id);
  EXPECT_EQ(identify<nvme::ControllerList>(Cns::controller_list, 0, static_cast<std::uint16_t>(id + 1)).num, 0);
  const auto attached = identify<nvme::ControllerList>(Cns::namespace_controller_list, kNs512);
  ASSERT_EQ(attached.num, 1);
  EXPECT_EQ(attached.identifier[0], id);
}

TEST_F(IdentifyTest, IoCommandSets) {
  const auto data = identify<nvme::IdentifyIoCommandSet>(Cns::io_command_sets, 0, host().controller.cntlid());
  EXPECT_EQ(data.iocsc[0], nvme::io_command_set_bit(nvme::Csi::nvm));
  EXPECT_EQ(data.iocsc[1], 0u);
}

TEST_F(IdentifyTest, CommandSetSpecificStructures) {
  const auto nvm = identify<nvme::IdentifyControllerNvm>(Cns::csi_controller);
  EXPECT_GE(nvm.dmrl, 0);
  identify<nvme::IdentifyNamespaceNvm>(Cns::csi_namespace, kNs512);
  EXPECT_EQ(namespace_list(Cns::csi_active_namespace_list), (std::vector<std::uint32_t>{1, 2}));
  const auto independent = identify<nvme::IdentifyNamespaceIndependent>(Cns::independent_namespace, kNs512);
  EXPECT_NE(independent.nstat & nvme::kNstatReady, 0);
  const auto allocated = identify<nvme::IdentifyNamespace>(Cns::allocated_namespace, kNs4096);
  EXPECT_EQ(allocated.nsze, kNsBytes / 4096);
}

TEST_F(IdentifyTest, UnknownCommandSetsAreRefused) {
  constexpr std::uint32_t kKeyValue = 1u << 24;
  EXPECT_NE(identify_status(Cns::csi_controller, 0, kKeyValue), Status::success);
  EXPECT_NE(identify_status(Cns::csi_active_namespace_list, 0, 0xEEu << 24), Status::success);
}

TEST_F(IdentifyTest, UnknownStructuresAreInvalidFields) {
  for (const int cns : {0x1F, 0x80, 0xFF})
    EXPECT_EQ(identify_status(static_cast<Cns>(cns)), Status::invalid_field) << cns;
}

TEST_F(IdentifyTest, DataMayCrossAPage) {
  Buffer target = buffer(12288);
  target.fill(std::byte{0xEE});
  Sqe sqe = target.attach(make(AdminOpcode::identify), 4096, 2048);
  sqe.cdw10 = static_cast<std::uint8_t>(Cns::identify_controller);
  ASSERT_EQ(admin(sqe), Status::success);
  nvme::IdentifyController data;
  std::memcpy(&data, target.data() + 2048, sizeof data);
  EXPECT_EQ(std::string(data.subnqn), device.config().subsystem.nqn);
  EXPECT_EQ(target.data()[2047], std::byte{0xEE});
  EXPECT_EQ(target.data()[2048 + 4096], std::byte{0xEE});
}

TEST_F(IdentifyTest, UnmappedMemoryIsATransferError) {
  Sqe sqe = make(AdminOpcode::identify);
  sqe.cdw10 = 1;
  sqe.prp1 = 0x1000;
  EXPECT_EQ(admin(sqe), Status::data_transfer_error);
}

}  // namespace
}  // namespace flashmob::conformance
