// ICReq and the ICResp that answers it (NVMe/TCP 1.0c, 3.6.2.2 and 3.6.2.3): legal, boundary and illegal forms.
#include "transport/nvme_tcp/pdu_test_support.h"

namespace flashmob::transport::testing {
namespace {

TEST(NvmeTcpIcReq, IsAnsweredWithWhatTheTargetCanDo) {
  Rig rig;
  Host host(rig);
  const auto response = host.initialize({true, true}, 3);
  ASSERT_TRUE(response);
  EXPECT_EQ(response->pfv, 0);
  EXPECT_EQ(response->cpda, 0);
  EXPECT_EQ(response->dgst, nvme::tcp::kDigestHeader | nvme::tcp::kDigestData);
  EXPECT_EQ(response->maxh2cdata, 256u * 1024u);
  EXPECT_EQ(response->ch.plen, 128u);
}

TEST(NvmeTcpIcReq, LargestAlignmentAndEveryDigest) {
  for (const unsigned digests : {0u, 1u, 2u, 3u}) {
    Rig rig;
    Host host(rig);
    const auto response = host.initialize({(digests & 1) != 0, (digests & 2) != 0}, 31);
    ASSERT_TRUE(response) << digests;
    EXPECT_EQ(response->dgst, digests);
    EXPECT_NE(host.attach(), 0) << digests;
  }
}

TEST(NvmeTcpIcReq, Illegal) {
  const Wire good = wire_of(Host::ic_req());
  Wire bad = good;
  set(bad, 2, 127, 1);
  expect_terminated("HLEN", bad, kHeader, 2, nothing);
  bad = good;
  set(bad, 1, nvme::tcp::kFlagHeaderDigest, 1);
  expect_terminated("a digest before there are any", bad, kHeader, 1, nothing);
  bad = good;
  set(bad, 4, 132, 4);
  expect_terminated("PLEN", bad, kHeader, 4, nothing);
  bad = good;
  set(bad, 4, 100, 4);
  expect_terminated("PLEN shorter than the header", bad, kHeader, 4, nothing);
  bad = good;
  set(bad, 8, 1, 2);
  expect_terminated("PFV", bad, kParameter, 8, nothing);
  bad = good;
  set(bad, 10, 32, 1);
  expect_terminated("HPDA", bad, kHeader, 10, nothing);
  expect_terminated("a second one", good, kSequence, 0, initialized);
}

TEST(NvmeTcpIcReq, NothingComesBeforeIcReq) {
  expect_terminated("a command", capsule(), kSequence, 0, nothing);
  auto data = fabrics::make_pdu<nvme::tcp::Data>(PduType::h2c_data);
  data.datal = 4;
  expect_terminated("data", wire_of(data, 4), kSequence, 0, nothing);
}

TEST(NvmeTcpIcReq, TypesThatHostsDoNotSend) {
  for (const unsigned type : {0x01u, 0x03u, 0x05u, 0x07u, 0x08u, 0x09u, 0x0Au, 0xFFu}) {
    Wire bad(24);
    set(bad, 0, type, 1);
    set(bad, 2, 24, 1);
    set(bad, 4, 24, 4);
    expect_terminated("type", bad, kHeader, 0, initialized);
  }
}

}  // namespace
}  // namespace flashmob::transport::testing
