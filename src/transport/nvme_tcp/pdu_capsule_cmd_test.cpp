// CapsuleCmd (NVMe/TCP 1.0c, 3.6.2.6): legal, boundary and illegal forms. Its descriptors are in data_test.cpp.
#include "transport/nvme_tcp/pdu_test_support.h"

namespace flashmob::transport::testing {
namespace {

TEST(NvmeTcpCapsuleCmd, UpToTheLastByteThatFits) {
  for (const std::uint32_t bytes : {512u, 8192u}) {
    Attached host;
    EXPECT_EQ(host.io.in_capsule(Host::io(nvme::NvmOpcode::write, 0, bytes / 512), pattern(bytes, 1)).status(),
              Status::success);
    EXPECT_EQ(host.io.read(0, bytes).data, pattern(bytes, 1));
  }
}

TEST(NvmeTcpCapsuleCmd, Illegal) {
  Wire bad = capsule();
  set(bad, 2, 64, 1);
  expect_terminated("HLEN", bad, kHeader, 2, initialized);
  bad = capsule();
  set(bad, 1, nvme::tcp::kFlagHeaderDigest, 1);
  expect_terminated("a digest that was not agreed upon", bad, kHeader, 1, initialized);
  bad = capsule(512);
  set(bad, 1, nvme::tcp::kFlagDataDigest, 1);
  expect_terminated("a data digest that was not agreed upon", bad, kHeader, 1, initialized);
  bad = capsule(0, {true, true});
  set(bad, 1, 0, 1);
  expect_terminated("no header digest", bad, kHeader, 1, digested);
  bad = capsule(512, {true, true});
  set(bad, 1, nvme::tcp::kFlagHeaderDigest, 1);
  expect_terminated("no data digest", bad, kHeader, 1, digested);
  bad = capsule(0, {true, true});
  set(bad, 1, nvme::tcp::kFlagHeaderDigest | nvme::tcp::kFlagDataDigest, 1);
  expect_terminated("a digest of no data", bad, kHeader, 1, digested);
  bad = capsule(512);
  set(bad, 3, 68, 1);
  expect_terminated("PDO inside the header", bad, kHeader, 3, initialized);
  bad = capsule(512);
  set(bad, 3, 74, 1);
  expect_terminated("PDO off its alignment", bad, kHeader, 3, initialized);
  bad = capsule(4);
  set(bad, 3, 200, 1);
  expect_terminated("PDO behind the end", bad, kHeader, 3, initialized);
  bad = capsule(4);
  set(bad, 3, 76, 1);
  expect_terminated("PDO at the end", bad, kHeader, 4, initialized);
  bad = capsule();
  set(bad, 4, 71, 4);
  expect_terminated("PLEN shorter than the header", bad, kHeader, 4, initialized);
  bad = capsule();
  set(bad, 4, 0, 4);
  expect_terminated("PLEN 0", bad, kHeader, 4, initialized);
  bad = capsule(8);
  set(bad, 4, 0xFFFFFFFF, 4);
  expect_terminated("PLEN beyond everything", bad, kLimit, 0, initialized);
  expect_terminated("more data than a capsule holds", capsule(8196), kLimit, 0, attached);
  bad = capsule(0, {true, false});
  bad[20] ^= std::byte{1};
  std::uint32_t digest;
  std::memcpy(&digest, bad.data() + 72, 4);
  expect_terminated("header digest", bad, kDigest, digest,
                    [](Rig&, Host& host) { ASSERT_TRUE(host.initialize({true, false})); });
}

TEST(NvmeTcpCapsuleCmd, BeyondTheQueue) {
  // Event requests stay, four of them at most; writes whose data never comes fill the rest.
  Attached host;
  Host io(host.rig);
  ASSERT_TRUE(io.initialize());
  ASSERT_EQ(io.attach_io(host.cntlid, 2, 4).status(), Status::success);
  nvme::Sqe write = Host::io(nvme::NvmOpcode::write, 0, 1);
  Host::transport_sgl(write, 512);
  for (int i = 0; i < 4; ++i) {
    io.submit(write);
    const auto pdu = io.receive();
    ASSERT_TRUE(pdu);
    EXPECT_EQ(pdu->type, PduType::r2t) << i;
  }
  io.submit(write);
  const auto told = io.terminated();
  ASSERT_TRUE(told);
  EXPECT_EQ(told->fes, kSequence);
  EXPECT_TRUE(io.closed());
  EXPECT_EQ(host.admin.command(Host::identify(1)).status(), Status::success);
}

}  // namespace
}  // namespace flashmob::transport::testing
