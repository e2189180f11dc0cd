// CapsuleResp (NVMe/TCP 1.0c, 3.6.2.7) as the target sends it. What our initiator does with illegal ones is in
// driver/tcp_stream_illegal_test.cpp.
#include "transport/nvme_tcp/pdu_test_support.h"

namespace flashmob::transport::testing {
namespace {

TEST(NvmeTcpCapsuleResp, TheSubmissionQueueHeadCountsCapsules) {
  Attached a;
  // Connect was the first command of 16 entries.
  EXPECT_EQ(a.io.read(0, 512).cqe.sqhd, 2);
  for (int i = 0; i < 13; ++i) a.io.read(0, 512);
  EXPECT_EQ(a.io.read(0, 512).cqe.sqhd, 0);
}

TEST(NvmeTcpCapsuleResp, EveryIdentifierComesBackOnce) {
  Attached a;
  for (const std::uint16_t cid : {std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{0x7FFF}, std::uint16_t{0xFFFF}}) {
    auto pdu = fabrics::make_pdu<nvme::tcp::CapsuleCmd>(PduType::capsule_cmd);
    pdu.sqe = Host::io(nvme::NvmOpcode::flush, 0, 1);
    pdu.sqe.cid = cid;
    a.io.send_pdu(pdu);
    const auto answer = a.io.receive();
    ASSERT_TRUE(answer);
    ASSERT_EQ(answer->type, PduType::capsule_resp);
    const auto response = answer->as<nvme::tcp::CapsuleResp>();
    EXPECT_EQ(response.cqe.cid, cid);
    EXPECT_EQ(response.cqe.sqid, 0) << "reserved over fabrics";
    EXPECT_EQ(response.cqe.status_phase & 1, 0) << "there is no phase tag";
    EXPECT_EQ(response.ch.plen, 24u);
    EXPECT_EQ(response.ch.pdo, 0) << "it carries no data";
    EXPECT_FALSE(a.io.receive());
  }
}

TEST(NvmeTcpCapsuleResp, HasAHeaderDigestAndNoOther) {
  Attached a({true, true});
  a.io.submit(Host::io(nvme::NvmOpcode::flush, 0, 1));
  const auto answer = a.io.receive();
  ASSERT_TRUE(answer) << "its digest is right, or the reader would have refused it";
  const auto response = answer->as<nvme::tcp::CapsuleResp>();
  EXPECT_EQ(response.ch.flags, nvme::tcp::kFlagHeaderDigest);
  EXPECT_EQ(response.ch.plen, 28u);
}

}  // namespace
}  // namespace flashmob::transport::testing
