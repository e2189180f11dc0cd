// PRP lists on the GPU (NVMe Base 2.0c, 4.1.1), with the checks and statuses of memory/data_pointer.h: every address
// must lie in a registered region, every entry but PRP1 must begin its page, and each entry is read once.
//
// A transfer has at most 33 pages (layout.h, kMaxTransferBytes): the first belongs to all lanes, the others to one lane
// each, so that a list is read in one coalesced load. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/engine/layout.h"
#include "nvme/status.h"

namespace flashmob::gpu::engine {

// The memory of [iova, iova + bytes), or nullptr if that is not wholly in one region (or not writable).
FLASHMOB_HD inline std::byte* translate(const Tables& tables, std::uint64_t iova, std::uint64_t bytes, bool for_write) {
  std::uint32_t low = 0;
  for (std::uint32_t count = tables.region_count; count > 1;) {
    const std::uint32_t half = count / 2;
    low += tables.regions[low + half].iova <= iova ? half : 0;
    count -= half;
  }
  if (tables.region_count == 0) return nullptr;
  const Region& region = tables.regions[low];
  const std::uint64_t offset = iova - region.iova;
  if (offset >= region.bytes || bytes > region.bytes - offset || (for_write && !region.writable)) return nullptr;
  return region.memory + offset;
}

FLASHMOB_HD inline std::uint64_t lesser(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }

// Where one lane's page lies; `memory` nullptr where `status` is an error.
struct Page {
  std::byte* memory = nullptr;
  std::uint32_t bytes = 0;
  nvme::Status status = nvme::Status::success;
};

FLASHMOB_HD inline Page page_at(const Tables& tables, std::uint64_t iova, std::uint64_t bytes, bool for_write) {
  Page page;
  page.bytes = static_cast<std::uint32_t>(bytes);
  page.memory = translate(tables, iova, bytes, for_write);
  if (page.memory == nullptr) page.status = nvme::Status::data_transfer_error;
  return page;
}

// Every entry but PRP1.
FLASHMOB_HD inline Page whole_page_at(const Tables& tables, std::uint64_t iova, std::uint64_t bytes, bool for_write) {
  if ((iova & (kPageBytes - 1)) == 0) return page_at(tables, iova, bytes, for_write);
  Page page;
  page.status = nvme::Status::prp_offset_invalid;
  return page;
}

FLASHMOB_HD inline Page first_page(const Tables& tables, std::uint64_t prp1, std::uint64_t bytes, bool for_write) {
  if ((prp1 & 3) == 0) return page_at(tables, prp1, lesser(bytes, kPageBytes - (prp1 & (kPageBytes - 1))), for_write);
  Page page;
  page.status = nvme::Status::prp_offset_invalid;
  return page;
}

// The list of `pages` pages, 2 to 32 of them, entry by entry; read by lane `index` for itself.
FLASHMOB_HD inline nvme::Status list_entry(const Tables& tables, std::uint64_t list, std::uint32_t pages,
                                           std::uint32_t index, std::uint64_t& entry) {
  using nvme::Status;
  if ((list & 7) != 0) return Status::prp_offset_invalid;
  const std::uint64_t room = (kPageBytes - (list & (kPageBytes - 1))) / sizeof(std::uint64_t);
  const std::uint64_t here = pages > room ? room - 1 : pages;  // page entries before the link, if there is one
  const std::byte* memory = translate(tables, list, (pages > room ? room : pages) * sizeof(std::uint64_t), false);
  if (memory == nullptr) return Status::data_transfer_error;
  // Volatile: what was checked is what is used, whatever the host writes there meanwhile.
  const auto* entries = reinterpret_cast<const volatile std::uint64_t*>(memory);
  if (index < here) {
    entry = entries[index];
    return Status::success;
  }
  const std::uint64_t next = entries[here];
  if ((next & (kPageBytes - 1)) != 0) return Status::prp_offset_invalid;
  // A second list begins its page, so the rest has room there.
  memory = translate(tables, next, (pages - here) * sizeof(std::uint64_t), false);
  if (memory == nullptr) return Status::data_transfer_error;
  entry = reinterpret_cast<const volatile std::uint64_t*>(memory)[index - here];
  return Status::success;
}

// The page of lane `lane` in a transfer that goes on after its first page; no bytes if the transfer has fewer pages.
FLASHMOB_HD inline Page later_page(const Tables& tables, std::uint64_t prp2, std::uint64_t bytes_after_first,
                                   std::uint32_t lane, bool for_write) {
  const auto pages = static_cast<std::uint32_t>((bytes_after_first + kPageBytes - 1) / kPageBytes);
  Page page;
  if (lane >= pages) return page;
  const std::uint64_t bytes = lesser(kPageBytes, bytes_after_first - lane * kPageBytes);
  if (pages == 1) return whole_page_at(tables, prp2, bytes, for_write);
  std::uint64_t entry = 0;
  page.status = list_entry(tables, prp2, pages, lane, entry);
  return page.status == nvme::Status::success ? whole_page_at(tables, entry, bytes, for_write) : page;
}

// Checks a whole transfer by one lane, for commands whose demand on the timing model depends on it.
FLASHMOB_HD inline nvme::Status check_pages(const Tables& tables, std::uint64_t prp1, std::uint64_t prp2,
                                            std::uint64_t bytes, bool for_write) {
  const Page first = first_page(tables, prp1, bytes, for_write);
  if (first.status != nvme::Status::success) return first.status;
  const std::uint64_t after = bytes - first.bytes;
  for (std::uint32_t lane = 0; lane * kPageBytes < after; ++lane) {
    const Page page = later_page(tables, prp2, after, lane, for_write);
    if (page.status != nvme::Status::success) return page.status;
  }
  return nvme::Status::success;
}

}  // namespace flashmob::gpu::engine
