// Asynchronous events: types, their information, and completion dword 0 (NVMe Base 2.0c, clause 5.2).
// Pure functions; no thread rule. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "nvme/log_page.h"

namespace flashmob::nvme {

enum class AsyncEventType : std::uint8_t {
  error = 0,
  smart_health = 1,
  notice = 2,
  io_command_specific = 6,
  vendor_specific = 7,
};

enum class AsyncErrorInfo : std::uint8_t {
  write_to_invalid_doorbell = 0x00,
  invalid_doorbell_value = 0x01,
  diagnostic_failure = 0x02,
  persistent_internal_error = 0x03,
  transient_internal_error = 0x04,
  firmware_image_load_error = 0x05,
};

enum class AsyncSmartInfo : std::uint8_t {
  reliability = 0x00,
  temperature_threshold = 0x01,
  spare_below_threshold = 0x02,
};

enum class AsyncNoticeInfo : std::uint8_t {
  namespace_attribute_changed = 0x00,
  firmware_activation_starting = 0x01,
  telemetry_log_changed = 0x02,
  asymmetric_namespace_access_change = 0x03,
};

// DW0: type in 2:0, information in 15:8, the log page that tells more (and whose reading clears the event) in 23:16.
struct AsyncEvent {
  AsyncEventType type;
  std::uint8_t info;
  LogPage log_page;
};

FLASHMOB_HD constexpr std::uint32_t encode_async_event(AsyncEvent event) {
  return (static_cast<std::uint32_t>(event.type) & 7u) | (std::uint32_t{event.info} << 8) |
         (static_cast<std::uint32_t>(event.log_page) << 16);
}
FLASHMOB_HD constexpr AsyncEvent decode_async_event(std::uint32_t dw0) {
  return {static_cast<AsyncEventType>(dw0 & 7), static_cast<std::uint8_t>(dw0 >> 8),
          static_cast<LogPage>((dw0 >> 16) & 0xFF)};
}

}  // namespace flashmob::nvme
