// What a zoned namespace is and says of itself, and those of its commands that are the NVM command set's.
#include "command_set/zns.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/config_checks.h"
#include "command_set/lba_formats.h"
#include "command_set/nvm_commands.h"
#include "command_set/zns_state.h"
#include "nvme/dataset.h"
#include "nvme/zns.h"

namespace flashmob::command_set {

using nvme::Status;

namespace {

constexpr std::uint64_t kMaxZones = std::uint64_t{1} << 20;
constexpr std::uint32_t kMaxExtensionBytes = 255 * nvme::kZoneExtensionUnitBytes;
constexpr std::uint64_t kMaxZoneTimeNs = 3'600'000'000'000;
constexpr std::array kLogPages = {nvme::LogPage::changed_zone_list};
// What a zone is a multiple of, whichever format it has.
constexpr std::uint64_t kLargestBlockBytes = lba_format_bytes(kLbaFormats - 1);

void check_times(const std::string& key, const std::vector<std::uint64_t>& values_ns) {
  if (!zns::ShareTime::is_length(values_ns.size()))
    config_checks::reject(key, "a list of " + std::to_string(values_ns.size()),
                          "give one time, two (for no share and all of it), or six (at 0, 1/16, 1/8, 1/4, 1/2 and 1)");
  for (const std::uint64_t value_ns : values_ns) config_checks::check_range(key, value_ns, 0, kMaxZoneTimeNs);
}

void check_zone_list(const std::string& key, const std::vector<std::uint32_t>& zones, std::uint64_t count) {
  for (const std::uint32_t zone : zones) config_checks::check_range(key, zone, 0, count - 1);
}

// The status of a command that is a read to its zones; success: it goes on.
Status check_read(const nvme::Sqe& sqe, Namespace& ns) {
  ZonedState& state = ZonedState::of(ns);
  const std::uint64_t first = nvme::starting_lba(sqe), blocks = nvme::block_count(sqe);
  if (!is_in_range(ns, first, blocks)) return Status::lba_out_of_range;
  const std::lock_guard lock(state.mutex);
  return state.zones.check_read(first, blocks, state.reads_cross_zones);
}

// What the zone had taken has not got there, whatever it was that went wrong: nothing can be written behind a hole.
void note_failure(Namespace& ns, const ZoneGate& gate, const Outcome& outcome) {
  if (outcome.status == Status::success || !gate.admitted()) return;
  ZonedState& state = ZonedState::of(ns);
  const std::lock_guard lock(state.mutex);
  state.zones.fail_read_only(state.zones.zone_of(gate.first()));
}

// Runs a command of the NVM command set that writes, if its zone lets it.
template <class Command>
Outcome through_gate(Namespace& ns, ExecContext& context, ZoneGate& gate, const Command& command) {
  context.gate = &gate;
  const Outcome outcome = command();
  context.gate = nullptr;
  note_failure(ns, gate, outcome);
  return outcome;
}

Outcome zone_append(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, ZoneGate& gate) {
  if ((std::uint64_t{nvme::block_count(sqe)} << ns.lba_shift) > context.limits.max_append_bytes)
    return commands::failed(Status::invalid_field);
  nvme::Sqe write = sqe;
  write.opcode = static_cast<std::uint8_t>(nvme::NvmOpcode::write);
  Outcome outcome = through_gate(ns, context, gate, [&] { return commands::read_or_write(write, ns, context); });
  if (outcome.status != Status::success) return outcome;
  outcome.result = gate.first();
  outcome.extra_ns = ZonedState::of(ns).times.append_ns;
  return outcome;
}

// Deallocate is a hint, and what a zone holds goes by a reset.
Outcome dataset_management(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) {
  nvme::Sqe hint = sqe;
  hint.cdw11 &= ~nvme::kDatasetDeallocate;
  return commands::dataset_management(hint, ns, context);
}

constexpr bool is(const nvme::Sqe& sqe, nvme::ZonedOpcode opcode) {
  return sqe.opcode == static_cast<std::uint8_t>(opcode);
}

// Whether this command is for blocks of one zone, which it changes.
bool writes_zone(const nvme::Sqe& sqe) {
  using nvme::NvmOpcode;
  if (is(sqe, nvme::ZonedOpcode::zone_append)) return true;
  const auto opcode = static_cast<NvmOpcode>(sqe.opcode);
  return opcode == NvmOpcode::write || opcode == NvmOpcode::write_zeroes || opcode == NvmOpcode::write_uncorrectable ||
         opcode == NvmOpcode::copy;
}

Outcome write_zone(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, ZoneGate& gate) {
  using nvme::NvmOpcode;
  if (is(sqe, nvme::ZonedOpcode::zone_append)) return zone_append(sqe, ns, context, gate);
  return through_gate(ns, context, gate, [&] {
    switch (static_cast<NvmOpcode>(sqe.opcode)) {
      case NvmOpcode::write_zeroes:
        return commands::write_zeroes(sqe, ns, context);
      case NvmOpcode::write_uncorrectable:
        return commands::write_uncorrectable(sqe, ns, context);
      case NvmOpcode::copy:
        return commands::copy(sqe, ns, context);
      default:
        return commands::read_or_write(sqe, ns, context);
    }
  });
}

}  // namespace

ZonedState::ZonedState(const zns::Geometry& geometry, const ZonedConfig& config, Namespace& ns)
    : zones(geometry),
      times{config.append_ns,
            config.open_ns,
            config.close_ns,
            config.finish_empty_ns,
            zns::ShareTime(config.finish_ns),
            zns::ShareTime(config.reset_ns),
            zns::ShareTime(config.reset_finished_ns),
            geometry.capacity_blocks},
      reads_cross_zones(config.reads_cross_zones),
      ns_(ns),
      config_(config),
      uses_(geometry.zones) {
  restart();
}

void ZonedState::restart() {
  const std::lock_guard lock(mutex);
  zones.restart();
  for (const std::uint32_t zone : config_.read_only_zones) zones.fail_read_only(zone);
  for (const std::uint32_t zone : config_.offline_zones) zones.fail_offline(zone);
  (void)zones.changed(false);  // so it was from the beginning
  note_runs();
}

void ZonedState::note_runs() {
  const bool plain = reads_cross_zones && zones.offline_zones() == 0;
  ns_.runs.store(plain ? Runs::reads : Runs::none, std::memory_order_relaxed);
}

// Blocks that are in no zone are refused by the command itself.
ZoneGate::ZoneGate(ZonedState& state, const nvme::Sqe& sqe)
    : state_(state),
      named_(nvme::starting_lba(sqe)),
      zone_(state.zones.zone_of(named_)),
      appends_(is(sqe, nvme::ZonedOpcode::zone_append)) {
  if (named_ >= state.zones.start_of(state.zones.geometry().zones)) return;
  const std::lock_guard lock(state_.mutex);
  is_inside_ = state_.enter(zone_);
  is_busy_ = !is_inside_;
}

ZoneGate::~ZoneGate() {
  if (!is_inside_) return;
  const std::lock_guard lock(state_.mutex);
  state_.leave(zone_);
}

Status ZoneGate::admit(std::uint64_t& first, std::uint64_t blocks) {
  zns::Zones& zones = state_.zones;
  FLASHMOB_CHECK(is_inside_ && zones.zone_of(first) == zone_);
  const std::lock_guard lock(state_.mutex);
  const Status status = appends_ ? zones.append(named_, blocks, first) : zones.write(first, blocks);
  if (status != Status::success) return status;
  first_ = first;
  admitted_ = true;
  return status;
}

Status ZoneGate::check_source(std::uint64_t first, std::uint64_t blocks) {
  const std::lock_guard lock(state_.mutex);
  return state_.zones.check_read(first, blocks, state_.reads_cross_zones);
}

void ZnsCommandSet::check(const std::string& key, const NamespaceConfig& config) const {
  using config_checks::reject;
  const ZonedConfig& zoned = config.zoned;
  const std::string zones = key + ".zoned.";
  if (config.media != "memory")
    reject(key + ".media", config_checks::quoted(config.media),
           "use memory, for write pointers do not outlive a run (command_set = \"zns\")");
  config_checks::check_power_of_two(zones + "zone_bytes", zoned.zone_bytes, kLargestBlockBytes, std::uint64_t{1} << 46);
  const std::uint64_t count = config.size_bytes / zoned.zone_bytes;
  if (config.size_bytes % zoned.zone_bytes != 0 || count == 0 || count > kMaxZones)
    reject(key + ".size_bytes", std::to_string(config.size_bytes),
           "use 1 to " + std::to_string(kMaxZones) + " zones of " + zones + "zone_bytes, which is " +
               std::to_string(zoned.zone_bytes));
  if (zoned.zone_capacity_bytes > zoned.zone_bytes || zoned.zone_capacity_bytes % kLargestBlockBytes != 0)
    reject(zones + "zone_capacity_bytes", std::to_string(zoned.zone_capacity_bytes),
           "use a multiple of 4096 up to zone_bytes, or 0 for all of a zone");
  if (zoned.max_active_zones != 0 && (zoned.max_open_zones == 0 || zoned.max_open_zones > zoned.max_active_zones))
    reject(zones + "max_open_zones", std::to_string(zoned.max_open_zones),
           "use 1 to max_active_zones, which is " + std::to_string(zoned.max_active_zones));
  if (zoned.descriptor_extension_bytes % nvme::kZoneExtensionUnitBytes != 0 ||
      zoned.descriptor_extension_bytes > kMaxExtensionBytes)
    reject(zones + "descriptor_extension_bytes", std::to_string(zoned.descriptor_extension_bytes),
           "use a multiple of 64 up to " + std::to_string(kMaxExtensionBytes));
  check_zone_list(zones + "read_only_zones", zoned.read_only_zones, count);
  check_zone_list(zones + "offline_zones", zoned.offline_zones, count);
  config_checks::check_range(zones + "append_ns", zoned.append_ns, 0, kMaxZoneTimeNs);
  config_checks::check_range(zones + "open_ns", zoned.open_ns, 0, kMaxZoneTimeNs);
  config_checks::check_range(zones + "close_ns", zoned.close_ns, 0, kMaxZoneTimeNs);
  config_checks::check_range(zones + "finish_empty_ns", zoned.finish_empty_ns, 0, kMaxZoneTimeNs);
  check_times(zones + "finish_ns", zoned.finish_ns);
  check_times(zones + "reset_ns", zoned.reset_ns);
  check_times(zones + "reset_finished_ns", zoned.reset_finished_ns);
}

void ZnsCommandSet::prepare(Namespace& ns, const NamespaceConfig& config) const {
  const ZonedConfig& zoned = config.zoned;
  const std::uint64_t capacity_bytes = zoned.zone_capacity_bytes != 0 ? zoned.zone_capacity_bytes : zoned.zone_bytes;
  const zns::Geometry geometry{.zone_blocks = zoned.zone_bytes >> ns.lba_shift,
                               .capacity_blocks = capacity_bytes >> ns.lba_shift,
                               .zones = static_cast<std::uint32_t>(config.size_bytes / zoned.zone_bytes),
                               .max_open = zoned.max_open_zones,
                               .max_active = zoned.max_active_zones,
                               .extension_bytes = zoned.descriptor_extension_bytes};
  ns.state = std::make_unique<ZonedState>(geometry, zoned, ns);
}

void ZnsCommandSet::identify_namespace(const Namespace& ns, const NamespaceIdentity& /*identity*/,
                                       const IoLimits& /*limits*/, IdentifyPage& page) const {
  const ZonedState& state = ZonedState::of(ns);
  const zns::Geometry& geometry = state.zones.geometry();
  nvme::IdentifyNamespaceZoned n{};
  n.ozcs = state.reads_cross_zones ? nvme::kOzcsReadsAcrossZones : 0;
  n.mar = geometry.max_active != 0 ? geometry.max_active - 1 : nvme::kNoZoneLimit;
  n.mor = geometry.max_open != 0 ? geometry.max_open - 1 : nvme::kNoZoneLimit;
  const std::uint64_t zone_bytes = geometry.zone_blocks << ns.lba_shift;
  for (unsigned format = 0; format < kLbaFormats; ++format) {
    n.lbafe[format].zsze = zone_bytes >> lba_format_shift(format);
    n.lbafe[format].zdes = static_cast<std::uint8_t>(geometry.extension_bytes / nvme::kZoneExtensionUnitBytes);
  }
  std::memcpy(page.data(), &n, sizeof(n));
}

void ZnsCommandSet::identify_controller(const IoLimits& limits, IdentifyPage& page) const {
  nvme::IdentifyControllerZoned c{};
  if (limits.max_append_bytes != limits.max_transfer_bytes)
    c.zasl = static_cast<std::uint8_t>(std::countr_zero(limits.max_append_bytes / 4096));
  std::memcpy(page.data(), &c, sizeof(c));
}

std::span<const nvme::LogPage> ZnsCommandSet::log_pages() const { return kLogPages; }

std::vector<std::byte> ZnsCommandSet::log_page(nvme::LogPage /*page*/, Namespace& ns, bool retain) const {
  ZonedState& state = ZonedState::of(ns);
  const std::lock_guard lock(state.mutex);
  const std::vector<std::uint32_t> changed = state.zones.changed(retain);
  nvme::ChangedZoneList list{};
  if (changed.size() > nvme::ChangedZoneList::kMaxEntries) {
    list.nrzid = nvme::ChangedZoneList::kTooMany;
  } else {
    list.nrzid = static_cast<std::uint16_t>(changed.size());
    for (std::size_t i = 0; i < changed.size(); ++i) list.zslba[i] = state.zones.start_of(changed[i]);
  }
  std::vector<std::byte> page(sizeof(list));
  std::memcpy(page.data(), &list, sizeof(list));
  return page;
}

memory::DataShape ZnsCommandSet::shape(const Namespace& ns) const {
  memory::DataShape shape = CommandSet::shape(ns);
  shape.extension_bytes = static_cast<std::uint16_t>(ZonedState::of(ns).zones.geometry().extension_bytes);
  return shape;
}

bool ZnsCommandSet::has_steps(const nvme::Sqe& sqe) const {
  return writes_zone(sqe) || is(sqe, nvme::ZonedOpcode::zone_management_send);
}

bool ZnsCommandSet::has_several_steps(const nvme::Sqe& sqe) const {
  return is(sqe, nvme::ZonedOpcode::zone_management_send);
}

// Its zone's.
std::uint64_t ZnsCommandSet::room_of(const nvme::Sqe& sqe, const Namespace& ns) const {
  return ZonedState::of(ns).zones.zone_of(nvme::starting_lba(sqe));
}

std::optional<Outcome> ZnsCommandSet::step(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context,
                                           Progress& progress) const {
  using nvme::NvmOpcode;
  using nvme::ZonedOpcode;
  if (is(sqe, ZonedOpcode::zone_management_send)) return zone_management_send(sqe, ns, context, progress);
  if (is(sqe, ZonedOpcode::zone_management_receive)) return zone_management_receive(sqe, ns, context);
  if (writes_zone(sqe)) {
    ZoneGate gate(ZonedState::of(ns), sqe);
    if (gate.is_busy()) return std::nullopt;
    return write_zone(sqe, ns, context, gate);
  }
  const auto opcode = static_cast<NvmOpcode>(sqe.opcode);
  if (opcode == NvmOpcode::dataset_management) return dataset_management(sqe, ns, context);
  // Flush, which may be of every attached namespace, is the caller's.
  if (opcode != NvmOpcode::read && opcode != NvmOpcode::compare && opcode != NvmOpcode::verify)
    return commands::failed(Status::invalid_opcode);
  if (const Status status = check_read(sqe, ns); status != Status::success) return commands::failed(status);
  if (opcode == NvmOpcode::compare) return commands::compare(sqe, ns, context);
  return opcode == NvmOpcode::verify ? commands::verify(sqe, ns, context) : commands::read_or_write(sqe, ns, context);
}

void ZnsCommandSet::abandon(Namespace& ns, Progress& progress) const {
  if (progress.has_begun()) command_set::abandon(ns, progress.as<ZoneProgress>());
}

Outcome ZnsCommandSet::execute(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) const {
  Progress progress;
  std::optional<Outcome> outcome;
  while (!outcome) outcome = step(sqe, ns, context, progress);
  return *outcome;
}

void ZnsCommandSet::execute_fused(const nvme::Sqe&, const nvme::Sqe&, Namespace&, ExecContext&, Outcome& first_outcome,
                                  Outcome& second_outcome) const {
  first_outcome = second_outcome = commands::failed(Status::invalid_field);
}

}  // namespace flashmob::command_set
