// Who the device says it is where the configuration does not say it. Plain constants; no thread rule.
#pragma once

#include <array>
#include <cstdint>

namespace flashmob::controller {

// A locally administered OUI: no registered vendor is impersonated. In the order of NGUID and EUI-64; Identify
// Controller's IEEE field holds it least significant byte first.
inline constexpr std::array<std::uint8_t, 3> kOui = {0x02, 0xF1, 0xA5};
// PCI vendor identifier, as in the function's configuration space: one that the PCI-SIG has not given to anybody.
inline constexpr std::uint16_t kPciVendorId = 0xF1A5;

}  // namespace flashmob::controller
