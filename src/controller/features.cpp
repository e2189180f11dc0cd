#include "controller/features.h"

#include <algorithm>

#include "base/check.h"
#include "nvme/identify.h"

namespace flashmob::controller {

using nvme::Feature;
using nvme::FeatureSelect;
using nvme::Status;

Features::Features(const ControllerConfig& config, bool fabrics, const HostRights& rights, bool has_placement)
    : has_write_cache_(config.volatile_write_cache),
      has_interrupts_(!fabrics),
      may_save_(rights.may_save()),
      may_manage_(rights.may_manage()),
      has_placement_(has_placement),
      max_pairs_(config.max_queue_pairs),
      vectors_(config.interrupt_vectors),
      coalescing_disabled_(new std::atomic<bool>[config.interrupt_vectors]()) {
  const auto pairs = static_cast<std::uint16_t>(max_pairs_ - 1);
  default_.arbitration = nvme::encode_arbitration({nvme::kArbitrationNoLimit, 0, 0, 0});
  default_.number_of_queues = nvme::encode_number_of_queues({pairs, pairs});
  saved_ = default_;
  current_ = default_;
}

std::optional<Features::Capabilities> Features::capabilities(std::uint8_t fid) const {
  constexpr bool kPerNamespace = true, kData = true;
  const bool saveable = may_save_;
  switch (static_cast<Feature>(fid)) {
    case Feature::volatile_write_cache:
      if (!has_write_cache_) return std::nullopt;
      return Capabilities{saveable, !kPerNamespace, !kData};
    case Feature::interrupt_coalescing:
      if (!has_interrupts_) return std::nullopt;
      return Capabilities{saveable, !kPerNamespace, !kData};
    case Feature::interrupt_vector_configuration:
      if (!has_interrupts_) return std::nullopt;
      return Capabilities{false, !kPerNamespace, !kData};
    case Feature::arbitration:
    case Feature::power_management:
    case Feature::temperature_threshold:
    case Feature::write_atomicity:
    case Feature::async_event_configuration:
    case Feature::software_progress_marker:
      return Capabilities{saveable, !kPerNamespace, !kData};
    case Feature::error_recovery:
      return Capabilities{saveable, kPerNamespace, !kData};
    case Feature::number_of_queues:
    case Feature::keep_alive_timer:
    case Feature::io_command_set_profile:
      return Capabilities{false, !kPerNamespace, !kData};
    case Feature::namespace_write_protection:
      if (!may_manage_) return std::nullopt;
      return Capabilities{false, kPerNamespace, !kData};
    case Feature::flexible_data_placement:
      if (!has_placement_) return std::nullopt;
      return Capabilities{may_manage_, !kPerNamespace, !kData, may_manage_};
    case Feature::fdp_events:
      if (!has_placement_) return std::nullopt;
      return Capabilities{false, kPerNamespace, kData, may_save_};
    case Feature::timestamp:
    case Feature::host_behavior_support:
      return Capabilities{false, !kPerNamespace, kData};
    default:
      return std::nullopt;
  }
}

const std::uint32_t* Features::find(const Values& values, Feature feature, std::uint32_t cdw11, std::uint32_t nsid) {
  switch (feature) {
    case Feature::arbitration:
      return &values.arbitration;
    case Feature::power_management:
      return &values.power_management;
    case Feature::temperature_threshold:
      return nvme::decode_temperature_threshold(cdw11).thsel == nvme::kThresholdOver ? &values.over_temperature
                                                                                     : &values.under_temperature;
    case Feature::error_recovery:
      return &values.error_recovery[nsid];
    case Feature::volatile_write_cache:
      return &values.volatile_write_cache;
    case Feature::number_of_queues:
      return &values.number_of_queues;
    case Feature::interrupt_coalescing:
      return &values.interrupt_coalescing;
    case Feature::write_atomicity:
      return &values.write_atomicity;
    case Feature::async_event_configuration:
      return &values.async_events;
    case Feature::keep_alive_timer:
      return &values.keep_alive_ms;
    case Feature::io_command_set_profile:
      return &values.command_set_profile;
    case Feature::software_progress_marker:
      return &values.software_progress;
    default:
      return nullptr;
  }
}

std::uint32_t* Features::find(Values& values, Feature feature, std::uint32_t cdw11, std::uint32_t nsid) {
  return const_cast<std::uint32_t*>(find(static_cast<const Values&>(values), feature, cdw11, nsid));
}

namespace {

// The threshold's selectors; "all sensors" makes sense only when setting.
bool valid_temperature_selector(std::uint32_t cdw11, bool setting) {
  const auto fields = nvme::decode_temperature_threshold(cdw11);
  if (fields.thsel > nvme::kThresholdUnder) return false;
  return fields.tmpsel == nvme::kTemperatureComposite || (setting && fields.tmpsel == nvme::kTemperatureAllSensors);
}

}  // namespace

Status Features::check(Feature feature, std::uint32_t cdw11, std::uint32_t& value) const {
  switch (feature) {
    case Feature::arbitration:
      value = nvme::encode_arbitration(nvme::decode_arbitration(cdw11));
      return Status::success;
    case Feature::power_management:
      if ((cdw11 & nvme::kPowerStateMask) != 0) return Status::invalid_field;  // there is one power state
      value = cdw11 & (nvme::kWorkloadHintMask << nvme::kWorkloadHintShift);
      return Status::success;
    case Feature::temperature_threshold:
      if (!valid_temperature_selector(cdw11, true)) return Status::invalid_field;
      value = nvme::decode_temperature_threshold(cdw11).tmpth;
      return Status::success;
    case Feature::error_recovery:
      // NSFEAT says that reading deallocated blocks is never an error.
      if ((cdw11 & nvme::kErrorRecoveryDeallocatedError) != 0) return Status::invalid_field;
      value = cdw11 & nvme::kErrorRecoveryTimeMask;
      return Status::success;
    case Feature::volatile_write_cache:
      value = cdw11 & nvme::kVolatileWriteCacheEnable;
      return Status::success;
    case Feature::number_of_queues: {
      const auto asked = nvme::decode_number_of_queues(cdw11);
      if (asked.sqs == 0xFFFF || asked.cqs == 0xFFFF) return Status::invalid_field;
      const auto most = static_cast<std::uint16_t>(max_pairs_ - 1);
      value = nvme::encode_number_of_queues({std::min(asked.sqs, most), std::min(asked.cqs, most)});
      return Status::success;
    }
    case Feature::interrupt_coalescing:
      value = nvme::encode_interrupt_coalescing(nvme::decode_interrupt_coalescing(cdw11));
      return Status::success;
    case Feature::write_atomicity:
      value = cdw11 & nvme::kWriteAtomicityDisableNormal;
      return Status::success;
    case Feature::async_event_configuration:
      value = cdw11 & (nvme::kAsyncEventSmartMask | nvme::kAsyncEventNamespaceAttribute);
      return Status::success;
    case Feature::keep_alive_timer: {
      const std::uint64_t rounded =
          (cdw11 + std::uint64_t{kKeepAliveGranularityMs} - 1) / kKeepAliveGranularityMs * kKeepAliveGranularityMs;
      value = static_cast<std::uint32_t>(std::min<std::uint64_t>(rounded, UINT32_MAX));
      return Status::success;
    }
    case Feature::io_command_set_profile:
      // Identify CNS 1Ch lists one combination, at index 0.
      if ((cdw11 & nvme::kIoCommandSetCombinationMask) != 0) return Status::io_command_set_combination_rejected;
      value = 0;
      return Status::success;
    case Feature::software_progress_marker:
      value = cdw11 & 0xFF;
      return Status::success;
    default:
      return Status::invalid_field;
  }
}

Status Features::set(Feature feature, std::uint32_t cdw11, std::uint32_t nsid) {
  if (feature == Feature::interrupt_vector_configuration) {
    const std::uint32_t vector = cdw11 & nvme::kInterruptVectorMask;
    if (vector >= vectors_) return Status::invalid_field;
    coalescing_disabled_[vector].store((cdw11 & nvme::kCoalescingDisable) != 0, std::memory_order_relaxed);
    return Status::success;
  }
  std::uint32_t value = 0;
  if (const Status status = check(feature, cdw11, value); status != Status::success) return status;
  store(current_, feature, cdw11, nsid, value);
  return Status::success;
}

void Features::note_saved(Feature feature, std::uint32_t cdw11, std::uint32_t nsid) {
  std::uint32_t value = 0;
  if (check(feature, cdw11, value) == Status::success) store(saved_, feature, cdw11, nsid, value);
}

void Features::store(Values& to, Feature feature, std::uint32_t cdw11, std::uint32_t nsid, std::uint32_t value) {
  const bool per_namespace = feature == Feature::error_recovery;
  // Many hosts name no namespace where they mean the device; theirs is what was last set for all.
  const bool all = nsid == nvme::kNsidBroadcast || nsid == 0;
  const std::uint32_t first = !per_namespace || all ? 0 : nsid;
  const std::uint32_t last = !per_namespace ? 0 : all ? kMaxNamespaces : nsid;
  for (std::uint32_t id = first; id <= last; ++id) *find(to, feature, cdw11, id) = value;
}

const Features::Values& Features::values(FeatureSelect select) const {
  if (select == FeatureSelect::default_value) return default_;
  return select == FeatureSelect::saved ? saved_ : current_;
}

Status Features::get(Feature feature, FeatureSelect select, std::uint32_t cdw11, std::uint32_t nsid,
                     std::uint32_t& value) const {
  if (feature == Feature::interrupt_vector_configuration) {
    const std::uint32_t vector = cdw11 & nvme::kInterruptVectorMask;
    if (vector >= vectors_) return Status::invalid_field;
    const bool disabled = select == FeatureSelect::current && coalescing_disabled(static_cast<std::uint16_t>(vector));
    value = vector | (disabled ? nvme::kCoalescingDisable : 0);
    return Status::success;
  }
  if (feature == Feature::temperature_threshold && !valid_temperature_selector(cdw11, false)) {
    return Status::invalid_field;
  }
  const std::uint32_t* found = find(values(select), feature, cdw11, nsid);
  FLASHMOB_CHECK(found != nullptr);
  value = *found;
  return Status::success;
}

std::uint32_t Features::current(Feature feature) const {
  const std::uint32_t* found = find(current_, feature, 0, 0);
  FLASHMOB_CHECK(found != nullptr);
  return *found;
}

void Features::set_timestamp(const nvme::Timestamp& timestamp, std::uint64_t now_ns) {
  timestamp_ms_ = nvme::timestamp_milliseconds(timestamp);
  timestamp_set_at_ns_ = now_ns;
  timestamp_origin_ = nvme::kTimestampOriginSetFeatures;
}

nvme::Timestamp Features::timestamp(FeatureSelect select, std::uint64_t now_ns) const {
  if (select != FeatureSelect::current) return nvme::encode_timestamp(0, nvme::kTimestampOriginReset);
  const std::uint64_t elapsed_ms = (now_ns - timestamp_set_at_ns_) / 1'000'000;
  return nvme::encode_timestamp(timestamp_ms_ + elapsed_ms, timestamp_origin_);
}

Status Features::set_host_behavior(const nvme::HostBehaviorSupport& behavior) {
  // Neither extended telemetry areas nor more than 16 LBA formats exist here, so only ACRE may be set.
  if (behavior.acre > 1 || behavior.etdas != 0 || behavior.lbafee != 0) return Status::invalid_field;
  host_behavior_.acre = behavior.acre;
  return Status::success;
}

nvme::HostBehaviorSupport Features::host_behavior(FeatureSelect select) const {
  return select == FeatureSelect::current ? host_behavior_ : nvme::HostBehaviorSupport{};
}

void Features::reset(std::uint64_t now_ns) {
  current_ = saved_;
  for (std::uint32_t vector = 0; vector < vectors_; ++vector) {
    coalescing_disabled_[vector].store(false, std::memory_order_relaxed);
  }
  timestamp_ms_ = 0;
  timestamp_set_at_ns_ = now_ns;
  timestamp_origin_ = nvme::kTimestampOriginReset;
  host_behavior_ = {};
}

}  // namespace flashmob::controller
