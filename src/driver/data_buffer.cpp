#include "driver/data_buffer.h"

#include <bit>

#include "base/check.h"

namespace flashmob::driver {
namespace {

constexpr std::uint64_t kSmallestOffsetStep = 4;  // a PRP's offset is a multiple of a dword

// Bytes of a list of `entries` entries. A list inside one page takes a power of two, so that lists packed side by side
// never straddle a page; a longer one takes whole pages, the last entry of each but the last pointing to the next.
std::uint64_t bytes_of_list(std::uint64_t entries) {
  if (entries <= 1) return 0;  // PRP2 itself is the second entry
  if (entries <= PrpLists::kEntriesPerPage) return std::bit_ceil(entries) * sizeof(std::uint64_t);
  constexpr std::uint64_t kDataEntries = PrpLists::kEntriesPerPage - 1;
  // The last page may use its last slot for data too, hence one entry less to place in chained pages.
  return (entries - 1 + kDataEntries - 1) / kDataEntries * PrpLists::kPageBytes;
}

}  // namespace

std::uint64_t PrpLists::max_list_entries(std::uint64_t bytes) {
  const std::uint64_t worst_offset = kPageBytes - kSmallestOffsetStep;
  return (worst_offset + bytes + kPageBytes - 1) / kPageBytes - 1;
}

PrpLists::PrpLists(PciDevice& device, std::uint32_t slots, std::uint64_t max_transfer_bytes)
    : list_bytes_(bytes_of_list(max_list_entries(max_transfer_bytes))),
      max_entries_(max_list_entries(max_transfer_bytes)),
      slots_(slots) {
  FLASHMOB_CHECK(slots > 0 && max_transfer_bytes > 0);
  if (list_bytes_ != 0) memory_.emplace(device, list_bytes_ * slots);
}

std::uint64_t PrpLists::write_list(std::uint32_t slot, std::uint64_t first_page, std::uint64_t bytes) {
  std::uint64_t entries = (bytes + kPageBytes - 1) / kPageBytes;
  FLASHMOB_CHECK(slot < slots_ && entries <= max_entries_);
  auto* list = reinterpret_cast<std::uint64_t*>(memory_->data() + slot * list_bytes_);
  const std::uint64_t list_iova = memory_->iova() + slot * list_bytes_;
  std::uint64_t next_list_page = list_iova + kPageBytes;
  std::uint64_t in_page = 0;
  while (entries > 0) {
    if (in_page == kEntriesPerPage - 1 && entries > 1) {
      *list++ = next_list_page;
      next_list_page += kPageBytes;
      in_page = 0;
    }
    *list++ = first_page;
    first_page += kPageBytes;
    ++in_page;
    --entries;
  }
  return list_iova;
}

}  // namespace flashmob::driver
