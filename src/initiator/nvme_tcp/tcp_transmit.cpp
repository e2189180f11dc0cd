#include "initiator/nvme_tcp/tcp_transmit.h"

#include <array>
#include <cerrno>

#include "base/check.h"

namespace flashmob::initiator {
namespace {

constexpr std::size_t kVectorsPerCall = 128;

TcpTransmit::Result failed() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? TcpTransmit::Result::blocked
                                                                     : TcpTransmit::Result::broken;
}

}  // namespace

TcpTransmit::TcpTransmit() : staged_(new std::byte[kStagedBytes]) { pieces_.reserve(kMaxPieces); }

std::byte* TcpTransmit::stage(std::size_t bytes) {
  FLASHMOB_CHECK(bytes <= kStagedBytes - staged_used_);
  std::byte* const at = staged_.get() + staged_used_;
  // Headers of many commands in a row become one piece.
  if (next_ < pieces_.size() && pieces_.back().slot == kStaged &&
      pieces_.back().offset + pieces_.back().bytes == staged_used_) {
    pieces_.back().bytes += static_cast<std::uint32_t>(bytes);
  } else {
    pieces_.push_back({kStaged, static_cast<std::uint32_t>(bytes), staged_used_});
  }
  staged_used_ += bytes;
  return at;
}

void TcpTransmit::reference(std::uint16_t slot, TcpSlot& owner, std::uint64_t offset, std::uint64_t bytes) {
  pieces_.push_back({slot, static_cast<std::uint32_t>(bytes), offset});
  ++owner.unsent_pieces;
}

TcpTransmit::Result TcpTransmit::flush(fabrics::Stream& stream, memory::AddressSpace::Reader& reader,
                                       std::span<TcpSlot> slots) {
  while (!empty()) {
    std::array<iovec, kVectorsPerCall> vectors;
    std::size_t count = 0;
    for (std::size_t i = next_; i < pieces_.size() && count < vectors.size(); ++i) {
      const Piece& piece = pieces_[i];
      if (piece.slot == kStaged) {
        vectors[count++] = {staged_.get() + piece.offset, piece.bytes};
        continue;
      }
      const std::size_t added =
          slots[piece.slot].pieces(reader, piece.offset, piece.bytes, vectors.data() + count, vectors.size() - count);
      if (added == 0) return Result::memory_lost;
      std::uint64_t covered = 0;
      for (std::size_t k = 0; k < added; ++k) covered += vectors[count + k].iov_len;
      count += added;
      if (covered < piece.bytes) break;  // no more vectors; the rest goes with the next call
    }
    const ssize_t sent = stream.send(std::span(vectors).first(count));
    if (sent < 0) {
      if (errno == EINTR) continue;
      return failed();
    }
    bytes_sent_ += static_cast<std::uint64_t>(sent);
    consume(static_cast<std::size_t>(sent), slots);
  }
  return stream.flush() ? Result::sent : failed();
}

void TcpTransmit::consume(std::size_t bytes, std::span<TcpSlot> slots) {
  while (bytes > 0) {
    Piece& piece = pieces_[next_];
    if (bytes < piece.bytes) {
      piece.offset += bytes;
      piece.bytes -= static_cast<std::uint32_t>(bytes);
      break;
    }
    bytes -= piece.bytes;
    if (piece.slot != kStaged) --slots[piece.slot].unsent_pieces;
    ++next_;
  }
  if (empty()) {
    pieces_.clear();
    next_ = 0;
    staged_used_ = 0;
  }
}

}  // namespace flashmob::initiator
