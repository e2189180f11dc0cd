// Fuzzes PRP and SGL walking: guest memory, the command's data pointer, its length and the limits come from the input.
//
// Input: 16 bytes of head (psdt, direction, page size, length, descriptor limit), 16 bytes of data pointer, the rest is
// guest memory, laid out in a few regions. Addresses are folded near the regions, else no input would ever hit one.
// Checked: success covers exactly the length with bytes that are really there (the sanitizers see to that), and
// failure is one of the statuses that the header promises.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "memory/address_space.h"
#include "memory/data_pointer.h"
#include "nvme/command.h"

namespace {

using flashmob::memory::AddressSpace;
using flashmob::memory::DataPointerLimits;
using flashmob::memory::Direction;
using flashmob::memory::Segment;
using flashmob::memory::SegmentList;
using flashmob::nvme::Sqe;
using flashmob::nvme::Status;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBase = 0x10000;

// Two adjacent regions, a hole, a read-only region, and one of odd size and place.
struct Layout {
  std::uint64_t iova;
  std::uint64_t bytes;
  bool writable;
};
constexpr Layout kLayout[] = {
    {kBase, 4 * kPage, true},
    {kBase + 4 * kPage, 4 * kPage, true},
    {kBase + 10 * kPage, 2 * kPage, false},
    {kBase + 13 * kPage + 24, kPage + 40, true},
};
constexpr std::uint64_t kSpan = 16 * kPage;

// Three in four 64-bit words become addresses in or near the regions; their low bits stay.
std::uint64_t fold(std::uint64_t word) { return (word >> 62) == 3 ? word : kBase + word % kSpan; }

class Guest {
 public:
  Guest(const std::uint8_t* data, std::size_t size) {
    std::size_t used = 0;
    for (const Layout& region : kLayout) {
      // Exactly as large as the region, so that one byte too far is found.
      memory_.push_back(std::make_unique<std::byte[]>(region.bytes));
      std::byte* host = memory_.back().get();
      std::memset(host, 0, region.bytes);
      for (std::uint64_t at = 0; at + 8 <= region.bytes && used + 9 <= size; at += 8, used += 9) {
        std::uint64_t word = 0;
        std::memcpy(&word, data + used + 1, 8);
        // The extra byte says whether this word is meant as an address (often page-aligned) or as it stands.
        const std::uint8_t kind = data[used] & 3;
        if (kind != 0) word = fold(word);
        if (kind == 2) word &= ~(kPage - 1);
        std::memcpy(host + at, &word, 8);
      }
      space.map(region.iova, region.bytes, host, region.writable);
    }
  }

  AddressSpace space;

 private:
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

bool is_promised(Status status) {
  switch (status) {
    case Status::success:
    case Status::invalid_field:
    case Status::prp_offset_invalid:
    case Status::data_sgl_length_invalid:
    case Status::sgl_descriptor_type_invalid:
    case Status::invalid_sgl_segment_descriptor:
    case Status::invalid_number_of_sgl_descriptors:
    case Status::data_transfer_error:
      return true;
    default:
      return false;
  }
}

void require(bool condition) {
  if (!condition) std::abort();
}

void check(AddressSpace::Reader& reader, const Sqe& sqe, std::uint64_t bytes, Direction direction,
           const DataPointerLimits& limits, SegmentList& list) {
  std::byte* single = nullptr;
  const bool fast = resolve_single(reader, sqe, bytes, direction, limits.page_bytes, single);
  const Status status = resolve(reader, sqe, bytes, direction, limits, list);
  require(is_promised(status));
  if (status != Status::success) {
    require(!fast);
    return;
  }
  std::uint64_t covered = 0;
  std::uint64_t sum = 0;
  for (const Segment& segment : list.segments()) {
    covered += segment.bytes;
    if (segment.host == nullptr) {
      require(direction == Direction::to_host);
      continue;
    }
    for (std::uint64_t i = 0; i < segment.bytes; ++i) sum += static_cast<std::uint8_t>(segment.host[i]);
    if (direction == Direction::to_host) std::memset(segment.host, static_cast<int>(sum & 0xFF), segment.bytes);
  }
  require(covered == bytes);
  if (fast && bytes > 0) require(list.segments().size() == 1 && list.segments()[0].host == single);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kHead = 32;
  if (size < kHead) return 0;
  Sqe sqe{};
  sqe.flags = static_cast<std::uint8_t>(data[0] << 6);
  DataPointerLimits limits;
  limits.page_bytes = (data[1] & 3) == 3 ? 8192 : 4096;
  limits.max_sgl_descriptors = 1 + data[2];
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, data + 4, 4);
  // Up to four full lists' worth of pages, most often a few.
  bytes = static_cast<std::uint32_t>(bytes % ((data[3] & 7) == 7 ? 2048 * kPage : 16 * kPage));
  std::memcpy(&sqe.prp1, data + 16, 8);
  std::memcpy(&sqe.prp2, data + 24, 8);
  sqe.prp1 = fold(sqe.prp1);
  if (sqe.flags == 0) sqe.prp2 = fold(sqe.prp2);

  Guest guest(data + kHead, size - kHead);
  AddressSpace::Reader reader(guest.space);
  SegmentList list(4096);
  reader.enter();
  // Reading first: the other direction overwrites the guest's memory, lists included.
  check(reader, sqe, bytes, Direction::from_host, limits, list);
  check(reader, sqe, bytes, Direction::to_host, limits, list);
  reader.leave();
  return 0;
}
