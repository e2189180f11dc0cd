// Fields in the command dwords of NVM I/O commands (NVM command set 1.0c, clause 3.2).
// Pure functions; no thread rule. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "nvme/command.h"

namespace flashmob::nvme {

// Read, Write, Compare, Write Zeroes, Write Uncorrectable, Verify: SLBA in CDW10 and 11, NLB (0's based) in CDW12.
FLASHMOB_HD constexpr std::uint64_t starting_lba(const Sqe& sqe) {
  return sqe.cdw10 | (std::uint64_t{sqe.cdw11} << 32);
}
FLASHMOB_HD constexpr std::uint32_t block_count(const Sqe& sqe) { return (sqe.cdw12 & 0xFFFF) + 1; }
FLASHMOB_HD constexpr void set_lba_range(Sqe& sqe, std::uint64_t slba, std::uint32_t blocks) {
  sqe.cdw10 = static_cast<std::uint32_t>(slba);
  sqe.cdw11 = static_cast<std::uint32_t>(slba >> 32);
  sqe.cdw12 = (sqe.cdw12 & ~0xFFFFu) | ((blocks - 1) & 0xFFFF);
}

// CDW12 of these commands.
inline constexpr unsigned kIoDirectiveTypeShift = 20;  // DTYPE, 23:20 (Write)
inline constexpr std::uint32_t kIoDirectiveTypeMask = 0xFu << kIoDirectiveTypeShift;
inline constexpr std::uint32_t kIoDeallocate = 1u << 25;  // DEAC (Write Zeroes)
inline constexpr unsigned kIoProtectionShift = 26;        // PRINFO, 29:26
inline constexpr std::uint32_t kIoProtectionMask = 0xFu << kIoProtectionShift;
inline constexpr std::uint32_t kIoForceUnitAccess = 1u << 30;  // FUA
inline constexpr std::uint32_t kIoLimitedRetry = 1u << 31;     // LR

// Dataset Management: number of ranges, 0's based in CDW10 7:0; attributes in CDW11 (dataset.h).
FLASHMOB_HD constexpr std::uint32_t dataset_range_count(const Sqe& sqe) { return (sqe.cdw10 & 0xFF) + 1; }

// Copy: SDLBA in CDW10 and 11; CDW12 holds NR (0's based) in 7:0 and the descriptor format in 11:8.
FLASHMOB_HD constexpr std::uint32_t copy_range_count(const Sqe& sqe) { return (sqe.cdw12 & 0xFF) + 1; }
FLASHMOB_HD constexpr std::uint8_t copy_descriptor_format(const Sqe& sqe) {
  return static_cast<std::uint8_t>((sqe.cdw12 >> 8) & 0xF);
}

}  // namespace flashmob::nvme
