// The features of one controller: their current, saved and default values (NVMe Base 2.0c, 5.15 and 5.27.1).
//
// This class knows which values are legal; the controller moves data structures and makes values take effect. Saved
// values outlive controller resets. Admin thread only, except coalescing_disabled().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "controller/rights.h"
#include "controller/subsystem.h"
#include "flashmob/config.h"
#include "nvme/features.h"
#include "nvme/status.h"

namespace flashmob::controller {

// The device's temperatures in kelvins: it has one, which never changes, and no sensors besides.
inline constexpr std::uint16_t kCompositeTemperature = 310;
inline constexpr std::uint16_t kWarningTemperature = 343;   // WCTEMP
inline constexpr std::uint16_t kCriticalTemperature = 353;  // CCTEMP
inline constexpr std::uint32_t kKeepAliveGranularityMs = 100;  // KAS = 1

class Features {
 public:
  struct Capabilities {
    bool saveable;
    bool namespace_specific;
    bool has_data;  // its value is a data structure rather than a dword
    bool changeable = true;  // by this host
  };

  // Over fabrics there are no interrupts to configure. Hosts' rights say what can be saved, and whether Namespace Write
  // Protection exists, whose value is the subsystem's, as are those of Flexible Data Placement.
  explicit Features(const ControllerConfig& config, bool fabrics = false, const HostRights& rights = {},
                    bool has_placement = false);

  // Nothing for features that this controller does not have.
  std::optional<Capabilities> capabilities(std::uint8_t fid) const;

  // Features whose value is a dword. `nsid` matters to namespace-specific ones only (broadcast sets all).
  // `cdw11` of get() selects the threshold (04h) or the vector (09h).
  nvme::Status set(nvme::Feature feature, std::uint32_t cdw11, std::uint32_t nsid);
  // What set() has just accepted is saved.
  void note_saved(nvme::Feature feature, std::uint32_t cdw11, std::uint32_t nsid);
  nvme::Status get(nvme::Feature feature, nvme::FeatureSelect select, std::uint32_t cdw11, std::uint32_t nsid,
                   std::uint32_t& value) const;
  std::uint32_t current(nvme::Feature feature) const;

  std::uint16_t over_temperature() const { return static_cast<std::uint16_t>(current_.over_temperature); }
  std::uint16_t under_temperature() const { return static_cast<std::uint16_t>(current_.under_temperature); }
  // Any thread.
  bool coalescing_disabled(std::uint16_t vector) const {
    return vector < vectors_ && coalescing_disabled_[vector].load(std::memory_order_relaxed);
  }

  // Timestamp (0Eh) counts milliseconds on from the value set, or from zero at the last reset.
  void set_timestamp(const nvme::Timestamp& timestamp, std::uint64_t now_ns);
  nvme::Timestamp timestamp(nvme::FeatureSelect select, std::uint64_t now_ns) const;

  // Host Behavior Support (16h).
  nvme::Status set_host_behavior(const nvme::HostBehaviorSupport& behavior);
  nvme::HostBehaviorSupport host_behavior(nvme::FeatureSelect select) const;

  // Controller reset: current values become the saved ones (for features that cannot be saved: the defaults).
  void reset(std::uint64_t now_ns);

 private:
  // Every dword-valued feature but the interrupt vectors'. Fields that cannot be saved keep their default in saved_.
  struct Values {
    std::uint32_t arbitration = 0;
    std::uint32_t power_management = 0;
    std::uint32_t over_temperature = kWarningTemperature;
    std::uint32_t under_temperature = 0;
    std::uint32_t volatile_write_cache = nvme::kVolatileWriteCacheEnable;
    std::uint32_t number_of_queues = 0;
    std::uint32_t interrupt_coalescing = 0;
    std::uint32_t write_atomicity = 0;
    std::uint32_t async_events = 0;
    std::uint32_t keep_alive_ms = 0;
    std::uint32_t command_set_profile = 0;
    std::uint32_t software_progress = 0;
    std::array<std::uint32_t, kMaxNamespaces + 1> error_recovery{};
  };

  static const std::uint32_t* find(const Values& values, nvme::Feature feature, std::uint32_t cdw11,
                                   std::uint32_t nsid);
  static void store(Values& to, nvme::Feature feature, std::uint32_t cdw11, std::uint32_t nsid, std::uint32_t value);
  static std::uint32_t* find(Values& values, nvme::Feature feature, std::uint32_t cdw11, std::uint32_t nsid);
  // The value to store for a Set Features dword, or why it is refused.
  nvme::Status check(nvme::Feature feature, std::uint32_t cdw11, std::uint32_t& value) const;
  const Values& values(nvme::FeatureSelect select) const;

  bool has_write_cache_;
  bool has_interrupts_;
  bool may_save_;
  bool may_manage_;
  bool has_placement_;
  std::uint32_t max_pairs_;
  std::uint32_t vectors_;
  Values default_;
  Values saved_;
  Values current_;
  std::unique_ptr<std::atomic<bool>[]> coalescing_disabled_;
  std::uint64_t timestamp_ms_ = 0;
  std::uint64_t timestamp_set_at_ns_ = 0;
  std::uint8_t timestamp_origin_ = nvme::kTimestampOriginReset;
  nvme::HostBehaviorSupport host_behavior_{};
};

}  // namespace flashmob::controller
