// Every PDU that a host may send, and everything that can be wrong with it: the target names the mistake in a
// C2HTermReq, closes, and serves the others on. Also connections that end in the middle of anything.
#include <algorithm>

#include "gtest/gtest.h"
#include "transport/nvme_tcp/target_test_support.h"

namespace flashmob::transport::testing {
namespace {

using nvme::Status;
using nvme::tcp::FatalError;
using nvme::tcp::PduType;

constexpr auto kHeader = static_cast<std::uint16_t>(FatalError::invalid_header_field);
constexpr auto kSequence = static_cast<std::uint16_t>(FatalError::sequence_error);
constexpr auto kDigest = static_cast<std::uint16_t>(FatalError::header_digest_error);
constexpr auto kRange = static_cast<std::uint16_t>(FatalError::data_out_of_range);
constexpr auto kLimit = static_cast<std::uint16_t>(FatalError::data_limit_exceeded);
constexpr auto kParameter = static_cast<std::uint16_t>(FatalError::unsupported_parameter);

using Wire = std::vector<std::byte>;

void set(Wire& wire, std::size_t at, std::uint32_t value, std::size_t bytes) {
  std::memcpy(wire.data() + at, &value, bytes);
}

// Sends `wire` on a connection prepared by `prepare` and expects to be told (fes, fei), with the header sent back.
template <class Prepare>
void expect_terminated(const char* what, const Wire& wire, std::uint16_t fes, std::uint32_t fei, Prepare&& prepare) {
  Rig rig;
  Host bystander(rig);
  ASSERT_TRUE(bystander.initialize());
  ASSERT_NE(bystander.attach(), 0);
  Host host(rig);
  prepare(rig, host);
  host.send(wire);
  const auto told = host.terminated();
  ASSERT_TRUE(told) << what;
  EXPECT_EQ(told->fes, fes) << what;
  EXPECT_EQ(told->fei, fei) << what;
  ASSERT_GE(told->culprit.size(), 8u) << what;
  EXPECT_TRUE(std::equal(told->culprit.begin(), told->culprit.end(), wire.begin())) << what;
  EXPECT_TRUE(host.closed()) << what;
  host.hang_up();
  rig.pump();
  EXPECT_EQ(bystander.command(Host::identify(1)).status(), Status::success) << what;
  EXPECT_EQ(rig.controllers(), 1u) << what;
}

void nothing(Rig&, Host&) {}
void initialized(Rig&, Host& host) { ASSERT_TRUE(host.initialize()); }
void digested(Rig&, Host& host) { ASSERT_TRUE(host.initialize({true, true})); }
void attached(Rig&, Host& host) {
  ASSERT_TRUE(host.initialize());
  ASSERT_NE(host.attach(), 0);
}

template <class Pdu>
Wire wire_of(const Pdu& pdu, std::size_t data_bytes = 0, fabrics::Digests digests = {}) {
  Wire out(fabrics::kMaxWireHeaderBytes);
  out.resize(fabrics::write_header(out.data(), pdu, data_bytes, digests));
  out.resize(out.size() + data_bytes + (digests.data && data_bytes != 0 ? 4 : 0));
  return out;
}

Wire capsule(std::size_t data_bytes = 0, fabrics::Digests digests = {}) {
  auto pdu = fabrics::make_pdu<nvme::tcp::CapsuleCmd>(PduType::capsule_cmd);
  pdu.sqe = Host::identify(1);
  pdu.sqe.cid = 500;
  return wire_of(pdu, data_bytes, digests);
}

TEST(NvmeTcpPdu, IcReq) {
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

TEST(NvmeTcpPdu, NothingComesBeforeIcReq) {
  expect_terminated("a command", capsule(), kSequence, 0, nothing);
  auto data = fabrics::make_pdu<nvme::tcp::Data>(PduType::h2c_data);
  data.datal = 4;
  expect_terminated("data", wire_of(data, 4), kSequence, 0, nothing);
}

TEST(NvmeTcpPdu, TypesThatHostsDoNotSend) {
  for (const unsigned type : {0x01u, 0x03u, 0x05u, 0x07u, 0x08u, 0x09u, 0x0Au, 0xFFu}) {
    Wire bad(24);
    set(bad, 0, type, 1);
    set(bad, 2, 24, 1);
    set(bad, 4, 24, 4);
    expect_terminated("type", bad, kHeader, 0, initialized);
  }
}

TEST(NvmeTcpPdu, CapsuleCmd) {
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

TEST(NvmeTcpPdu, CapsulesBeyondTheQueue) {
  // Event requests stay, four of them at most; writes whose data never comes fill the rest.
  Rig rig;
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  Host io(rig);
  ASSERT_TRUE(io.initialize());
  ASSERT_EQ(io.attach_io(cntlid, 1, 4).status(), Status::success);
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
  EXPECT_EQ(admin.command(Host::identify(1)).status(), Status::success);
}

// An I/O queue with a write of 16 KiB for which the target asks.
struct Asked {
  explicit Asked(fabrics::Digests digests = {}) : admin(rig), io(rig) {
    EXPECT_TRUE(admin.initialize());
    const std::uint16_t cntlid = admin.attach();
    EXPECT_TRUE(io.initialize(digests));
    EXPECT_EQ(io.attach_io(cntlid).status(), Status::success);
    nvme::Sqe write = Host::io(nvme::NvmOpcode::write, 0, 1024);
    Host::transport_sgl(write, 512 * 1024);
    io.submit(write);
    const auto pdu = io.receive();
    EXPECT_TRUE(pdu && pdu->type == PduType::r2t);
    r2t = pdu->as<nvme::tcp::R2t>();
  }
  void expect(const char* what, const nvme::tcp::Data& head, std::size_t bytes, std::uint16_t fes, std::uint32_t fei) {
    io.send(io.wire(head, pattern(bytes, 1)));
    const auto told = io.terminated();
    ASSERT_TRUE(told) << what;
    EXPECT_EQ(told->fes, fes) << what;
    EXPECT_EQ(told->fei, fei) << what;
    EXPECT_TRUE(io.closed()) << what;
    EXPECT_EQ(admin.command(Host::identify(1)).status(), Status::success) << what;
  }
  Rig rig;
  Host admin;
  Host io;
  nvme::tcp::R2t r2t{};
};

TEST(NvmeTcpPdu, H2cData) {
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

TEST(NvmeTcpPdu, H2cTermReqEndsTheConnectionWithoutAnAnswer) {
  Rig rig;
  Host host(rig);
  ASSERT_TRUE(host.initialize());
  ASSERT_NE(host.attach(), 0);
  auto pdu = fabrics::make_pdu<nvme::tcp::TermReq>(PduType::h2c_term_req);
  pdu.fes = 1;
  host.send_pdu(pdu, pattern(72, 1));
  EXPECT_FALSE(host.receive());
  EXPECT_TRUE(host.closed());
  EXPECT_EQ(rig.controllers(), 0u);
}

TEST(NvmeTcpPdu, H2cTermReqOfIllegalLength) {
  Wire bad(160);
  set(bad, 0, 2, 1);
  set(bad, 2, 24, 1);
  set(bad, 4, 153, 4);
  expect_terminated("too long", bad, kHeader, 4, initialized);
  set(bad, 4, 23, 4);
  expect_terminated("too short", bad, kHeader, 4, initialized);
}

// A whole life of a host as one string of bytes per connection, cut at every byte.
TEST(NvmeTcpPdu, AConnectionMayEndAnywhere) {
  Rig rig;
  Host control(rig);
  ASSERT_TRUE(control.initialize());
  const std::uint16_t cntlid = control.attach();
  const fabrics::Digests digests{true, true};
  Wire life = wire_of(Host::ic_req(digests));
  Host scribe(rig);  // writes with digests
  ASSERT_TRUE(scribe.initialize(digests));
  const auto append = [&](const Wire& wire) { life.insert(life.end(), wire.begin(), wire.end()); };
  auto connect = fabrics::make_pdu<nvme::tcp::CapsuleCmd>(PduType::capsule_cmd);
  connect.sqe = Host::connect_sqe(2, 16);
  Host::capsule_sgl(connect.sqe, 1024);
  const auto data = Host::connect_data(rig.subsystem().config().nqn, cntlid);
  append(scribe.wire(connect, std::as_bytes(std::span(&data, 1))));
  const std::size_t connected = life.size();
  auto write = fabrics::make_pdu<nvme::tcp::CapsuleCmd>(PduType::capsule_cmd);
  write.sqe = Host::io(nvme::NvmOpcode::write, 0, 1);
  write.sqe.cid = 1;
  Host::capsule_sgl(write.sqe, 512);
  append(scribe.wire(write, pattern(512, 1)));
  write.sqe.cid = 2;
  Host::transport_sgl(write.sqe, 512);
  append(scribe.wire(write));
  nvme::tcp::R2t r2t{};
  r2t.cccid = 2;
  r2t.ttag = 1;
  append(scribe.wire(Host::h2c(r2t, 0, 512, true), pattern(512, 2)));
  for (std::size_t cut = 0; cut <= life.size(); cut += cut < connected - 8 ? 37 : 3) {
    Host host(rig);
    host.send(std::span(life).first(std::min(cut, connected)));
    rig.pump();
    if (cut > connected) host.send(std::span(life).subspan(connected, cut - connected));
    if (cut % 2 == 0) rig.pump();
    host.hang_up();
    rig.pump();
    EXPECT_EQ(control.command(Host::identify(1)).status(), Status::success) << cut;
  }
  EXPECT_EQ(rig.controllers(), 1u);
}

TEST(NvmeTcpPdu, ByteByByte) {
  Rig rig;
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  Host io(rig);
  ASSERT_TRUE(io.initialize({true, true}));
  ASSERT_EQ(io.attach_io(cntlid).status(), Status::success);
  auto write = fabrics::make_pdu<nvme::tcp::CapsuleCmd>(PduType::capsule_cmd);
  write.sqe = Host::io(nvme::NvmOpcode::write, 3, 1);
  write.sqe.cid = 9;
  Host::capsule_sgl(write.sqe, 512);
  for (const std::byte byte : io.wire(write, pattern(512, 6))) {
    io.send(std::span(&byte, 1));
    rig.pump();
  }
  EXPECT_EQ(io.finish(9, {}).status(), Status::success);
  EXPECT_EQ(io.read(3, 512).data, pattern(512, 6));
}

TEST(NvmeTcpPdu, WhoNeverReadsStallsOnlyItself) {
  Rig rig;
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  Host deaf(rig);
  ASSERT_TRUE(deaf.initialize());
  ASSERT_EQ(deaf.attach_io(cntlid, 1, 16).status(), Status::success);
  for (int i = 0; i < 16; ++i) {
    nvme::Sqe read = Host::io(nvme::NvmOpcode::read, 0, 1024);
    Host::transport_sgl(read, 512 * 1024);
    deaf.submit(read);
  }
  Host other(rig);
  ASSERT_TRUE(other.initialize());
  ASSERT_EQ(other.attach_io(cntlid, 2, 16).status(), Status::success);
  EXPECT_EQ(other.read(0, 8192).status(), Status::success);
  deaf.hang_up();
  rig.pump();
  EXPECT_EQ(other.read(0, 1 << 20).status(), Status::success) << "the buffers are back";
}

}  // namespace
}  // namespace flashmob::transport::testing
