// Data structures and fields of the Zoned Namespace command set (NVM Express Zoned Namespace Command Set 1.1).
// Little-endian layouts without behaviour; no thread rule.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nvme/command.h"
#include "nvme/identify.h"

namespace flashmob::nvme {

// Clause 2.1.1.3, as ZS of a zone descriptor has them.
enum class ZoneState : std::uint8_t {
  empty = 0x1,              // ZSE
  implicitly_opened = 0x2,  // ZSIO
  explicitly_opened = 0x3,  // ZSEO
  closed = 0x4,             // ZSC
  read_only = 0xD,          // ZSRO
  full = 0xE,               // ZSF
  offline = 0xF,            // ZSO
};

// Zone Send Action, CDW13 bits 7:0 of Zone Management Send (clause 3.4.3).
enum class ZoneSendAction : std::uint8_t {
  close = 0x01,
  finish = 0x02,
  open = 0x03,
  reset = 0x04,
  offline = 0x05,
  set_descriptor_extension = 0x10,
};
inline constexpr std::uint32_t kZoneSelectAll = 1u << 8;  // CDW13

// Zone Receive Action, CDW13 bits 7:0 of Zone Management Receive (clause 3.4.2).
enum class ZoneReceiveAction : std::uint8_t {
  report_zones = 0x00,
  extended_report_zones = 0x01,
};
// Which zones a report is to name, CDW13 bits 15:8.
enum class ZoneReportFilter : std::uint8_t {
  all = 0,
  empty = 1,
  implicitly_opened = 2,
  explicitly_opened = 3,
  closed = 4,
  full = 5,
  read_only = 6,
  offline = 7,
};
inline constexpr std::uint32_t kZonePartialReport = 1u << 16;  // CDW13

constexpr std::uint8_t zone_action(const Sqe& sqe) { return static_cast<std::uint8_t>(sqe.cdw13); }
constexpr bool sets_zone_extension(const Sqe& sqe) {
  return zone_action(sqe) == static_cast<std::uint8_t>(ZoneSendAction::set_descriptor_extension);
}
constexpr std::uint8_t zone_report_filter(const Sqe& sqe) { return static_cast<std::uint8_t>(sqe.cdw13 >> 8); }
// Zone Management Receive: NUMD, 0's based, in CDW12.
constexpr std::uint64_t zone_report_bytes(const Sqe& sqe) { return (std::uint64_t{sqe.cdw12} + 1) * 4; }

// One zone of a report; its descriptor extension follows it in an extended one.
struct ZoneDescriptor {
  std::uint8_t zt;  // type in 3:0
  std::uint8_t zs;  // state in 7:4
  std::uint8_t za;  // attributes
  std::uint8_t zai;
  std::uint8_t reserved4[4];
  std::uint64_t zcap;   // blocks
  std::uint64_t zslba;
  std::uint64_t wp;
  std::uint8_t reserved32[32];
};
static_assert(sizeof(ZoneDescriptor) == 64);
static_assert(offsetof(ZoneDescriptor, za) == 2);
static_assert(offsetof(ZoneDescriptor, zcap) == 8);
static_assert(offsetof(ZoneDescriptor, zslba) == 16);
static_assert(offsetof(ZoneDescriptor, wp) == 24);

inline constexpr std::uint8_t kZoneTypeSequentialWrite = 0x2;
inline constexpr unsigned kZoneStateShift = 4;
inline constexpr std::uint8_t kZoneExtensionValid = 1u << 7;  // ZA
inline constexpr std::uint64_t kNoWritePointer = UINT64_MAX;  // of a zone that cannot be written

struct ZoneReportHeader {
  std::uint64_t zones;
  std::uint8_t reserved8[56];
};
static_assert(sizeof(ZoneReportHeader) == 64);

inline constexpr std::uint32_t kZoneExtensionUnitBytes = 64;

struct ZonedLbaFormat {
  std::uint64_t zsze;  // blocks
  std::uint8_t zdes;   // in units of 64 bytes
  std::uint8_t reserved9[7];
};
static_assert(sizeof(ZonedLbaFormat) == 16);
static_assert(offsetof(ZonedLbaFormat, zdes) == 8);

// CNS 05h with CSI 2h.
struct IdentifyNamespaceZoned {
  std::uint16_t zoc;
  std::uint16_t ozcs;
  std::uint32_t mar;  // 0's based, as mor; FFFFFFFFh: no limit
  std::uint32_t mor;
  std::uint32_t rrl;  // seconds, as those that follow; 0: not said
  std::uint32_t frl;
  std::uint32_t rrl1;
  std::uint32_t rrl2;
  std::uint32_t rrl3;
  std::uint32_t frl1;
  std::uint32_t frl2;
  std::uint32_t frl3;
  std::uint32_t numzrwa;
  std::uint16_t zrwafg;
  std::uint16_t zrwasz;
  std::uint8_t zrwacap;
  std::uint8_t reserved53[2763];
  ZonedLbaFormat lbafe[64];
  std::uint8_t vs[256];
};
static_assert(sizeof(IdentifyNamespaceZoned) == kIdentifyBytes);
static_assert(offsetof(IdentifyNamespaceZoned, mar) == 4);
static_assert(offsetof(IdentifyNamespaceZoned, mor) == 8);
static_assert(offsetof(IdentifyNamespaceZoned, frl) == 16);
static_assert(offsetof(IdentifyNamespaceZoned, numzrwa) == 44);
static_assert(offsetof(IdentifyNamespaceZoned, zrwacap) == 52);
static_assert(offsetof(IdentifyNamespaceZoned, lbafe) == 2816);
static_assert(offsetof(IdentifyNamespaceZoned, vs) == 3840);

inline constexpr std::uint16_t kOzcsReadsAcrossZones = 1u << 0;
inline constexpr std::uint32_t kNoZoneLimit = UINT32_MAX;

// CNS 06h with CSI 2h: ZASL counts as MDTS does, and 0 stands for MDTS.
struct IdentifyControllerZoned {
  std::uint8_t zasl;
  std::uint8_t reserved1[4095];
};
static_assert(sizeof(IdentifyControllerZoned) == kIdentifyBytes);

// Log page BFh of a namespace: zones whose descriptors have changed without a command that says so. FFFFh: more than
// fit, and none is named.
struct ChangedZoneList {
  static constexpr std::uint32_t kMaxEntries = 511;
  static constexpr std::uint16_t kTooMany = 0xFFFF;
  std::uint16_t nrzid;
  std::uint8_t reserved2[6];
  std::uint64_t zslba[kMaxEntries];
};
static_assert(sizeof(ChangedZoneList) == 4096);
static_assert(offsetof(ChangedZoneList, zslba) == 8);

}  // namespace flashmob::nvme
