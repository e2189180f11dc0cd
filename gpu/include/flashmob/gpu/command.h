// NVMe commands as GPU threads build them: the fields of NVM I/O commands (NVM command set 1.0c, clause 3.2) and PRP
// entries for buffers that are contiguous in I/O virtual addresses (Base 2.0c, 4.1.1).
//
// Pure functions over memory that the caller owns. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "nvme/command.h"
#include "nvme/dataset.h"
#include "nvme/io_command.h"
#include "nvme/opcode.h"

namespace flashmob::gpu {

inline constexpr std::uint64_t kPageBytes = 4096;  // CC.MPS = 0
inline constexpr std::uint64_t kListEntriesPerPage = kPageBytes / sizeof(std::uint64_t);
inline constexpr std::uint32_t kMaxCommandBlocks = 65536;  // NLB has 16 bits, 0's based

// What a thread wants done.
struct Command {
  nvme::NvmOpcode opcode = nvme::NvmOpcode::flush;
  std::uint32_t nsid = 0;
  std::uint64_t lba = 0;
  std::uint32_t blocks = 0;  // 0 for flush
  std::uint64_t data = 0;    // the buffer's address, 0 for commands that move none
  std::uint64_t bytes = 0;
};

// Memory for one command's PRP list, from any dword-aligned address on, and for a range of Dataset Management.
FLASHMOB_HD constexpr std::uint64_t list_bytes(std::uint64_t max_transfer_bytes) {
  const std::uint64_t entries = (max_transfer_bytes + kPageBytes - 1) / kPageBytes;
  if (entries > kListEntriesPerPage)  // in each page but the last, one entry leads to the next
    return (entries - 1 + kListEntriesPerPage - 2) / (kListEntriesPerPage - 1) * kPageBytes;
  std::uint64_t bytes = sizeof(nvme::DatasetRange);
  while (bytes < entries * sizeof(std::uint64_t)) bytes *= 2;  // never across a page's border
  return bytes;
}

// Makes `sqe` transfer [address, address + bytes), bytes >= 1. `list` has list_bytes() bytes, is aligned to that many
// or to a page, and the SSD reaches it at its own address.
FLASHMOB_HD inline void describe(nvme::Sqe& sqe, std::uint64_t address, std::uint64_t bytes, std::uint64_t* list) {
  const std::uint64_t offset = address & (kPageBytes - 1);
  std::uint64_t page = address - offset + kPageBytes;
  std::uint64_t pages = (offset + bytes + kPageBytes - 1) / kPageBytes - 1;  // after the first one
  sqe.prp1 = address;
  sqe.prp2 = pages == 0 ? 0 : page;
  if (pages <= 1) return;
  sqe.prp2 = reinterpret_cast<std::uint64_t>(list);
  for (std::uint64_t at = 0; pages != 0; ++at) {
    if (at % kListEntriesPerPage == kListEntriesPerPage - 1 && pages > 1) {
      list[at] = reinterpret_cast<std::uint64_t>(list + at + 1);
      continue;
    }
    list[at] = page;
    page += kPageBytes;
    --pages;
  }
}

// The whole entry, for command identifier `cid`.
FLASHMOB_HD inline void build(nvme::Sqe& sqe, const Command& command, std::uint16_t cid, std::uint64_t* list) {
  sqe = nvme::Sqe{};
  sqe.opcode = static_cast<std::uint8_t>(command.opcode);
  sqe.cid = cid;
  sqe.nsid = command.nsid;
  switch (command.opcode) {
    case nvme::NvmOpcode::flush:
      return;
    case nvme::NvmOpcode::dataset_management: {
      auto* range = reinterpret_cast<nvme::DatasetRange*>(list);
      *range = {0, command.blocks, command.lba};
      sqe.cdw10 = 0;  // one range
      sqe.cdw11 = nvme::kDatasetDeallocate;
      sqe.prp1 = reinterpret_cast<std::uint64_t>(range);
      return;
    }
    default:
      nvme::set_lba_range(sqe, command.lba, command.blocks);
      if (command.bytes != 0) describe(sqe, command.data, command.bytes, list);
  }
}

}  // namespace flashmob::gpu
