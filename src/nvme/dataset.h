// Data that the host sends with Dataset Management and Copy (NVM command set 1.0c, clauses 3.2.3 and 3.2.2).
// Little-endian layouts without behaviour; no thread rule. Compiles as CUDA device code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flashmob::nvme {

// One range of Dataset Management; up to 256 of them, CDW10 bits 7:0 give their number, 0's based.
struct DatasetRange {
  std::uint32_t context_attributes;
  std::uint32_t nlb;  // blocks, not 0's based
  std::uint64_t slba;
};
static_assert(sizeof(DatasetRange) == 16);
static_assert(offsetof(DatasetRange, nlb) == 4);
static_assert(offsetof(DatasetRange, slba) == 8);

inline constexpr std::uint32_t kMaxDatasetManagementRanges = 256;
// CDW11 attributes.
inline constexpr std::uint32_t kDatasetIntegralRead = 1u << 0;
inline constexpr std::uint32_t kDatasetIntegralWrite = 1u << 1;
inline constexpr std::uint32_t kDatasetDeallocate = 1u << 2;

inline constexpr std::uint32_t kMaxCopySourceRanges = 128;  // of one Copy, as we take it (MSRC)

// One source range of Copy, descriptor format 0.
struct CopySourceRange {
  std::uint8_t reserved0[8];
  std::uint64_t slba;
  std::uint16_t nlb;  // 0's based
  std::uint8_t reserved18[6];
  std::uint32_t eilbrt;
  std::uint16_t elbat;
  std::uint16_t elbatm;
};
static_assert(sizeof(CopySourceRange) == 32);
static_assert(offsetof(CopySourceRange, slba) == 8);
static_assert(offsetof(CopySourceRange, nlb) == 16);
static_assert(offsetof(CopySourceRange, eilbrt) == 24);
static_assert(offsetof(CopySourceRange, elbatm) == 30);

}  // namespace flashmob::nvme
