// Features of Set Features and Get Features: identifiers and the fields of CDW11 and of their data
// (NVMe Base 2.0c, clauses 5.15 and 5.27.1; NVM command set 1.0c, clause 4.1.3).
// Little-endian layouts and pure functions; no thread rule. Compiles as CUDA device code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"

namespace flashmob::nvme {

enum class Feature : std::uint8_t {
  arbitration = 0x01,
  power_management = 0x02,
  lba_range_type = 0x03,
  temperature_threshold = 0x04,
  error_recovery = 0x05,
  volatile_write_cache = 0x06,
  number_of_queues = 0x07,
  interrupt_coalescing = 0x08,
  interrupt_vector_configuration = 0x09,
  write_atomicity = 0x0A,
  async_event_configuration = 0x0B,
  autonomous_power_state_transition = 0x0C,
  host_memory_buffer = 0x0D,
  timestamp = 0x0E,
  keep_alive_timer = 0x0F,
  host_controlled_thermal_management = 0x10,
  non_operational_power_state = 0x11,
  read_recovery_level = 0x12,
  host_behavior_support = 0x16,
  sanitize_config = 0x17,
  io_command_set_profile = 0x19,
  flexible_data_placement = 0x1D,
  fdp_events = 0x1E,
  software_progress_marker = 0x80,
  host_identifier = 0x81,
  reservation_notification_mask = 0x82,
  reservation_persistence = 0x83,
  namespace_write_protection = 0x84,
};

// Get Features CDW10: FID in 7:0, SEL in 10:8. Set Features CDW10: FID in 7:0, SV in 31.
enum class FeatureSelect : std::uint8_t {
  current = 0,
  default_value = 1,
  saved = 2,
  supported_capabilities = 3,
};
inline constexpr std::uint32_t kFeatureSave = 1u << 31;

FLASHMOB_HD constexpr std::uint8_t feature_id(std::uint32_t cdw10) { return static_cast<std::uint8_t>(cdw10 & 0xFF); }
FLASHMOB_HD constexpr std::uint8_t feature_select(std::uint32_t cdw10) {
  return static_cast<std::uint8_t>((cdw10 >> 8) & 7);
}

// Completion DW0 of Get Features with select "supported capabilities".
inline constexpr std::uint32_t kFeatureSaveable = 1u << 0;
inline constexpr std::uint32_t kFeatureNamespaceSpecific = 1u << 1;
inline constexpr std::uint32_t kFeatureChangeable = 1u << 2;

// Arbitration (01h). The burst is 2^ab commands, kArbitrationNoLimit for any number; weights are 0's based.
inline constexpr std::uint8_t kArbitrationNoLimit = 7;
struct ArbitrationFields {
  std::uint8_t ab, lpw, mpw, hpw;
};
FLASHMOB_HD constexpr ArbitrationFields decode_arbitration(std::uint32_t cdw11) {
  return {static_cast<std::uint8_t>(cdw11 & 7), static_cast<std::uint8_t>(cdw11 >> 8),
          static_cast<std::uint8_t>(cdw11 >> 16), static_cast<std::uint8_t>(cdw11 >> 24)};
}
FLASHMOB_HD constexpr std::uint32_t encode_arbitration(ArbitrationFields f) {
  return (f.ab & 7u) | (std::uint32_t{f.lpw} << 8) | (std::uint32_t{f.mpw} << 16) | (std::uint32_t{f.hpw} << 24);
}

// Power Management (02h).
inline constexpr std::uint32_t kPowerStateMask = 0x1F;
inline constexpr unsigned kWorkloadHintShift = 5;
inline constexpr std::uint32_t kWorkloadHintMask = 7;

// Temperature Threshold (04h): kelvins, which sensor (0 is the composite temperature, 15 is all), over or under.
inline constexpr std::uint8_t kTemperatureComposite = 0;
inline constexpr std::uint8_t kTemperatureAllSensors = 15;
inline constexpr std::uint8_t kThresholdOver = 0;
inline constexpr std::uint8_t kThresholdUnder = 1;
struct TemperatureThresholdFields {
  std::uint16_t tmpth;
  std::uint8_t tmpsel, thsel;
};
FLASHMOB_HD constexpr TemperatureThresholdFields decode_temperature_threshold(std::uint32_t cdw11) {
  return {static_cast<std::uint16_t>(cdw11), static_cast<std::uint8_t>((cdw11 >> 16) & 0xF),
          static_cast<std::uint8_t>((cdw11 >> 20) & 3)};
}
FLASHMOB_HD constexpr std::uint32_t encode_temperature_threshold(TemperatureThresholdFields f) {
  return f.tmpth | ((f.tmpsel & 0xFu) << 16) | ((f.thsel & 3u) << 20);
}

// Error Recovery (05h).
inline constexpr std::uint32_t kErrorRecoveryTimeMask = 0xFFFF;           // TLER, units of 100 ms
inline constexpr std::uint32_t kErrorRecoveryDeallocatedError = 1u << 16;  // DULBE

// Volatile Write Cache (06h).
inline constexpr std::uint32_t kVolatileWriteCacheEnable = 1u << 0;

// Number of Queues (07h): requested in CDW11, allocated in completion DW0, both 0's based, without the admin queues.
struct NumberOfQueuesFields {
  std::uint16_t sqs, cqs;
};
FLASHMOB_HD constexpr NumberOfQueuesFields decode_number_of_queues(std::uint32_t value) {
  return {static_cast<std::uint16_t>(value), static_cast<std::uint16_t>(value >> 16)};
}
FLASHMOB_HD constexpr std::uint32_t encode_number_of_queues(NumberOfQueuesFields f) {
  return f.sqs | (std::uint32_t{f.cqs} << 16);
}

// Interrupt Coalescing (08h): entries (0's based) and units of 100 us; a time of 0 turns it off.
struct InterruptCoalescingFields {
  std::uint8_t thr, time;
};
FLASHMOB_HD constexpr InterruptCoalescingFields decode_interrupt_coalescing(std::uint32_t cdw11) {
  return {static_cast<std::uint8_t>(cdw11), static_cast<std::uint8_t>(cdw11 >> 8)};
}
FLASHMOB_HD constexpr std::uint32_t encode_interrupt_coalescing(InterruptCoalescingFields f) {
  return f.thr | (std::uint32_t{f.time} << 8);
}

// Interrupt Vector Configuration (09h).
inline constexpr std::uint32_t kInterruptVectorMask = 0xFFFF;
inline constexpr std::uint32_t kCoalescingDisable = 1u << 16;

// Write Atomicity (0Ah): set means AWUN and NAWUN do not apply, only the power-fail values do.
inline constexpr std::uint32_t kWriteAtomicityDisableNormal = 1u << 0;

// Asynchronous Event Configuration (0Bh): bits 7:0 are SMART's critical warnings (log_page.h), then notices.
inline constexpr std::uint32_t kAsyncEventSmartMask = 0xFF;
inline constexpr std::uint32_t kAsyncEventNamespaceAttribute = 1u << 8;
inline constexpr std::uint32_t kAsyncEventFirmwareActivation = 1u << 9;
inline constexpr std::uint32_t kAsyncEventTelemetry = 1u << 10;
inline constexpr std::uint32_t kAsyncEventAnaChange = 1u << 11;

// Timestamp (0Eh): 8 bytes of data. Milliseconds since 1970 in the low 48 bits, attributes in byte 6.
struct Timestamp {
  std::uint8_t milliseconds[6];
  std::uint8_t attributes;
  std::uint8_t reserved7;
};
static_assert(sizeof(Timestamp) == 8);
static_assert(offsetof(Timestamp, attributes) == 6);
inline constexpr std::uint8_t kTimestampSynchStopped = 1u << 0;
inline constexpr std::uint8_t kTimestampOriginMask = 7u << 1;
inline constexpr std::uint8_t kTimestampOriginReset = 0u << 1;
inline constexpr std::uint8_t kTimestampOriginSetFeatures = 1u << 1;

FLASHMOB_HD constexpr Timestamp encode_timestamp(std::uint64_t milliseconds, std::uint8_t attributes) {
  Timestamp t{};
  for (int i = 0; i < 6; ++i) t.milliseconds[i] = static_cast<std::uint8_t>(milliseconds >> (8 * i));
  t.attributes = attributes;
  return t;
}
FLASHMOB_HD constexpr std::uint64_t timestamp_milliseconds(const Timestamp& t) {
  std::uint64_t value = 0;
  for (int i = 0; i < 6; ++i) value |= std::uint64_t{t.milliseconds[i]} << (8 * i);
  return value;
}

// Keep Alive Timer (0Fh): CDW11 is the timeout in milliseconds, 0 turns it off.

// Host Behavior Support (16h): 512 bytes of data.
struct HostBehaviorSupport {
  std::uint8_t acre;
  std::uint8_t etdas;
  std::uint8_t lbafee;
  std::uint8_t reserved3[509];
};
static_assert(sizeof(HostBehaviorSupport) == 512);

// I/O Command Set Profile (19h): index into the combinations of CNS 1Ch.
inline constexpr std::uint32_t kIoCommandSetCombinationMask = 0x1FF;

// Host Identifier (81h): 16 bytes with EXHID set, else 8.
inline constexpr std::uint32_t kHostIdentifierExtended = 1u << 0;

// Namespace Write Protection (84h), CDW11 bits 2:0.
enum class WriteProtection : std::uint8_t {
  none = 0,
  protect = 1,
  until_power_cycle = 2,
  permanent = 3,
};
inline constexpr std::uint32_t kWriteProtectionMask = 7;

// LBA Range Type (03h): up to 64 entries of data.
struct LbaRangeType {
  std::uint8_t type;
  std::uint8_t attributes;
  std::uint8_t reserved2[14];
  std::uint64_t slba;
  std::uint64_t nlb;  // 0's based
  std::uint8_t guid[16];
  std::uint8_t reserved48[16];
};
static_assert(sizeof(LbaRangeType) == 64);
static_assert(offsetof(LbaRangeType, slba) == 16);
static_assert(offsetof(LbaRangeType, guid) == 32);

}  // namespace flashmob::nvme
