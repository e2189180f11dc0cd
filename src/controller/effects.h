// What commands and features do to a device beyond their own answer: the log pages Commands Supported and Effects,
// Feature Identifiers Supported and Effects, and NVMe-MI Commands Supported and Effects (NVMe Base 2.0c, 5.16.1.6,
// 5.16.1.18 and 5.16.1.19). Pure functions; no thread rule.
#pragma once

#include <cstddef>
#include <cstdint>

#include "controller/features.h"
#include "controller/rights.h"
#include "nvme/log_page.h"

namespace flashmob::controller {

// One entry per feature identifier.
struct FeatureIdentifiersEffects {
  std::uint32_t fid[256];
};
static_assert(sizeof(FeatureIdentifiersEffects) == 1024);

inline constexpr auto kNvmeMiCommandsPage = static_cast<nvme::LogPage>(0x13);

// Scope of a command or feature, bits 31:20 of an entry.
inline constexpr std::uint32_t kScopeNamespace = 1u << 20;
inline constexpr std::uint32_t kScopeController = 1u << 21;
inline constexpr std::uint32_t kScopeSubsystem = 1u << 25;

// With the I/O commands of one command set. Over fabrics some commands do not exist, nor do those that the host has no
// right to.
nvme::CommandsSupportedAndEffects command_effects(nvme::Csi csi, bool fabrics, bool basic_commands_only,
                                                  const HostRights& rights, bool has_placement = false);
FeatureIdentifiersEffects feature_effects(const Features& features);

}  // namespace flashmob::controller
