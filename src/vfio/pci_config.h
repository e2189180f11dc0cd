// PCI configuration space of a type 0 function: header and the capabilities that an NVMe controller has (PCI Express
// Base 4.0, 7.5 and 7.7; PCI Bus Power Management 1.2; class code: NVMe PCIe Transport 1.0c, 2.1).
// Plain data without behaviour, little-endian; no thread rule.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace flashmob::vfio {

inline constexpr std::size_t kConfigSpaceBytes = 4096;  // PCI Express; the first 256 bytes are PCI's
inline constexpr std::uint32_t kNvmeClassCode = 0x010802;  // mass storage, non-volatile memory, NVM Express I/O

#pragma pack(push, 1)
struct PciHeader {
  std::uint16_t vendor_id;
  std::uint16_t device_id;
  std::uint16_t command;  // kCommand*
  std::uint16_t status;   // kStatus*
  std::uint8_t revision_id;
  std::array<std::uint8_t, 3> class_code;  // programming interface first
  std::uint8_t cache_line_dwords;
  std::uint8_t latency_timer;
  std::uint8_t header_type;
  std::uint8_t bist;
  std::array<std::uint32_t, 6> bars;
  std::uint32_t cardbus_cis;
  std::uint16_t subsystem_vendor_id;
  std::uint16_t subsystem_id;
  std::uint32_t rom_base;
  std::uint8_t capabilities;  // offset of the first
  std::array<std::uint8_t, 7> reserved;
  std::uint8_t interrupt_line;
  std::uint8_t interrupt_pin;  // 1: INTA#
  std::uint8_t min_grant;
  std::uint8_t max_latency;
};
static_assert(sizeof(PciHeader) == 64 && offsetof(PciHeader, class_code) == 9 && offsetof(PciHeader, bars) == 0x10);
static_assert(offsetof(PciHeader, subsystem_vendor_id) == 0x2C && offsetof(PciHeader, capabilities) == 0x34);
static_assert(offsetof(PciHeader, interrupt_line) == 0x3C);

inline constexpr std::uint16_t kCommandMemory = 1u << 1;
inline constexpr std::uint16_t kCommandBusMaster = 1u << 2;
inline constexpr std::uint16_t kCommandParity = 1u << 6;
inline constexpr std::uint16_t kCommandSerr = 1u << 8;
inline constexpr std::uint16_t kCommandIntxDisable = 1u << 10;
inline constexpr std::uint16_t kStatusInterrupt = 1u << 3;
inline constexpr std::uint16_t kStatusCapabilities = 1u << 4;
inline constexpr std::uint32_t kBarMemory64 = 0x4;  // a memory BAR of 64 bits, not prefetchable

inline constexpr std::uint8_t kCapabilityPowerManagement = 0x01;
inline constexpr std::uint8_t kCapabilityPciExpress = 0x10;
inline constexpr std::uint8_t kCapabilityMsix = 0x11;

struct PowerManagementCapability {
  std::uint8_t id;
  std::uint8_t next;
  std::uint16_t capabilities;
  std::uint16_t control;  // PMCSR
  std::uint8_t bridge;
  std::uint8_t data;
};
static_assert(sizeof(PowerManagementCapability) == 8);
inline constexpr std::uint16_t kPowerVersion3 = 3;
inline constexpr std::uint16_t kPowerStateMask = 3;  // PMCSR: D0 or D3hot
inline constexpr std::uint16_t kPowerNoSoftReset = 1u << 3;

struct MsixCapability {
  std::uint8_t id;
  std::uint8_t next;
  std::uint16_t control;  // table size minus one, kMsix*
  std::uint32_t table;    // offset, BAR in bits 2:0
  std::uint32_t pending;  // offset, BAR in bits 2:0
};
static_assert(sizeof(MsixCapability) == 12);
inline constexpr std::uint16_t kMsixFunctionMask = 1u << 14;
inline constexpr std::uint16_t kMsixEnable = 1u << 15;
inline constexpr std::uint32_t kMsixMaxVectors = 2048;

struct MsixEntry {
  std::uint64_t address;
  std::uint32_t data;
  std::uint32_t control;  // bit 0: masked
};
static_assert(sizeof(MsixEntry) == 16);
inline constexpr std::uint32_t kMsixEntryMasked = 1u << 0;

struct PciExpressCapability {
  std::uint8_t id;
  std::uint8_t next;
  std::uint16_t capabilities;  // version 2, endpoint
  std::uint32_t device_capabilities;
  std::uint16_t device_control;
  std::uint16_t device_status;
  std::uint32_t link_capabilities;
  std::uint16_t link_control;
  std::uint16_t link_status;
  std::uint32_t slot_capabilities;
  std::uint16_t slot_control;
  std::uint16_t slot_status;
  std::uint16_t root_control;
  std::uint16_t root_capabilities;
  std::uint32_t root_status;
  std::uint32_t device_capabilities2;
  std::uint16_t device_control2;
  std::uint16_t device_status2;
  std::uint32_t link_capabilities2;
  std::uint16_t link_control2;
  std::uint16_t link_status2;
  std::uint32_t slot_capabilities2;
  std::uint16_t slot_control2;
  std::uint16_t slot_status2;
};
static_assert(sizeof(PciExpressCapability) == 60 && offsetof(PciExpressCapability, device_capabilities2) == 36);
#pragma pack(pop)

inline constexpr std::uint16_t kExpressVersion2 = 2;  // endpoint: device/port type 0
inline constexpr std::uint32_t kExpressRoleBasedErrors = 1u << 15;
inline constexpr std::uint32_t kExpressFunctionReset = 1u << 28;  // device capabilities: function level reset
inline constexpr std::uint16_t kExpressStartReset = 1u << 15;     // device control
inline constexpr std::uint32_t kExpressCompletionTimeoutDisable = 1u << 4;  // device capabilities 2

}  // namespace flashmob::vfio
