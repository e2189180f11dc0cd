// A small NVMe/TCP target for the initiator's own tests: one namespace in memory, and every fault a test asks for.
//
// One thread accepts, one serves each connection, blocking. Knobs are set before a connection is made or are atomic.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fabrics/pdu.h"
#include "fabrics/pdu_reader.h"
#include "nvme/admin_command.h"
#include "nvme/fabrics.h"
#include "nvme/features.h"
#include "nvme/identify.h"
#include "nvme/identify_controller.h"
#include "nvme/identify_namespace.h"
#include "nvme/io_command.h"
#include "nvme/opcode.h"
#include "nvme/registers.h"
#include "nvme/tcp.h"

namespace flashmob::initiator {

class FakeTcpTarget {
 public:
  static constexpr std::uint32_t kBlockBytes = 512;
  static constexpr std::size_t kMediaBytes = 4 << 20;

  // What it offers and how it misbehaves.
  std::atomic<bool> header_digest{false};
  std::atomic<bool> data_digest{false};
  std::atomic<std::uint32_t> in_capsule_bytes{4096};
  std::atomic<std::uint32_t> r2t_bytes{65536};
  std::atomic<std::uint32_t> c2h_bytes{65536};  // data per C2HData PDU
  std::atomic<bool> success_flag{true};
  std::atomic<bool> disconnect_supported{true};
  std::atomic<std::uint16_t> connect_status{0};
  std::atomic<std::uint8_t> doorbell_stride{0};  // CAP.DSTRD, which means nothing over a network
  std::atomic<bool> silent{false};      // receives, and never answers
  std::atomic<std::int64_t> bytes_until_drop{-1};  // of all connections; then they break off, in the middle of a PDU
  std::atomic<bool> refuse{false};      // closes connections at once
  // What happened.
  std::atomic<unsigned> connections{0};
  std::atomic<unsigned> keep_alives{0};
  std::atomic<unsigned> commands{0};
  std::atomic<unsigned> term_requests{0};

