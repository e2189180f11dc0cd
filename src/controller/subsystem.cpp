// Namespaces: made from the configuration, by hosts, formatted, attached, deleted.
#include "controller/subsystem.h"

#include <algorithm>
#include <bit>
#include <new>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "command_set/registry.h"
#include "controller/controller.h"
#include "controller/identity.h"

namespace flashmob::controller {
namespace {

const SubsystemConfig& validated(const SubsystemConfig& config) {
  config.validate();
  command_set::check_command_sets(config);
  return config;
}

std::uint64_t hash(std::string_view text, std::uint64_t seed) {
  std::uint64_t h = seed;
  for (const char c : text) h = splitmix64(h ^ static_cast<std::uint8_t>(c));
  return h;
}

void store_big_endian(std::uint64_t value, std::uint8_t* out, unsigned bytes) {
  for (unsigned i = 0; i < bytes; ++i) out[i] = static_cast<std::uint8_t>(value >> (8 * (bytes - 1 - i)));
}

}  // namespace

Subsystem::Subsystem(const SubsystemConfig& config, std::uint64_t seed, std::uint32_t timing_unit_bytes)
    : config_(validated(config)),
      seed_(seed),
      timing_unit_bytes_(timing_unit_bytes),
      command_sets_(command_set::command_sets_of(config)),
      placement_(config.placement.handles != 0 ? std::make_unique<command_set::Placement>(config.placement) : nullptr) {
  if (!std::has_single_bit(timing_unit_bytes)) throw ConfigError("timing.unit_bytes must be a power of two");
  std::uint32_t nsid = 0;
  for (const NamespaceConfig& ns : config_.namespaces) {
    ++nsid;
    auto media = media::open(ns.media, ns.size_bytes, nsid, seed_, ns.cache_bytes);
    const auto saved = media->saved();
    if (saved != nullptr && feature_saves_ == nullptr) feature_saves_ = std::make_shared<FeatureSaves>(saved);
    if (saved != nullptr && saved->loaded() && saved->loaded()->deleted) {
      media_.push_back(std::move(media));  // keeps its lock
      continue;
    }
    total_capacity_bytes_ += media->size_bytes();
    NamespaceConfig config_now = ns;
    if (const auto found = media->found()) config_now.lba_bytes = found->lba_bytes;
    install(nsid, config_now, std::move(media), true);
  }
  total_capacity_bytes_ += config_.spare_capacity_bytes;
}

Subsystem::~Subsystem() {
  if (lent_ != nullptr) return_marks();
  FLASHMOB_CHECK(controllers_.empty());
}

void Subsystem::install(std::uint32_t nsid, const NamespaceConfig& config, std::unique_ptr<media::Media> media,
                        bool from_configuration, bool is_handle_chosen) {
  NamespaceInfo& info = infos_[nsid];
  info = {};
  info.config = config;
  info.config.size_bytes = media->size_bytes();
  info.from_configuration = from_configuration;
  info.is_handle_chosen = is_handle_chosen;
  info.media = media.get();
  info.capacity_bytes = media->size_bytes();
  // Namespaces follow each other in the device's unit space, as they would on one drive: streams to two namespaces
  // then do not hit the timing model's instances in step.
  info.units = (media->size_bytes() + timing_unit_bytes_ - 1) / timing_unit_bytes_;
  info.unit_base = unit_space_.take(info.units);
  media_.push_back(std::move(media));
  allocated_capacity_bytes_ += info.capacity_bytes;
  derive_identifiers(nsid);
  const auto saved = info.media->saved();
  if (saved != nullptr && saved->loaded()) take_over_saved(nsid, *saved->loaded());
  info.current = namespace_of(nsid, config.lba_bytes);
  info.current->writable.store(info.media->writable() && info.write_protection == nvme::WriteProtection::none,
                               std::memory_order_relaxed);
  if (const auto found = info.media->found())
    for (const media::SavedRange& range : found->uncorrectable)
      FLASHMOB_CHECK(info.current->uncorrectable.insert(range.first, range.blocks));
  if (saved != nullptr && !saved->loaded()) {
    media::SavedState base;
    base.lba_bytes = config.lba_bytes;
    base.nguid = info.nguid;
    base.eui64 = info.eui64;
    base.uuid = info.uuid;
    saved->set_base(base);
  }
}

// Hosts know it by these.
void Subsystem::take_over_saved(std::uint32_t nsid, const media::SavedState& state) {
  NamespaceInfo& info = infos_[nsid];
  info.nguid = state.nguid;
  info.eui64 = state.eui64;
  info.uuid = state.uuid;
  info.write_protection = static_cast<nvme::WriteProtection>(state.write_protection);
}

command_set::Namespace* Subsystem::namespace_of(std::uint32_t nsid, std::uint32_t lba_bytes) {
  NamespaceInfo& info = infos_[nsid];
  const auto lba_shift = static_cast<std::uint8_t>(std::countr_zero(lba_bytes));
  command_set::Namespace*& made = info.by_format[command_set::lba_format_of_shift(lba_shift)];
  if (made != nullptr) {
    made->restart_marks();
    if (made->state != nullptr) made->state->restart();
    return made;
  }
  auto ns = std::make_unique<command_set::Namespace>();
  ns->nsid = nsid;
  ns->lba_shift = lba_shift;
  ns->blocks = info.media->size_bytes() >> ns->lba_shift;
  ns->base = info.media->base();
  ns->writable = info.media->writable();
  ns->pages_may_go = info.media->pages_may_go();
  ns->direct_stores = info.media->direct_stores();
  if (info.media->saved() != nullptr) ns->uncorrectable.limit(media::kMaxSavedRanges);
  ns->unit_shift = static_cast<std::uint8_t>(std::countr_zero(timing_unit_bytes_));
  ns->unit_base = info.unit_base;
  ns->command_set = command_set::command_set_named(info.config.command_set);
  ns->media = info.media;
  ns->command_set->prepare(*ns, info.config);
  if (places_data() && ns->command_set->csi() == nvme::Csi::nvm) {
    ns->placement = std::make_unique<command_set::NamespacePlacement>(
        *placement_, nsid, command_set::configured_handles(config_.placement, info.config));
    ns->has_directives = true;
  }
  namespaces_.push_back(std::move(ns));
  made = namespaces_.back().get();
  return made;
}

// Same serial number and history, same identifiers: hosts recognise the device when it is started again.
void Subsystem::derive_identifiers(std::uint32_t nsid) {
  NamespaceInfo& info = infos_[nsid];
  const std::uint64_t first = hash(config_.serial, (generation_ << 32) | nsid);
  const std::uint64_t second = splitmix64(first);
  // EUI-64: OUI and a 40-bit extension. NGUID: 8 vendor bytes, OUI, and the same extension.
  std::copy_n(kOui.begin(), 3, info.eui64.begin());
  store_big_endian(first, &info.eui64[3], 5);
  store_big_endian(second, info.nguid.data(), 8);
  std::copy_n(info.eui64.begin(), 8, &info.nguid[8]);
  // UUID of version 8 (custom), variant 10b.
  store_big_endian(splitmix64(second), info.uuid.data(), 8);
  store_big_endian(splitmix64(second ^ first), &info.uuid[8], 8);
  info.uuid[6] = static_cast<std::uint8_t>((info.uuid[6] & 0x0F) | 0x80);
  info.uuid[8] = static_cast<std::uint8_t>((info.uuid[8] & 0x3F) | 0x80);
}

std::uint16_t Subsystem::add_controller(Controller& controller) {
  const std::lock_guard lock(mutex_);
  // Identifiers go round, so that one that has just become free is not another controller's at once.
  const auto taken = [&](std::uint16_t id) {
    return std::any_of(controllers_.begin(), controllers_.end(),
                       [&](const Controller* c) { return c->cntlid() == id; });
  };
  if (controllers_.size() >= kMaxControllers)
    throw ConfigError("the subsystem has " + std::to_string(kMaxControllers) + " controllers, which is the limit");
  std::uint16_t id = next_cntlid_;
  while (taken(id)) id = id == kMaxCntlid ? std::uint16_t{1} : static_cast<std::uint16_t>(id + 1);
  next_cntlid_ = id == kMaxCntlid ? std::uint16_t{1} : static_cast<std::uint16_t>(id + 1);
  for (std::uint32_t nsid = 1; nsid <= config_.namespaces.size(); ++nsid) {
    NamespaceInfo& info = infos_[nsid];
    // Only namespaces that the configuration made: hosts attach those that they made themselves. A private one goes to
    // the first controller, and when that has gone, to the next that comes.
    const bool configured = info.current != nullptr && info.from_configuration;
    const bool free =
        info.detached_for_format.empty() &&
        std::none_of(controllers_.begin(), controllers_.end(), [&](const Controller* c) { return c->holds(nsid); });
    if (configured && controller.rights().sees(nsid) && (info.config.shared || free)) {
      if (info.is_formatting)
        await_format(nsid, controller);
      else
        attach_namespace(nsid, controller);
    }
  }
  controllers_.push_back(&controller);
  note_served(controller);
  return id;
}

void Subsystem::remove_controller(Controller& controller) {
  const std::lock_guard lock(mutex_);
  const IoCounters counters = controller.counters();
  removed_counters_.add(counters);
  std::erase(controllers_, &controller);
  note_gone(controller, counters);
  for (NamespaceInfo& info : infos_) std::erase(info.detached_for_format, &controller);
  changes_.forget(controller);
}

std::uint32_t Subsystem::create_namespace(const NamespaceConfig& config, nvme::Status& status, const HostRights& rights,
                                          bool is_handle_chosen) {
  std::uint32_t nsid = 1;
  while (nsid <= kMaxNamespaces && (infos_[nsid].current != nullptr || !rights.sees(nsid))) ++nsid;
  status = nvme::Status::namespace_identifier_unavailable;
  if (nsid > kMaxNamespaces) return 0;
  status = nvme::Status::namespace_insufficient_capacity;
  free_unused();
  if (media_.size() >= kMaxMediaObjects || config.size_bytes > unallocated_capacity_bytes()) return 0;
  try {
    auto media = media::open("memory", config.size_bytes, nsid, seed_);
    ++generation_;
    install(nsid, config, std::move(media), false, is_handle_chosen);
  } catch (const ConfigError&) {
    return 0;  // the machine has no room for what the configuration promised
  } catch (const std::bad_alloc&) {
    return 0;
  }
  status = nvme::Status::success;
  return nsid;
}

NamespaceChange Subsystem::delete_namespace(std::uint32_t nsid) {
  const NamespaceInfo& info = infos_[nsid];
  if (info.current == nullptr) return not_begun(nvme::Status::invalid_field);
  if (is_host_protected(nsid)) return not_begun(nvme::Status::namespace_is_write_protected);
  const auto saved = std::make_shared<SavedChange>();
  const auto keeper = info.media->saved();
  const auto mark = [keeper, saved] {
    saved->save(keeper, [](media::SavedState& state) { state.deleted = true; });
    return DiskDone{.good = saved->good};
  };
  return {.work = {.run = mark, .waits = keeper != nullptr, .media = {info.media}},
          .end = [this, nsid, saved](QueueHost& runner) { return end_deletion(nsid, *saved, runner); }};
}

nvme::Status Subsystem::end_deletion(std::uint32_t nsid, const SavedChange& saved, QueueHost& runner) {
  NamespaceInfo& info = infos_[nsid];
  const nvme::Status status = saved.good ? nvme::Status::success : info.current->write_failure();
  if (!saved.holds) return status;
  notify_attached(nsid);
  for (Controller* controller : controllers_) detach_namespace(nsid, *controller);
  end_commands(*info.current, nvme::Status::invalid_field);
  // Anonymous memory goes back to the machine. What a namespace of another kind had is not there to be allocated: what
  // hosts allocate is memory.
  if (info.config.media == "memory")
    info.media->deallocate(0, info.media->size_bytes());
  else
    total_capacity_bytes_ -= info.capacity_bytes;
  allocated_capacity_bytes_ -= info.capacity_bytes;
  deleted_.push_back(info.media);
  tell_deallocated(info, runner);
  unit_space_.give_back(info.unit_base);
  info = {};
  free_unused();
  return status;
}

// Each engine once, however many controllers it has.
std::vector<QueueHost*> Subsystem::hosts() const {
  std::vector<QueueHost*> hosts;
  for (Controller* controller : controllers_)
    if (std::find(hosts.begin(), hosts.end(), &controller->host_) == hosts.end()) hosts.push_back(&controller->host_);
  return hosts;
}

// Every engine's timing model, that of the runner's also where no controller is left to name it.
void Subsystem::tell_deallocated(const NamespaceInfo& info, QueueHost& runner) const {
  std::vector<QueueHost*> hosts = this->hosts();
  if (std::find(hosts.begin(), hosts.end(), &runner) == hosts.end()) hosts.push_back(&runner);
  for (QueueHost* host : hosts) host->units_deallocated(info.unit_base, info.units);
}

// Frees what no command can know of.
void Subsystem::free_unused() {
  if (deleted_.empty()) return;
  const std::vector<QueueHost*> hosts = this->hosts();
  std::erase_if(deleted_, [&](const media::Media* gone) {
    if (std::any_of(hosts.begin(), hosts.end(), [&](QueueHost* host) { return host->knows(*gone); })) return false;
    std::erase_if(namespaces_, [&](const auto& ns) { return ns->media == gone; });
    std::erase_if(media_, [&](const auto& media) { return media.get() == gone; });
    return true;
  });
}

nvme::Status Subsystem::check_format(std::uint32_t nsid, std::uint32_t lba_bytes, bool all) const {
  const NamespaceInfo& info = infos_[nsid];
  if (info.current == nullptr) return nvme::Status::invalid_field;
  if (write_protection(nsid) != nvme::WriteProtection::none) return nvme::Status::namespace_is_write_protected;
  const auto format = command_set::lba_format_of_shift(static_cast<std::uint8_t>(std::countr_zero(lba_bytes)));
  if (info.media->size_bytes() < lba_bytes || format >= info.current->command_set->formats())
    return nvme::Status::invalid_format;
  // Namespaces that share a reclaim unit handle are of one format.
  if (!all && info.current->placement != nullptr && !share_format(info.current->placement->handles(), lba_bytes, nsid))
    return nvme::Status::invalid_format;
  return nvme::Status::success;
}

NamespaceChange Subsystem::format_namespace(std::uint32_t nsid, std::uint32_t lba_bytes) {
  if (const nvme::Status s = check_format(nsid, lba_bytes, true); s != nvme::Status::success) return not_begun(s);
  NamespaceInfo& info = infos_[nsid];
  info.is_formatting = true;
  for (Controller* controller : controllers_) {
    if (!controller->holds(nsid)) continue;
    await_format(nsid, *controller);
    detach_namespace(nsid, *controller);
  }
  end_commands(*info.current, nvme::Status::format_in_progress);
  const auto saved = std::make_shared<SavedChange>();
  const auto edit = [lba_bytes](media::SavedState& state) {
    state.lba_bytes = lba_bytes;
    state.uncorrectable.clear();
  };
  // Leaves nothing of what the namespace held, and has that and its new format on the disk.
  const auto erase = [ns = info.current, media = info.media, keeper = info.media->saved(), edit, saved] {
    saved->is_erased = media->deallocate(0, media->size_bytes()) && media->flush();
    if (!saved->is_erased) return DiskDone{.good = false};
    // Marks of the old format that are being saved must not come after the new one.
    ns->retire_marks([&] { return saved->save(keeper, edit); });
    return DiskDone{.good = saved->good};
  };
  return {
      .work = {.run = erase, .waits = info.media->sync_waits(), .media = {info.media}},
      .end = [this, nsid, lba_bytes, saved](QueueHost& runner) { return end_format(nsid, lba_bytes, *saved, runner); }};
}

nvme::Status Subsystem::end_format(std::uint32_t nsid, std::uint32_t lba_bytes, const SavedChange& saved,
                                   QueueHost& runner) {
  NamespaceInfo& info = infos_[nsid];
  const nvme::Status status = saved.good ? nvme::Status::success : info.current->write_failure();
  if (saved.is_erased) tell_deallocated(info, runner);
  if (saved.holds) {
    info.config.lba_bytes = lba_bytes;
    info.current = namespace_of(nsid, lba_bytes);
  }
  info.is_formatting = false;
  for (Controller* controller : std::exchange(info.detached_for_format, {})) {
    attach_namespace(nsid, *controller);
    controller->formatting_[nsid].store(false, std::memory_order_release);
  }
  notify_attached(nsid);
  return status;
}

// The namespace is, or will be, attached to the controller, whose host is told meanwhile that it is being formatted.
void Subsystem::await_format(std::uint32_t nsid, Controller& controller) {
  controller.formatting_[nsid].store(true, std::memory_order_release);
  infos_[nsid].detached_for_format.push_back(&controller);
}

void Subsystem::end_commands(const command_set::Namespace& ns, nvme::Status status, CommandsToEnd which) {
  for (QueueHost* host : hosts()) host->end_commands(ns, status, which);
}

std::vector<media::SavedFeature> Subsystem::saved_features() const {
  return feature_saves_ != nullptr ? feature_saves_->saved() : std::vector<media::SavedFeature>{};
}

std::function<DiskDone()> Subsystem::feature_saver(const media::SavedFeature& feature) const {
  return feature_saves_ != nullptr ? feature_saves_->add(feature) : nullptr;
}

std::vector<nvme::FdpHandleAttribute> Subsystem::handle_attributes() const {
  using nvme::FdpHandleAttribute;
  std::vector<FdpHandleAttribute> attributes(placement_->handles(), FdpHandleAttribute::unused);
  for (const NamespaceInfo& info : infos_) {
    if (info.current == nullptr || info.current->placement == nullptr) continue;
    for (const std::uint16_t handle : info.current->placement->handles())
      attributes[handle] =
          info.is_handle_chosen ? FdpHandleAttribute::controller_specified : FdpHandleAttribute::host_specified;
  }
  return attributes;
}

bool Subsystem::share_format(const std::vector<std::uint16_t>& handles, std::uint32_t lba_bytes,
                             std::uint32_t but) const {
  for (std::uint32_t nsid = 1; nsid <= kMaxNamespaces; ++nsid) {
    const NamespaceInfo& info = infos_[nsid];
    if (nsid == but || info.current == nullptr || info.current->placement == nullptr) continue;
    if (info.current->lba_bytes() == lba_bytes) continue;
    const auto& its = info.current->placement->handles();
    if (std::ranges::find_first_of(handles, its) != handles.end()) return false;
  }
  return true;
}

bool Subsystem::has_namespaces() const {
  return std::ranges::any_of(infos_, [](const NamespaceInfo& info) { return info.current != nullptr; });
}

void Subsystem::attach_namespace(std::uint32_t nsid, Controller& controller) {
  controller.held_.set(nsid);
  publish(nsid, controller);
  controller.host_.namespaces_changed(controller);
}

void Subsystem::publish(std::uint32_t nsid, Controller& controller) {
  command_set::Namespace& ns = *infos_[nsid].current;
  if (!controller.shows(ns)) return;
  controller.attachments_[nsid].store(&ns, std::memory_order_release);
  controller.attached_shapes_[nsid].store(ns.command_set->shape(ns), std::memory_order_relaxed);
}

void Subsystem::show_namespaces(Controller& controller) {
  for (std::uint32_t nsid = 1; nsid <= kMaxNamespaces; ++nsid) {
    if (!controller.holds(nsid)) continue;
    if (controller.shows(*infos_[nsid].current))
      publish(nsid, controller);
    else
      withdraw(nsid, controller);
  }
  controller.host_.namespaces_changed(controller);
}

void Subsystem::detach_namespace(std::uint32_t nsid, Controller& controller) {
  controller.held_.reset(nsid);
  withdraw(nsid, controller);
  controller.host_.namespaces_changed(controller);
}

void Subsystem::withdraw(std::uint32_t nsid, Controller& controller) {
  // First: who meets the next format has seen this.
  controller.attachment_changes_[nsid].fetch_add(1, std::memory_order_release);
  controller.attachments_[nsid].store(nullptr, std::memory_order_release);
  controller.attached_shapes_[nsid].store({}, std::memory_order_relaxed);
}

void Subsystem::notify_attached(std::uint32_t nsid) {
  for (Controller* controller : controllers_) {
    if (controller->attached(nsid) != nullptr) controller->notify_namespace_changed(nsid);
  }
}

IoCounters Subsystem::counters() const {
  IoCounters sum = removed_counters_;
  for (const Controller* controller : controllers_) sum.add(controller->counters());
  return sum;
}

void Subsystem::note_time(std::uint64_t now_ns) {
  std::uint64_t unset = UINT64_MAX;
  if (power_on_ns_.load(std::memory_order_relaxed) == unset) {
    power_on_ns_.compare_exchange_strong(unset, now_ns, std::memory_order_relaxed);
  }
}

std::uint64_t Subsystem::powered_ns(std::uint64_t now_ns) const {
  const std::uint64_t since = power_on_ns_.load(std::memory_order_relaxed);
  return since <= now_ns ? now_ns - since : 0;
}

}  // namespace flashmob::controller
