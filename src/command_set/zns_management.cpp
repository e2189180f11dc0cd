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

using Step = std::optional<Outcome>;

Outcome ended(Status status, const ZoneProgress& at) {
  Outcome outcome;
  outcome.status = status;
  outcome.marks_changed = at.marks_changed;
  outcome.extra_ns = status == Status::success ? at.took_ns : 0;
  return outcome;
}

// A zone is reset, or will not be: on to the next, if all are meant.
Step end_reset(Status status, bool all, ZonedState& state, ZoneProgress& at) {
  {
    const std::lock_guard lock(state.mutex);
    if (status == Status::success) status = state.zones.reset(at.index);
    state.end_reset(at.index);
  }
  at.stage = ZoneProgress::Stage::looks;
  if (status == Status::success) at.took_ns += at.reset_ns;
  // It may have become another one meanwhile: then it is no longer one of those.
  const bool is_skipped = all && status == Status::invalid_zone_state_transition;
  if (!all || (status != Status::success && !is_skipped)) return ended(status, at);
  ++at.index;
  return std::nullopt;
}

// Empties a zone, and leaves nothing of what it held. Nobody writes into it, or makes it one that cannot be reset,
// before it ends.
Step erase(Namespace& ns, ExecContext& context, bool all, ZeroingSlice& slice, ZoneProgress& at) {
  ZonedState& state = ZonedState::of(ns);
  const std::uint64_t first = state.zones.start_of(at.index);
  if (at.done_bytes != at.bytes) {
    const std::uint64_t offset = (first << ns.lba_shift) + at.done_bytes;
    const std::uint64_t bytes = slice.zero(ns, context.locks, offset, at.bytes - at.done_bytes, false);
    if (bytes == 0) {
      {
        const std::lock_guard lock(state.mutex);
        state.zones.fail_read_only(at.index);
      }
      return end_reset(ns.write_failure(), all, state, at);
    }
    commands::tell_deallocated(ns, context, {offset >> ns.lba_shift, bytes >> ns.lba_shift});
    at.done_bytes += bytes;
    if (at.done_bytes != at.bytes) return std::nullopt;
  }
  // Where marks stay, for there is no room for two ranges in one's place, all of its blocks have one, and the zone
  // stays as it was, too.
  Outcome outcome;
  const commands::BlockRange range{first, at.bytes >> ns.lba_shift};
  const bool good = range.blocks == 0 || commands::note_unmarked(ns, range, outcome);
  at.marks_changed |= outcome.marks_changed;
  return end_reset(good ? Status::success : outcome.status, all, state, at);
}

// Those that were in the zone have left, or have not.
bool may_erase(Namespace& ns, ZoneProgress& at, Status& status) {
  ZonedState& state = ZonedState::of(ns);
  const std::lock_guard lock(state.mutex);
  if (state.is_written(at.index)) return false;
  status = state.zones.check_reset(at.index);
  at.reset_ns = state.times.of_reset(state.zones.zone(at.index));
  at.bytes = state.zones.zone(at.index).written << ns.lba_shift;
  at.done_bytes = 0;
  at.stage = ZoneProgress::Stage::erases;
  return true;
}

// The next zone of all that an action is for is looked for and acted on under one lock: another thread's command may
// come between two, and find them in whichever state they are in then. False: one that is being reset is in the way.
bool act_on_next(ZoneSendAction action, ZonedState& state, ZoneProgress& at, Step& end) {
  const std::lock_guard lock(state.mutex);
  at.index = state.zones.next(zns::Zones::selected(action), at.index);
  if (at.index == zns::Zones::kNone) {
    if (action == ZoneSendAction::open) at.took_ns = state.times.open_ns;
    end = ended(Status::success, at);
    return true;
  }
  if (action == ZoneSendAction::reset) {
    if (!state.begin_reset(at.index)) return false;
    at.stage = ZoneProgress::Stage::waits;
    return true;
  }
  const Done done = act_on(action, at.index, state);
  if (done.status == Status::success)
    at.took_ns += done.took_ns;
  else if (done.status != Status::invalid_zone_state_transition)
    end = ended(done.status, at);
  ++at.index;
  return true;
}

// One zone after the other, for as long as a step may take.
Step go_on(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, ZoneProgress& at) {
  ZonedState& state = ZonedState::of(ns);
  const auto action = static_cast<ZoneSendAction>(nvme::zone_action(sqe));
  const bool all = (sqe.cdw13 & nvme::kZoneSelectAll) != 0;
  if (!may_write(ns, context.limits)) {
    // It was stopped half-way so that its namespace could be protected.
    abandon(ns, at);
    return ended(Status::namespace_is_write_protected, at);
  }
  ZeroingSlice slice(context.clock);
  do {
    Step end;
    Status status = Status::success;
    switch (at.stage) {
      case ZoneProgress::Stage::looks:
        if (!act_on_next(action, state, at, end)) return std::nullopt;
        break;
      case ZoneProgress::Stage::waits:
        if (!may_erase(ns, at, status)) return std::nullopt;
        if (status != Status::success) end = end_reset(status, all, state, at);
        break;
      case ZoneProgress::Stage::erases:
        end = erase(ns, context, all, slice, at);
        break;
    }
    if (end) return end;
  } while (slice.goes_on());
  return std::nullopt;
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

void abandon(Namespace& ns, const ZoneProgress& progress) {
  if (progress.stage == ZoneProgress::Stage::looks) return;
  ZonedState& state = ZonedState::of(ns);
  const std::lock_guard lock(state.mutex);
  state.end_reset(progress.index);
}

std::optional<Outcome> zone_management_send(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context,
                                            Progress& progress) {
  if (progress.has_begun()) return go_on(sqe, ns, context, progress.as<ZoneProgress>());
  const auto action = static_cast<ZoneSendAction>(nvme::zone_action(sqe));
  const bool all = (sqe.cdw13 & nvme::kZoneSelectAll) != 0;
  const bool extends = action == ZoneSendAction::set_descriptor_extension;
  if (!is_known(action) || (extends && (all || !is_data_pointer_kind_valid(sqe, context.limits.sgl_supported))))
    return commands::failed(Status::invalid_field);
  const std::uint64_t first = nvme::starting_lba(sqe);
  if (!all && first >= ns.blocks) return commands::failed(Status::lba_out_of_range);
  ZonedState& state = ZonedState::of(ns);
  const std::uint32_t index = all ? 0 : state.zones.zone_of(first);
  if (!all && state.zones.start_of(index) != first) return commands::failed(Status::invalid_field);
  if (!may_write(ns, context.limits)) return commands::failed(Status::namespace_is_write_protected);
  if (extends) return commands::failed(set_extension(sqe, index, ns, context));
  ZoneProgress once;
  if (all && action == ZoneSendAction::open && state.zones.geometry().max_open != 0) {
    const std::lock_guard lock(state.mutex);
    once.took_ns = state.times.open_ns;
    return ended(state.zones.open_all(), once);
  }
  if (!all && action != ZoneSendAction::reset) {
    const std::lock_guard lock(state.mutex);
    const Done done = act_on(action, index, state);
    once.took_ns = done.took_ns;
    return ended(done.status, once);
  }
  if (!all) {
    const std::lock_guard lock(state.mutex);
    if (!state.begin_reset(index)) return std::nullopt;
    once.stage = ZoneProgress::Stage::waits;
  }
  ZoneProgress& at = progress.begin<ZoneProgress>();
  at.stage = once.stage;
  at.index = index;
  return go_on(sqe, ns, context, at);
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
