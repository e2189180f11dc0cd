// C2HData (NVMe/TCP 1.0c, 3.6.2.10) as the target sends it. What our initiator does with illegal ones is in
// driver/tcp_stream_illegal_test.cpp.
#include "transport/nvme_tcp/pdu_test_support.h"

namespace flashmob::transport::testing {
namespace {

// One read of `bytes`; its C2HData.
Pdu data_of_read(Attached& a, std::uint32_t bytes) {
  nvme::Sqe sqe = Host::io(nvme::NvmOpcode::read, 0, bytes / 512);
  Host::transport_sgl(sqe, bytes);
  const std::uint16_t cid = a.io.submit(sqe);
  auto pdu = a.io.receive();
  EXPECT_TRUE(pdu);
  if (!pdu) return {};
  EXPECT_EQ(pdu->type, PduType::c2h_data);
  const auto head = pdu->as<nvme::tcp::Data>();
  EXPECT_EQ(head.cccid, cid);
  EXPECT_EQ(head.datao, 0u);
  EXPECT_EQ(head.datal, bytes);
  EXPECT_EQ(pdu->data.size(), bytes);
  EXPECT_TRUE(pdu->digest_good);
  EXPECT_NE(head.ch.flags & nvme::tcp::kFlagLastPdu, 0);
  return *pdu;
}

TEST(NvmeTcpC2hData, OneForEachCommandWhateverItsSize) {
  Attached a;
  for (const std::uint32_t bytes : {512u, 8192u, 65'536u, 65'536u + 512u, 1u << 20}) {
    const Pdu pdu = data_of_read(a, bytes);
    EXPECT_EQ(pdu.as<nvme::tcp::Data>().ch.flags & nvme::tcp::kFlagSuccess, 0) << "a response follows";
    const auto response = a.io.receive();
    ASSERT_TRUE(response);
    EXPECT_EQ(response->type, PduType::capsule_resp);
  }
}

TEST(NvmeTcpC2hData, TheSuccessFlagStandsForTheResponse) {
  Attached a({}, 0, nvme::kConnectAttrNoFlowControl);
  EXPECT_NE(data_of_read(a, 4096).as<nvme::tcp::Data>().ch.flags & nvme::tcp::kFlagSuccess, 0);
  EXPECT_FALSE(a.io.receive()) << "nothing follows";
}

TEST(NvmeTcpC2hData, DigestsAndAlignmentAsTheHostAskedFor) {
  for (const std::uint8_t hpda : {std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{31}}) {
    Attached a({true, true}, hpda);
    const Pdu pdu = data_of_read(a, 512);
    const auto head = pdu.as<nvme::tcp::Data>();
    EXPECT_EQ(head.ch.pdo % ((hpda + 1u) * 4u), 0u) << unsigned{hpda};
    EXPECT_EQ(head.ch.flags & nvme::tcp::kFlagHeaderDigest, nvme::tcp::kFlagHeaderDigest);
    EXPECT_EQ(head.ch.flags & nvme::tcp::kFlagDataDigest, nvme::tcp::kFlagDataDigest);
    EXPECT_EQ(head.ch.plen, head.ch.pdo + 512u + 4u);
  }
}

TEST(NvmeTcpC2hData, NoneForReadsThatFail) {
  Attached a;
  nvme::Sqe sqe = Host::io(nvme::NvmOpcode::read, 1 << 30, 1);
  Host::transport_sgl(sqe, 512);
  a.io.submit(sqe);
  const auto pdu = a.io.receive();
  ASSERT_TRUE(pdu);
  EXPECT_EQ(pdu->type, PduType::capsule_resp);
}

}  // namespace
}  // namespace flashmob::transport::testing
