// C2HTermReq (NVMe/TCP 1.0c, 3.6.2.5) as the target sends it: every fatal error is answered by one (the tests of the
// other PDUs), and this is what it looks like.
#include "transport/nvme_tcp/pdu_test_support.h"

namespace flashmob::transport::testing {
namespace {

TEST(NvmeTcpC2hTermReq, BringsTheHeaderThatWasWrong) {
  for (const bool digests : {false, true}) {
    Rig rig;
    Host host(rig);
    ASSERT_TRUE(host.initialize({digests, digests}));
    Wire bad = capsule(512, {digests, digests});
    set(bad, 2, 64, 1);
    host.send(bad);
    const auto answer = host.receive();
    ASSERT_TRUE(answer);
    ASSERT_EQ(answer->type, PduType::c2h_term_req);
    const auto head = answer->as<nvme::tcp::TermReq>();
    EXPECT_EQ(head.ch.flags, 0) << "no digests on termination requests";
    EXPECT_EQ(head.ch.hlen, 24);
    EXPECT_LE(head.ch.plen, 152u);
    EXPECT_EQ(head.ch.plen, 24u + answer->data.size());
    EXPECT_TRUE(std::equal(answer->data.begin(), answer->data.end(), bad.begin()));
    EXPECT_TRUE(host.closed()) << "nothing follows it";
  }
}

TEST(NvmeTcpC2hTermReq, OnlyTheFirstMistakeIsAnswered) {
  Rig rig;
  Host host(rig);
  ASSERT_TRUE(host.initialize());
  Wire bad = capsule();
  set(bad, 2, 64, 1);
  const Wire one = bad;
  for (int i = 0; i < 20; ++i) bad.insert(bad.end(), one.begin(), one.end());
  host.send(bad);
  ASSERT_TRUE(host.terminated());
  EXPECT_FALSE(host.terminated());
  EXPECT_TRUE(host.closed());
}

}  // namespace
}  // namespace flashmob::transport::testing
