// The receiving half of TcpStream: what the controller sends is checked against the commands in flight.
#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "initiator/nvme_tcp/tcp_stream.h"
#include "nvme/tcp.h"

namespace flashmob::initiator {

namespace tcp = nvme::tcp;

namespace {

// Calls of the kernel per turn, so that one busy queue does not keep the others of its thread waiting.
constexpr unsigned kReceivesPerTurn = 4;
constexpr std::size_t kVectorsPerCall = 64;

constexpr std::uint32_t kAtFlags = offsetof(tcp::CommonHeader, flags);
constexpr std::uint32_t kAtCccid = offsetof(tcp::Data, cccid);

fabrics::PduFault header_fault(std::uint32_t offset) { return {tcp::FatalError::invalid_header_field, offset}; }

}  // namespace

bool TcpStream::receive(memory::AddressSpace::Reader& reader) {
  bool moved = false;
  for (unsigned turn = 0; turn < kReceivesPerTurn && !lost(); ++turn) {
    follow_mappings(reader);
    std::array<iovec, kVectorsPerCall> scratch;
    const std::span<iovec> space = reader_.space(scratch);
    std::size_t room = 0;
    for (const iovec& piece : space) room += piece.iov_len;
    const ssize_t got = bytes_.receive(space);
    if (got == 0) {
      lose("the controller closed the connection");
    } else if (got < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) lose(std::string("receiving failed: ") + std::strerror(errno));
      break;
    } else {
      moved = true;
      reader_.received(static_cast<std::size_t>(got));
      process(reader);
      if (static_cast<std::size_t>(got) < room) break;
    }
  }
  return moved;
}

// Points what is still to come of a PDU's data to where the host's memory lies now.
void TcpStream::follow_mappings(memory::AddressSpace::Reader& reader) {
  if (receiving_ == nullptr || receiving_->local != nullptr || sink_generation_ == reader.generation()) return;
  const std::size_t left = reader_.data_left();
  if (left == 0) return;
  const auto pdu = reader_.pdu<tcp::Data>();
  set_sink(reader, std::uint64_t{pdu.datao} + pdu.datal - left, left, false);
}

void TcpStream::set_sink(memory::AddressSpace::Reader& reader, std::uint64_t offset, std::uint64_t bytes, bool first) {
  const std::size_t count = receiving_->pieces(reader, offset, bytes, sink_.data(), sink_.size());
  sink_generation_ = reader.generation();
  // No pieces: the host has unmapped the memory, so the data is dropped and the command will say so.
  if (!first) {
    reader_.replace_sink(std::span(sink_).first(count));
  } else if (count != 0) {
    reader_.sink(std::span(sink_).first(count));
  }
}

void TcpStream::process(memory::AddressSpace::Reader& reader) {
  while (!lost()) {
    switch (reader_.next()) {
      case fabrics::PduReader::Event::need_bytes:
        return;
      case fabrics::PduReader::Event::header:
        if (reader_.type() == tcp::PduType::c2h_data) begin_data(reader);
        break;
      case fabrics::PduReader::Event::complete:
        end_pdu();
        break;
      case fabrics::PduReader::Event::fault:
        fault(reader_.fault(), "the controller sent a malformed PDU");
        break;
    }
  }
}

// A C2HData PDU's header: its data must be the next of a command that reads.
void TcpStream::begin_data(memory::AddressSpace::Reader& reader) {
  const auto pdu = reader_.pdu<tcp::Data>();
  TcpSlot* slot = slot_of(pdu.cccid);
  if (slot == nullptr || slot->data.way != DataWay::from_device)
    return fault(header_fault(kAtCccid), "the controller sent data for a command that is not reading");
  if (pdu.datal == 0) return fault(header_fault(offsetof(tcp::Data, datal)), "the controller sent data of no length");
  if (std::uint64_t{pdu.datao} + pdu.datal > slot->data.bytes)
    return fault({tcp::FatalError::data_out_of_range}, "the controller sent data beyond a command's buffer");
  if (pdu.datao != slot->moved)
    return fault({tcp::FatalError::sequence_error}, "the controller sent data out of order");
  if ((pdu.ch.flags & tcp::kFlagSuccess) != 0 && (pdu.ch.flags & tcp::kFlagLastPdu) == 0)
    return fault(header_fault(kAtFlags), "the controller sent the success flag before the last data");
  receiving_ = slot;
  set_sink(reader, pdu.datao, pdu.datal, true);
}

