#include "transport/vfio_user/message_pointers.h"

#include <algorithm>
#include <array>
#include <span>

#include "memory/data_pointer.h"

namespace flashmob::transport {
namespace {

constexpr std::uint64_t kPageBytes = 4096;  // CAP.MPSMAX
constexpr std::uint32_t kMaxDescriptors = memory::DataPointerLimits{}.max_sgl_descriptors;  // of one SGL

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

nvme::SglType type_of(const nvme::SglDescriptor& descriptor) {
  return static_cast<nvme::SglType>(descriptor.identifier >> 4);
}
bool is_link(const nvme::SglDescriptor& descriptor) {
  return type_of(descriptor) == nvme::SglType::segment || type_of(descriptor) == nvme::SglType::last_segment;
}
// Offsets belong to fabrics.
bool is_address(const nvme::SglDescriptor& descriptor) { return (descriptor.identifier & 0x0F) == 0; }

class SglPieces {
 public:
  SglPieces(MessageMemory& client, std::uint64_t bytes, bool to_device, std::vector<ClientPiece>& pieces)
      : client_(client), bytes_(bytes), to_device_(to_device), pieces_(pieces) {}

  Pointer find(const nvme::SglDescriptor& first) {
    nvme::SglDescriptor link = first;
    Pointer found = is_link(first) ? Pointer::whole : take(first);
    while (found == Pointer::whole && is_link(link)) found = take_segment(link);
    return found == Pointer::whole && bytes_ != 0 ? Pointer::wrong_length : found;
  }

 private:
  // Leaves in `link` the last descriptor of the segment that it names.
  Pointer take_segment(nvme::SglDescriptor& link) {
    const bool is_last = type_of(link) == nvme::SglType::last_segment;
    if (!is_address(link)) return Pointer::malformed;
    if (link.length_bytes == 0 || link.length_bytes % sizeof(link) != 0 || link.address % 8 != 0)
      return Pointer::bad_segment;
    const std::size_t count = link.length_bytes / sizeof(link);
    if (count > left_) return Pointer::too_many;
    left_ -= count;
    segment_.resize(count);
    if (!client_.read(link.address, std::as_writable_bytes(std::span(segment_)))) return Pointer::unreachable;
    link = segment_.back();
    for (const nvme::SglDescriptor& descriptor : segment_) {
      if (is_link(descriptor)) {
        if (is_last) return Pointer::bad_segment;
        if (&descriptor != &segment_.back()) return Pointer::too_many;
      } else if (const Pointer taken = take(descriptor); taken != Pointer::whole) {
        return taken;
      }
    }
    return is_last || is_link(link) ? Pointer::whole : Pointer::bad_segment;
  }

  Pointer take(const nvme::SglDescriptor& descriptor) {
    const bool bucket = type_of(descriptor) == nvme::SglType::bit_bucket;
    if ((!bucket && type_of(descriptor) != nvme::SglType::data_block) || !is_address(descriptor))
      return Pointer::malformed;
    // On the way from the client a bit bucket stands for no bytes at all.
    if (descriptor.length_bytes == 0 || (bucket && to_device_)) return Pointer::whole;
    if (descriptor.length_bytes > bytes_) return Pointer::wrong_length;
    add_piece(pieces_, {descriptor.address, descriptor.length_bytes, bucket});
    bytes_ -= descriptor.length_bytes;
    return Pointer::whole;
  }

  MessageMemory& client_;
  std::uint64_t bytes_;
  const bool to_device_;
  std::vector<ClientPiece>& pieces_;
  std::vector<nvme::SglDescriptor> segment_;
  std::size_t left_ = kMaxDescriptors;  // ends chains that loop
};

}  // namespace

Pointer find_pieces(MessageMemory& client, const nvme::Sqe& sqe, std::uint64_t bytes, bool to_device,
                    std::vector<ClientPiece>& pieces) {
  pieces.clear();
  return (sqe.flags & nvme::kFlagPsdtMask) == 0 ? find_prp_pieces(client, sqe, bytes, pieces)
                                                : SglPieces(client, bytes, to_device, pieces).find(sqe.sgl1);
}

void break_pointer(nvme::Sqe& sqe, Pointer reason, std::uint64_t bytes) {
  if ((sqe.flags & nvme::kFlagPsdtMask) == 0) {
    sqe.prp1 = reason == Pointer::malformed ? 1 : DmaRegions::kNowhereIova;
    sqe.prp2 = DmaRegions::kNowhereIova;
    return;
  }
  const auto type = [&](nvme::SglType of) {
    sqe.sgl1.identifier = static_cast<std::uint8_t>(static_cast<unsigned>(of) << 4);
  };
  sqe.sgl1 = {};
  sqe.sgl1.address = DmaRegions::kNowhereIova;
  type(nvme::SglType::data_block);
  if (reason == Pointer::malformed) sqe.sgl1.identifier = 0xF0;
  if (reason == Pointer::unreachable) sqe.sgl1.length_bytes = static_cast<std::uint32_t>(bytes);
  if (reason == Pointer::bad_segment) type(nvme::SglType::last_segment);  // of no bytes
  if (reason == Pointer::too_many) {
    type(nvme::SglType::last_segment);
    sqe.sgl1.length_bytes = (kMaxDescriptors + 1) * sizeof(nvme::SglDescriptor);
  }
}

}  // namespace flashmob::transport
