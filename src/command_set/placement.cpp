#include "command_set/placement.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "base/check.h"
#include "base/config_checks.h"
#include "timing/registry.h"

namespace flashmob::command_set {
namespace {

// Of models without superblocks, where the configuration says nothing.
constexpr std::uint64_t kUsualUnitBytes = std::uint64_t{64} << 20;

std::uint8_t bit_of(nvme::FdpEventType type) {
  const auto found = std::ranges::find(Placement::kEventTypes, type);
  if (found == Placement::kEventTypes.end()) return 0;
  return static_cast<std::uint8_t>(1u << (found - Placement::kEventTypes.begin()));
}

}  // namespace

Placement::Placement(const PlacementConfig& config)
    : config_(config),
      group_bits_(static_cast<unsigned>(std::bit_width(config.reclaim_groups - 1))),
      enabled_(config.enabled),
      unit_written_(new std::atomic<std::uint64_t>[streams()]()),
      reported_(new std::atomic<std::uint8_t>[config.handles]()) {}

std::uint64_t Placement::unit_bytes() const {
  const timing::StreamPlacement* const model = model_.load(std::memory_order_acquire);
  if (model != nullptr) return model->superblock_bytes();
  return config_.reclaim_unit_bytes != 0 ? config_.reclaim_unit_bytes : kUsualUnitBytes;
}

std::uint32_t Placement::max_identifiers() const { return std::min(streams(), nvme::kMaxPlacementHandles); }

void Placement::set_enabled(bool enabled) {
  enabled_.store(enabled, std::memory_order_relaxed);
  before_ = counted();
  for (std::uint32_t handle = 0; handle < handles(); ++handle) reported_[handle].store(0, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  events_.clear();
}

void Placement::use(timing::StreamPlacement* model) {
  if (model == model_.exchange(model, std::memory_order_acq_rel)) return;
  before_ = {};
}

void Placement::note_write(const Target& target, std::uint64_t bytes, timing::Demand& demand) {
  const std::uint32_t stream = stream_of(target);
  if (model_.load(std::memory_order_relaxed) != nullptr) {
    set_stream(demand, stream);
    return;
  }
  written_.fetch_add(bytes, std::memory_order_relaxed);
  const std::uint64_t unit = unit_bytes();
  std::atomic<std::uint64_t>& unit_written = unit_written_[stream];
  std::uint64_t now = unit_written.load(std::memory_order_relaxed);
  while (!unit_written.compare_exchange_weak(now, (now + bytes) % unit, std::memory_order_relaxed)) {
  }
}

std::uint64_t Placement::bytes_left(const Target& target) const {
  timing::StreamPlacement* const model = model_.load(std::memory_order_acquire);
  if (model != nullptr) return model->bytes_left(stream_of(target));
  return unit_bytes() - unit_written_[stream_of(target)].load(std::memory_order_relaxed);
}

std::uint64_t Placement::next_unit(const Target& target) {
  timing::StreamPlacement* const model = model_.load(std::memory_order_acquire);
  if (model != nullptr) return model->next_superblock(stream_of(target));
  const std::uint64_t written = unit_written_[stream_of(target)].exchange(0, std::memory_order_relaxed);
  return written == 0 ? 0 : unit_bytes() - written;
}

Placement::Statistics Placement::counted() const {
  timing::StreamPlacement* const model = model_.load(std::memory_order_acquire);
  if (model == nullptr) {
    const std::uint64_t written = written_.load(std::memory_order_relaxed);
    return {.host_bytes = written, .media_bytes = written};
  }
  const timing::FlashCounters counters = model->counters();
  return {.host_bytes = counters.host_written_bytes,
          .media_bytes = counters.programmed_bytes(),
          .erased_bytes = counters.erased_superblocks * model->superblock_bytes()};
}

Placement::Statistics Placement::statistics() const {
  const Statistics now = counted();
  return {.host_bytes = now.host_bytes - before_.host_bytes,
          .media_bytes = now.media_bytes - before_.media_bytes,
          .erased_bytes = now.erased_bytes - before_.erased_bytes};
}

bool Placement::reports(const Target& target, nvme::FdpEventType type) const {
  return (reported_[target.handle].load(std::memory_order_relaxed) & bit_of(type)) != 0;
}

bool Placement::set_reports(std::uint16_t handle, nvme::FdpEventType type, bool reported) {
  const std::uint8_t bit = bit_of(type);
  if (reported)
    reported_[handle].fetch_or(bit, std::memory_order_relaxed);
  else
    reported_[handle].fetch_and(static_cast<std::uint8_t>(~bit), std::memory_order_relaxed);
  return bit != 0;
}

void Placement::record(const Event& event) {
  if (!reports(event.target, event.type)) return;
  const std::lock_guard lock(mutex_);
  if (events_.size() == nvme::FdpEvents::kMaxEntries) events_.pop_front();
  events_.push_back(event);
}

std::vector<Placement::Event> Placement::events() const {
  const std::lock_guard lock(mutex_);
  return {events_.begin(), events_.end()};
}

std::optional<Placement::Target> NamespacePlacement::target_of(std::uint16_t identifier) const {
  const unsigned handle_bits = 16 - drive_.group_bits();
  const std::uint32_t group = std::uint32_t{identifier} >> handle_bits;
  const std::uint32_t placement_handle = identifier & ((std::uint32_t{1} << handle_bits) - 1);
  if (group >= drive_.groups() || placement_handle >= handles_.size()) return std::nullopt;
  return Placement::Target{static_cast<std::uint16_t>(group), handles_[placement_handle]};
}

void NamespacePlacement::place(const nvme::Sqe& write, std::uint64_t bytes, std::uint64_t now_ns,
                               timing::Demand& demand) const {
  Placement::Target target{0, handles_.front()};
  if (is_directed() && nvme::write_directive(write) == nvme::Directive::data_placement) {
    const std::uint16_t identifier = nvme::placement_identifier(write);
    if (const auto named = target_of(identifier))
      target = *named;
    else
      drive_.record({.type = nvme::FdpEventType::invalid_placement_identifier,
                     .nsid = nsid_,
                     .identifier = identifier,
                     .target = target,
                     .at_ns = now_ns});
  }
  drive_.note_write(target, bytes, demand);
}

timing::nand::Streams streams_of(const PlacementConfig& config) {
  if (config.handles == 0) return {};
  return {.count = config.handles * config.reclaim_groups, .apart_when_moved = config.persistently_isolated};
}

std::vector<std::uint16_t> configured_handles(const PlacementConfig& drive, const NamespaceConfig& ns) {
  if (!ns.placement_handles.empty()) return {ns.placement_handles.begin(), ns.placement_handles.end()};
  std::vector<std::uint16_t> all(std::min(drive.handles, nvme::kMaxPlacementHandles));
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  return all;
}

namespace {

using config_checks::reject;

void check_handles(const PlacementConfig& drive, const std::string& key, const NamespaceConfig& ns) {
  for (std::size_t i = 0; i < ns.placement_handles.size(); ++i) {
    const auto handle = ns.placement_handles.begin() + static_cast<std::ptrdiff_t>(i);
    if (*handle >= drive.handles || std::find(ns.placement_handles.begin(), handle, *handle) != handle)
      reject(key + ".placement_handles[" + std::to_string(i) + "]", std::to_string(*handle),
             "name each handle below subsystem.placement.handles, which is " + std::to_string(drive.handles) +
                 ", once at most");
  }
}

// Namespaces that share a handle are of one format.
void check_formats(const SubsystemConfig& subsystem) {
  std::vector<std::uint32_t> lba_bytes(subsystem.placement.handles);
  for (std::size_t i = 0; i < subsystem.namespaces.size(); ++i) {
    const NamespaceConfig& ns = subsystem.namespaces[i];
    for (const std::uint16_t handle : configured_handles(subsystem.placement, ns)) {
      if (lba_bytes[handle] != 0 && lba_bytes[handle] != ns.lba_bytes)
        reject("subsystem.namespaces[" + std::to_string(i) + "].lba_bytes", std::to_string(ns.lba_bytes),
               "a namespace before it uses reclaim unit handle " + std::to_string(handle) + " with " +
                   std::to_string(lba_bytes[handle]) + "; use the same, or other placement_handles");
      lba_bytes[handle] = ns.lba_bytes;
    }
  }
}

}  // namespace

void check_placement(const DeviceConfig& config) {
  const PlacementConfig& drive = config.subsystem.placement;
  const std::string key = "subsystem.placement.";
  for (std::size_t i = 0; i < config.subsystem.namespaces.size(); ++i) {
    const NamespaceConfig& ns = config.subsystem.namespaces[i];
    const std::string of = "subsystem.namespaces[" + std::to_string(i) + "]";
    if (drive.handles == 0) {
      if (!ns.placement_handles.empty())
        reject(of + ".placement_handles", "a list of " + std::to_string(ns.placement_handles.size()),
               "the drive has no such handles; set subsystem.placement.handles, too");
      continue;
    }
    if (ns.command_set != "nvm")
      reject(of + ".command_set", config_checks::quoted(ns.command_set),
             "use \"nvm\", the only one that placement goes with (subsystem.placement.handles)");
    check_handles(drive, of, ns);
  }
  if (drive.handles == 0) {
    const auto ignored = [&key](const char* of, const std::string& value) {
      reject(key + of, value, "the drive has no placement; set subsystem.placement.handles, too");
    };
    if (drive.reclaim_groups != 1) ignored("reclaim_groups", std::to_string(drive.reclaim_groups));
    if (drive.persistently_isolated) ignored("persistently_isolated", "true");
    if (drive.reclaim_unit_bytes != 0) ignored("reclaim_unit_bytes", std::to_string(drive.reclaim_unit_bytes));
    if (!drive.enabled) ignored("enabled", "false");
    return;
  }
  check_formats(config.subsystem);
  if (config.engine.kind != "host")
    reject("engine.kind", config_checks::quoted(config.engine.kind),
           "use \"host\", the engine that knows placement (subsystem.placement.handles)");
  if (!timing::model_of(config.timing).takes_nand) return;
  if (drive.reclaim_groups != 1)
    reject(key + "reclaim_groups", std::to_string(drive.reclaim_groups),
           "use 1: superblocks of model nand span all of its dies");
  if (drive.reclaim_unit_bytes != 0)
    reject(key + "reclaim_unit_bytes", std::to_string(drive.reclaim_unit_bytes),
           "use 0: reclaim units of model nand are its superblocks");
  const NandConfig& nand = config.timing.nand;
  if (nand.slc_fixed + nand.slc_dynamic > 0)
    reject(key + "handles", std::to_string(drive.handles),
           "use 0, or no SLC cache (timing.nand.slc_fixed and slc_dynamic): it would mix what is kept apart");
  const std::uint64_t row_bytes = std::uint64_t{nand.page_bytes} * nand.planes * nand.bits_per_cell;
  if (nand.buffer_bytes / row_bytes < drive.handles + 3)
    reject(key + "handles", std::to_string(drive.handles),
           "use at most " + std::to_string(nand.buffer_bytes / row_bytes - 3) +
               ", or a larger timing.nand.buffer_bytes: each handle fills a row in the buffer");
}

}  // namespace flashmob::command_set
