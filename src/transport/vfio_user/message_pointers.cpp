#include "transport/vfio_user/message_pointers.h"

#include <algorithm>
#include <array>
#include <span>

namespace flashmob::transport {
namespace {

constexpr std::uint64_t kPageBytes = 4096;  // CAP.MPSMAX
constexpr std::size_t kMaxDescriptors = 4096;  // of one SGL

// Pieces that follow each other are one, which is fewer messages.
void add_piece(std::vector<ClientPiece>& pieces, const ClientPiece& piece) {
  if (!pieces.empty() && !piece.dropped && !pieces.back().dropped &&
      pieces.back().iova + pieces.back().bytes == piece.iova)
    pieces.back().bytes += piece.bytes;
  else
    pieces.push_back(piece);
}

std::uint64_t rest_of_page(std::uint64_t address) { return kPageBytes - address % kPageBytes; }

Pointer find_prp_pieces(MessageMemory& client, const nvme::Sqe& sqe, std::uint64_t bytes,
                        std::vector<ClientPiece>& pieces) {
  const auto take = [&](std::uint64_t address) {
    const std::uint64_t here = std::min(bytes, rest_of_page(address));
    add_piece(pieces, {address, here, false});
    bytes -= here;
  };
  if (sqe.prp1 % 4 != 0) return Pointer::malformed;
  take(sqe.prp1);
  if (bytes == 0) return Pointer::whole;
  if (bytes <= kPageBytes) {
    take(sqe.prp2);
    return sqe.prp2 % kPageBytes == 0 ? Pointer::whole : Pointer::malformed;
  }
  std::uint64_t list = sqe.prp2;
  std::array<std::uint64_t, kPageBytes / sizeof(std::uint64_t)> entries;
  for (;;) {
    if (list % sizeof(std::uint64_t) != 0) return Pointer::malformed;
    const std::uint64_t room = rest_of_page(list) / sizeof(std::uint64_t);
    const std::uint64_t wanted = (bytes + kPageBytes - 1) / kPageBytes;
    const std::size_t count = std::min(room, wanted);
    if (!client.read(list, std::as_writable_bytes(std::span(entries).first(count)))) return Pointer::unreachable;
    // The last entry names the next list if there are more pages than it could name itself.
    const std::size_t pages = wanted > room ? count - 1 : count;
    for (std::size_t i = 0; i < pages; ++i) {
      if (entries[i] % kPageBytes != 0) return Pointer::malformed;
      take(entries[i]);
    }
    if (pages == count) return Pointer::whole;
    list = entries[count - 1];
    if (list % kPageBytes != 0) return Pointer::malformed;
  }
}

Pointer find_sgl_pieces(MessageMemory& client, const nvme::Sqe& sqe, std::uint64_t bytes,
                        std::vector<ClientPiece>& pieces) {
  std::vector<nvme::SglDescriptor> segment{sqe.sgl1};
  std::size_t seen = 0;
  for (;;) {
    std::uint64_t next = 0;
    std::size_t next_count = 0;
    for (const nvme::SglDescriptor& descriptor : segment) {
      const auto type = static_cast<nvme::SglType>(descriptor.identifier >> 4);
      const bool bucket = type == nvme::SglType::bit_bucket;
      if (type == nvme::SglType::data_block || bucket) {
        const std::uint64_t here = std::min<std::uint64_t>(bytes, descriptor.length_bytes);
        if (here != 0) add_piece(pieces, {descriptor.address, here, bucket});
        bytes -= here;
      } else if (type == nvme::SglType::segment || type == nvme::SglType::last_segment) {
        if (&descriptor != &segment.back()) return Pointer::malformed;
        next = descriptor.address;
        next_count = descriptor.length_bytes / sizeof(nvme::SglDescriptor);
      } else {
        return Pointer::malformed;
      }
    }
    if (bytes == 0) return Pointer::whole;
    seen += next_count;
    if (next_count == 0) return Pointer::too_short;
    if (seen > kMaxDescriptors) return Pointer::malformed;
    segment.resize(next_count);
    if (!client.read(next, std::as_writable_bytes(std::span(segment)))) return Pointer::unreachable;
  }
}

}  // namespace

Pointer find_pieces(MessageMemory& client, const nvme::Sqe& sqe, std::uint64_t bytes,
                    std::vector<ClientPiece>& pieces) {
  pieces.clear();
  return (sqe.flags & nvme::kFlagPsdtMask) == 0 ? find_prp_pieces(client, sqe, bytes, pieces)
                                                : find_sgl_pieces(client, sqe, bytes, pieces);
}

void break_pointer(nvme::Sqe& sqe, Pointer reason, std::uint64_t bytes) {
  if ((sqe.flags & nvme::kFlagPsdtMask) == 0) {
    sqe.prp1 = reason == Pointer::malformed ? 1 : DmaRegions::kNowhereIova;
    sqe.prp2 = DmaRegions::kNowhereIova;
    return;
  }
  const bool bad_type = reason == Pointer::malformed;
  sqe.sgl1 = {};
  sqe.sgl1.address = DmaRegions::kNowhereIova;
  sqe.sgl1.length_bytes = reason == Pointer::too_short ? 0 : static_cast<std::uint32_t>(bytes);
  sqe.sgl1.identifier =
      static_cast<std::uint8_t>(bad_type ? 0xF0 : static_cast<unsigned>(nvme::SglType::data_block) << 4);
}

}  // namespace flashmob::transport
