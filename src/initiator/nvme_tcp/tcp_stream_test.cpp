#include "initiator/nvme_tcp/tcp_stream.h"

#include "initiator/nvme_tcp/tcp_stream_wire.h"

namespace flashmob::initiator {
namespace {

using namespace testing_wire;

TEST(TcpStream, ACommandWithoutDataIsOneCapsule) {
  Wire wire;
  ASSERT_EQ(wire.start(Op::flush, 7, 0), Status::success);
  EXPECT_EQ(wire.stream->in_flight(), 1u);
  wire.turn();
  ASSERT_TRUE(wire.get());
  const auto pdu = wire.incoming.pdu<tcp::CapsuleCmd>();
  EXPECT_EQ(pdu.sqe.cid, 7);
  EXPECT_EQ(pdu.sqe.mptr, 0u);
  EXPECT_EQ(pdu.sqe.flags, nvme::kFlagPsdtSglBufferMetadata);
  EXPECT_EQ(pdu.sqe.sgl1.identifier, nvme::kSglTransportData);
  EXPECT_EQ(pdu.sqe.sgl1.length_bytes, 0u);
  wire.put(wire.response(7, nvme::to_field(Status::lba_out_of_range)));
  wire.turn();
  ASSERT_EQ(wire.completions.size(), 1u);
  EXPECT_EQ(wire.completions[0].dw0, 0x1234u);
  EXPECT_EQ(wire.status(), nvme::to_field(Status::lba_out_of_range));
  EXPECT_EQ(wire.stream->in_flight(), 0u);
}

TEST(TcpStream, SmallWritesTravelInTheCapsule) {
  for (const bool digests : {false, true}) {
    TcpStreamLimits limits = small_limits();
    limits.digests = {digests, digests};
    Wire wire(limits);
    ASSERT_EQ(wire.start(Op::write, 1, 1024, 512), Status::success);
    wire.turn();
    ASSERT_TRUE(wire.get());
    EXPECT_TRUE(wire.incoming.data_digest_good());
    EXPECT_EQ(wire.incoming.pdu<tcp::CapsuleCmd>().sqe.sgl1.identifier, nvme::kSglInCapsule);
    ASSERT_EQ(wire.received.size(), 1024u);
    EXPECT_EQ(std::memcmp(wire.received.data(), wire.memory.data() + 512, 1024), 0);
    wire.put(wire.response(1));
    wire.turn();
    EXPECT_EQ(wire.status(), 0);
  }
}

TEST(TcpStream, LargeWritesWaitForR2tsAndAreCutToTheControllersLimit) {
  for (const bool digests : {false, true}) {
    TcpStreamLimits limits = small_limits();
    limits.digests = {digests, digests};
    Wire wire(limits);
    const std::size_t bytes = 100'000 & ~std::size_t{3};
    ASSERT_EQ(wire.start(Op::write, 3, bytes, 64), Status::success);
    wire.turn();
    ASSERT_TRUE(wire.get());
    EXPECT_EQ(wire.incoming.data_bytes(), 0u);
    // Several at once, as many as were allowed.
    const std::uint32_t part = static_cast<std::uint32_t>(bytes / 4);
    for (std::uint32_t i = 0; i < 4; ++i) wire.put(wire.r2t(3, static_cast<std::uint16_t>(10 + i), i * part, part));
    std::vector<std::byte> whole(bytes);
    std::size_t have = 0;
    while (have < bytes) {
      wire.turn();
      ASSERT_TRUE(wire.get()) << have;
      const auto pdu = wire.incoming.pdu<tcp::Data>();
      ASSERT_EQ(pdu.ch.type, tcp::PduType::h2c_data);
      ASSERT_TRUE(wire.incoming.data_digest_good());
      ASSERT_LE(pdu.datal, 8192u);
      ASSERT_EQ(pdu.datao, have);
      ASSERT_EQ(pdu.ttag, 10 + have / part);
      ASSERT_EQ((pdu.ch.flags & kLast) != 0, (have + pdu.datal) % part == 0);
      std::memcpy(whole.data() + pdu.datao, wire.received.data(), pdu.datal);
      have += pdu.datal;
    }
    EXPECT_EQ(std::memcmp(whole.data(), wire.memory.data() + 64, bytes), 0);
    wire.put(wire.response(3));
    wire.turn();
    EXPECT_EQ(wire.status(), 0);
  }
}

TEST(TcpStream, ReadsArriveInPiecesOfAnyLength) {
  for (const bool digests : {false, true}) {
    TcpStreamLimits limits = small_limits();
    limits.digests = {digests, digests};
    Wire wire(limits);
    ASSERT_EQ(wire.start(Op::read, 5, 2000), Status::success);
    std::vector<std::byte> bytes = wire.data(5, 0, 1200, 0);
    const auto second = wire.data(5, 1200, 800, kLast);
    const auto last = wire.response(5);
    bytes.insert(bytes.end(), second.begin(), second.end());
    bytes.insert(bytes.end(), last.begin(), last.end());
    for (const std::byte& byte : bytes) {
      EXPECT_TRUE(wire.completions.empty());
      wire.put({&byte, 1});
      wire.turn();
    }
    ASSERT_EQ(wire.completions.size(), 1u);
    EXPECT_EQ(wire.status(), 0);
    EXPECT_TRUE(wire.has_pattern(0, 2000));
  }
}

// Every place where the stream may be cut in two.
TEST(TcpStream, EverySplitGivesTheSame) {
  TcpStreamLimits limits = small_limits();
  limits.digests = {true, true};
  Wire probe(limits);
  std::vector<std::byte> bytes = probe.data(1, 0, 64, kLast);
  const auto tail = probe.response(1);
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    Wire wire(limits);
    ASSERT_EQ(wire.start(Op::read, 1, 64), Status::success);
    wire.put(std::span(bytes).first(cut));
    wire.turn();
    wire.put(std::span(bytes).subspan(cut));
    wire.turn();
    ASSERT_EQ(wire.completions.size(), 1u) << cut;
    ASSERT_TRUE(wire.has_pattern(0, 64)) << cut;
  }
}

TEST(TcpStream, TheSuccessFlagStandsForTheResponse) {
  Wire wire;
  ASSERT_EQ(wire.start(Op::read, 5, 4096, 8192), Status::success);
  wire.put(wire.data(5, 0, 4096, kLast | kSuccess));
  wire.turn();
  ASSERT_EQ(wire.completions.size(), 1u);
  EXPECT_EQ(wire.completions[0].cid, 5);
  EXPECT_EQ(wire.status(), 0);
  EXPECT_TRUE(wire.has_pattern(8192, 4096));
}

TEST(TcpStream, ASuccessThatMovedTooLittleIsATransferError) {
  Wire wire;
  ASSERT_EQ(wire.start(Op::read, 1, 4096), Status::success);
  ASSERT_EQ(wire.start(Op::write, 2, 4096), Status::success);
  wire.put(wire.data(1, 0, 2048, kLast));
  wire.put(wire.response(1));
  wire.put(wire.response(2));
  wire.turn();
  EXPECT_EQ(wire.status(0), nvme::to_field(Status::data_transfer_error));
  EXPECT_EQ(wire.status(1), nvme::to_field(Status::data_transfer_error));
  EXPECT_FALSE(wire.stream->lost());
}

TEST(TcpStream, DamagedDataFailsTheCommandOnly) {
  TcpStreamLimits limits = small_limits();
  limits.digests = {true, true};
  Wire wire(limits);
  ASSERT_EQ(wire.start(Op::read, 1, 512), Status::success);
  ASSERT_EQ(wire.start(Op::read, 2, 512, 4096), Status::success);
  wire.put(wire.data(1, 0, 512, kLast, 1));
  wire.put(wire.response(1));
  wire.put(wire.data(2, 0, 512, kLast | kSuccess));
  wire.turn();
  EXPECT_EQ(wire.status(0), nvme::to_field(Status::transient_transport_error));
  EXPECT_EQ(wire.status(1), 0);
  EXPECT_FALSE(wire.stream->lost());
}

TEST(TcpStream, AnIdentifierInUseIsRefused) {
  Wire wire;
  ASSERT_EQ(wire.start(Op::flush, 1, 0), Status::success);
  EXPECT_EQ(wire.start(Op::flush, 1, 0), Status::command_id_conflict);
  wire.put(wire.response(1));
  wire.turn();
  EXPECT_EQ(wire.start(Op::flush, 1, 0), Status::success);
}

TEST(TcpStream, MemoryThatIsNotThereIsATransferError) {
  Wire wire;
  EXPECT_EQ(wire.start(Op::read, 1, 4096, kMemory), Status::data_transfer_error);
  EXPECT_EQ(wire.start(Op::write, 1, 8192, kMemory - 4096), Status::data_transfer_error);
  EXPECT_EQ(wire.stream->in_flight(), 0u);
}

TEST(TcpStream, OnlySoManyCommandsAtOnce) {
  Wire wire;
  for (std::uint16_t cid = 0; cid < 8; ++cid) {
    ASSERT_TRUE(wire.stream->can_start());
    ASSERT_EQ(wire.start(Op::flush, cid, 0), Status::success);
  }
  EXPECT_FALSE(wire.stream->can_start());
  wire.put(wire.response(4));
  wire.turn();
  EXPECT_TRUE(wire.stream->can_start());
}

TEST(TcpStream, OwnCommandsAreToldToTheirCaller) {
  Wire wire;
  std::vector<std::byte> local(4096);
  int told = 0;
  nvme::Sqe sqe{};
  sqe.opcode = 0x06;
  wire.reader.enter();
  ASSERT_TRUE(wire.stream->start_own(wire.reader, sqe, {DataWay::from_device, 4096}, local.data(),
                                     [&](const nvme::Cqe& entry) { told += entry.status_phase == 0 ? 1 : 100; }));
  wire.reader.leave();
  wire.turn();
  ASSERT_TRUE(wire.get());
  const std::uint16_t cid = wire.incoming.pdu<tcp::CapsuleCmd>().sqe.cid;
  EXPECT_TRUE(wire.stream->reserved(cid));
  wire.put(wire.data(cid, 0, 4096, kLast | kSuccess));
  wire.turn();
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(wire.completions.empty());
  EXPECT_EQ(local[100], Wire::pattern(100));
  EXPECT_FALSE(wire.stream->reserved(cid));
}

// The host takes memory away in the middle of a transfer: it is never touched again.
TEST(TcpStream, ReadDataForUnmappedMemoryIsDropped) {
  Wire wire;
  ASSERT_EQ(wire.start(Op::read, 1, 8192), Status::success);
  const auto bytes = wire.data(1, 0, 8192, kLast);
  wire.put(std::span(bytes).first(3000));
  wire.turn();
  const std::vector<std::byte> before(wire.memory.data(), wire.memory.data() + kMemory);
  wire.space.unmap(kIova, kMemory);
  wire.put(std::span(bytes).subspan(3000));
  wire.put(wire.response(1));
  wire.turn();
  EXPECT_EQ(std::memcmp(before.data(), wire.memory.data(), kMemory), 0);
  EXPECT_EQ(wire.status(), nvme::to_field(Status::data_transfer_error));
}

TEST(TcpStream, MappingsThatChangeElsewhereDoNotMatter) {
  Wire wire;
  ASSERT_EQ(wire.start(Op::read, 1, 8192), Status::success);
  const auto bytes = wire.data(1, 0, 8192, kLast | kSuccess);
  std::vector<std::byte> other(4096);
  for (std::size_t at = 0; at < bytes.size(); at += 1000) {
    wire.put(std::span(bytes).subspan(at, std::min<std::size_t>(1000, bytes.size() - at)));
    wire.turn();
    wire.space.map(0x10000000 + at * 4096, 4096, other.data());
  }
  EXPECT_EQ(wire.status(), 0);
  EXPECT_TRUE(wire.has_pattern(0, 8192));
}

TEST(TcpStream, WriteDataForUnmappedMemoryEndsTheConnection) {
  Wire wire;
  ASSERT_EQ(wire.start(Op::write, 1, 16384), Status::success);
  wire.turn();
  wire.space.unmap(kIova, kMemory);
  wire.put(wire.r2t(1, 0, 0, 16384));
  wire.turn();
  EXPECT_TRUE(wire.stream->lost()) << "a write of anything but the host's data would be worse";
  EXPECT_EQ(wire.status(), nvme::to_field(Status::transient_transport_error));
}

TEST(TcpStream, AClosedConnectionFailsEveryCommand) {
  Wire wire;
  for (std::uint16_t cid = 0; cid < 4; ++cid) ASSERT_EQ(wire.start(Op::read, cid, 512), Status::success);
  wire.turn();
  ::close(std::exchange(wire.peer, -1));
  wire.turn();
  EXPECT_TRUE(wire.stream->lost());
  ASSERT_EQ(wire.completions.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(wire.status(i), nvme::to_field(Status::transient_transport_error));
  EXPECT_EQ(wire.start(Op::flush, 9, 0), Status::transient_transport_error);
}

TEST(TcpStream, ATerminationRequestEndsIt) {
  Wire wire;
  ASSERT_EQ(wire.start(Op::flush, 1, 0), Status::success);
  auto pdu = fabrics::make_pdu<tcp::TermReq>(tcp::PduType::c2h_term_req);
  pdu.fes = 2;
  std::vector<std::byte> offender(8);
  wire.put(wire.encode(pdu, offender));
  wire.turn();
  EXPECT_TRUE(wire.stream->lost());
  EXPECT_NE(wire.stream->reason().find("fatal error status 2"), std::string::npos) << wire.stream->reason();
  EXPECT_EQ(wire.status(), nvme::to_field(Status::transient_transport_error));
}

// A controller that does not read: commands pile up in the socket, nothing blocks, and all of it arrives in the end.
TEST(TcpStream, AFullSocketOnlyDelays) {
  Wire wire;
  std::vector<std::byte> whole(kMemory);
  ASSERT_EQ(wire.start(Op::write, 1, kMemory), Status::success);
  const int small = 8192;
  setsockopt(wire.stream->fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  wire.put(wire.r2t(1, 0, 0, kMemory));
  wire.turn();
  wire.turn();
  EXPECT_TRUE(wire.stream->send_blocked());
  std::size_t have = 0;
  for (int rounds = 0; have < kMemory && rounds < 100'000; ++rounds) {
    wire.turn();
    while (wire.get()) {
      if (wire.incoming.type() != tcp::PduType::h2c_data) continue;
      const auto pdu = wire.incoming.pdu<tcp::Data>();
      ASSERT_EQ(pdu.datao, have);
      std::memcpy(whole.data() + have, wire.received.data(), wire.received.size());
      have += wire.received.size();
    }
  }
  ASSERT_EQ(have, kMemory);
  EXPECT_EQ(std::memcmp(whole.data(), wire.memory.data(), kMemory), 0);
  EXPECT_FALSE(wire.stream->send_blocked());
}

}  // namespace
}  // namespace flashmob::initiator
