#include "engine/executor.h"

#include <algorithm>
#include <utility>

#include "command_set/nvm.h"
#include "nvme/opcode.h"

namespace flashmob::engine {

Executor::Executor(const WorkerContext& context, Requests& requests, Completer& completer, RedoQueue& redo)
    : context_(context), requests_(requests), completer_(completer), redo_(redo), segments_(8192) {}

nvme::Status Executor::resolve(const HotRequest& hot, const ColdRequest& cold, memory::Segment& one,
                               std::span<const memory::Segment>& segments) {
  PortContext& port = requests_.port_of(hot);
  const auto& limits = port.controller.io_limits().data_pointer;
  const auto direction = cold.is_write ? memory::Direction::from_host : memory::Direction::to_host;
  std::byte* single = nullptr;
  if (memory::resolve_single(port.reader, cold.sqe, cold.bytes, direction, limits.page_bytes, single)) {
    one = {single, cold.bytes};
    segments = {&one, 1};
    return nvme::Status::success;
  }
  const nvme::Status status = memory::resolve(port.reader, cold.sqe, cold.bytes, direction, limits, segments_);
  segments = segments_.segments();
  return status;
}

void Executor::transferred(Slot slot) {
  HotRequest& hot = requests_.hot(slot);
  ColdRequest& cold = requests_.cold(slot);
  // Only now: until the new data is there, a block that was marked must not show what it held before.
  using command_set::Unmarked;
  Unmarked unmarked = Unmarked::none;
  if (cold.is_write && !hot.has(kFailed) && cold.ns->has_marks())
    unmarked = cold.ns->unmark(cold.media_offset >> cold.ns->lba_shift, cold.bytes >> cold.ns->lba_shift);
  if (unmarked == Unmarked::refused) requests_.fail(hot, cold, nvme::Status::internal_error);
  const bool is_unmarked = unmarked == Unmarked::some;
  if (cold.is_write && (cold.force_unit_access || is_unmarked) && !hot.has(kFailed | kZombie)) {
    cold.sync_marks = cold.ns->marks_unsaved();
    if (cold.sync_marks || (cold.force_unit_access && !cold.is_durable)) {
      if (start_sync(slot, *cold.ns)) return;
      context_.time.gaps.note_work();
      return synced(slot, make_durable(cold));
    }
  }
  complete_transfer(slot);
}

// All that was to be done to the media is done.
void Executor::complete_transfer(Slot slot) {
  HotRequest& hot = requests_.hot(slot);
  if (hot.fault != 0) [[unlikely]]
    show_fault(hot, requests_.cold(slot));
  requests_.release_cold(slot);
  completer_.data_moved(slot);
}

// All that the command was to do is done: it completes at its target.
void Executor::executed(Slot slot) {
  HotRequest& hot = requests_.hot(slot);
  hot.set(kDataDone | kTimed);
  if (hot.fault != 0) [[unlikely]]
    show_fault(hot, requests_.cold(slot));
  completer_.hold(slot, hot.target_ns);
}

command_set::ExecContext Executor::context_of(Slot slot) {
  PortContext& port = requests_.port_of(requests_.hot(slot));
  const ColdRequest& cold = requests_.cold(slot);
  const auto& limits = port.controller.io_limits();
  if (bounce_.size() < limits.max_transfer_bytes + 4096) bounce_.resize(limits.max_transfer_bytes + 4096);
  const bool write_through = !port.controller.write_cache_enabled();
  return {.reader = port.reader,
          .segments = segments_,
          .bounce = bounce_,
          .limits = limits,
          .locks = context_.locks_of(*cold.ns),
          .write_through = write_through,
          .model = &context_.model,
          .writes_before = cold.media_offset,
          .fetched_ns = requests_.hot(slot).fetched_ns,
          .clock = &context_.time.clock};
}

void Executor::run(Slot slot) {
  ColdRequest& cold = requests_.cold(slot);
  const HotRequest& hot = requests_.hot(slot);
  const Slot second = hot.has(kFused) ? cold.partner : kNoSlot;
  if (second == kNoSlot && cold.is(nvme::NvmOpcode::flush)) return go_on_flushing(slot, 0, true);
  command_set::ExecContext context = context_of(slot);
  command_set::Outcome outcome;
  command_set::Outcome second_outcome;
  if (second == kNoSlot)
    outcome = cold.ns->command_set->execute(cold.sqe, *cold.ns, context);
  else
    cold.ns->command_set->execute_fused(cold.sqe, requests_.cold(second).sqe, *cold.ns, context, outcome,
                                        second_outcome);
  context_.time.gaps.note_work();
  context_.time.refresh();
  // The second half waits for the disk where the first one does, and behind it.
  if (outcome.sync_bytes != 0 && second_outcome.sync_bytes == 0) {
    second_outcome.sync_offset = outcome.sync_offset;
    second_outcome.sync_bytes = outcome.sync_bytes;
  }
  conclude(slot, outcome, hot.target_ns);
  if (second == kNoSlot) return;
  // Completions of a fused pair are posted in order (Base 2.0c, 3.4.2).
  if (requests_.hot(second).has(kZombie))
    requests_.give_back(second);
  else
    conclude(second, second_outcome, hot.target_ns + (std::uint64_t{1} << context_.config.wheel_shift));
}

void Executor::look(Slot slot, std::span<const std::byte> stored) {
  const ColdRequest& cold = requests_.cold(slot);
  command_set::ExecContext context = context_of(slot);
  context.stored = stored;
  const command_set::Outcome outcome = cold.ns->command_set->execute(cold.sqe, *cold.ns, context);
  context_.time.gaps.note_work();
  context_.time.refresh();
  conclude(slot, outcome, requests_.hot(slot).target_ns);
}

void Executor::fail_look(Slot slot) {
  command_set::Outcome outcome;
  outcome.status = nvme::Status::unrecovered_read_error;
  conclude(slot, outcome, requests_.hot(slot).target_ns);
}

bool Executor::begin_zeroing(Slot slot, command_set::Zeroing& zeroing) {
  const ColdRequest& cold = requests_.cold(slot);
  command_set::ExecContext context = context_of(slot);
  context.zeroing = &zeroing;
  const command_set::Outcome outcome = cold.ns->command_set->execute(cold.sqe, *cold.ns, context);
  if (outcome.status == nvme::Status::success && zeroing.count != 0) return true;
  conclude(slot, outcome, requests_.hot(slot).target_ns);
  return false;
}

// The timing model's map is long, too: it is told of each part as that is done.
void Executor::note_zeroed(Slot slot, command_set::Zeroing& zeroing, std::uint64_t bytes) {
  const ColdRequest& cold = requests_.cold(slot);
  if (zeroing.is_deallocated) {
    const auto units = cold.ns->units().within(zeroing.ranges[zeroing.done].offset + zeroing.done_bytes, bytes);
    if (units.count != 0) context_.model.deallocate(units.first, units.count, cold.media_offset);
  }
  zeroing.advance(bytes);
}

void Executor::end_zeroing(Slot slot, const command_set::Zeroing& zeroing, nvme::Status status) {
  const ColdRequest& cold = requests_.cold(slot);
  const command_set::ExecContext context = context_of(slot);
  context_.time.refresh();
  conclude(slot, cold.ns->command_set->end_zeroing(cold.sqe, *cold.ns, context, zeroing, status),
           requests_.hot(slot).target_ns);
}

bool Executor::begin_copying(Slot slot, command_set::Copying& copying) {
  const ColdRequest& cold = requests_.cold(slot);
  command_set::ExecContext context = context_of(slot);
  context.copying = &copying;
  const command_set::Outcome outcome = cold.ns->command_set->execute(cold.sqe, *cold.ns, context);
  if (outcome.status == nvme::Status::success && copying.count != 0) return true;
  conclude(slot, outcome, requests_.hot(slot).target_ns);
  return false;
}

void Executor::end_copying(Slot slot, const command_set::Copying& copying, nvme::Status status) {
  const ColdRequest& cold = requests_.cold(slot);
  const command_set::ExecContext context = context_of(slot);
  context_.time.refresh();
  conclude(slot, cold.ns->command_set->end_copying(cold.sqe, *cold.ns, context, copying, status),
           requests_.hot(slot).target_ns);
}

bool Executor::step(Slot slot, command_set::Progress& progress, command_set::Outcome& outcome) {
  const ColdRequest& cold = requests_.cold(slot);
  command_set::ExecContext context = context_of(slot);
  const std::optional<command_set::Outcome> last = cold.ns->command_set->step(cold.sqe, *cold.ns, context, progress);
  context_.time.gaps.note_work();
  context_.time.refresh();
  if (last) outcome = *last;
  return last.has_value();
}

void Executor::end_steps(Slot slot, const command_set::Outcome& outcome) {
  conclude(slot, outcome, requests_.hot(slot).target_ns);
}

void Executor::conclude(Slot slot, const command_set::Outcome& outcome, std::uint64_t not_before_ns) {
  HotRequest& hot = requests_.hot(slot);
  ColdRequest& cold = requests_.cold(slot);
  cold.result = outcome.result;
  if (outcome.status != nvme::Status::success) requests_.fail(hot, cold, outcome.status);
  // What the command asked of the device may be known only now, but it was asked when it was fetched: time that running
  // it took beyond the model's is late.
  std::uint64_t target_ns = hot.fetched_ns;
  if (!cold.is_asked) context_.model.schedule({&outcome.demand, 1}, hot.fetched_ns, {&target_ns, 1});
  hot.target_ns = std::max({target_ns, not_before_ns, outcome.target_ns}) + outcome.extra_ns;
  requests_.port_of(hot).count(outcome.host_read_bytes != 0, outcome.host_read_bytes, outcome.host_write_bytes != 0,
                               outcome.host_write_bytes);
  const bool syncs = outcome.status == nvme::Status::success && outcome.sync_bytes != 0;
  cold.sync_marks = (syncs || outcome.marks_changed) && cold.ns->marks_unsaved();
  if (syncs || cold.sync_marks) [[unlikely]] {
    cold.media_offset = outcome.sync_offset;
    cold.bytes = static_cast<std::uint32_t>(outcome.sync_bytes);
    cold.is_write = outcome.sync_is_of_write || outcome.marks_changed;
    if (start_sync(slot, *cold.ns)) return;
    context_.time.gaps.note_work();
    return synced(slot, make_durable(cold));
  }
  executed(slot);
}

void Executor::end_failed(Slot slot) {
  const HotRequest& hot = requests_.hot(slot);
  if (hot.has(kTransfer)) return transferred(slot);
  const Slot second = hot.has(kFused) ? requests_.cold(slot).partner : kNoSlot;
  conclude(slot, {}, 0);
  if (second != kNoSlot) end_partner(second);
}

void Executor::end_partner(Slot second) {
  if (requests_.hot(second).has(kZombie)) return requests_.give_back(second);
  command_set::Outcome outcome;
  if (!requests_.hot(second).has(kFailed)) outcome.status = nvme::Status::aborted_failed_fused;
  conclude(second, outcome, 0);
}

}  // namespace flashmob::engine
