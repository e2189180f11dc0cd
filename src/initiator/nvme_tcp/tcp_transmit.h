// What an NVMe/TCP queue has yet to send: PDU headers and small data as bytes of its own, large data as references to
// the commands' memory, so that the kernel's copy is the only one.
//
// One thread. Memory is fixed at construction; the sender asks for room before it begins a PDU. References are resolved
// to addresses when the bytes are handed to the kernel, inside the reader's guard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fabrics/stream.h"
#include "initiator/nvme_tcp/tcp_slot.h"
#include "memory/address_space.h"

namespace flashmob::initiator {

class TcpTransmit {
 public:
  static constexpr std::size_t kStagedBytes = std::size_t{256} << 10;
  static constexpr std::size_t kMaxPieces = 2048;
  // Data shorter than this is copied: cheaper than what the kernel does for one more piece.
  static constexpr std::size_t kReferenceBytes = 4096;

  enum class Result : std::uint8_t {
    sent,  // nothing is left
    blocked,  // the socket takes no more now
    broken,  // the connection is gone
    memory_lost,  // the host unmapped data that a PDU on its way has promised
  };

  TcpTransmit();

  bool empty() const { return next_ == pieces_.size(); }
  // Room for a PDU of one header and `staged` bytes in all, and one reference.
  bool has_room(std::size_t staged) const {
    return kStagedBytes - staged_used_ >= staged && pieces_.size() + 3 <= kMaxPieces;
  }
  // The next `bytes` bytes of the stream, to be filled in by the caller before flush().
  std::byte* stage(std::size_t bytes);
  void reference(std::uint16_t slot, TcpSlot& owner, std::uint64_t offset, std::uint64_t bytes);

  Result flush(fabrics::Stream& stream, memory::AddressSpace::Reader& reader, std::span<TcpSlot> slots);
  std::uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  static constexpr std::uint32_t kStaged = UINT32_MAX;
  struct Piece {
    std::uint32_t slot;  // kStaged: `offset` is in staged_
    std::uint32_t bytes;
    std::uint64_t offset;
  };

  void consume(std::size_t bytes, std::span<TcpSlot> slots);

  // Of kStagedBytes, and not cleared: written before it is sent, and most connections never fill it.
  const std::unique_ptr<std::byte[]> staged_;
  std::size_t staged_used_ = 0;
  std::vector<Piece> pieces_;
  std::size_t next_ = 0;  // pieces before this one are sent
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace flashmob::initiator
