// R2T (NVMe/TCP 1.0c, 3.6.2.8) as the target sends it. What our initiator does with illegal ones is in
// driver/tcp_stream_illegal_test.cpp.
#include "transport/nvme_tcp/pdu_test_support.h"

namespace flashmob::transport::testing {
namespace {

TEST(NvmeTcpR2t, AsksForTheWholeTransfer) {
  Attached a({true, true});
  const auto data = pattern(20'480, 5);
  nvme::Sqe sqe = Host::io(nvme::NvmOpcode::write, 8, 40);
  Host::transport_sgl(sqe, 20'480);
  const std::uint16_t cid = a.io.submit(sqe);
  const auto pdu = a.io.receive();
  ASSERT_TRUE(pdu);
  ASSERT_EQ(pdu->type, nvme::tcp::PduType::r2t);
  const auto r2t = pdu->as<nvme::tcp::R2t>();
  EXPECT_EQ(r2t.r2tl, 20'480u);
  EXPECT_EQ(r2t.r2to, 0u);
  a.io.answer(r2t, data, 700);
  EXPECT_EQ(a.io.finish(cid, {}).status(), Status::success);
  EXPECT_EQ(a.io.read(8, 20'480).data, data);
}

TEST(NvmeTcpR2t, OneForEachCommandWithATagOfItsOwn) {
  Attached a;
  std::vector<nvme::tcp::R2t> asked;
  for (std::uint32_t i = 0; i < 15; ++i) {
    nvme::Sqe sqe = Host::io(nvme::NvmOpcode::write, i, 1);
    Host::transport_sgl(sqe, 512);
    const std::uint16_t cid = a.io.submit(sqe);
    const auto pdu = a.io.receive();
    ASSERT_TRUE(pdu);
    ASSERT_EQ(pdu->type, PduType::r2t);
    asked.push_back(pdu->as<nvme::tcp::R2t>());
    EXPECT_EQ(asked.back().cccid, cid);
    EXPECT_EQ(asked.back().ch.plen, 24u);
    for (std::uint32_t j = 0; j < i; ++j) EXPECT_NE(asked[j].ttag, asked[i].ttag);
  }
  // Answered from the last to the first.
  for (std::uint32_t i = 15; i-- > 0;) {
    a.io.answer(asked[i], pattern(512, i));
    EXPECT_EQ(a.io.finish(asked[i].cccid, {}).status(), Status::success);
  }
  for (std::uint32_t i = 0; i < 15; ++i) EXPECT_EQ(a.io.read(i, 512).data, pattern(512, i));
}

TEST(NvmeTcpR2t, NoneForCommandsThatCannotBe) {
  Attached a;
  nvme::Sqe sqe = Host::io(nvme::NvmOpcode::write, 0, 1);
  Host::transport_sgl(sqe, (1 << 20) + 512);
  a.io.submit(sqe);
  const auto pdu = a.io.receive();
  ASSERT_TRUE(pdu);
  EXPECT_EQ(pdu->type, PduType::capsule_resp) << "beyond MDTS";
}

}  // namespace
}  // namespace flashmob::transport::testing
