// PRP entries for I/O buffers (NVMe Base 2.0c, 4.1.1): fills a command's PRP1 and PRP2 for a buffer that is contiguous
// in I/O virtual addresses, and keeps the list pages that larger transfers need.
//
// Every command slot owns its part of one DMA allocation made at construction, so describing a buffer allocates
// nothing. One thread at a time; a slot's list may be rewritten only when no command uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "driver/dma_memory.h"
#include "nvme/command.h"

namespace flashmob::driver {

class PrpLists {
 public:
  static constexpr std::uint64_t kPageBytes = 4096;  // CC.MPS = 0, the only page size the driver uses
  static constexpr std::uint64_t kEntriesPerPage = kPageBytes / sizeof(std::uint64_t);

  // Lists for `slots` commands at once, each of at most `max_transfer_bytes` from any dword-aligned address.
  // Transfers that never need a list (up to one page) cost no memory.
  PrpLists(PciDevice& device, std::uint32_t slots, std::uint64_t max_transfer_bytes);

  // Makes `sqe` transfer [iova, iova + bytes); 1 <= bytes <= max_transfer_bytes, iova a multiple of 4.
  void describe(std::uint32_t slot, nvme::Sqe& sqe, std::uint64_t iova, std::uint64_t bytes) {
    sqe.prp1 = iova;
    const std::uint64_t offset = iova & (kPageBytes - 1);
    if (offset + bytes <= kPageBytes) [[likely]] {
      sqe.prp2 = 0;
    } else if (offset + bytes <= 2 * kPageBytes) {
      sqe.prp2 = iova - offset + kPageBytes;
    } else {
      sqe.prp2 = write_list(slot, iova - offset + kPageBytes, offset + bytes - kPageBytes);
    }
  }

  // DMA memory that one slot's list takes; 0 where PRP1 and PRP2 always suffice.
  std::uint64_t list_bytes() const { return list_bytes_; }
  // The most list entries that a transfer of `bytes` bytes can need, whatever its offset in the first page.
  static std::uint64_t max_list_entries(std::uint64_t bytes);

 private:
  // Writes the slot's list for `bytes` bytes from page-aligned `first_page` on; returns the list's address.
  std::uint64_t write_list(std::uint32_t slot, std::uint64_t first_page, std::uint64_t bytes);

  std::uint64_t list_bytes_;
  std::uint64_t max_entries_;
  std::uint32_t slots_;
  std::optional<DmaMemory> memory_;
};

}  // namespace flashmob::driver
