// H2CTermReq (NVMe/TCP 1.0c, 3.6.2.4): legal, boundary and illegal forms.
#include "transport/nvme_tcp/pdu_test_support.h"

namespace flashmob::transport::testing {
namespace {

TEST(NvmeTcpH2cTermReq, EndsTheConnectionWithoutAnAnswer) {
  for (const std::size_t culprit_bytes : {0u, 8u, 72u, 128u}) {
    Rig rig;
    Host host(rig);
    ASSERT_TRUE(host.initialize());
    ASSERT_NE(host.attach(), 0);
    auto pdu = fabrics::make_pdu<nvme::tcp::TermReq>(PduType::h2c_term_req);
    pdu.fes = 1;
    host.send_pdu(pdu, pattern(culprit_bytes, 1));
    EXPECT_FALSE(host.receive()) << culprit_bytes;
    EXPECT_TRUE(host.closed()) << culprit_bytes;
    EXPECT_EQ(rig.controllers(), 0u) << culprit_bytes;
  }
}

TEST(NvmeTcpH2cTermReq, OfIllegalLength) {
  Wire bad(160);
  set(bad, 0, 2, 1);
  set(bad, 2, 24, 1);
  set(bad, 4, 153, 4);
  expect_terminated("too long", bad, kHeader, 4, initialized);
  set(bad, 4, 23, 4);
  expect_terminated("too short", bad, kHeader, 4, initialized);
}

}  // namespace
}  // namespace flashmob::transport::testing
