// What the tests of single PDUs share: a PDU as bytes to be damaged, and the termination that must follow.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "transport/nvme_tcp/target_test_support.h"

namespace flashmob::transport::testing {

using nvme::Status;
using nvme::tcp::FatalError;
using nvme::tcp::PduType;

inline constexpr auto kHeader = static_cast<std::uint16_t>(FatalError::invalid_header_field);
inline constexpr auto kSequence = static_cast<std::uint16_t>(FatalError::sequence_error);
inline constexpr auto kDigest = static_cast<std::uint16_t>(FatalError::header_digest_error);
inline constexpr auto kRange = static_cast<std::uint16_t>(FatalError::data_out_of_range);
inline constexpr auto kLimit = static_cast<std::uint16_t>(FatalError::data_limit_exceeded);
inline constexpr auto kParameter = static_cast<std::uint16_t>(FatalError::unsupported_parameter);

using Wire = std::vector<std::byte>;

inline void set(Wire& wire, std::size_t at, std::uint32_t value, std::size_t bytes) {
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

inline void nothing(Rig&, Host&) {}
inline void initialized(Rig&, Host& host) { ASSERT_TRUE(host.initialize()); }
inline void digested(Rig&, Host& host) { ASSERT_TRUE(host.initialize({true, true})); }
inline void attached(Rig&, Host& host) {
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

inline Wire capsule(std::size_t data_bytes = 0, fabrics::Digests digests = {}) {
  auto pdu = fabrics::make_pdu<nvme::tcp::CapsuleCmd>(PduType::capsule_cmd);
  pdu.sqe = Host::identify(1);
  pdu.sqe.cid = 500;
  return wire_of(pdu, data_bytes, digests);
}

// A host with an admin and an I/O queue.
struct Attached {
  explicit Attached(fabrics::Digests digests = {}, std::uint8_t hpda = 0, std::uint8_t cattr = 0,
                    NvmeTcpTargetOptions options = {})
      : rig(options), admin(rig), io(rig) {
    EXPECT_TRUE(admin.initialize(digests, hpda));
    cntlid = admin.attach(0, cattr);
    EXPECT_NE(cntlid, 0);
    EXPECT_TRUE(io.initialize(digests, hpda));
    EXPECT_EQ(io.attach_io(cntlid, 1, 16, cattr).status(), Status::success);
  }
  Rig rig;
  Host admin;
  Host io;
  std::uint16_t cntlid = 0;
};

// An I/O queue with a write of 512 KiB for which the target asks.
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

}  // namespace flashmob::transport::testing
