#include "command_set/zns/zones.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace flashmob::zns {

using nvme::Status;
using nvme::ZoneSendAction;
using nvme::ZoneState;

namespace {

bool is_open(ZoneState state) { return state == ZoneState::implicitly_opened || state == ZoneState::explicitly_opened; }
bool is_active(ZoneState state) { return is_open(state) || state == ZoneState::closed; }

}  // namespace

Zones::Zones(const Geometry& geometry)
    : geometry_(geometry),
      shift_(static_cast<unsigned>(std::countr_zero(geometry.zone_blocks))),
      zones_(geometry.zones),
      extensions_(std::size_t{geometry.zones} * geometry.extension_bytes),
      sets_(geometry.zones) {
  FLASHMOB_CHECK(std::has_single_bit(geometry.zone_blocks) && geometry.capacity_blocks != 0 &&
                 geometry.capacity_blocks <= geometry.zone_blocks);
}

void Zones::restart() {
  std::fill(zones_.begin(), zones_.end(), Zone{});
  std::fill(extensions_.begin(), extensions_.end(), std::byte{0});
  changed_.clear();
  sets_ = ZoneSets(geometry_.zones);
  oldest_ = youngest_ = kNone;
}

// Takes a zone off the list of implicitly opened ones.
void Zones::leave(std::uint32_t index) {
  Zone& zone = zones_[index];
  (zone.before == kNone ? oldest_ : zones_[zone.before].behind) = zone.behind;
  (zone.behind == kNone ? youngest_ : zones_[zone.behind].before) = zone.before;
  zone.before = zone.behind = kNone;
}

void Zones::move_to(std::uint32_t index, ZoneState state) {
  Zone& zone = zones_[index];
  if (zone.state == ZoneState::implicitly_opened) leave(index);
  sets_.move(index, zone.state, state);
  zone.state = state;
  if (state != ZoneState::implicitly_opened) return;
  zone.before = youngest_;
  (youngest_ == kNone ? oldest_ : zones_[youngest_].behind) = index;
  youngest_ = index;
}

// Opens a zone that may be opened. Where as many are open as may be, the one that was implicitly opened first is closed
// for it (2.1.1.4.1); only hosts close those that hosts opened.
Status Zones::take_open(std::uint32_t index, ZoneState as) {
  const ZoneState from = zones_[index].state;
  if (!is_active(from) && geometry_.max_active != 0 && active_zones() >= geometry_.max_active)
    return Status::too_many_active_zones;
  if (!is_open(from) && geometry_.max_open != 0 && open_zones() >= geometry_.max_open) {
    if (oldest_ == kNone) return Status::too_many_open_zones;
    move_to(oldest_, ZoneState::closed);
  }
  move_to(index, as);
  return Status::success;
}

Status Zones::check_read(std::uint64_t first, std::uint64_t blocks, bool may_cross) const {
  const std::uint32_t from = zone_of(first), to = zone_of(first + blocks - 1);
  if (from != to && !may_cross) return Status::zone_boundary_error;
  if (offline_zones() == 0) return Status::success;
  for (std::uint32_t index = from; index <= to; ++index)
    if (zones_[index].state == ZoneState::offline) return Status::zone_is_offline;
  return Status::success;
}

Status Zones::check_writable(std::uint32_t index, std::uint64_t first, std::uint64_t blocks) const {
  const Zone& zone = zones_[index];
  switch (zone.state) {
    case ZoneState::full:
      return Status::zone_is_full;
    case ZoneState::read_only:
      return Status::zone_is_read_only;
    case ZoneState::offline:
      return Status::zone_is_offline;
    default:
      break;
  }
  if (first != start_of(index) + zone.written) return Status::zone_invalid_write;
  return blocks > geometry_.capacity_blocks - zone.written ? Status::zone_boundary_error : Status::success;
}

void Zones::advance(std::uint32_t index, std::uint64_t blocks) {
  Zone& zone = zones_[index];
  zone.written += blocks;
  if (zone.written == geometry_.capacity_blocks) move_to(index, ZoneState::full);
}

Status Zones::write(std::uint32_t index, std::uint64_t first, std::uint64_t blocks) {
  FLASHMOB_CHECK(index < zones_.size());
  if (const Status status = check_writable(index, first, blocks); status != Status::success) return status;
  if (!is_open(zones_[index].state))
    if (const Status status = take_open(index, ZoneState::implicitly_opened); status != Status::success) return status;
  advance(index, blocks);
  return Status::success;
}

Status Zones::write(std::uint64_t first, std::uint64_t blocks) { return write(zone_of(first), first, blocks); }

// The write pointer of a full zone may be another zone's first block: which zone it is follows from ZSLBA alone.
Status Zones::append(std::uint64_t zslba, std::uint64_t blocks, std::uint64_t& first) {
  const std::uint32_t index = zone_of(zslba);
  FLASHMOB_CHECK(index < zones_.size());
  if (start_of(index) != zslba) return Status::invalid_field;
  const std::uint64_t pointer = zslba + zones_[index].written;
  const Status status = write(index, pointer, blocks);
  if (status == Status::success) first = pointer;
  return status;
}

Status Zones::open(std::uint32_t index) {
  switch (zones_[index].state) {
    case ZoneState::explicitly_opened:
      return Status::success;
    case ZoneState::empty:
    case ZoneState::implicitly_opened:
    case ZoneState::closed:
      return take_open(index, ZoneState::explicitly_opened);
    default:
      return Status::invalid_zone_state_transition;
  }
}

