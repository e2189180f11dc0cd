#include "initiator/nvme_tcp/tcp_stream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "nvme/fabrics.h"
#include "nvme/tcp.h"

namespace flashmob::initiator {

using nvme::Status;
namespace tcp = nvme::tcp;

namespace {

// Data that is copied before it is sent, per PDU: bounded, so that the staging memory holds several.
constexpr std::uint32_t kMaxStagedData = 64 << 10;
constexpr std::size_t kCids = 65536;
constexpr std::uint16_t kFirstOwnCid = 0xFFFE;  // FFFFh means "no command" in the error log
// The status of commands whose connection failed: a host may try again, on this controller or another way.
constexpr std::uint16_t kTransportErrorField = nvme::to_field(Status::transient_transport_error);

nvme::Cqe entry_of(std::uint16_t cid, std::uint16_t status_field) {
  nvme::Cqe entry{};
  entry.cid = cid;
  entry.status_phase = static_cast<std::uint16_t>(status_field << 1);
  return entry;
}

}  // namespace

TcpStream::TcpStream(fabrics::Stream bytes, const TcpStreamLimits& limits, Owner& owner)
    : bytes_(std::move(bytes)),
      limits_(limits),
      owner_(owner),
      slots_(limits.entries - 1),
      slot_of_cid_(kCids * sizeof(std::uint16_t)),
      grants_(slots_.size() * kMaxR2tsPerCommand),
      reader_(fabrics::End::host, std::size_t{256} << 10) {
  FLASHMOB_CHECK(limits.entries >= 2 && limits.max_h2c_bytes >= tcp::kMinMaxH2cData);
  limits_.in_capsule_bytes = std::min(limits_.in_capsule_bytes, kMaxStagedData);
  room_for_command_ = fabrics::kMaxWireHeaderBytes + limits_.in_capsule_bytes + tcp::kDigestBytes;
  for (std::size_t i = slots_.size(); i-- > 0;) free_.push_back(static_cast<std::uint16_t>(i));
  sink_.resize(kMaxSegments);
  reader_.set_digests(limits.digests);
}

TcpStream::~TcpStream() { ::close(fd()); }

TcpSlot* TcpStream::slot_of(std::uint16_t cid) {
  const std::uint16_t index = reinterpret_cast<const std::uint16_t*>(slot_of_cid_.data())[cid];
  return index == 0 ? nullptr : &slots_[index - 1u];
}

bool TcpStream::reserved(std::uint16_t cid) const {
  const std::uint16_t index = reinterpret_cast<const std::uint16_t*>(slot_of_cid_.data())[cid];
  return index != 0 && slots_[index - 1u].done != nullptr;
}

Status TcpStream::start(memory::AddressSpace::Reader& reader, const nvme::Sqe& sqe, CommandData data) {
  FLASHMOB_CHECK(can_start());
  if (lost()) return Status::transient_transport_error;
  if (slot_of(sqe.cid) != nullptr) return Status::command_id_conflict;
  TcpSlot& slot = slots_[free_.back()];
  slot.start(sqe, data);
  if (data.bytes != 0) {
    const Status status = slot.resolve(reader);
    if (status != Status::success) {
      slot.active = false;
      return status;
    }
  }
  launch(reader, slot);
  return Status::success;
}

bool TcpStream::start_own(memory::AddressSpace::Reader& reader, nvme::Sqe sqe, CommandData data, std::byte* local,
                          std::function<void(const nvme::Cqe&)> done) {
  if (lost() || !can_start()) return false;
  for (sqe.cid = kFirstOwnCid; slot_of(sqe.cid) != nullptr;) --sqe.cid;
  TcpSlot& slot = slots_[free_.back()];
  slot.start(sqe, data);
  slot.local = local;
  slot.done = std::move(done);
  if (data.bytes != 0) slot.resolve(reader);
  launch(reader, slot);
  return true;
}

// Puts the slot's command on its way.
void TcpStream::launch(memory::AddressSpace::Reader& reader, TcpSlot& slot) {
  free_.pop_back();
  ++in_flight_;
  reinterpret_cast<std::uint16_t*>(slot_of_cid_.data())[slot.sqe.cid] = static_cast<std::uint16_t>(index_of(slot) + 1);

  auto pdu = fabrics::make_pdu<tcp::CapsuleCmd>(tcp::PduType::capsule_cmd);
  pdu.sqe = slot.sqe;
  pdu.sqe.flags = static_cast<std::uint8_t>((slot.sqe.flags & ~nvme::kFlagPsdtMask) | nvme::kFlagPsdtSglBufferMetadata);
  pdu.sqe.mptr = 0;
  const bool in_capsule = slot.data.way == DataWay::to_device && slot.data.bytes <= limits_.in_capsule_bytes;
  pdu.sqe.sgl1 = {.address = 0,
                  .length_bytes = static_cast<std::uint32_t>(slot.data.bytes),
                  .reserved = {},
                  .identifier = in_capsule ? nvme::kSglInCapsule : nvme::kSglTransportData};
  const std::size_t data_bytes = in_capsule ? slot.data.bytes : 0;
  std::byte header[fabrics::kMaxWireHeaderBytes];
  const std::size_t bytes = fabrics::write_header(header, pdu, data_bytes, limits_.digests, limits_.cpda);
  std::memcpy(transmit_.stage(bytes), header, bytes);
  if (!in_capsule) return;
  slot.requested = slot.moved = data_bytes;
  // Just resolved, under the same guard.
  FLASHMOB_CHECK(stage_data(reader, slot, 0, data_bytes));
}

// Queues data of a PDU whose header has been staged, with its digest. False if the host has unmapped it.
bool TcpStream::stage_data(memory::AddressSpace::Reader& reader, TcpSlot& slot, std::uint64_t offset,
                           std::uint64_t bytes) {
  if (!limits_.digests.data && bytes >= TcpTransmit::kReferenceBytes) {
    transmit_.reference(index_of(slot), slot, offset, bytes);
    return true;
  }
  const std::size_t count = slot.pieces(reader, offset, bytes, sink_.data(), sink_.size());
  if (count == 0) return false;
  // Copied first, then digested: what the host changes meanwhile cannot make the digest wrong.
  std::byte* const staged = transmit_.stage(bytes);
  std::byte* at = staged;
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(at, sink_[i].iov_base, sink_[i].iov_len);
    at += sink_[i].iov_len;
  }
  FLASHMOB_CHECK(at == staged + bytes);
  if (limits_.digests.data) {
    const std::uint32_t digest = fabrics::crc32c(0, staged, bytes);
    std::memcpy(transmit_.stage(sizeof digest), &digest, sizeof digest);
  }
  return true;
}

