// Construction of a controller and what any thread may ask of it.
#include "controller/controller.h"

#include "base/check.h"

namespace flashmob::controller {
namespace {

constexpr std::uint8_t kReadyTimeout500ms = 20;

std::uint64_t capabilities(const ControllerConfig& config, const HostRights& rights) {
  return nvme::encode_cap({.mqes = static_cast<std::uint16_t>(config.max_queue_entries - 1),
                           .cqr = true,
                           .ams = nvme::kCapAmsWeightedRoundRobin,
                           .to = kReadyTimeout500ms,
                           .nssrs = rights.may_manage(),
                           .css = nvme::kCapCssNvm | nvme::kCapCssIoCommandSets,
                           .crms = nvme::kCapCrmsWithMedia});
}

const ControllerConfig& validated(const ControllerConfig& config) {
  config.validate();
  return config;
}

}  // namespace

Controller::Controller(Subsystem& subsystem, const ControllerConfig& config, QueueHost& host,
                       const ControllerRole& role)
    : subsystem_(subsystem),
      config_(validated(config)),
      host_(host),
      role_(role),
      rate_gate_(role.rights.max_commands_per_s, role.rights.max_bytes_per_s),
      cap_(capabilities(config, role.rights)),
      doorbell_memory_(nvme::kRegDoorbells + doorbell_bytes(),
                       role.fabrics ? memory::HostMemory::Kind::anonymous : memory::HostMemory::Kind::shared_memfd),
      queues_(config.max_queue_pairs),
      features_(config, role.fabrics, role.rights, subsystem.placement() != nullptr),
      events_(config.async_event_limit),
      segments_(config.max_transfer_bytes / 4096 + 2) {
  io_limits_.max_transfer_bytes = config.max_transfer_bytes;
  io_limits_.max_append_bytes = config.max_append_bytes != 0 ? config.max_append_bytes : config.max_transfer_bytes;
  io_limits_.volatile_write_cache = config.volatile_write_cache;
  io_limits_.data_pointer.sgl_may_be_longer = role.fabrics;
  io_limits_.read_only = !role.rights.may_write();
  io_limits_.has_placement = subsystem.placement() != nullptr;
  doorbells_ = reinterpret_cast<std::uint32_t*>(doorbell_memory_.data() + nvme::kRegDoorbells);
  if (!role.fabrics) load_features();
  cntlid_ = subsystem_.add_controller(*this);
}

// Over fabrics controllers come and go, and each begins anew (Base 2.0c, 2.2: the dynamic controller model).
void Controller::load_features() {
  const std::lock_guard lock(subsystem_.mutex());
  for (const media::SavedFeature& saved : subsystem_.saved_features()) {
    if (saved.fid > UINT8_MAX) continue;
    // What another configuration saved may be more than this one has.
    const auto capabilities = features_.capabilities(static_cast<std::uint8_t>(saved.fid));
    if (!capabilities || !capabilities->saveable) continue;
    if (capabilities->namespace_specific && saved.nsid != nvme::kNsidBroadcast && !is_valid_nsid(saved.nsid)) continue;
    const auto feature = static_cast<nvme::Feature>(saved.fid);
    if (features_.set(feature, saved.cdw11, saved.nsid) == nvme::Status::success)
      features_.note_saved(feature, saved.cdw11, saved.nsid);
  }
}

Controller::~Controller() { subsystem_.remove_controller(*this); }

std::size_t Controller::doorbell_bytes() const {
  return 2 * (std::size_t{config_.max_queue_pairs} + 1) * sizeof(std::uint32_t);
}

bool Controller::coalescing_disabled(std::uint16_t vector) const { return features_.coalescing_disabled(vector); }

std::uint16_t Controller::record_error(std::uint16_t sqid, std::uint16_t cid, nvme::Status status, std::uint32_t nsid,
                                       std::uint64_t lba) {
  return record_error_at(sqid, cid, status, nsid, lba, nvme::kNoParameterErrorLocation);
}

std::uint16_t Controller::record_error_at(std::uint16_t sqid, std::uint16_t cid, nvme::Status status,
                                          std::uint32_t nsid, std::uint64_t lba, std::uint16_t error_location) {
  const auto field = static_cast<std::uint16_t>(nvme::with_do_not_retry(status) | nvme::kStatusMore);
  nvme::ErrorInformationEntry entry{};
  entry.sqid = sqid;
  entry.cid = cid;
  entry.status_field = static_cast<std::uint16_t>(field << 1);
  entry.parameter_error_location = error_location;
  entry.lba = lba;
  entry.nsid = nsid;
  error_log_.record(entry);
  return field;
}

void Controller::raise_error_event(nvme::AsyncErrorInfo event) {
  events_.raise({nvme::AsyncEventType::error, static_cast<std::uint8_t>(event), nvme::LogPage::error_information});
  notify_admin_thread();
}

void Controller::notify_namespace_changed(std::uint32_t nsid) {
  FLASHMOB_CHECK(nsid >= 1 && nsid <= kMaxNamespaces);
  changed_namespaces_.add(nsid);
  events_.raise({nvme::AsyncEventType::notice,
                 static_cast<std::uint8_t>(nvme::AsyncNoticeInfo::namespace_attribute_changed),
                 nvme::LogPage::changed_namespace_list});
  notify_admin_thread();
}

}  // namespace flashmob::controller