Status Zones::close(std::uint32_t index) {
  if (zones_[index].state == ZoneState::closed) return Status::success;
  if (!is_open(zones_[index].state)) return Status::invalid_zone_state_transition;
  move_to(index, ZoneState::closed);
  return Status::success;
}

Status Zones::finish(std::uint32_t index) {
  Zone& zone = zones_[index];
  if (zone.state == ZoneState::full) return Status::success;
  if (zone.state != ZoneState::empty && !is_active(zone.state)) return Status::invalid_zone_state_transition;
  move_to(index, ZoneState::full);
  zone.finished = true;
  return Status::success;
}

Status Zones::check_reset(std::uint32_t index) const {
  const ZoneState state = zones_[index].state;
  const bool may = state == ZoneState::empty || state == ZoneState::full || is_active(state);
  return may ? Status::success : Status::invalid_zone_state_transition;
}

Status Zones::reset(std::uint32_t index) {
  Zone& zone = zones_[index];
  if (const Status status = check_reset(index); status != Status::success) return status;
  if (zone.state == ZoneState::empty) return Status::success;
  move_to(index, ZoneState::empty);
  zone.written = 0;
  zone.finished = zone.has_extension = false;
  return Status::success;
}

Status Zones::set_offline(std::uint32_t index) {
  if (zones_[index].state == ZoneState::offline) return Status::success;
  if (zones_[index].state != ZoneState::read_only) return Status::invalid_zone_state_transition;
  move_to(index, ZoneState::offline);
  return Status::success;
}

Status Zones::set_extension(std::uint32_t index, std::span<const std::byte> extension) {
  Zone& zone = zones_[index];
  if (geometry_.extension_bytes == 0) return Status::invalid_field;
  if (zone.state != ZoneState::empty) return Status::invalid_zone_state_transition;
  if (geometry_.max_active != 0 && active_zones() >= geometry_.max_active) return Status::too_many_active_zones;
  FLASHMOB_CHECK(extension.size() == geometry_.extension_bytes);
  std::copy(extension.begin(), extension.end(),
            extensions_.begin() + static_cast<std::ptrdiff_t>(std::size_t{index} * geometry_.extension_bytes));
  zone.has_extension = true;
  move_to(index, ZoneState::closed);
  return Status::success;
}

std::span<const std::byte> Zones::extension(std::uint32_t index) const {
  return std::span(extensions_).subspan(std::size_t{index} * geometry_.extension_bytes, geometry_.extension_bytes);
}

// All closed zones or none.
Status Zones::open_all() {
  if (geometry_.max_open != 0 && active_zones() > geometry_.max_open) return Status::too_many_open_zones;
  const StateMask closed = selected(ZoneSendAction::open);
  for (std::uint32_t index = next(closed, 0); index != kNone; index = next(closed, index + 1))
    move_to(index, ZoneState::explicitly_opened);
  return Status::success;
}

StateMask Zones::selected(ZoneSendAction action) {
  constexpr StateMask kOpen = mask_of(ZoneState::implicitly_opened) | mask_of(ZoneState::explicitly_opened);
  constexpr StateMask kActive = kOpen | mask_of(ZoneState::closed);
  switch (action) {
    case ZoneSendAction::close:
      return kOpen;
    case ZoneSendAction::finish:
      return kActive;
    case ZoneSendAction::open:
      return mask_of(ZoneState::closed);
    case ZoneSendAction::reset:
      return kActive | mask_of(ZoneState::full);
    case ZoneSendAction::offline:
      return mask_of(ZoneState::read_only);
    default:
      return 0;
  }
}

void Zones::note_changed(std::uint32_t index) {
  const auto at = std::lower_bound(changed_.begin(), changed_.end(), index);
  if (at == changed_.end() || *at != index) changed_.insert(at, index);
}

void Zones::fail_read_only(std::uint32_t index) {
  if (zones_[index].state == ZoneState::read_only || zones_[index].state == ZoneState::offline) return;
  move_to(index, ZoneState::read_only);
  note_changed(index);
}

void Zones::fail_offline(std::uint32_t index) {
  if (zones_[index].state == ZoneState::offline) return;
  move_to(index, ZoneState::offline);
  note_changed(index);
}

std::vector<std::uint32_t> Zones::changed(bool retain) {
  std::vector<std::uint32_t> list = changed_;
  if (!retain) changed_.clear();
  return list;
}

nvme::ZoneDescriptor Zones::descriptor(std::uint32_t index) const {
  const Zone& zone = zones_[index];
  nvme::ZoneDescriptor d{};
  d.zt = nvme::kZoneTypeSequentialWrite;
  d.zs = static_cast<std::uint8_t>(static_cast<unsigned>(zone.state) << nvme::kZoneStateShift);
  d.za = zone.has_extension ? nvme::kZoneExtensionValid : 0;
  d.zcap = geometry_.capacity_blocks;
  d.zslba = start_of(index);
  // In the other states it is not valid (2.1.1.2.1).
  d.wp = zone.state == ZoneState::empty || is_active(zone.state) ? d.zslba + zone.written : nvme::kNoWritePointer;
  return d;
}

}  // namespace flashmob::zns
