#include "fabrics/pdu_reader.h"

#include <algorithm>

#include "base/check.h"
#include "fabrics/crc32c.h"

namespace flashmob::fabrics {
namespace {

using nvme::tcp::CommonHeader;
using nvme::tcp::FatalError;
using nvme::tcp::PduType;

constexpr std::uint32_t kAtType = offsetof(CommonHeader, type);
constexpr std::uint32_t kAtFlags = offsetof(CommonHeader, flags);
constexpr std::uint32_t kAtHlen = offsetof(CommonHeader, hlen);
constexpr std::uint32_t kAtPdo = offsetof(CommonHeader, pdo);
constexpr std::uint32_t kAtPlen = offsetof(CommonHeader, plen);

// Header length of a type that this end may receive; 0: it may not.
std::uint8_t hlen_of(PduType type, End reader) {
  const bool controller = reader == End::controller;
  switch (type) {
    case PduType::ic_req:
      return controller ? sizeof(nvme::tcp::IcReq) : 0;
    case PduType::h2c_term_req:
      return controller ? sizeof(nvme::tcp::TermReq) : 0;
    case PduType::capsule_cmd:
      return controller ? sizeof(nvme::tcp::CapsuleCmd) : 0;
    case PduType::h2c_data:
      return controller ? sizeof(nvme::tcp::Data) : 0;
    case PduType::ic_resp:
      return controller ? 0 : sizeof(nvme::tcp::IcResp);
    case PduType::c2h_term_req:
      return controller ? 0 : sizeof(nvme::tcp::TermReq);
    case PduType::capsule_resp:
      return controller ? 0 : sizeof(nvme::tcp::CapsuleResp);
    case PduType::c2h_data:
      return controller ? 0 : sizeof(nvme::tcp::Data);
    case PduType::r2t:
      return controller ? 0 : sizeof(nvme::tcp::R2t);
  }
  return 0;
}

bool may_have_data(PduType type) {
  return type == PduType::capsule_cmd || type == PduType::h2c_data || type == PduType::c2h_data;
}

bool is_term_req(PduType type) { return type == PduType::h2c_term_req || type == PduType::c2h_term_req; }

bool is_data(PduType type) { return type == PduType::h2c_data || type == PduType::c2h_data; }

}  // namespace

PduReader::PduReader(End reader, std::size_t buffer_bytes)
    : reader_(reader), buffer_bytes_(buffer_bytes), buffer_(new std::byte[buffer_bytes]) {
  FLASHMOB_CHECK(buffer_bytes >= 2 * kMaxWireHeaderBytes);
}

std::span<iovec> PduReader::space(std::span<iovec> scratch) {
  FLASHMOB_CHECK(scratch.size() >= 2);
  std::size_t count = 0;
  if (stage_ == Stage::data && !sink_.empty() && buffered() == 0) {
    for (std::size_t i = sink_piece_; i < sink_.size() && count + 1 < scratch.size(); ++i) {
      const std::size_t skip = i == sink_piece_ ? sink_offset_ : 0;
      scratch[count++] = {static_cast<std::byte*>(sink_[i].iov_base) + skip, sink_[i].iov_len - skip};
    }
    // Our buffer may follow only where the whole sink went before it.
    if (sink_piece_ + count < sink_.size()) return scratch.first(count);
  }
  // What is left here is less than a header, unless the owner has stopped to call next().
  if (begin_ != 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, buffered());
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ != buffer_bytes_) scratch[count++] = {buffer_.get() + end_, buffer_bytes_ - end_};
  return scratch.first(count);
}

void PduReader::received(std::size_t bytes) {
  if (stage_ == Stage::data && !sink_.empty() && buffered() == 0) {
    while (bytes != 0 && sink_piece_ < sink_.size()) {
      iovec& piece = sink_[sink_piece_];
      const std::size_t here = std::min(bytes, piece.iov_len - sink_offset_);
      if (data_digest_) crc_ = crc32c(crc_, static_cast<std::byte*>(piece.iov_base) + sink_offset_, here);
      sink_offset_ += here;
      bytes -= here;
      data_left_ -= here;
      if (sink_offset_ == piece.iov_len) {
        ++sink_piece_;
        sink_offset_ = 0;
      }
    }
  }
  FLASHMOB_CHECK(bytes <= buffer_bytes_ - end_);
  end_ += bytes;
}

