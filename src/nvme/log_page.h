// Log pages that an I/O controller answers (NVMe Base 2.0c, clauses 5.16.1.1 to 5.16.1.6).
// Little-endian layouts without behaviour; no thread rule. Compiles as CUDA device code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"
#include "nvme/identify.h"
#include "nvme/uint128.h"

namespace flashmob::nvme {

// Log page identifiers, CDW10 bits 7:0 of Get Log Page.
enum class LogPage : std::uint8_t {
  supported_log_pages = 0x00,
  error_information = 0x01,
  smart_health = 0x02,
  firmware_slot = 0x03,
  changed_namespace_list = 0x04,
  commands_supported_and_effects = 0x05,
  device_self_test = 0x06,
  telemetry_host = 0x07,
  telemetry_controller = 0x08,
  endurance_group = 0x09,
  predictable_latency_nvm_set = 0x0A,
  predictable_latency_aggregate = 0x0B,
  asymmetric_namespace_access = 0x0C,
  persistent_event = 0x0D,
  lba_status = 0x0E,
  endurance_group_event_aggregate = 0x0F,
  feature_identifiers_supported_and_effects = 0x12,
  fdp_configurations = 0x20,
  fdp_handle_usage = 0x21,
  fdp_statistics = 0x22,
  fdp_events = 0x23,
  reservation_notification = 0x80,
  sanitize_status = 0x81,
  changed_zone_list = 0xBF,
};

// 5.16.1.1: one entry per log page identifier.
struct SupportedLogPages {
  std::uint32_t lid[256];
};
static_assert(sizeof(SupportedLogPages) == 1024);

inline constexpr std::uint32_t kLidSupported = 1u << 0;
inline constexpr std::uint32_t kLidIndexOffsetSupported = 1u << 1;

// 5.16.1.2: newest entry first; an entry whose error_count is 0 is unused.
struct ErrorInformationEntry {
  std::uint64_t error_count;
  std::uint16_t sqid;
  std::uint16_t cid;
  std::uint16_t status_field;              // bit 0 is the phase tag, the status lies above it
  std::uint16_t parameter_error_location;  // byte in 7:0, bit in 10:8; FFFFh: not about one field
  std::uint64_t lba;
  std::uint32_t nsid;
  std::uint8_t vendor_log_page;  // LID of a page with more information, 0 if there is none
  std::uint8_t trtype;
  std::uint8_t reserved30[2];
  std::uint64_t command_specific;
  std::uint16_t transport_specific;
  std::uint8_t reserved42[22];
};
static_assert(sizeof(ErrorInformationEntry) == 64);
static_assert(offsetof(ErrorInformationEntry, status_field) == 12);
static_assert(offsetof(ErrorInformationEntry, lba) == 16);
static_assert(offsetof(ErrorInformationEntry, nsid) == 24);
static_assert(offsetof(ErrorInformationEntry, command_specific) == 32);

inline constexpr std::uint16_t kNoParameterErrorLocation = 0xFFFF;
inline constexpr std::uint16_t kNoQueue = 0xFFFF;    // sqid of an error that no command caused
inline constexpr std::uint16_t kNoCommand = 0xFFFF;  // and its cid

// 5.16.1.3.
struct SmartHealth {
  std::uint8_t critical_warning;
  std::uint8_t composite_temperature[2];  // kelvins; the field is not aligned
  std::uint8_t available_spare;           // percent, as the two that follow
  std::uint8_t available_spare_threshold;
  std::uint8_t percentage_used;
  std::uint8_t endurance_group_critical_warning;
  std::uint8_t reserved7[25];
  Uint128 data_units_read;  // thousands of 512 B units, rounded up, as data_units_written
  Uint128 data_units_written;
  Uint128 host_read_commands;
  Uint128 host_write_commands;
  Uint128 controller_busy_time;  // minutes
  Uint128 power_cycles;
  Uint128 power_on_hours;
  Uint128 unsafe_shutdowns;
  Uint128 media_errors;
  Uint128 error_log_entries;
  std::uint32_t warning_temperature_time;   // minutes, as the next
  std::uint32_t critical_temperature_time;
  std::uint16_t temperature_sensor[8];  // kelvins; 0: no such sensor
  std::uint32_t thermal_transition_count[2];
  std::uint32_t thermal_total_time[2];  // seconds
  std::uint8_t reserved232[280];
};
static_assert(sizeof(SmartHealth) == 512);
static_assert(offsetof(SmartHealth, composite_temperature) == 1);
static_assert(offsetof(SmartHealth, data_units_read) == 32);
static_assert(offsetof(SmartHealth, controller_busy_time) == 96);
static_assert(offsetof(SmartHealth, error_log_entries) == 176);
static_assert(offsetof(SmartHealth, warning_temperature_time) == 192);
static_assert(offsetof(SmartHealth, temperature_sensor) == 200);
static_assert(offsetof(SmartHealth, thermal_transition_count) == 216);

inline constexpr std::uint8_t kCriticalWarningSpare = 1u << 0;
inline constexpr std::uint8_t kCriticalWarningTemperature = 1u << 1;
inline constexpr std::uint8_t kCriticalWarningReliability = 1u << 2;
inline constexpr std::uint8_t kCriticalWarningReadOnly = 1u << 3;
inline constexpr std::uint8_t kCriticalWarningVolatileBackup = 1u << 4;
inline constexpr std::uint8_t kCriticalWarningPersistentMemory = 1u << 5;

inline constexpr std::uint32_t kSmartDataUnitBytes = 512 * 1000;

// 5.16.1.4.
struct FirmwareSlot {
  std::uint8_t afi;  // active slot in bits 2:0, slot at the next reset in 6:4
  std::uint8_t reserved1[7];
  char frs[7][8];
  std::uint8_t reserved64[448];
};
static_assert(sizeof(FirmwareSlot) == 512);
static_assert(offsetof(FirmwareSlot, frs) == 8);

// 5.16.1.5: at most 1,024 identifiers; when more changed, the first is FFFFFFFFh and the rest are zero.
using ChangedNamespaceList = NamespaceList;

// 5.16.1.6: one entry per admin opcode and per I/O opcode of the command set that CDW14 (CSI) names.
struct CommandsSupportedAndEffects {
  std::uint32_t acs[256];
  std::uint32_t iocs[256];
  std::uint8_t reserved2048[2048];
};
static_assert(sizeof(CommandsSupportedAndEffects) == 4096);
static_assert(offsetof(CommandsSupportedAndEffects, iocs) == 1024);

inline constexpr std::uint32_t kEffectSupported = 1u << 0;                // CSUPP
inline constexpr std::uint32_t kEffectLogicalBlockContent = 1u << 1;      // LBCC
inline constexpr std::uint32_t kEffectNamespaceCapability = 1u << 2;      // NCC
inline constexpr std::uint32_t kEffectNamespaceInventory = 1u << 3;       // NIC
inline constexpr std::uint32_t kEffectControllerCapability = 1u << 4;     // CCC
inline constexpr std::uint32_t kEffectSubmissionMask = 7u << 16;          // CSE
inline constexpr std::uint32_t kEffectSubmissionPerNamespace = 1u << 16;  // alone on its namespace
inline constexpr std::uint32_t kEffectSubmissionExclusive = 2u << 16;     // alone in the subsystem

}  // namespace flashmob::nvme