void TcpStream::release(TcpSlot& slot) {
  reinterpret_cast<std::uint16_t*>(slot_of_cid_.data())[slot.sqe.cid] = 0;
  slot.active = false;
  free_.push_back(index_of(slot));
  --in_flight_;
}

void TcpStream::finish(TcpSlot& slot, nvme::Cqe entry) {
  const auto field = static_cast<std::uint16_t>(entry.status_phase >> 1);
  const bool success = nvme::status_of(field) == Status::success;
  // A success that moved only part of the data is none. Admin commands may answer with less than was asked for.
  const bool short_of_data =
      success && slot.moved != slot.data.bytes && (slot.data.way == DataWay::to_device || limits_.qid != 0);
  if (slot.digest_failed) {
    entry = entry_of(entry.cid, kTransportErrorField);
  } else if (slot.memory_lost || short_of_data) {
    entry = entry_of(entry.cid, nvme::to_field(Status::data_transfer_error));
  }
  const auto done = std::exchange(slot.done, nullptr);
  release(slot);
  if (done) {
    done(entry);
  } else {
    owner_.completed(entry);
  }
}

bool TcpStream::send(memory::AddressSpace::Reader& reader) {
  if (lost()) return false;
  const std::uint64_t before = transmit_.bytes_sent();
  for (;;) {
    serve_grants(reader);
    if (lost() || (transmit_.empty() && bytes_.unsent_bytes() == 0)) break;
    const TcpTransmit::Result result = transmit_.flush(bytes_, reader, slots_);
    blocked_ = result == TcpTransmit::Result::blocked;
    if (result == TcpTransmit::Result::broken) lose(std::string("sending failed: ") + std::strerror(errno));
    if (result == TcpTransmit::Result::memory_lost) lose("the host unmapped data of a command that was being sent");
    if (result != TcpTransmit::Result::sent || grants_count_ == 0) break;
  }
  return transmit_.bytes_sent() != before;
}

// Sends what the controller has asked for, in its order, as far as there is room.
void TcpStream::serve_grants(memory::AddressSpace::Reader& reader) {
  const std::uint32_t most =
      limits_.digests.data ? std::min(limits_.max_h2c_bytes, kMaxStagedData) : limits_.max_h2c_bytes;
  while (grants_count_ > 0) {
    Grant& grant = grants_[grants_head_];
    const std::uint32_t bytes = std::min(grant.bytes, most);
    const bool staged = limits_.digests.data || bytes < TcpTransmit::kReferenceBytes;
    if (!transmit_.has_room(fabrics::kMaxWireHeaderBytes + (staged ? bytes + tcp::kDigestBytes : 0))) return;
    TcpSlot& slot = slots_[grant.slot];
    auto pdu = fabrics::make_pdu<tcp::Data>(tcp::PduType::h2c_data);
    pdu.ch.flags = bytes == grant.bytes ? tcp::kFlagLastPdu : 0;
    pdu.cccid = slot.sqe.cid;
    pdu.ttag = grant.ttag;
    pdu.datao = grant.offset;
    pdu.datal = bytes;
    std::byte header[fabrics::kMaxWireHeaderBytes];
    const std::size_t header_bytes = fabrics::write_header(header, pdu, bytes, limits_.digests, limits_.cpda);
    std::memcpy(transmit_.stage(header_bytes), header, header_bytes);
    if (!stage_data(reader, slot, grant.offset, bytes)) {
      lose("the host unmapped data of a command that the controller had asked for");
      return;
    }
    slot.moved += bytes;
    grant.offset += bytes;
    grant.bytes -= bytes;
    if (grant.bytes != 0) continue;
    --slot.open_r2ts;
    grants_head_ = grants_head_ + 1 == grants_.size() ? 0 : grants_head_ + 1;
    --grants_count_;
  }
}

void TcpStream::lose(const std::string& reason) {
  if (lost()) return;
  reason_ = reason;
  ::shutdown(fd(), SHUT_RDWR);
  end_commands(Status::transient_transport_error);
}

void TcpStream::end_commands(Status status) {
  blocked_ = false;
  receiving_ = nullptr;
  grants_count_ = 0;
  for (TcpSlot& slot : slots_) {
    if (!slot.active) continue;
    const nvme::Cqe entry = entry_of(slot.sqe.cid, nvme::to_field(status));
    const auto done = std::exchange(slot.done, nullptr);
    release(slot);
    if (done) {
      done(entry);
    } else {
      owner_.completed(entry);
    }
  }
}

}  // namespace flashmob::initiator
