// Controller properties: offsets and fields (NVMe Base 2.0c, clause 3.1.3; doorbells: PCIe transport 1.0c, 3.1.2).
// Each register has a struct of its fields, encode_*() and decode_*(); reserved bits are zero and ignored.
// Pure functions; no thread rule. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "base/platform.h"

namespace flashmob::nvme {

inline constexpr std::uint32_t kRegCap = 0x00;
inline constexpr std::uint32_t kRegVs = 0x08;
inline constexpr std::uint32_t kRegIntms = 0x0C;
inline constexpr std::uint32_t kRegIntmc = 0x10;
inline constexpr std::uint32_t kRegCc = 0x14;
inline constexpr std::uint32_t kRegCsts = 0x1C;
inline constexpr std::uint32_t kRegNssr = 0x20;
inline constexpr std::uint32_t kRegAqa = 0x24;
inline constexpr std::uint32_t kRegAsq = 0x28;
inline constexpr std::uint32_t kRegAcq = 0x30;
inline constexpr std::uint32_t kRegCrto = 0x68;
inline constexpr std::uint32_t kRegDoorbells = 0x1000;

// 3.1.3.1: controller capabilities.
struct Cap {
  std::uint16_t mqes = 0;    // entries, 0's based
  bool cqr = false;          // queues must be physically contiguous
  std::uint8_t ams = 0;      // kCapAms*
  std::uint8_t to = 0;       // units of 500 ms
  std::uint8_t dstrd = 0;    // doorbell stride is 2^(2 + dstrd) bytes
  bool nssrs = false;
  std::uint8_t css = 0;      // kCapCss*
  bool bps = false;
  std::uint8_t mpsmin = 0;   // 2^(12 + mpsmin) bytes, as mpsmax
  std::uint8_t mpsmax = 0;
  bool pmrs = false;
  bool cmbs = false;
  std::uint8_t crms = 0;     // kCapCrms*
};
inline constexpr std::uint8_t kCapAmsWeightedRoundRobin = 1u << 0;
inline constexpr std::uint8_t kCapCssNvm = 1u << 0;
inline constexpr std::uint8_t kCapCssIoCommandSets = 1u << 6;
inline constexpr std::uint8_t kCapCssAdminOnly = 1u << 7;
inline constexpr std::uint8_t kCapCrmsWithMedia = 1u << 0;
inline constexpr std::uint8_t kCapCrmsIndependentOfMedia = 1u << 1;

FLASHMOB_HD constexpr std::uint64_t encode_cap(const Cap& c) {
  return std::uint64_t{c.mqes} | (std::uint64_t{c.cqr} << 16) | (std::uint64_t{c.ams & 3u} << 17) |
         (std::uint64_t{c.to} << 24) | (std::uint64_t{c.dstrd & 0xFu} << 32) | (std::uint64_t{c.nssrs} << 36) |
         (std::uint64_t{c.css} << 37) | (std::uint64_t{c.bps} << 45) | (std::uint64_t{c.mpsmin & 0xFu} << 48) |
         (std::uint64_t{c.mpsmax & 0xFu} << 52) | (std::uint64_t{c.pmrs} << 56) | (std::uint64_t{c.cmbs} << 57) |
         (std::uint64_t{c.crms & 3u} << 59);
}
FLASHMOB_HD constexpr Cap decode_cap(std::uint64_t v) {
  Cap c;
  c.mqes = static_cast<std::uint16_t>(v);
  c.cqr = (v >> 16) & 1;
  c.ams = static_cast<std::uint8_t>((v >> 17) & 3);
  c.to = static_cast<std::uint8_t>(v >> 24);
  c.dstrd = static_cast<std::uint8_t>((v >> 32) & 0xF);
  c.nssrs = (v >> 36) & 1;
  c.css = static_cast<std::uint8_t>(v >> 37);
  c.bps = (v >> 45) & 1;
  c.mpsmin = static_cast<std::uint8_t>((v >> 48) & 0xF);
  c.mpsmax = static_cast<std::uint8_t>((v >> 52) & 0xF);
  c.pmrs = (v >> 56) & 1;
  c.cmbs = (v >> 57) & 1;
  c.crms = static_cast<std::uint8_t>((v >> 59) & 3);
  return c;
}

// 3.1.3.5: controller configuration.
struct Cc {
  bool en = false;
  std::uint8_t css = 0;     // kCcCss*
  std::uint8_t mps = 0;     // 2^(12 + mps) bytes
  std::uint8_t ams = 0;     // kCcAms*
  std::uint8_t shn = 0;     // kCcShn*
  std::uint8_t iosqes = 0;  // log2 of bytes, as iocqes
  std::uint8_t iocqes = 0;
  bool crime = false;
};
inline constexpr std::uint8_t kCcCssNvm = 0;
inline constexpr std::uint8_t kCcCssAllSupported = 6;
inline constexpr std::uint8_t kCcCssAdminOnly = 7;
inline constexpr std::uint8_t kCcAmsRoundRobin = 0;
inline constexpr std::uint8_t kCcAmsWeightedRoundRobin = 1;
inline constexpr std::uint8_t kCcShnNone = 0;
inline constexpr std::uint8_t kCcShnNormal = 1;
inline constexpr std::uint8_t kCcShnAbrupt = 2;
inline constexpr std::uint8_t kIoSqEntryBytesLog2 = 6;
inline constexpr std::uint8_t kIoCqEntryBytesLog2 = 4;

FLASHMOB_HD constexpr std::uint32_t encode_cc(const Cc& c) {
  return std::uint32_t{c.en} | ((c.css & 7u) << 4) | ((c.mps & 0xFu) << 7) | ((c.ams & 7u) << 11) |
         ((c.shn & 3u) << 14) | ((c.iosqes & 0xFu) << 16) | ((c.iocqes & 0xFu) << 20) | (std::uint32_t{c.crime} << 24);
}
FLASHMOB_HD constexpr Cc decode_cc(std::uint32_t v) {
  Cc c;
  c.en = v & 1;
  c.css = static_cast<std::uint8_t>((v >> 4) & 7);
  c.mps = static_cast<std::uint8_t>((v >> 7) & 0xF);
  c.ams = static_cast<std::uint8_t>((v >> 11) & 7);
  c.shn = static_cast<std::uint8_t>((v >> 14) & 3);
  c.iosqes = static_cast<std::uint8_t>((v >> 16) & 0xF);
  c.iocqes = static_cast<std::uint8_t>((v >> 20) & 0xF);
  c.crime = (v >> 24) & 1;
  return c;
}

// 3.1.3.6: controller status.
struct Csts {
  bool rdy = false;
  bool cfs = false;
  std::uint8_t shst = 0;  // kCstsShst*
  bool nssro = false;
  bool pp = false;
};
inline constexpr std::uint8_t kCstsShstNormal = 0;
inline constexpr std::uint8_t kCstsShstOccurring = 1;
inline constexpr std::uint8_t kCstsShstComplete = 2;

FLASHMOB_HD constexpr std::uint32_t encode_csts(const Csts& c) {
  return std::uint32_t{c.rdy} | (std::uint32_t{c.cfs} << 1) | ((c.shst & 3u) << 2) | (std::uint32_t{c.nssro} << 4) |
         (std::uint32_t{c.pp} << 5);
}
FLASHMOB_HD constexpr Csts decode_csts(std::uint32_t v) {
  Csts c;
  c.rdy = v & 1;
  c.cfs = (v >> 1) & 1;
  c.shst = static_cast<std::uint8_t>((v >> 2) & 3);
  c.nssro = (v >> 4) & 1;
  c.pp = (v >> 5) & 1;
  return c;
}

// 3.1.3.8: sizes of the admin queues, entries, 0's based.
struct Aqa {
  std::uint16_t asqs = 0;
  std::uint16_t acqs = 0;
};
FLASHMOB_HD constexpr std::uint32_t encode_aqa(const Aqa& a) { return (a.asqs & 0xFFFu) | ((a.acqs & 0xFFFu) << 16); }
FLASHMOB_HD constexpr Aqa decode_aqa(std::uint32_t v) {
  Aqa a;
  a.asqs = static_cast<std::uint16_t>(v & 0xFFF);
  a.acqs = static_cast<std::uint16_t>((v >> 16) & 0xFFF);
  return a;
}

// 3.1.3.9 and 3.1.3.10: the admin queues' base addresses have their low 12 bits reserved.
inline constexpr std::uint64_t kAdminQueueBaseMask = ~std::uint64_t{0xFFF};

// 3.1.3.7: the value that, written to NSSR, resets the subsystem.
inline constexpr std::uint32_t kNssrReset = 0x4E564D65;

}  // namespace flashmob::nvme
