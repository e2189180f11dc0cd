// What an admin command ends with, and where in the command an error lies (NVMe Base 2.0c, Figure 206: Parameter Error
// Location). Plain values; no thread rule.
#pragma once

#include <cstdint>

#include "nvme/log_page.h"
#include "nvme/status.h"

namespace flashmob::controller {

struct AdminResult {
  nvme::Status status = nvme::Status::success;
  std::uint32_t dw0 = 0;
  std::uint16_t error_location = nvme::kNoParameterErrorLocation;
  bool deferred = false;  // the command completes later, when the queue host answers or an event happens
};

// Parameter Error Location of bit `bit` of command dword `dword`.
constexpr std::uint16_t location(unsigned dword, unsigned bit = 0) {
  return static_cast<std::uint16_t>((dword * 4 + bit / 8) | ((bit % 8) << 8));
}
inline constexpr std::uint16_t kAtFlags = location(0, 8);
inline constexpr std::uint16_t kAtNsid = location(1);
inline constexpr std::uint16_t kAtPrp1 = location(6);
inline constexpr std::uint16_t kAtPrp2 = location(8);
inline constexpr std::uint16_t kAtCdw10 = location(10);

constexpr AdminResult succeed(std::uint32_t dw0 = 0) { return {.dw0 = dw0}; }
constexpr AdminResult fail(nvme::Status status, std::uint16_t at = nvme::kNoParameterErrorLocation) {
  return {.status = status, .error_location = at};
}
constexpr AdminResult later() { return {.deferred = true}; }

}  // namespace flashmob::controller
