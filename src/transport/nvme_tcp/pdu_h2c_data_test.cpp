// H2CData (NVMe/TCP 1.0c, 3.6.2.9): legal, boundary and illegal forms.
#include "transport/nvme_tcp/pdu_test_support.h"

namespace flashmob::transport::testing {
namespace {

TEST(NvmeTcpH2cData, InTheLargestPiecesAndTheSmallest) {
  for (const std::uint32_t most : {256u * 1024u, 4096u, 516u}) {
    Asked a;
    const auto data = pattern(512 * 1024, most);
    a.io.answer(a.r2t, data, most);
    EXPECT_EQ(a.io.finish(a.r2t.cccid, {}).status(), Status::success) << most;
    EXPECT_EQ(a.io.read(0, 512 * 1024).data, data) << most;
  }
}

TEST(NvmeTcpH2cData, Illegal) {
  constexpr std::uint32_t kAll = 512 * 1024;
  const auto with = [](const nvme::tcp::R2t& r2t, std::uint32_t offset, std::uint32_t bytes, bool last = false) {
    return Host::h2c(r2t, offset, bytes, last);
  };
  {
    Asked a;
    a.r2t.ttag = 3;
    a.expect("transfer tag of no command", with(a.r2t, 0, 4096), 4096, kHeader, 10);
  }
  {
    Asked a;
    a.r2t.ttag = 0xFFFF;
    a.expect("transfer tag beyond the queue", with(a.r2t, 0, 4096), 4096, kHeader, 10);
  }
  {
    Asked a;
    ++a.r2t.cccid;
    a.expect("command identifier", with(a.r2t, 0, 4096), 4096, kHeader, 8);
  }
  {
    Asked a;
    a.expect("offset", with(a.r2t, 4, 4096), 4096, kRange, 0);
  }
  {
    Asked a;
    a.expect("beyond the end", with(a.r2t, kAll, 4), 4, kRange, 0);
  }
  {
    Asked a;
    a.expect("more than MAXH2CDATA", with(a.r2t, 0, 256 * 1024 + 4), 256 * 1024 + 4, kLimit, 0);
  }
  {
    Asked a;
    a.expect("last too early", with(a.r2t, 0, 4096, true), 4096, kHeader, 1);
  }
  {
    Asked a;
    a.io.send_pdu(with(a.r2t, 0, kAll / 2), pattern(kAll / 2, 1));
    a.expect("last not said", with(a.r2t, kAll / 2, kAll / 2), kAll / 2, kHeader, 1);
  }
  {
    Asked a;
    a.io.send_pdu(with(a.r2t, 0, kAll / 2), pattern(kAll / 2, 1));
    a.io.send_pdu(with(a.r2t, kAll / 2, kAll / 2, true), pattern(kAll / 2, 1));
    const auto done = a.io.receive();
    ASSERT_TRUE(done);
    EXPECT_EQ(done->as<nvme::tcp::CapsuleResp>().cqe.status_phase, 0);
    a.expect("after the command is done", with(a.r2t, 0, 4096), 4096, kHeader, 10);
  }
  {
    Asked a;
    auto head = with(a.r2t, 0, 4092);
    a.expect("DATAL and PLEN disagree", head, 4096, kHeader, 16);
  }
  {
    Asked a;
    a.expect("no data", with(a.r2t, 0, 0), 0, kHeader, 16);
  }
}

}  // namespace
}  // namespace flashmob::transport::testing