  FakeTcpTarget() : media_(kMediaBytes) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    FLASHMOB_CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    FLASHMOB_CHECK(::listen(listener_, 64) == 0);
    socklen_t size = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_loop(); });
  }
  ~FakeTcpTarget() {
    stop_ = true;
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    ::close(listener_);
  }

  std::uint16_t port() const { return port_; }
  // Breaks every connection there is now.
  void drop_all() { ++drop_epoch_; }
  std::vector<std::byte>& media() { return media_; }

 private:
  struct Connection {
    int fd;
    unsigned epoch;
    fabrics::PduReader reader{fabrics::End::controller, 256 << 10};
    fabrics::Digests digests{};
    std::vector<std::byte> data{};     // of the PDU that comes in
    bool io = false;
    bool open = true;
    std::vector<std::pair<nvme::Sqe, std::vector<std::byte>>> writes{};  // waiting for H2CData; TTAG is the index + 1
  };

  void accept_loop() {
    while (!stop_) {
      pollfd poll_fd{listener_, POLLIN, 0};
      if (::poll(&poll_fd, 1, 5) <= 0) continue;
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      if (refuse) {
        ::close(fd);
        continue;
      }
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ++connections;
      threads_.emplace_back([this, fd] { serve(fd); });
    }
  }

  void serve(int fd) {
    Connection c{.fd = fd, .epoch = drop_epoch_.load()};
    while (c.open && !stop_ && c.epoch == drop_epoch_) {
      switch (c.reader.next()) {
        case fabrics::PduReader::Event::fault:
          c.open = false;
          break;
        case fabrics::PduReader::Event::header:
          c.data.assign(c.reader.data_bytes(), std::byte{0});
          if (!c.data.empty()) c.reader.sink(c.data.data());
          break;
        case fabrics::PduReader::Event::complete:
          handle(c);
          break;
        case fabrics::PduReader::Event::need_bytes: {
          pollfd poll_fd{fd, POLLIN, 0};
          if (::poll(&poll_fd, 1, 5) <= 0) break;
          std::array<iovec, 2> scratch;
          const auto space = c.reader.space(scratch);
          const ssize_t got = readv(fd, space.data(), static_cast<int>(space.size()));
          c.open = got > 0;
          if (c.open) c.reader.received(static_cast<std::size_t>(got));
          break;
        }
      }
    }
    ::close(fd);
  }

  void send(Connection& c, std::span<const std::byte> bytes) {
    if (silent) return;
    std::size_t length = bytes.size();
    if (bytes_until_drop >= 0) {
      const std::int64_t left = bytes_until_drop.fetch_sub(static_cast<std::int64_t>(length));
      if (left < static_cast<std::int64_t>(length)) {
        length = static_cast<std::size_t>(std::max<std::int64_t>(left, 0));
        bytes_until_drop = 0;
        c.open = false;
      }
    }
    for (std::size_t sent = 0; sent < length && !stop_;) {
      const ssize_t now = ::send(c.fd, bytes.data() + sent, length - sent, MSG_NOSIGNAL);
      if (now <= 0) {
        c.open = false;
        return;
      }
      sent += static_cast<std::size_t>(now);
    }
  }
  template <class Pdu>
  void send_pdu(Connection& c, const Pdu& pdu, std::span<const std::byte> data = {}) {
    std::vector<std::byte> bytes(fabrics::kMaxWireHeaderBytes);
    bytes.resize(fabrics::write_header(bytes.data(), pdu, data.size(), c.digests));
    bytes.insert(bytes.end(), data.begin(), data.end());
    if (c.digests.data && !data.empty()) {
      const std::uint32_t digest = fabrics::crc32c(0, data.data(), data.size());
      const auto* at = reinterpret_cast<const std::byte*>(&digest);
      bytes.insert(bytes.end(), at, at + sizeof digest);
    }
    send(c, bytes);
  }
  void respond(Connection& c, const nvme::Sqe& sqe, std::uint16_t status_field = 0, std::uint64_t result = 0) {
    auto pdu = fabrics::make_pdu<nvme::tcp::CapsuleResp>(nvme::tcp::PduType::capsule_resp);
    pdu.cqe.cid = sqe.cid;
    pdu.cqe.dw0 = static_cast<std::uint32_t>(result);
    pdu.cqe.dw1 = static_cast<std::uint32_t>(result >> 32);
    pdu.cqe.status_phase = static_cast<std::uint16_t>(status_field << 1);
    send_pdu(c, pdu);
  }
  void send_data(Connection& c, const nvme::Sqe& sqe, std::span<const std::byte> data) {
    const std::size_t most = c2h_bytes;
    for (std::size_t at = 0; at < data.size() && c.open;) {
      const auto piece = data.subspan(at, std::min(most, data.size() - at));
      auto pdu = fabrics::make_pdu<nvme::tcp::Data>(nvme::tcp::PduType::c2h_data);
      const bool last = at + piece.size() == data.size();
      pdu.ch.flags = static_cast<std::uint8_t>((last ? nvme::tcp::kFlagLastPdu : 0) |
                                               (last && success_flag ? nvme::tcp::kFlagSuccess : 0));
      pdu.cccid = sqe.cid;
      pdu.datao = static_cast<std::uint32_t>(at);
      pdu.datal = static_cast<std::uint32_t>(piece.size());
      send_pdu(c, pdu, piece);
      at += piece.size();
    }
    if (!success_flag) respond(c, sqe);
  }
  template <class T>
  void send_object(Connection& c, const nvme::Sqe& sqe, const T& object) {
    send_data(c, sqe, std::as_bytes(std::span(&object, 1)));
  }

  void handle(Connection& c) {
    using nvme::tcp::PduType;
    if (c.reader.type() == PduType::ic_req) {
      const auto request = c.reader.pdu<nvme::tcp::IcReq>();
      auto pdu = fabrics::make_pdu<nvme::tcp::IcResp>(PduType::ic_resp);
      pdu.dgst = static_cast<std::uint8_t>(request.dgst & ((header_digest ? 1 : 0) | (data_digest ? 2 : 0)));
      pdu.maxh2cdata = 16384;
      send_pdu(c, pdu);
      c.digests = {(pdu.dgst & 1) != 0, (pdu.dgst & 2) != 0};
      c.reader.set_digests(c.digests);
    } else if (c.reader.type() == PduType::capsule_cmd) {
      ++commands;
      const nvme::Sqe sqe = c.reader.pdu<nvme::tcp::CapsuleCmd>().sqe;
      if (sqe.opcode == nvme::kOpcodeFabrics) return fabrics_command(c, sqe);
      c.io ? io(c, sqe) : admin(c, sqe);
    } else if (c.reader.type() == PduType::h2c_data) {
      take_data(c);
    } else {
      ++term_requests;
      c.open = false;
    }
  }

  void fabrics_command(Connection& c, const nvme::Sqe& sqe) {
    const std::lock_guard lock(mutex_);
    switch (nvme::fabrics_type(sqe)) {
      case nvme::FabricsType::connect:
        c.io = nvme::decode_connect(sqe).qid != 0;
        if (!c.io) cc_ = 0;
        return respond(c, sqe, connect_status, 17);
      case nvme::FabricsType::property_get: {
        const nvme::Property property = nvme::decode_property(sqe);
        std::uint64_t value = 0;
        if (property.offset == nvme::kRegCap)
          value = nvme::encode_cap(
              {.mqes = 127, .cqr = true, .to = 4, .dstrd = doorbell_stride.load(), .css = nvme::kCapCssNvm});
        if (property.offset == nvme::kRegVs) value = 0x20000;
        if (property.offset == nvme::kRegCc) value = cc_;
        if (property.offset == nvme::kRegCsts) {
          const nvme::Cc cc = nvme::decode_cc(cc_);
          value = nvme::encode_csts({.rdy = cc.en, .shst = cc.shn != 0 ? nvme::kCstsShstComplete : std::uint8_t{0}});
        }
        return respond(c, sqe, 0, value);
      }
      case nvme::FabricsType::property_set:
        if (nvme::decode_property(sqe).offset == nvme::kRegCc)
          cc_ = static_cast<std::uint32_t>(nvme::decode_property(sqe).value);
        return respond(c, sqe);
      case nvme::FabricsType::disconnect:
        respond(c, sqe);
        c.open = false;
        return;
      default:
        return respond(c, sqe, nvme::to_field(nvme::Status::invalid_opcode));
    }
  }

  void admin(Connection& c, const nvme::Sqe& sqe) {
    switch (static_cast<nvme::AdminOpcode>(sqe.opcode)) {
      case nvme::AdminOpcode::identify:
        if (nvme::decode_identify(sqe).cns == 1) {
          nvme::IdentifyController data{};
          data.ioccsz = (64 + in_capsule_bytes) / 16;
          data.ofcs = disconnect_supported ? 1 : 0;
          return send_object(c, sqe, data);
        } else {
          nvme::IdentifyNamespace data{};
          if (sqe.nsid == 1) data.nsze = kMediaBytes / kBlockBytes;
          if (sqe.nsid == 1) data.lbaf[0].lbads = 9;
          return send_object(c, sqe, data);
        }
      case nvme::AdminOpcode::set_features:
        return respond(c, sqe, 0, sqe.cdw11);
      case nvme::AdminOpcode::keep_alive:
        ++keep_alives;
        return respond(c, sqe);
      case nvme::AdminOpcode::async_event_request:
        return;
      default:
        return respond(c, sqe, nvme::to_field(nvme::Status::invalid_opcode));
    }
  }

  void io(Connection& c, const nvme::Sqe& sqe) {
    const auto opcode = static_cast<nvme::NvmOpcode>(sqe.opcode);
    const std::uint64_t at = nvme::starting_lba(sqe) * kBlockBytes;
    const std::size_t bytes = std::size_t{nvme::block_count(sqe)} * kBlockBytes;
    if (opcode == nvme::NvmOpcode::flush) return respond(c, sqe);
    if (opcode != nvme::NvmOpcode::read && opcode != nvme::NvmOpcode::write)
      return respond(c, sqe, nvme::to_field(nvme::Status::invalid_opcode));
    if (sqe.sgl1.length_bytes != bytes) return respond(c, sqe, nvme::to_field(nvme::Status::data_sgl_length_invalid));
    if (at + bytes > kMediaBytes) return respond(c, sqe, nvme::to_field(nvme::Status::lba_out_of_range));
    if (opcode == nvme::NvmOpcode::read) {
      std::vector<std::byte> data(bytes);
      {
        const std::lock_guard lock(mutex_);
        std::memcpy(data.data(), media_.data() + at, bytes);
      }
      return send_data(c, sqe, data);
    }
    if (!c.data.empty()) return store(c, sqe, c.data);
    c.writes.emplace_back(sqe, std::vector<std::byte>());
    ask(c, c.writes.size() - 1);
  }
  void ask(Connection& c, std::size_t index) {
    const auto& [sqe, have] = c.writes[index];
    auto pdu = fabrics::make_pdu<nvme::tcp::R2t>(nvme::tcp::PduType::r2t);
    pdu.cccid = sqe.cid;
    pdu.ttag = static_cast<std::uint16_t>(index + 1);
    pdu.r2to = static_cast<std::uint32_t>(have.size());
    pdu.r2tl = std::min<std::uint32_t>(r2t_bytes, sqe.sgl1.length_bytes - pdu.r2to);
    send_pdu(c, pdu);
  }
  void take_data(Connection& c) {
    const auto pdu = c.reader.pdu<nvme::tcp::Data>();
    auto& [sqe, have] = c.writes.at(pdu.ttag - 1u);
    FLASHMOB_CHECK(pdu.datao == have.size() && pdu.cccid == sqe.cid && c.reader.data_digest_good());
    have.insert(have.end(), c.data.begin(), c.data.end());
    if (have.size() == sqe.sgl1.length_bytes) return store(c, sqe, have);
    if ((pdu.ch.flags & nvme::tcp::kFlagLastPdu) != 0) ask(c, pdu.ttag - 1u);
  }
  void store(Connection& c, const nvme::Sqe& sqe, std::span<const std::byte> data) {
    {
      const std::lock_guard lock(mutex_);
      std::memcpy(media_.data() + nvme::starting_lba(sqe) * kBlockBytes, data.data(), data.size());
    }
    respond(c, sqe);
  }

  std::mutex mutex_;  // guards cc_ and media_
  std::uint32_t cc_ = 0;
  std::vector<std::byte> media_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<unsigned> drop_epoch_{0};
  std::list<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace flashmob::initiator
