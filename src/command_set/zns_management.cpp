// Zone Management Send and Zone Management Receive (Zoned Namespace Command Set 1.1, clauses 3.4.3 and 3.4.2).
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "command_set/block_io.h"
#include "command_set/nvm_commands.h"
#include "command_set/zns_state.h"

namespace flashmob::command_set {

using nvme::Status;
using nvme::ZoneReceiveAction;
using nvme::ZoneReportFilter;
using nvme::ZoneSendAction;
using nvme::ZoneState;

namespace {

struct Done {
  Status status = Status::success;
  std::uint64_t took_ns = 0;  // as modelled
};

// Empties a zone, and leaves nothing of what it held.
Done reset(std::uint32_t index, Namespace& ns, ExecContext& context, Outcome& outcome) {
  ZonedState& state = ZonedState::of(ns);
  const std::unique_lock data(state.data_of(index));
  std::unique_lock lock(state.mutex);
  const zns::Zone before = state.zones.zone(index);
  Done done{state.zones.check_reset(index), state.times.of_reset(before)};
  lock.unlock();
  if (done.status != Status::success) return done;
  // Nobody writes the zone, or makes it one that cannot be reset, before this lets go of its data. Marks go first:
  // where they stay, for there is no room for two ranges in one's place, the zone stays as it was, too.
  const commands::BlockRange range{state.zones.start_of(index), before.written};
  const bool holds_data = range.blocks != 0;
  if (holds_data && !commands::note_unmarked(ns, range, outcome)) return {outcome.status, 0};
  const bool is_erased =
      !holds_data || zero_blocks(ns, context.locks, range.first << ns.lba_shift, range.blocks << ns.lba_shift, false);
  lock.lock();
  done.status = state.zones.reset(index);
  if (!is_erased) {
    done.status = ns.write_failure();
    state.zones.fail_read_only(index);
  }
  lock.unlock();
  if (holds_data && is_erased) commands::tell_deallocated(ns, context, range);
  return done;
}

// All that is done with the zones alone; their mutex is held.
Done act_on(ZoneSendAction action, std::uint32_t index, ZonedState& state) {
  const zns::Zone before = state.zones.zone(index);
  switch (action) {
    case ZoneSendAction::close:
      return {state.zones.close(index), state.times.close_ns};
    case ZoneSendAction::finish:
      return {state.zones.finish(index), state.times.of_finish(before)};
    case ZoneSendAction::open:
      return {state.zones.open(index), state.times.open_ns};
    case ZoneSendAction::offline: {
      const Done done{state.zones.set_offline(index), 0};
      state.note_runs();
      return done;
    }
    default:
      return {Status::invalid_field, 0};
  }
}

// One after the other, as long as they take together. Each is looked for and acted on under one lock: another thread's
// command may come between two, and find them in whichever state they are in then.
Done act_on_all(ZoneSendAction action, Namespace& ns, ExecContext& context, Outcome& outcome) {
  ZonedState& state = ZonedState::of(ns);
  const bool opens = action == ZoneSendAction::open;
  if (opens && state.zones.geometry().max_open != 0) {
    const std::lock_guard lock(state.mutex);
    return {state.zones.open_all(), state.times.open_ns};
  }
  const zns::StateMask selected = zns::Zones::selected(action);
  Done all;
  for (std::uint32_t index = 0;; ++index) {
    std::unique_lock lock(state.mutex);
    index = state.zones.next(selected, index);
    if (index == zns::Zones::kNone) break;
    Done done;
    if (action == ZoneSendAction::reset) {
      lock.unlock();
      done = reset(index, ns, context, outcome);
    } else {
      done = act_on(action, index, state);
    }
    all.took_ns += done.status == Status::success ? done.took_ns : 0;
    // A zone to be reset may have become another one meanwhile: then it is no longer one of those.
    if (done.status != Status::success && done.status != Status::invalid_zone_state_transition) return done;
  }
  if (opens) all.took_ns = state.times.open_ns;
  return all;
}

Done act_on_one(ZoneSendAction action, std::uint32_t index, Namespace& ns, ExecContext& context, Outcome& outcome) {
  if (action == ZoneSendAction::reset) return reset(index, ns, context, outcome);
  ZonedState& state = ZonedState::of(ns);
  const std::lock_guard lock(state.mutex);
  return act_on(action, index, state);
}

bool is_known(ZoneSendAction action) {
  switch (action) {
    case ZoneSendAction::close:
    case ZoneSendAction::finish:
    case ZoneSendAction::open:
    case ZoneSendAction::reset:
    case ZoneSendAction::offline:
    case ZoneSendAction::set_descriptor_extension:
      return true;
  }
  return false;
}

Status set_extension(const nvme::Sqe& sqe, std::uint32_t index, Namespace& ns, ExecContext& context) {
  ZonedState& state = ZonedState::of(ns);
  const std::uint32_t bytes = state.zones.geometry().extension_bytes;
  if (bytes == 0 || bytes > context.limits.max_transfer_bytes) return Status::invalid_field;
  FLASHMOB_CHECK(context.bounce.size() >= bytes);
  const std::span<std::byte> extension = context.bounce.first(bytes);
  const Status status =
      memory::copy_from_host(context.reader, sqe, extension, context.limits.data_pointer, context.segments);
  if (status != Status::success) return status;
  const std::lock_guard lock(state.mutex);
  return state.zones.set_extension(index, extension);
}

zns::StateMask states_of(ZoneReportFilter filter) {
  switch (filter) {
    case ZoneReportFilter::all:
      return zns::kAllStates;
    case ZoneReportFilter::empty:
      return zns::mask_of(ZoneState::empty);
    case ZoneReportFilter::implicitly_opened:
      return zns::mask_of(ZoneState::implicitly_opened);
    case ZoneReportFilter::explicitly_opened:
      return zns::mask_of(ZoneState::explicitly_opened);
    case ZoneReportFilter::closed:
      return zns::mask_of(ZoneState::closed);
    case ZoneReportFilter::full:
      return zns::mask_of(ZoneState::full);
    case ZoneReportFilter::read_only:
      return zns::mask_of(ZoneState::read_only);
    case ZoneReportFilter::offline:
      return zns::mask_of(ZoneState::offline);
  }
  return 0;
}

// Fills `out`, which is all zero, with a header and as many zones from `from` on as fit whole.
void report(const zns::Zones& zones, std::uint32_t from, ZoneReportFilter filter, bool extended, bool partial,
            std::span<std::byte> out) {
  const std::uint32_t extension_bytes = extended ? zones.geometry().extension_bytes : 0;
  const std::size_t entry_bytes = sizeof(nvme::ZoneDescriptor) + extension_bytes;
  const zns::StateMask states = states_of(filter);
  nvme::ZoneReportHeader header{};
  std::size_t at = sizeof(header);
  for (std::uint32_t index = from; at + entry_bytes <= out.size(); ++index, at += entry_bytes) {
    index = zones.next(states, index);
    if (index == zns::Zones::kNone) break;
    ++header.zones;
    const nvme::ZoneDescriptor descriptor = zones.descriptor(index);
    std::memcpy(&out[at], &descriptor, sizeof(descriptor));
    if (extended && zones.zone(index).has_extension)
      std::memcpy(&out[at + sizeof(descriptor)], zones.extension(index).data(), extension_bytes);
  }
  if (!partial) header.zones = zones.count_from(states, from);
  std::memcpy(out.data(), &header, std::min(out.size(), sizeof(header)));
}

}  // namespace

Outcome zone_management_send(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) {
  const auto action = static_cast<ZoneSendAction>(nvme::zone_action(sqe));
  const bool all = (sqe.cdw13 & nvme::kZoneSelectAll) != 0;
  const bool extends = action == ZoneSendAction::set_descriptor_extension;
  if (!is_known(action) || (extends && (all || !is_data_pointer_kind_valid(sqe, context.limits.sgl_supported))))
    return commands::failed(Status::invalid_field);
  const std::uint64_t first = nvme::starting_lba(sqe);
  if (!all && first >= ns.blocks) return commands::failed(Status::lba_out_of_range);
  const zns::Zones& zones = ZonedState::of(ns).zones;
  const std::uint32_t index = all ? 0 : zones.zone_of(first);
  if (!all && zones.start_of(index) != first) return commands::failed(Status::invalid_field);
  if (!may_write(ns, context.limits)) return commands::failed(Status::namespace_is_write_protected);
  Outcome outcome;
  if (extends) {
    outcome.status = set_extension(sqe, index, ns, context);
    return outcome;
  }
  const Done done = all ? act_on_all(action, ns, context, outcome) : act_on_one(action, index, ns, context, outcome);
  outcome.status = done.status;
  outcome.extra_ns = done.status == Status::success ? done.took_ns : 0;
  return outcome;
}

Outcome zone_management_receive(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) {
  ZonedState& state = ZonedState::of(ns);
  const auto action = static_cast<ZoneReceiveAction>(nvme::zone_action(sqe));
  const bool extended = action == ZoneReceiveAction::extended_report_zones;
  const std::uint8_t filter = nvme::zone_report_filter(sqe);
  const std::uint64_t bytes = nvme::zone_report_bytes(sqe);
  if ((action != ZoneReceiveAction::report_zones && !extended) ||
      filter > static_cast<std::uint8_t>(ZoneReportFilter::offline) ||
      (extended && state.zones.geometry().extension_bytes == 0) || bytes > context.limits.max_transfer_bytes ||
      !is_data_pointer_kind_valid(sqe, context.limits.sgl_supported))
    return commands::failed(Status::invalid_field);
  const std::uint64_t first = nvme::starting_lba(sqe);
  if (first >= ns.blocks) return commands::failed(Status::lba_out_of_range);
  FLASHMOB_CHECK(context.bounce.size() >= bytes);
  const std::span<std::byte> out = context.bounce.first(bytes);
  std::fill(out.begin(), out.end(), std::byte{0});
  {
    const std::lock_guard lock(state.mutex);
    report(state.zones, state.zones.zone_of(first), static_cast<ZoneReportFilter>(filter), extended,
           (sqe.cdw13 & nvme::kZonePartialReport) != 0, out);
  }
  Outcome outcome;
  outcome.status = memory::copy_to_host(context.reader, sqe, out, context.limits.data_pointer, context.segments);
  return outcome;
}

}  // namespace flashmob::command_set
