// Identify Namespace, CNS 00h and 11h (NVM command set 1.0c, clause 4.1.5.1), its extension for the NVM command set,
// CNS 05h and 1Bh (4.1.5.2), and the I/O command set independent part, CNS 08h (NVMe Base 2.0c, clause 5.17.2.8).
// The first 384 bytes of IdentifyNamespace are also the data of Namespace Management's create.
// Little-endian layouts without behaviour; no thread rule. Compiles as CUDA device code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nvme/identify.h"
#include "nvme/uint128.h"

namespace flashmob::nvme {

// One LBA format.
struct LbaFormat {
  std::uint16_t ms;    // metadata bytes
  std::uint8_t lbads;  // log2 of the data bytes
  std::uint8_t rp;     // relative performance in bits 1:0, 0 is best
};
static_assert(sizeof(LbaFormat) == 4);
static_assert(offsetof(LbaFormat, lbads) == 2);

struct IdentifyNamespace {
  std::uint64_t nsze;  // blocks, as ncap and nuse
  std::uint64_t ncap;
  std::uint64_t nuse;
  std::uint8_t nsfeat;
  std::uint8_t nlbaf;  // 0's based
  std::uint8_t flbas;
  std::uint8_t mc;
  std::uint8_t dpc;
  std::uint8_t dps;
  std::uint8_t nmic;
  std::uint8_t rescap;
  std::uint8_t fpi;
  std::uint8_t dlfeat;
  std::uint16_t nawun;
  std::uint16_t nawupf;
  std::uint16_t nacwu;
  std::uint16_t nabsn;
  std::uint16_t nabo;
  std::uint16_t nabspf;
  std::uint16_t noiob;
  Uint128 nvmcap;      // bytes
  std::uint16_t npwg;  // 0's based blocks, as npwa, npdg, npda and nows
  std::uint16_t npwa;
  std::uint16_t npdg;
  std::uint16_t npda;
  std::uint16_t nows;
  std::uint16_t mssrl;  // blocks, as mcl
  std::uint32_t mcl;
  std::uint8_t msrc;  // 0's based
  std::uint8_t reserved81;
  std::uint8_t nulbaf;
  std::uint8_t reserved83[9];
  std::uint32_t anagrpid;
  std::uint8_t reserved96[3];
  std::uint8_t nsattr;
  std::uint16_t nvmsetid;
  std::uint16_t endgid;
  std::uint8_t nguid[16];  // big-endian, as eui64
  std::uint8_t eui64[8];
  LbaFormat lbaf[64];
  std::uint8_t vs[3712];
};
static_assert(sizeof(IdentifyNamespace) == kIdentifyBytes);
static_assert(offsetof(IdentifyNamespace, nsfeat) == 24);
static_assert(offsetof(IdentifyNamespace, nmic) == 30);
static_assert(offsetof(IdentifyNamespace, dlfeat) == 33);
static_assert(offsetof(IdentifyNamespace, nvmcap) == 48);
static_assert(offsetof(IdentifyNamespace, mssrl) == 74);
static_assert(offsetof(IdentifyNamespace, mcl) == 76);
static_assert(offsetof(IdentifyNamespace, anagrpid) == 92);
static_assert(offsetof(IdentifyNamespace, nsattr) == 99);
static_assert(offsetof(IdentifyNamespace, nguid) == 104);
static_assert(offsetof(IdentifyNamespace, eui64) == 120);
static_assert(offsetof(IdentifyNamespace, lbaf) == 128);
static_assert(offsetof(IdentifyNamespace, vs) == 384);

inline constexpr std::uint8_t kNsfeatThinProvisioning = 1u << 0;
inline constexpr std::uint8_t kNsfeatAtomicFields = 1u << 1;      // NAWUN, NAWUPF and NACWU are valid
inline constexpr std::uint8_t kNsfeatDeallocatedError = 1u << 2;  // DULBE can be set
inline constexpr std::uint8_t kNsfeatUidNeverReused = 1u << 3;
inline constexpr std::uint8_t kNsfeatOptimalFields = 1u << 4;  // NPWG, NPWA, NPDG, NPDA and NOWS are valid

// FLBAS: format index in bits 3:0 (low part) and 6:5 (high part).
inline constexpr std::uint8_t kFlbasIndexMask = 0x0F;
inline constexpr std::uint8_t kFlbasExtendedMetadata = 1u << 4;
inline constexpr std::uint8_t kFlbasHighIndexMask = 0x60;

FLASHMOB_HD constexpr std::uint8_t lba_format_index(std::uint8_t flbas) {
  return static_cast<std::uint8_t>((flbas & kFlbasIndexMask) | ((flbas & kFlbasHighIndexMask) >> 1));
}

inline constexpr std::uint8_t kNmicShared = 1u << 0;

inline constexpr std::uint8_t kDlfeatReadsZeroes = 1;  // bits 2:0: what deallocated blocks read as
inline constexpr std::uint8_t kDlfeatWriteZeroesDeallocates = 1u << 3;

inline constexpr std::uint8_t kNsattrWriteProtected = 1u << 0;

// Namespace Management's create sends a whole page, of which the first 384 bytes have meaning (NVM 1.0c, 4.1.6).
inline constexpr std::uint32_t kNamespaceManagementBytes = 4096;

// CNS 05h, CSI 00h.
struct IdentifyNamespaceNvm {
  std::uint64_t lbstm;
  std::uint8_t pic;
  std::uint8_t reserved9[3];
  std::uint32_t elbaf[64];
  std::uint8_t reserved268[3828];
};
static_assert(sizeof(IdentifyNamespaceNvm) == kIdentifyBytes);
static_assert(offsetof(IdentifyNamespaceNvm, elbaf) == 12);

// CNS 08h.
struct IdentifyNamespaceIndependent {
  std::uint8_t nsfeat;
  std::uint8_t nmic;
  std::uint8_t rescap;
  std::uint8_t fpi;
  std::uint32_t anagrpid;
  std::uint8_t nsattr;
  std::uint8_t reserved9;
  std::uint16_t nvmsetid;
  std::uint16_t endgid;
  std::uint8_t nstat;
  std::uint8_t reserved15[4081];
};
static_assert(sizeof(IdentifyNamespaceIndependent) == kIdentifyBytes);
static_assert(offsetof(IdentifyNamespaceIndependent, anagrpid) == 4);
static_assert(offsetof(IdentifyNamespaceIndependent, nstat) == 14);

inline constexpr std::uint8_t kNstatReady = 1u << 0;

}  // namespace flashmob::nvme
