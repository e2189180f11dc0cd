// Commands and their data over NVMe/TCP: every way that data takes, sizes around every limit, digests, several queues.
#include "nvme/identify_controller.h"
#include "transport/nvme_tcp/pdu_test_support.h"

namespace flashmob::transport::testing {
namespace {

TEST(NvmeTcpData, IdentifyControllerTellsOfFabrics) {
  Attached a;
  const Reply reply = a.admin.command(Host::identify(1));
  ASSERT_EQ(reply.status(), Status::success);
  ASSERT_EQ(reply.data.size(), 4096u);
  nvme::IdentifyController c;
  std::memcpy(&c, reply.data.data(), sizeof(c));
  EXPECT_EQ(c.cntlid, a.cntlid);
  EXPECT_EQ(c.ioccsz, (64u + 8192u) / 16u);
  EXPECT_EQ(c.iorcsz, 1u);
  EXPECT_EQ(c.icdoff, 0);
  EXPECT_EQ(c.msdbd, 1);
  EXPECT_EQ(c.cntrltype, nvme::kCntrltypeIo);
  EXPECT_EQ(c.kas, 1);
  EXPECT_NE(c.maxcmd, 0);
  EXPECT_EQ(c.ofcs, nvme::kOfcsDisconnect);
  EXPECT_NE(c.sgls & nvme::kSglsOffset, 0u);
  EXPECT_NE(c.cmic & nvme::kCmicMultipleControllers, 0);
  EXPECT_EQ(c.oacs & nvme::kOacsDoorbellBufferConfig, 0);
}

struct Way {
  bool header_digest;
  bool data_digest;
  std::uint8_t hpda;
  bool flow_control;
};

class EveryWay : public ::testing::TestWithParam<Way> {};

TEST_P(EveryWay, WhatIsWrittenIsRead) {
  const Way way = GetParam();
  const std::uint8_t cattr = way.flow_control ? 0 : nvme::kConnectAttrNoFlowControl;
  Attached a({way.header_digest, way.data_digest}, way.hpda, cattr);
  // Around the in-capsule limit, a buffer block, and the largest transfer.
  for (const std::uint32_t bytes : {512u, 1024u, 4096u, 8192u, 8704u, 65536u, 66048u, 262144u, 1u << 20}) {
    const auto data = pattern(bytes, bytes);
    ASSERT_EQ(a.io.write(0, data).status(), Status::success) << bytes;
    const Reply reply = a.io.read(0, bytes);
    ASSERT_EQ(reply.status(), Status::success) << bytes;
    EXPECT_EQ(reply.data, data) << bytes;
    EXPECT_EQ(reply.by_success_flag, !way.flow_control);
    if (bytes > 8192) continue;
    const auto other = pattern(bytes, bytes + 1);
    nvme::Sqe sqe = Host::io(nvme::NvmOpcode::write, 64, bytes / 512);
    ASSERT_EQ(a.io.in_capsule(sqe, other).status(), Status::success) << bytes;
    EXPECT_EQ(a.io.read(64, bytes).data, other) << bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(NvmeTcpData, EveryWay,
                         ::testing::Values(Way{false, false, 0, true}, Way{true, false, 0, true},
                                           Way{false, true, 0, false}, Way{true, true, 0, false},
                                           Way{true, true, 31, true}, Way{false, false, 31, false}));

TEST(NvmeTcpData, AFullQueueOfReadsIsAnsweredOnceEach) {
  Attached a;
  ASSERT_EQ(a.io.write(0, pattern(8192, 1)).status(), Status::success);
  std::vector<std::uint16_t> cids;
  std::vector<std::byte> all;
  for (unsigned i = 0; i < 16; ++i) {
    auto pdu = fabrics::make_pdu<nvme::tcp::CapsuleCmd>(nvme::tcp::PduType::capsule_cmd);
    pdu.sqe = Host::io(nvme::NvmOpcode::read, i, 1);
    Host::transport_sgl(pdu.sqe, 512);
    pdu.sqe.cid = static_cast<std::uint16_t>(1000 + i * 4096);
    const auto wire = a.io.wire(pdu);
    all.insert(all.end(), wire.begin(), wire.end());
    cids.push_back(pdu.sqe.cid);
  }
  a.io.send(all);
  for (const std::uint16_t cid : cids) {
    const Reply reply = a.io.finish(cid, {});
    EXPECT_EQ(reply.status(), Status::success);
    EXPECT_EQ(reply.data.size(), 512u);
  }
}

TEST(NvmeTcpData, ADataDigestErrorFailsTheCommandAndNothingElse) {
  Attached a({false, true});
  ASSERT_EQ(a.io.write(0, pattern(512, 1)).status(), Status::success);
  auto pdu = fabrics::make_pdu<nvme::tcp::CapsuleCmd>(nvme::tcp::PduType::capsule_cmd);
  pdu.sqe = Host::io(nvme::NvmOpcode::write, 0, 1);
  Host::capsule_sgl(pdu.sqe, 512);
  pdu.sqe.cid = 77;
  auto wire = a.io.wire(pdu, pattern(512, 9));
  wire.back() ^= std::byte{1};
  a.io.send(wire);
  EXPECT_EQ(a.io.finish(77, {}).status(), Status::transient_transport_error);
  EXPECT_EQ(a.io.read(0, 512).data, pattern(512, 1));

  nvme::Sqe sqe = Host::io(nvme::NvmOpcode::write, 0, 32);
  Host::transport_sgl(sqe, 16'384);
  const std::uint16_t cid = a.io.submit(sqe);
  const auto r2t = a.io.receive()->as<nvme::tcp::R2t>();
  auto first = a.io.wire(Host::h2c(r2t, 0, 8192, false), pattern(8192, 3));
  first[first.size() - 1] ^= std::byte{0x80};
  a.io.send(first);
  a.io.send_pdu(Host::h2c(r2t, 8192, 8192, true), pattern(8192, 4));
  EXPECT_EQ(a.io.finish(cid, {}).status(), Status::transient_transport_error);
  EXPECT_EQ(a.io.read(0, 512).data, pattern(512, 1));
}

TEST(NvmeTcpData, DescriptorsThatFabricsDoNotAllow) {
  Attached a;
  nvme::Sqe sqe = Host::io(nvme::NvmOpcode::read, 0, 1);
  Host::transport_sgl(sqe, 512);
  sqe.flags = 0;
  EXPECT_EQ(a.io.command(sqe).status(), Status::invalid_field) << "PRPs";
  for (const unsigned identifier : {0x00u, 0x01u, 0x10u, 0x20u, 0x30u, 0x4Fu, 0x50u, 0x5Bu, 0xF0u}) {
    Host::transport_sgl(sqe, 512);
    sqe.sgl1.identifier = static_cast<std::uint8_t>(identifier);
    EXPECT_EQ(a.io.command(sqe).status(), Status::sgl_descriptor_type_invalid) << identifier;
  }
  nvme::Sqe write = Host::io(nvme::NvmOpcode::write, 0, 1);
  const auto data = pattern(512, 1);
  Host::capsule_sgl(write, 512, 513);
  EXPECT_EQ(a.io.finish(a.io.submit(write, data), {}).status(), Status::sgl_offset_invalid);
  Host::capsule_sgl(write, 512, 4);
  EXPECT_EQ(a.io.finish(a.io.submit(write, data), {}).status(), Status::data_sgl_length_invalid);
  Host::capsule_sgl(write, 516, 0);
  EXPECT_EQ(a.io.finish(a.io.submit(write, data), {}).status(), Status::data_sgl_length_invalid);
  Host::transport_sgl(sqe, (1 << 20) + 512);
  EXPECT_EQ(a.io.command(sqe).status(), Status::invalid_field) << "beyond MDTS";
  Host::transport_sgl(sqe, 256);
  EXPECT_EQ(a.io.command(sqe).status(), Status::data_sgl_length_invalid) << "less than the command moves";
}

TEST(NvmeTcpData, InCapsuleDataMayBeginAtAnOffset) {
  Attached a;
  const auto data = pattern(1024, 8);
  nvme::Sqe write = Host::io(nvme::NvmOpcode::write, 5, 1);
  Host::capsule_sgl(write, 512, 512);
  EXPECT_EQ(a.io.finish(a.io.submit(write, data), {}).status(), Status::success);
  EXPECT_EQ(a.io.read(5, 512).data, std::vector<std::byte>(data.begin() + 512, data.end()));
}

TEST(NvmeTcpData, ABufferLongerThanTheCommandShowsZeroes) {
  Attached a;
  ASSERT_EQ(a.io.write(0, pattern(8192, 1)).status(), Status::success);
  for (int i = 0; i < 32; ++i) ASSERT_EQ(a.io.read(0, 8192).status(), Status::success);
  nvme::Sqe sqe = Host::io(nvme::NvmOpcode::read, 0, 1);
  Host::transport_sgl(sqe, 2048);
  const Reply reply = a.io.command(sqe);
  ASSERT_EQ(reply.status(), Status::success);
  EXPECT_TRUE(std::equal(reply.data.begin(), reply.data.begin() + 512, pattern(8192, 1).begin()));
  EXPECT_EQ(std::vector<std::byte>(reply.data.begin() + 512, reply.data.end()), std::vector<std::byte>(1536));
}

TEST(NvmeTcpData, CommandIdentifiersInUseAreRefused) {
  Attached a;
  nvme::Sqe sqe = Host::io(nvme::NvmOpcode::write, 0, 32);
  Host::transport_sgl(sqe, 16'384);
  const std::uint16_t cid = a.io.submit(sqe);
  const auto r2t = a.io.receive()->as<nvme::tcp::R2t>();
  auto pdu = fabrics::make_pdu<nvme::tcp::CapsuleCmd>(nvme::tcp::PduType::capsule_cmd);
  pdu.sqe = Host::io(nvme::NvmOpcode::flush, 0, 1);
  pdu.sqe.cid = cid;
  a.io.send_pdu(pdu);
  EXPECT_EQ(a.io.finish(cid, {}).status(), Status::command_id_conflict);
  a.io.answer(r2t, pattern(16'384, 2));
  EXPECT_EQ(a.io.finish(cid, {}).status(), Status::success);
}

TEST(NvmeTcpData, BuffersThatRunOutAreWaitedFor) {
  Rig rig;
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  // 16 MiB of buffers, and 40 writes of 1 MiB whose data does not come yet.
  std::vector<std::unique_ptr<Host>> hosts;
  const auto data = pattern(1 << 20, 3);
  std::vector<std::uint16_t> cids;
  for (std::uint16_t q = 1; q <= 2; ++q) {
    hosts.push_back(std::make_unique<Host>(rig));
    ASSERT_TRUE(hosts.back()->initialize());
    ASSERT_EQ(hosts.back()->attach_io(cntlid, q, 32).status(), Status::success);
    for (unsigned i = 0; i < 20; ++i) {
      nvme::Sqe sqe = Host::io(nvme::NvmOpcode::write, 0, 2048);
      Host::transport_sgl(sqe, 1 << 20);
      cids.push_back(hosts.back()->submit(sqe));
    }
  }
  for (std::size_t h = 0; h < 2; ++h) {
    for (unsigned done = 0; done < 20;) {
      const auto pdu = hosts[h]->receive();
      ASSERT_TRUE(pdu) << h << " " << done;
      if (pdu->type == nvme::tcp::PduType::r2t) hosts[h]->answer(pdu->as<nvme::tcp::R2t>(), data);
      if (pdu->type == nvme::tcp::PduType::capsule_resp) ++done;
    }
  }
  EXPECT_EQ(hosts[0]->read(0, 1 << 20).data, data);
}

TEST(NvmeTcpData, FusedCompareAndWrite) {
  Attached a;
  ASSERT_EQ(a.io.write(0, pattern(512, 1)).status(), Status::success);
  nvme::Sqe compare = Host::io(nvme::NvmOpcode::compare, 0, 1);
  Host::transport_sgl(compare, 512);
  compare.flags |= nvme::kFlagFuseFirst;
  nvme::Sqe write = Host::io(nvme::NvmOpcode::write, 0, 1);
  Host::transport_sgl(write, 512);
  write.flags |= nvme::kFlagFuseSecond;
  const std::uint16_t first = a.io.submit(compare);
  const auto r2t1 = a.io.receive()->as<nvme::tcp::R2t>();
  const std::uint16_t second = a.io.submit(write);
  const auto r2t2 = a.io.receive()->as<nvme::tcp::R2t>();
  // The second half's data comes first, and the next command's before either.
  EXPECT_EQ(a.io.read(9, 512).status(), Status::success);
  a.io.answer(r2t2, pattern(512, 2));
  a.io.answer(r2t1, pattern(512, 1));
  EXPECT_EQ(a.io.finish(first, {}).status(), Status::success);
  EXPECT_EQ(a.io.finish(second, {}).status(), Status::success);
  EXPECT_EQ(a.io.read(0, 512).data, pattern(512, 2));
}

}  // namespace
}  // namespace flashmob::transport::testing
