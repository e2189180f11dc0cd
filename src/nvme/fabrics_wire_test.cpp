// Compares the fabrics structures with libnvme's independent definitions, and the fields of the fabrics commands with
// the bytes that the specification gives them (NVMe Base 2.0c, chapter 6).
#include <cstring>

extern "C" {
#include <libnvme.h>
}

#include "gtest/gtest.h"
#include "nvme/fabrics.h"
#include "nvme/identify_controller.h"
#include "nvme/tcp.h"

#define SAME_FIELD(ours, theirs)                     \
  EXPECT_EQ(offsetof(T, ours), offsetof(U, theirs)); \
  EXPECT_EQ(sizeof(T::ours), sizeof(U::theirs))
#define SAME_NAME(field) SAME_FIELD(field, field)

namespace flashmob::nvme {
namespace {

TEST(FabricsWire, DiscoveryLog) {
  {
    using T = DiscoveryHeader;
    using U = nvmf_discovery_log;
    SAME_NAME(genctr);
    SAME_NAME(numrec);
    SAME_NAME(recfmt);
    EXPECT_EQ(sizeof(T), sizeof(U));
  }
  using T = DiscoveryEntry;
  using U = nvmf_disc_log_entry;
  SAME_NAME(trtype);
  SAME_NAME(adrfam);
  SAME_NAME(subtype);
  SAME_NAME(treq);
  SAME_NAME(portid);
  SAME_NAME(cntlid);
  SAME_NAME(asqsz);
  SAME_NAME(eflags);
  SAME_NAME(trsvcid);
  SAME_NAME(subnqn);
  SAME_NAME(traddr);
  SAME_NAME(tsas);
  EXPECT_EQ(sizeof(T), sizeof(U));
  EXPECT_EQ(kLidDiscovery, NVME_LOG_LID_DISCOVER);
  EXPECT_STREQ(kDiscoveryNqn, NVME_DISC_SUBSYS_NAME);
  EXPECT_EQ(kTrtypeTcp, NVMF_TRTYPE_TCP);
  EXPECT_EQ(kAdrfamIpv4, NVMF_ADDR_FAMILY_IP4);
  EXPECT_EQ(kAdrfamIpv6, NVMF_ADDR_FAMILY_IP6);
  EXPECT_EQ(kSubtypeReferral, NVME_NQN_DISC);
  EXPECT_EQ(kSubtypeNvm, NVME_NQN_NVME);
  EXPECT_EQ(kTreqSecureChannelNotRequired, NVMF_TREQ_NOT_REQUIRED);
  EXPECT_EQ(kTreqNoFlowControl, NVMF_TREQ_DISABLE_SQFLOW);
}

TEST(FabricsWire, ConnectData) {
  using T = ConnectData;
  using U = nvmf_connect_data;
  SAME_FIELD(hostid, hostid);
  SAME_NAME(cntlid);
  SAME_FIELD(subnqn, subsysnqn);
  SAME_NAME(hostnqn);
  EXPECT_EQ(sizeof(T), sizeof(U));
}

TEST(FabricsWire, Statuses) {
  const auto specific = [](unsigned code) { return static_cast<Status>(NVME_SCT_CMD_SPECIFIC << 8 | code); };
  EXPECT_EQ(kConnectIncompatibleFormat, specific(NVME_SC_CONNECT_FORMAT));
  EXPECT_EQ(kConnectControllerBusy, specific(NVME_SC_CONNECT_CTRL_BUSY));
  EXPECT_EQ(kConnectInvalidParameters, specific(NVME_SC_CONNECT_INVALID_PARAM));
  EXPECT_EQ(kConnectRestartDiscovery, specific(NVME_SC_CONNECT_RESTART_DISC));
  EXPECT_EQ(kConnectInvalidHost, specific(NVME_SC_CONNECT_INVALID_HOST));
  EXPECT_EQ(kDiscoverRestart, specific(NVME_SC_DISCOVERY_RESTART));
  EXPECT_EQ(kAuthenticationRequired, specific(NVME_SC_AUTH_REQUIRED));
}

std::uint8_t byte_of(const Sqe& sqe, std::size_t at) { return reinterpret_cast<const std::uint8_t*>(&sqe)[at]; }

TEST(FabricsWire, CommandFields) {
  Sqe sqe = fabrics_sqe(FabricsType::connect);
  EXPECT_EQ(byte_of(sqe, 0), 0x7F);
  EXPECT_EQ(byte_of(sqe, 1), 0x40);
  EXPECT_EQ(byte_of(sqe, 4), 0x01);
  encode_connect({.recfmt = 0x0201, .qid = 0x0403, .sqsize = 0x0605, .cattr = 0x07, .kato_ms = 0x0C0B0A09}, sqe);
  const std::uint8_t expected[] = {1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11, 12};
  for (std::size_t i = 0; i < sizeof(expected); ++i) EXPECT_EQ(byte_of(sqe, 40 + i), expected[i]) << i;
  const Connect connect = decode_connect(sqe);
  EXPECT_EQ(connect.qid, 0x0403);
  EXPECT_EQ(connect.sqsize, 0x0605);
  EXPECT_EQ(connect.cattr, 0x07);
  EXPECT_EQ(connect.kato_ms, 0x0C0B0A09u);

  sqe = fabrics_sqe(FabricsType::property_set);
  encode_property({true, 0x14, 0x0807060504030201}, sqe);
  EXPECT_EQ(byte_of(sqe, 40), 1);
  EXPECT_EQ(byte_of(sqe, 44), 0x14);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(byte_of(sqe, 48 + i), i + 1);
  EXPECT_EQ(decode_property(sqe).value, 0x0807060504030201u);

  sqe = fabrics_sqe(FabricsType::authentication_send);
  encode_authentication({.spsp0 = 1, .spsp1 = 2, .secp = 0xE9, .length_bytes = 0x1234}, sqe);
  EXPECT_EQ(byte_of(sqe, 41), 1);
  EXPECT_EQ(byte_of(sqe, 42), 2);
  EXPECT_EQ(byte_of(sqe, 43), 0xE9);
  EXPECT_EQ(byte_of(sqe, 44), 0x34);
  EXPECT_EQ(decode_authentication(sqe).length_bytes, 0x1234u);

  EXPECT_EQ(connect_invalid_in_data(offsetof(ConnectData, hostnqn)), 0x10200u);
  EXPECT_EQ(connect_invalid_in_sqe(kConnectAtSqsize), 44u);
}

TEST(FabricsWire, TerminationRequest) {
  tcp::TermReq pdu{};
  const std::uint8_t bytes[] = {2, 0, 24, 0, 24, 0, 0, 0, 3, 0, 0x11, 0x22, 0x33, 0x44};
  std::memcpy(&pdu, bytes, sizeof(bytes));
  EXPECT_EQ(pdu.ch.type, tcp::PduType::h2c_term_req);
  EXPECT_EQ(pdu.fes, static_cast<std::uint16_t>(tcp::FatalError::header_digest_error));
  EXPECT_EQ(tcp::fei_of(pdu), 0x44332211u);
}

}  // namespace
}  // namespace flashmob::nvme