std::size_t PduReader::feed(std::span<const std::byte> bytes) {
  std::array<iovec, 8> scratch;
  std::size_t taken = 0;
  for (const iovec& piece : space(scratch)) {
    const std::size_t here = std::min(bytes.size() - taken, piece.iov_len);
    std::memcpy(piece.iov_base, bytes.data() + taken, here);
    taken += here;
  }
  received(taken);
  return taken;
}

PduReader::Event PduReader::fail(FatalError fes, std::uint32_t fei) {
  stage_ = Stage::failed;
  fault_ = {fes, fei};
  return Event::fault;
}

PduReader::Event PduReader::next() {
  for (;;) {
    switch (stage_) {
      case Stage::failed:
        return Event::fault;
      case Stage::done:
        stage_ = Stage::common;
        break;
      case Stage::common:
        if (buffered() < sizeof(CommonHeader)) return Event::need_bytes;
        std::memcpy(header_.data(), buffer_.get() + begin_, sizeof(CommonHeader));
        known_ = sizeof(CommonHeader);
        if (!check_common()) return Event::fault;
        stage_ = Stage::header;
        break;
      case Stage::header: {
        const std::size_t hlen = common().hlen;
        const bool digest = (common().flags & nvme::tcp::kFlagHeaderDigest) != 0;
        if (buffered() < hlen + (digest ? nvme::tcp::kDigestBytes : 0)) return Event::need_bytes;
        std::memcpy(header_.data(), buffer_.get() + begin_, hlen);
        known_ = hlen;
        begin_ += hlen;
        if (digest && !check_header_digest()) return Event::fault;
        if (is_data(type()) && pdu<nvme::tcp::Data>().datal != data_bytes_)
          return fail(FatalError::invalid_header_field, offsetof(nvme::tcp::Data, datal));
        stage_ = Stage::padding;
        sink_.clear();
        sink_piece_ = 0;
        sink_offset_ = 0;
        data_left_ = data_bytes_;
        crc_ = 0;
        data_digest_good_ = true;
        return Event::header;
      }
      case Stage::padding: {
        const std::size_t here = std::min(padding_bytes_, buffered());
        begin_ += here;
        padding_bytes_ -= here;
        if (padding_bytes_ != 0) return Event::need_bytes;
        stage_ = Stage::data;
        break;
      }
      case Stage::data:
        take_data();
        if (data_left_ != 0) return Event::need_bytes;
        stage_ = Stage::digest;
        break;
      case Stage::digest:
        if (data_digest_) {
          std::uint32_t digest;
          if (buffered() < sizeof(digest)) return Event::need_bytes;
          std::memcpy(&digest, buffer_.get() + begin_, sizeof(digest));
          begin_ += sizeof(digest);
          data_digest_good_ = digest == crc_;
        }
        stage_ = Stage::done;
        return Event::complete;
    }
  }
}

bool PduReader::check_common() {
  const CommonHeader& ch = common();
  const std::uint8_t hlen = hlen_of(ch.type, reader_);
  if (hlen == 0) {
    fail(FatalError::invalid_header_field, kAtType);
    return false;
  }
  if (ch.hlen != hlen) {
    fail(FatalError::invalid_header_field, kAtHlen);
    return false;
  }
  const bool header_digest = (ch.flags & nvme::tcp::kFlagHeaderDigest) != 0;
  const bool data_digest = (ch.flags & nvme::tcp::kFlagDataDigest) != 0;
  const bool digested = has_digests(ch.type);
  if (header_digest != (digested && digests_.header) || (data_digest && !(digested && digests_.data))) {
    fail(FatalError::invalid_header_field, kAtFlags);
    return false;
  }
  return check_offsets(hlen + (header_digest ? nvme::tcp::kDigestBytes : 0));
}

