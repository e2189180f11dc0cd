// Flexible Data Placement and the directives by which hosts use it (NVMe Base 2.1, clauses 5.1.12.1.28 to 5.1.12.1.31,
// 5.1.25.1.20, 5.1.25.1.21, 7.3, 7.4 and 8.1.8; NVM command set 1.1, clauses 3.2.1 and 4.1.6).
// Little-endian layouts and pure functions; no thread rule.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nvme/command.h"
#include "nvme/features.h"
#include "nvme/uint128.h"

namespace flashmob::nvme {

// --- Configurations: log page 20h, a header and descriptors of their own lengths ---
struct FdpConfigurations {
  std::uint16_t numfdpc;  // 0's based
  std::uint8_t version;
  std::uint8_t reserved3;
  std::uint32_t sze;  // of the page, bytes
  std::uint8_t reserved8[8];
};
static_assert(sizeof(FdpConfigurations) == 16);
static_assert(offsetof(FdpConfigurations, sze) == 4);

// As many handles follow as `nruh` says, up to a multiple of 8 bytes.
struct FdpConfiguration {
  std::uint16_t dsze;
  std::uint8_t fdpa;
  std::uint8_t vss;
  std::uint32_t nrg;
  std::uint16_t nruh;
  std::uint16_t maxpids;  // 0's based
  std::uint32_t nns;
  std::uint64_t runs;   // bytes
  std::uint32_t erutl;  // seconds; 0: not reported
  std::uint8_t reserved28[36];
};
static_assert(sizeof(FdpConfiguration) == 64);
static_assert(offsetof(FdpConfiguration, nruh) == 8);
static_assert(offsetof(FdpConfiguration, runs) == 16);
static_assert(offsetof(FdpConfiguration, erutl) == 24);

inline constexpr std::uint8_t kFdpaGroupFormatMask = 0xF;  // RGIF: bits of a placement identifier that name the group
inline constexpr std::uint8_t kFdpaVolatileWriteCache = 1u << 4;
inline constexpr std::uint8_t kFdpaValid = 1u << 7;

struct FdpHandle {
  std::uint8_t ruht;
  std::uint8_t reserved1[3];
};
static_assert(sizeof(FdpHandle) == 4);
inline constexpr std::uint8_t kInitiallyIsolated = 1;
inline constexpr std::uint8_t kPersistentlyIsolated = 2;

// --- Usage of handles: log page 21h ---
struct FdpHandleUsage {
  std::uint16_t nruh;
  std::uint8_t reserved2[6];
};
static_assert(sizeof(FdpHandleUsage) == 8);

enum class FdpHandleAttribute : std::uint8_t { unused = 0, host_specified = 1, controller_specified = 2 };

struct FdpHandleUsageEntry {
  std::uint8_t ruha;
  std::uint8_t reserved1[7];
};
static_assert(sizeof(FdpHandleUsageEntry) == 8);

// --- Statistics: log page 22h ---
struct FdpStatistics {
  Uint128 hbmw;  // bytes that hosts have written
  Uint128 mbmw;  // that were written to the medium
  Uint128 mbe;  // that were erased
  std::uint8_t reserved48[16];
};
static_assert(sizeof(FdpStatistics) == 64);

// --- Events: log page 23h, oldest first ---
enum class FdpEventType : std::uint8_t {
  not_fully_written = 0x00,
  time_limit_exceeded = 0x01,
  reset_modified_handles = 0x02,
  invalid_placement_identifier = 0x03,
  media_reallocated = 0x80,
  implicitly_modified = 0x81,
};

struct FdpEvent {
  std::uint8_t type;
  std::uint8_t flags;
  std::uint16_t pid;
  Timestamp timestamp;
  std::uint32_t nsid;
  std::uint8_t type_specific[16];
  std::uint16_t rgid;
  std::uint8_t ruhid;
  std::uint8_t reserved35[5];
  std::uint8_t vs[24];
};
static_assert(sizeof(FdpEvent) == 64);
static_assert(offsetof(FdpEvent, nsid) == 12);
static_assert(offsetof(FdpEvent, rgid) == 32);

inline constexpr std::uint8_t kFdpEventIdentifierValid = 1u << 0;  // PIV
inline constexpr std::uint8_t kFdpEventNamespaceValid = 1u << 1;  // NSIDV
inline constexpr std::uint8_t kFdpEventLocationValid = 1u << 2;  // LV

struct FdpEvents {
  static constexpr std::uint32_t kMaxEntries = 63;
  std::uint32_t num;
  std::uint8_t reserved4[60];
  FdpEvent event[kMaxEntries];
};
static_assert(sizeof(FdpEvents) == 4096);

// Log specific parameter of Get Log Page: events that hosts have caused, else those of the controller.
inline constexpr std::uint8_t kFdpHostEvents = 1u << 0;

// --- Features. 1Dh: CDW11 names the endurance group, CDW12 (and the answer's dword 0) is the value ---
inline constexpr std::uint32_t kFdpGroupMask = 0xFFFF;
inline constexpr std::uint32_t kFdpEnable = 1u << 0;  // FDPE
constexpr std::uint8_t fdp_configuration_index(std::uint32_t cdw12) { return static_cast<std::uint8_t>(cdw12 >> 8); }

// 1Eh: CDW11 has a placement handle and a number of event types, which the data list for Set Features.
constexpr std::uint16_t fdp_events_handle(std::uint32_t cdw11) { return static_cast<std::uint16_t>(cdw11); }
constexpr std::uint8_t fdp_events_count(std::uint32_t cdw11) { return static_cast<std::uint8_t>(cdw11 >> 16); }
inline constexpr std::uint32_t kFdpEventEnable = 1u << 0;  // CDW12, FDPEE

// Those that drives here may report: Reclaim Unit Not Fully Written, Invalid Placement Identifier.
inline constexpr std::size_t kFdpSupportedEvents = 2;

// What Get Features answers for each.
struct FdpSupportedEvent {
  std::uint8_t type;
  std::uint8_t attributes;
};
static_assert(sizeof(FdpSupportedEvent) == 2);
inline constexpr std::uint8_t kFdpEventEnabled = 1u << 0;

// --- I/O Management Receive and Send: the operation in CDW10 7:0, what is specific to it in 31:16 ---
inline constexpr std::uint8_t kIoManagementNothing = 0;
inline constexpr std::uint8_t kHandleStatus = 1;  // of Receive; NUMD, 0's based, in CDW11
inline constexpr std::uint8_t kHandleUpdate = 1;  // of Send; the number of placement identifiers, 0's based
constexpr std::uint8_t io_management_operation(const Sqe& sqe) { return static_cast<std::uint8_t>(sqe.cdw10); }
constexpr std::uint32_t placement_identifier_count(const Sqe& sqe) { return (sqe.cdw10 >> 16) + 1; }

struct HandleStatus {
  std::uint8_t reserved0[14];
  std::uint16_t nruhsd;
};
static_assert(sizeof(HandleStatus) == 16);

struct HandleStatusEntry {
  std::uint16_t pid;
  std::uint16_t ruhid;
  std::uint32_t earutr;  // seconds; 0: not reported
  std::uint64_t ruamw;  // blocks
  std::uint8_t reserved16[16];
};
static_assert(sizeof(HandleStatusEntry) == 32);
static_assert(offsetof(HandleStatusEntry, ruamw) == 8);

// --- Directives ---
enum class Directive : std::uint8_t { identify = 0, streams = 1, data_placement = 2 };
// Directive Send and Receive: operation, type and what is specific to them in CDW11.
constexpr std::uint8_t directive_operation(const Sqe& sqe) { return static_cast<std::uint8_t>(sqe.cdw11); }
constexpr Directive directive_type(const Sqe& sqe) { return static_cast<Directive>((sqe.cdw11 >> 8) & 0xFF); }
inline constexpr std::uint8_t kReturnParameters = 1;  // of Receive, Identify
inline constexpr std::uint8_t kEnableDirective = 1;  // of Send, Identify
inline constexpr std::uint32_t kDirectiveOn = 1u << 0;  // CDW12 of it, ENDIR; the type in 15:8
constexpr Directive enabled_directive(const Sqe& sqe) { return static_cast<Directive>((sqe.cdw12 >> 8) & 0xFF); }

// A bit for each directive.
struct DirectiveParameters {
  std::uint8_t supported[32];
  std::uint8_t enabled[32];
  std::uint8_t persistent[32];  // across controller level resets
  std::uint8_t reserved96[4000];
};
static_assert(sizeof(DirectiveParameters) == 4096);

// Of a Write: the directive in CDW12 23:20, for data placement an identifier in CDW13 31:16.
constexpr Directive write_directive(const Sqe& sqe) { return static_cast<Directive>((sqe.cdw12 >> 20) & 0xF); }
constexpr std::uint16_t placement_identifier(const Sqe& sqe) { return static_cast<std::uint16_t>(sqe.cdw13 >> 16); }

// --- Namespace Management, create: what lies behind the fields that Identify has, too ---
inline constexpr std::size_t kPlacementHandleCountAt = 392;  // NPHNDLS
inline constexpr std::size_t kPlacementHandlesAt = 512;  // PHNDL, 2 bytes each
inline constexpr std::uint32_t kMaxPlacementHandles = 128;

// --- Endurance groups: CNS 19h, and log page 09h ---
struct EnduranceGroupList {
  std::uint16_t num;
  std::uint16_t identifier[2047];
};
static_assert(sizeof(EnduranceGroupList) == 4096);

struct EnduranceGroupInformation {
  std::uint8_t critical_warning;
  std::uint8_t features;
  std::uint8_t reserved2;
  std::uint8_t available_spare;  // percent, as the next two
  std::uint8_t available_spare_threshold;
  std::uint8_t percentage_used;
  std::uint16_t domain_identifier;
  std::uint8_t reserved8[24];
  Uint128 endurance_estimate;  // 10^9 bytes, as the next three; 0: not reported
  Uint128 data_units_read;
  Uint128 data_units_written;
  Uint128 media_units_written;
  Uint128 host_read_commands;
  Uint128 host_write_commands;
  Uint128 media_errors;
  Uint128 error_log_entries;
  Uint128 total_capacity;  // bytes, as the next
  Uint128 unallocated_capacity;
  std::uint8_t reserved192[320];
};
static_assert(sizeof(EnduranceGroupInformation) == 512);
static_assert(offsetof(EnduranceGroupInformation, endurance_estimate) == 32);
static_assert(offsetof(EnduranceGroupInformation, total_capacity) == 160);
inline constexpr std::uint64_t kEnduranceUnitBytes = 1'000'000'000;

}  // namespace flashmob::nvme
