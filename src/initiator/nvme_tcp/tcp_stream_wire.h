// TcpStream against a controller played by hand, byte by byte, over a socket pair: for the tests of the stream.
//
// One thread: turn() is the stream's turn, put() and get() are the controller's.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fabrics/pdu.h"
#include "fabrics/pdu_reader.h"
#include "initiator/nvme_tcp/tcp_stream.h"
#include "nvme/fabrics.h"
#include "nvme/opcode.h"
#include "nvme/tcp.h"

namespace flashmob::initiator::testing_wire {

namespace tcp = nvme::tcp;
using nvme::Status, fabrics::PduReader;

inline constexpr std::uint64_t kIova = 0x100000;
inline constexpr std::size_t kMemory = 1 << 20;

inline TcpStreamLimits small_limits() {
  return {.qid = 1, .entries = 9, .digests = {}, .max_h2c_bytes = 8192, .cpda = 0, .in_capsule_bytes = 1024};
}

// A stream, the memory of its host, and the controller's end of its connection.
struct Wire : TcpStream::Owner {
  explicit Wire(const TcpStreamLimits& stream_limits = small_limits())
      : limits(stream_limits), memory(kMemory), reader(space), incoming(fabrics::End::controller, 64 << 10) {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    const int size = 4 << 20;
    for (const int fd : fds) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    peer = fds[1];
    fcntl(peer, F_SETFL, O_NONBLOCK);
    stream = std::make_unique<TcpStream>(fabrics::Stream(fds[0]), limits, *this);
    space.map(kIova, kMemory, memory.data());
    incoming.set_digests(limits.digests);
    for (std::size_t i = 0; i < kMemory; ++i) memory.data()[i] = static_cast<std::byte>(i * 7 + i / 4096);
  }
  ~Wire() {
    if (peer >= 0) ::close(peer);
  }

  void completed(const nvme::Cqe& entry) override { completions.push_back(entry); }

  Status start(nvme::NvmOpcode opcode, std::uint16_t cid, std::uint64_t bytes, std::uint64_t offset = 0) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.cid = cid;
    sqe.nsid = 1;
    sqe.mptr = 99;
    sqe.flags = nvme::kFlagPsdtSglBufferMetadata;
    sqe.sgl1 = {
        .address = kIova + offset, .length_bytes = static_cast<std::uint32_t>(bytes), .reserved = {}, .identifier = 0};
    const DataWay way = opcode == nvme::NvmOpcode::read ? DataWay::from_device
                        : bytes                         ? DataWay::to_device
                                                        : DataWay::none;
    reader.enter();
    const Status status = stream->start(reader, sqe, {way, bytes});
    reader.leave();
    return status;
  }
  void turn() {
    reader.enter();
    stream->receive(reader);
    stream->send(reader);
    reader.leave();
  }

  // --- the controller's end ---
  void put(std::span<const std::byte> bytes) {
    ASSERT_EQ(::send(peer, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  template <class Pdu>
  std::vector<std::byte> encode(Pdu pdu, std::span<const std::byte> data = {}, std::uint32_t damage = 0) {
    std::vector<std::byte> bytes(fabrics::kMaxWireHeaderBytes);
    bytes.resize(fabrics::write_header(bytes.data(), pdu, data.size(), limits.digests));
    bytes.insert(bytes.end(), data.begin(), data.end());
    if (limits.digests.data && !data.empty()) {
      const std::uint32_t digest = fabrics::crc32c(0, data.data(), data.size()) ^ damage;
      const auto* at = reinterpret_cast<const std::byte*>(&digest);
      bytes.insert(bytes.end(), at, at + 4);
    }
    return bytes;
  }
  std::vector<std::byte> response(std::uint16_t cid, std::uint16_t status_field = 0) {
    auto pdu = fabrics::make_pdu<tcp::CapsuleResp>(tcp::PduType::capsule_resp);
    pdu.cqe.cid = cid;
    pdu.cqe.dw0 = 0x1234;
    pdu.cqe.status_phase = static_cast<std::uint16_t>(status_field << 1);
    return encode(pdu);
  }
  std::vector<std::byte> r2t(std::uint16_t cid, std::uint16_t ttag, std::uint32_t offset, std::uint32_t bytes) {
    auto pdu = fabrics::make_pdu<tcp::R2t>(tcp::PduType::r2t);
    pdu.cccid = cid;
    pdu.ttag = ttag;
    pdu.r2to = offset;
    pdu.r2tl = bytes;
    return encode(pdu);
  }
  std::vector<std::byte> data(std::uint16_t cid, std::uint32_t offset, std::size_t bytes, std::uint8_t flags,
                              std::uint32_t damage = 0) {
    auto pdu = fabrics::make_pdu<tcp::Data>(tcp::PduType::c2h_data);
    pdu.ch.flags = flags;
    pdu.cccid = cid;
    pdu.datao = offset;
    pdu.datal = static_cast<std::uint32_t>(bytes);
    std::vector<std::byte> payload(bytes);
    for (std::size_t i = 0; i < bytes; ++i) payload[i] = pattern(offset + i);
    return encode(pdu, payload, damage);
  }
  static std::byte pattern(std::size_t at) { return static_cast<std::byte>(at * 13 + at / 512 + 5); }
  bool has_pattern(std::uint64_t offset, std::size_t bytes) const {
    for (std::size_t i = 0; i < bytes; ++i) {
      if (memory.data()[offset + i] != pattern(i)) return false;
    }
    return true;
  }
  // The next PDU from the host, with its data in `received`; false if there is none.
  bool get() {
    for (;;) {
      const PduReader::Event event = incoming.next();
      if (event == PduReader::Event::fault) return false;
      if (event == PduReader::Event::complete) return true;
      if (event == PduReader::Event::header) {
        received.assign(incoming.data_bytes(), std::byte{0});
        if (!received.empty()) incoming.sink(received.data());
        continue;
      }
      std::array<iovec, 2> scratch;
      const auto room = incoming.space(scratch);
      const ssize_t got = readv(peer, room.data(), static_cast<int>(room.size()));
      if (got <= 0) return false;
      incoming.received(static_cast<std::size_t>(got));
    }
  }
  // What the host's termination request says; 0 if there is none.
  std::uint16_t fatal_error() {
    while (get()) {
      if (incoming.type() == tcp::PduType::h2c_term_req) return incoming.pdu<tcp::TermReq>().fes;
    }
    return 0;
  }
  std::uint16_t status(std::size_t i = 0) const {
    return i < completions.size() ? static_cast<std::uint16_t>(completions[i].status_phase >> 1) : 0xFFFF;
  }

  TcpStreamLimits limits;
  memory::AddressSpace space;
  memory::HostMemory memory;
  memory::AddressSpace::Reader reader;
  PduReader incoming;
  std::unique_ptr<TcpStream> stream;
  int peer = -1;
  std::vector<nvme::Cqe> completions;
  std::vector<std::byte> received;
};

using Op = nvme::NvmOpcode;
inline constexpr std::uint8_t kLast = tcp::kFlagLastPdu;
inline constexpr std::uint8_t kSuccess = tcp::kFlagSuccess;

}  // namespace flashmob::initiator::testing_wire