// Where the data lies, from PDO and PLEN.
bool PduReader::check_offsets(std::size_t header_end) {
  const CommonHeader& ch = common();
  data_digest_ = false;
  data_bytes_ = 0;
  padding_bytes_ = 0;
  if (ch.plen < header_end) {
    fail(FatalError::invalid_header_field, kAtPlen);
    return false;
  }
  if (is_term_req(ch.type)) {
    data_bytes_ = ch.plen - header_end;
    if (ch.plen <= nvme::tcp::kMaxTermReqBytes) return true;
    fail(FatalError::invalid_header_field, kAtPlen);
    return false;
  }
  // PDO means nothing where there is no data.
  if (ch.plen == header_end) {
    if ((ch.flags & nvme::tcp::kFlagDataDigest) == 0) return true;
    fail(FatalError::invalid_header_field, kAtFlags);
    return false;
  }
  if (!may_have_data(ch.type)) {
    fail(FatalError::invalid_header_field, kAtPlen);
    return false;
  }
  if (ch.pdo < header_end || ch.pdo % ((pda_ + 1u) * 4u) != 0 || ch.pdo > ch.plen) {
    fail(FatalError::invalid_header_field, kAtPdo);
    return false;
  }
  data_digest_ = (ch.flags & nvme::tcp::kFlagDataDigest) != 0;
  if (data_digest_ != digests_.data) {
    fail(FatalError::invalid_header_field, kAtFlags);
    return false;
  }
  const std::size_t trailer = data_digest_ ? nvme::tcp::kDigestBytes : 0;
  if (ch.plen - ch.pdo <= trailer) {
    fail(FatalError::invalid_header_field, kAtPlen);
    return false;
  }
  padding_bytes_ = ch.pdo - header_end;
  data_bytes_ = ch.plen - ch.pdo - trailer;
  return true;
}

bool PduReader::check_header_digest() {
  std::uint32_t digest;
  std::memcpy(&digest, buffer_.get() + begin_, sizeof(digest));
  begin_ += sizeof(digest);
  if (digest == crc32c(0, header_.data(), common().hlen)) return true;
  fail(FatalError::header_digest_error, digest);
  return false;
}

void PduReader::sink(std::span<const iovec> pieces) {
  std::size_t sum = 0;
  for (const iovec& piece : pieces) {
    sum += piece.iov_len;
    if (piece.iov_len != 0) sink_.push_back(piece);
  }
  FLASHMOB_CHECK(stage_ == Stage::padding && sum == data_bytes_);
}

void PduReader::replace_sink(std::span<const iovec> pieces) {
  sink_.clear();
  sink_piece_ = 0;
  sink_offset_ = 0;
  std::size_t sum = 0;
  for (const iovec& piece : pieces) {
    sum += piece.iov_len;
    if (piece.iov_len != 0) sink_.push_back(piece);
  }
  FLASHMOB_CHECK(pieces.empty() || sum == data_left());
}

// Moves data that has arrived in our buffer to the sink.
void PduReader::take_data() {
  while (data_left_ != 0 && buffered() != 0) {
    std::size_t here = std::min(data_left_, buffered());
    if (!sink_.empty()) {
      const iovec& piece = sink_[sink_piece_];
      here = std::min(here, piece.iov_len - sink_offset_);
      std::memcpy(static_cast<std::byte*>(piece.iov_base) + sink_offset_, buffer_.get() + begin_, here);
      sink_offset_ += here;
      if (sink_offset_ == piece.iov_len) {
        ++sink_piece_;
        sink_offset_ = 0;
      }
    }
    if (data_digest_) crc_ = crc32c(crc_, buffer_.get() + begin_, here);
    begin_ += here;
    data_left_ -= here;
  }
}

}  // namespace flashmob::fabrics
