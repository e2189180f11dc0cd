// Connections as streams of bytes: they end anywhere, come byte by byte, or are not read by the host.
#include "transport/nvme_tcp/pdu_test_support.h"

namespace flashmob::transport::testing {
namespace {

// A whole life of a host as one string of bytes per connection, cut at every byte.
TEST(NvmeTcpStream, AConnectionMayEndAnywhere) {
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

TEST(NvmeTcpStream, ByteByByte) {
  Attached host({true, true});
  auto write = fabrics::make_pdu<nvme::tcp::CapsuleCmd>(PduType::capsule_cmd);
  write.sqe = Host::io(nvme::NvmOpcode::write, 3, 1);
  write.sqe.cid = 9;
  Host::capsule_sgl(write.sqe, 512);
  for (const std::byte byte : host.io.wire(write, pattern(512, 6))) {
    host.io.send(std::span(&byte, 1));
    host.rig.pump();
  }
  EXPECT_EQ(host.io.finish(9, {}).status(), Status::success);
  EXPECT_EQ(host.io.read(3, 512).data, pattern(512, 6));
}

TEST(NvmeTcpStream, WhoNeverReadsStallsOnlyItself) {
  Attached host;
  Host deaf(host.rig);
  ASSERT_TRUE(deaf.initialize());
  ASSERT_EQ(deaf.attach_io(host.cntlid, 2, 16).status(), Status::success);
  for (int i = 0; i < 16; ++i) {
    nvme::Sqe read = Host::io(nvme::NvmOpcode::read, 0, 1024);
    Host::transport_sgl(read, 512 * 1024);
    deaf.submit(read);
  }
  EXPECT_EQ(host.io.read(0, 8192).status(), Status::success);
  deaf.hang_up();
  host.rig.pump();
  EXPECT_EQ(host.io.read(0, 1 << 20).status(), Status::success) << "the buffers are back";
}

}  // namespace
}  // namespace flashmob::transport::testing
