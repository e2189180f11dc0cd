// Set Features and Get Features (NVMe Base 2.0c, 5.15 and 5.27): which identifiers and namespaces are legal, the data
// structures of some features, and how new values take effect.
#include "base/check.h"
#include "controller/controller.h"
#include "nvme/identify.h"
#include "nvme/log_page.h"

namespace flashmob::controller {

using nvme::Feature;
using nvme::FeatureSelect;
using nvme::Status;

namespace {

constexpr std::uint16_t kAtSelect = location(10, 8);
constexpr std::uint16_t kAtSave = location(10, 31);
constexpr std::uint16_t kAtCdw11 = location(11);

}  // namespace

AdminResult Controller::set_features(const nvme::Sqe& sqe) {
  const std::uint8_t fid = nvme::feature_id(sqe.cdw10);
  const bool save = (sqe.cdw10 & nvme::kFeatureSave) != 0;
  const auto capabilities = features_.capabilities(fid);
  if (!capabilities) return fail(Status::invalid_field, kAtCdw10);
  if (save && !capabilities->saveable) return fail(Status::feature_not_saveable, kAtSave);
  const bool all = sqe.nsid == nvme::kNsidBroadcast;
  if (capabilities->namespace_specific && sqe.nsid != 0) {
    if (!all && (!is_valid_nsid(sqe.nsid))) return fail(Status::invalid_namespace_or_format, kAtNsid);
    if (!all && attached(sqe.nsid) == nullptr) return fail(Status::invalid_field, kAtNsid);
  } else if (sqe.nsid != 0 && !all) {
    if (sqe.nsid > kMaxNamespaces) return fail(Status::invalid_namespace_or_format, kAtNsid);
    return fail(Status::feature_not_namespace_specific, kAtNsid);
  }
  switch (static_cast<Feature>(fid)) {
    case Feature::number_of_queues:
      return set_number_of_queues(sqe);
    case Feature::timestamp:
      return set_timestamp(sqe);
    case Feature::host_behavior_support:
      return set_host_behavior(sqe);
    case Feature::namespace_write_protection:
      return set_write_protection(sqe);
    case Feature::flexible_data_placement:
      return set_placement(sqe, save);
    case Feature::fdp_events:
      return set_placement_events(sqe);
    default:
      return set_scalar_feature(sqe, static_cast<Feature>(fid), save);
  }
}

AdminResult Controller::set_scalar_feature(const nvme::Sqe& sqe, Feature feature, bool save) {
  const Status status = features_.set(feature, sqe.cdw11, sqe.nsid);
  if (status != Status::success) return fail(status, kAtCdw11);
  const bool flushes = apply_feature(feature);
  std::function<DiskDone()> saver;
  if (save && !role_.fabrics) {
    const std::lock_guard lock(subsystem_.mutex());
    saver = subsystem_.feature_saver({static_cast<std::uint32_t>(feature), sqe.cdw11, sqe.nsid});
  }
  if (!flushes && !saver) {
    if (save) features_.note_saved(feature, sqe.cdw11, sqe.nsid);  // for as long as this controller lives
    return succeed();
  }
  const auto failed = std::make_shared<std::vector<std::uint32_t>>();
  DiskWork work = flushes ? flush_work(failed) : DiskWork{.run = nullptr, .waits = false, .media = {}};
  work.waits |= saver != nullptr;
  work.run = [flush = std::move(work.run), saver = std::move(saver)] {
    DiskDone done{.good = true, .waited = false};
    if (flush) done.waited = flush().waited;  // what it could not do is in `failed`
    if (!saver) return done;
    const DiskDone saved = saver();
    return DiskDone{.good = saved.good, .waited = done.waited || saved.waited};
  };
  wait_for_disk(std::move(work), [this, failed, feature, save, sqe, switched = cache_switches_](bool saved) {
    note_flush_failures(failed);
    if (feature == Feature::volatile_write_cache && saved && failed->empty()) note_flushed(switched);
    if (saved && save) features_.note_saved(feature, sqe.cdw11, sqe.nsid);
    AdminResult result = saved ? succeed() : fail(Status::internal_error, kAtSave);
    if (!failed->empty()) result = fail(Status::write_fault);
    complete(sqe.cid, sqe.nsid, result);
  });
  return later();
}

AdminResult Controller::set_number_of_queues(const nvme::Sqe& sqe) {
  // Identifiers in use must not become invalid, so the host has to ask before it creates queues.
  if (queues_.any_io()) return fail(Status::command_sequence_error);
  const Status status = features_.set(Feature::number_of_queues, sqe.cdw11, 0);
  if (status != Status::success) return fail(status, kAtCdw11);
  apply_feature(Feature::number_of_queues);
  return succeed(features_.current(Feature::number_of_queues));
}

AdminResult Controller::set_timestamp(const nvme::Sqe& sqe) {
  nvme::Timestamp timestamp;
  const Status status = from_guest(sqe, std::as_writable_bytes(std::span(&timestamp, 1)));
  if (status != Status::success) return fail(status, kAtPrp1);
  features_.set_timestamp(timestamp, now_ns_);
  return succeed();
}

AdminResult Controller::set_host_behavior(const nvme::Sqe& sqe) {
  nvme::HostBehaviorSupport behavior;
  Status status = from_guest(sqe, std::as_writable_bytes(std::span(&behavior, 1)));
  if (status != Status::success) return fail(status, kAtPrp1);
  status = features_.set_host_behavior(behavior);
  return status == Status::success ? succeed() : fail(status);
}

// 5.27.1.29 and 8.12. All or nothing: one namespace that cannot change must not leave the others changed.
AdminResult Controller::set_write_protection(const nvme::Sqe& sqe) {
  const std::uint32_t asked = sqe.cdw11 & nvme::kWriteProtectionMask;
  if (asked > static_cast<std::uint32_t>(nvme::WriteProtection::permanent))
    return fail(Status::invalid_field, kAtCdw11);
  const auto state = static_cast<nvme::WriteProtection>(asked);
  // Hosts leave the namespace out of other features; what cannot be undone must say whom it is for.
  if (sqe.nsid == 0) return fail(Status::invalid_namespace_or_format, kAtNsid);
  const bool all = sqe.nsid == nvme::kNsidBroadcast;
  const std::uint32_t first = all ? 1 : sqe.nsid, last = all ? kMaxNamespaces : sqe.nsid;
  NamespaceCommand command;
  {
    const std::lock_guard lock(subsystem_.mutex());
    for (std::uint32_t nsid = first; nsid <= last; ++nsid) {
      if (attached(nsid) == nullptr) continue;
      if (const Status s = subsystem_.check_write_protection(nsid, state); s != Status::success)
        return fail(s, kAtCdw11);
      command.nsids.push_back(nsid);
    }
  }
  command.begin = [&subsystem = subsystem_, state](std::uint32_t nsid) {
    return subsystem.set_write_protection(nsid, state);
  };
  return change_namespaces(sqe, std::move(command));
}

AdminResult Controller::get_write_protection(const nvme::Sqe& sqe, nvme::FeatureSelect select) {
  if (sqe.nsid == 0) return fail(Status::invalid_namespace_or_format, kAtNsid);
  // It cannot be saved, so that default and saved value are one.
  if (select != FeatureSelect::current) return succeed(static_cast<std::uint32_t>(nvme::WriteProtection::none));
  const std::lock_guard lock(subsystem_.mutex());
  return succeed(static_cast<std::uint32_t>(subsystem_.write_protection(sqe.nsid)));
}

AdminResult Controller::get_features(const nvme::Sqe& sqe) {
  const std::uint8_t fid = nvme::feature_id(sqe.cdw10);
  const auto capabilities = features_.capabilities(fid);
  if (!capabilities) return fail(Status::invalid_field, kAtCdw10);
  const std::uint8_t select = nvme::feature_select(sqe.cdw10);
  if (select > static_cast<std::uint8_t>(FeatureSelect::supported_capabilities)) {
    return fail(Status::invalid_field, kAtSelect);
  }
  const auto kind = static_cast<FeatureSelect>(select);
  if (kind == FeatureSelect::supported_capabilities) {
    return succeed((capabilities->changeable ? nvme::kFeatureChangeable : 0) |
                   (capabilities->saveable ? nvme::kFeatureSaveable : 0) |
                   (capabilities->namespace_specific ? nvme::kFeatureNamespaceSpecific : 0));
  }
  if (capabilities->namespace_specific && sqe.nsid != 0) {
    if (!is_valid_nsid(sqe.nsid)) return fail(Status::invalid_namespace_or_format, kAtNsid);
    if (attached(sqe.nsid) == nullptr) return fail(Status::invalid_field, kAtNsid);
  }
  const auto feature = static_cast<Feature>(fid);
  if (feature == Feature::namespace_write_protection) return get_write_protection(sqe, kind);
  if (feature == Feature::flexible_data_placement) return get_placement(sqe, kind);
  if (feature == Feature::fdp_events) return get_placement_events(sqe, kind);
  if (feature == Feature::timestamp) return answer(sqe, features_.timestamp(kind, now_ns_));
  if (feature == Feature::host_behavior_support) return answer(sqe, features_.host_behavior(kind));
  std::uint32_t value = 0;
  const Status status = features_.get(feature, kind, sqe.cdw11, sqe.nsid, value);
  return status == Status::success ? succeed(value) : fail(status, kAtCdw11);
}

bool Controller::apply_feature(Feature feature) {
  switch (feature) {
    case Feature::arbitration:
    case Feature::interrupt_coalescing:
      note_queue_features();
      host_.features_changed(*this);
      break;
    case Feature::interrupt_vector_configuration:
      host_.features_changed(*this);
      break;
    case Feature::volatile_write_cache: {
      const bool on = (features_.current(feature) & nvme::kVolatileWriteCacheEnable) != 0;
      const bool was_on = write_cache_enabled_.exchange(config_.volatile_write_cache && on, std::memory_order_relaxed);
      // What the cache held must be durable once it is off; if that fails, or a reset comes between, it is still owed.
      owes_flush_ = !on && (was_on || owes_flush_);
      cache_switches_ += was_on != on;
      return owes_flush_;
    }
    case Feature::number_of_queues: {
      const auto f = nvme::decode_number_of_queues(features_.current(feature));
      queues_.grant(f.sqs + 1u, f.cqs + 1u);
      break;
    }
    case Feature::keep_alive_timer:
      restart_keep_alive();
      register_event_.store(true, std::memory_order_release);  // poll() tells the engine of the new deadline
      break;
    case Feature::temperature_threshold:
    case Feature::async_event_configuration:
      check_health_events();
      break;
    default:
      break;  // kept for the host, without effect on this device
  }
  return false;
}

// On enable and reset: every value that something outside Features mirrors.
bool Controller::apply_all_features() {
  const bool flushes = apply_feature(Feature::volatile_write_cache);
  apply_feature(Feature::number_of_queues);
  // Once for both: the engine interrupts its threads for it.
  note_queue_features();
  host_.features_changed(*this);
  return flushes;
}

// What the engine reads by arbitration() and coalescing().
void Controller::note_queue_features() {
  const auto a = nvme::decode_arbitration(features_.current(Feature::arbitration));
  const nvme::Cc cc = nvme::decode_cc(cc_.load(std::memory_order_acquire));
  arbitration_.store({.weighted_round_robin = cc.ams == nvme::kCcAmsWeightedRoundRobin,
                      .burst_log2 = a.ab,
                      .low_weight = a.lpw,
                      .medium_weight = a.mpw,
                      .high_weight = a.hpw},
                     std::memory_order_relaxed);
  const auto c = nvme::decode_interrupt_coalescing(features_.current(Feature::interrupt_coalescing));
  coalescing_.store({.threshold = c.thr, .time_100us = c.time}, std::memory_order_relaxed);
}

// Raises the event of a critical warning once when it comes up or when the host first asks to hear of it.
void Controller::check_health_events() {
  const auto wanted =
      static_cast<std::uint8_t>(features_.current(Feature::async_event_configuration) & nvme::kAsyncEventSmartMask);
  const auto warnings = static_cast<std::uint8_t>(critical_warning() & wanted);
  if ((warnings & ~reported_warnings_ & nvme::kCriticalWarningTemperature) != 0) {
    events_.raise({nvme::AsyncEventType::smart_health,
                   static_cast<std::uint8_t>(nvme::AsyncSmartInfo::temperature_threshold),
                   nvme::LogPage::smart_health});
  }
  reported_warnings_ = warnings;
}

}  // namespace flashmob::controller