void TcpStream::end_pdu() {
  switch (reader_.type()) {
    case tcp::PduType::c2h_data:
      return end_data();
    case tcp::PduType::capsule_resp:
      return take_response();
    case tcp::PduType::r2t:
      return take_r2t();
    case tcp::PduType::c2h_term_req:
      return lose("the controller ended the connection (fatal error status " +
                  std::to_string(reader_.pdu<tcp::TermReq>().fes) + ")");
    default:
      return fault({tcp::FatalError::sequence_error}, "the controller sent a PDU of the connection's start");
  }
}

void TcpStream::end_data() {
  TcpSlot& slot = *receiving_;
  receiving_ = nullptr;
  const auto pdu = reader_.pdu<tcp::Data>();
  slot.moved += pdu.datal;
  // Damaged data is the command's misfortune, not the connection's (3.3.1.1).
  if (!reader_.data_digest_good()) slot.digest_failed = true;
  if ((pdu.ch.flags & tcp::kFlagSuccess) == 0) return;
  nvme::Cqe entry{};
  entry.cid = pdu.cccid;
  finish(slot, entry);
}

void TcpStream::take_r2t() {
  const auto pdu = reader_.pdu<tcp::R2t>();
  TcpSlot* slot = slot_of(pdu.cccid);
  if (slot == nullptr || slot->data.way != DataWay::to_device)
    return fault(header_fault(kAtCccid), "the controller asked for data of a command that is not writing");
  if (pdu.r2tl == 0 || std::uint64_t{pdu.r2to} + pdu.r2tl > slot->data.bytes)
    return fault({tcp::FatalError::data_out_of_range}, "the controller asked for data beyond a command's buffer");
  if (pdu.r2to != slot->requested)
    return fault({tcp::FatalError::sequence_error}, "the controller asked for data out of order");
  if (slot->open_r2ts == kMaxR2tsPerCommand)
    return fault({tcp::kR2tLimitExceeded}, "the controller asked for data too often at once");
  slot->requested += pdu.r2tl;
  ++slot->open_r2ts;
  const std::size_t at = (grants_head_ + grants_count_) % grants_.size();
  grants_[at] = {index_of(*slot), pdu.ttag, pdu.r2to, pdu.r2tl};
  ++grants_count_;
}

void TcpStream::take_response() {
  const auto pdu = reader_.pdu<tcp::CapsuleResp>();
  TcpSlot* slot = slot_of(pdu.cqe.cid);
  if (slot == nullptr)
    return fault(header_fault(sizeof(tcp::CommonHeader) + offsetof(nvme::Cqe, cid)),
                 "the controller answered a command that it was not given");
  if (slot->open_r2ts != 0 || slot->unsent_pieces != 0)
    return fault({tcp::FatalError::sequence_error}, "the controller answered a command whose data is on its way");
  finish(*slot, pdu.cqe);
}

void TcpStream::fault(fabrics::PduFault fault, const char* what) {
  send_termination(fault);
  lose(what);
}

// Tells the controller why the connection ends (3.6.2.3), if that can be done between two PDUs and at once.
void TcpStream::send_termination(fabrics::PduFault fault) {
  if (!transmit_.empty()) return;
  auto pdu = fabrics::make_pdu<tcp::TermReq>(tcp::PduType::h2c_term_req);
  pdu.fes = static_cast<std::uint16_t>(fault.fes);
  pdu.fei[0] = static_cast<std::uint16_t>(fault.fei);
  pdu.fei[1] = static_cast<std::uint16_t>(fault.fei >> 16);
  // A header of an unknown type is known as far as its common part.
  const std::size_t known = std::min<std::size_t>(
      std::max<std::size_t>(reader_.common().hlen, sizeof(tcp::CommonHeader)), tcp::kMaxTermReqDataBytes);
  std::array<std::byte, fabrics::kMaxWireHeaderBytes + tcp::kMaxTermReqDataBytes> bytes{};
  std::size_t length = fabrics::write_header(bytes.data(), pdu, known, {});
  std::memcpy(bytes.data() + length, reader_.header_bytes().data(), known);
  length += known;
  iovec piece{bytes.data(), length};
  bytes_.send({&piece, 1});
}

}  // namespace flashmob::initiator
