// The NVM command set's commands, one function each (NVM Command Set Specification 1.0c, 3.2); NvmCommandSet picks.
//
// Thread rule: any thread with its own ExecContext. Each function checks everything before it changes anything.
#pragma once

#include <cstdint>

#include "command_set/nvm.h"

namespace flashmob::command_set::commands {

Outcome read_or_write(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome compare(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome verify(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome write_zeroes(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context);
Outcome write_uncorrectable(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context);
Outcome dataset_management(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome end_zeroing(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context, const Zeroing& zeroing,
                    nvme::Status status);
Outcome copy(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome io_management_receive(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome io_management_send(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome end_copying(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context, const Copying& copying,
                    nvme::Status status);

// The blocks that SLBA and NLB name, checked to lie inside the namespace.
struct BlockRange {
  std::uint64_t first = 0;
  std::uint64_t blocks = 0;
};

inline BlockRange blocks_of(const nvme::Sqe& sqe) { return {nvme::starting_lba(sqe), nvme::block_count(sqe)}; }

// Everything about a Compare that can be wrong before its data is looked at.
nvme::Status decode_compare(const nvme::Sqe& sqe, const Namespace& ns, const IoLimits& limits);

// The same of a Verify.
nvme::Status decode_verify(const nvme::Sqe& sqe, const Namespace& ns);

// Whether these blocks may be written now, and no others in their place.
inline nvme::Status admit(const ExecContext& context, BlockRange& range) {
  return context.gate == nullptr ? nvme::Status::success : context.gate->admit(range.first, range.blocks);
}

// Of blocks that have just been written. False: they are as unreadable as before, and the command has failed: how many
// marks there can be is our limit.
[[nodiscard]] inline bool note_unmarked(Namespace& ns, const BlockRange& range, Outcome& outcome) {
  const Unmarked unmarked = ns.unmark(range.first, range.blocks);
  outcome.marks_changed |= unmarked == Unmarked::some;
  if (unmarked != Unmarked::refused) return true;
  outcome.status = nvme::Status::internal_error;
  return false;
}

// Of a command that writes, beside Write itself.
inline bool is_directive_accepted(const nvme::Sqe& sqe, const Namespace& ns) {
  return ns.has_directives ? ns.placement->accepts(sqe) : (sqe.cdw12 & nvme::kIoDirectiveTypeMask) == 0;
}

inline bool has_uncorrectable(const Namespace& ns, std::uint64_t first, std::uint64_t blocks) {
  return !ns.uncorrectable.empty() && ns.uncorrectable.intersects(first, blocks);
}
inline void ask_for_blocks(const Namespace& ns, const BlockRange& range, timing::DemandKind kind, Outcome& outcome) {
  ns.units().touch(range.first << ns.lba_shift, range.blocks << ns.lba_shift, kind, outcome.demand);
}
// The same of blocks that this command has written: where they go is the placement's to say, and counted by it.
inline void ask_for_written(const nvme::Sqe& sqe, const Namespace& ns, const ExecContext& context,
                            const BlockRange& range, Outcome& outcome) {
  ask_for_blocks(ns, range, timing::DemandKind::write, outcome);
  if (ns.has_directives) ns.placement->place(sqe, range.blocks << ns.lba_shift, context.fetched_ns, outcome.demand);
}
// Notes what FUA, or a write cache that is off, asks of a command that succeeded. Without a volatile write cache there
// is nothing to do.
inline void force_unit_access(const nvme::Sqe& sqe, const Namespace& ns, const ExecContext& context,
                              const BlockRange& range, bool is_write, Outcome& outcome) {
  const bool wanted = (sqe.cdw12 & nvme::kIoForceUnitAccess) != 0 || (is_write && context.write_through);
  if (!wanted || !context.limits.volatile_write_cache) return;
  outcome.sync_offset = range.first << ns.lba_shift;
  outcome.sync_bytes = range.blocks << ns.lba_shift;
  outcome.sync_is_of_write = is_write;
}
// The model's map forgets whole units alone, as a drive's does.
inline void tell_deallocated(const Namespace& ns, const ExecContext& context, const BlockRange& range) {
  if (context.model == nullptr) return;
  const auto units = ns.units().within(range.first << ns.lba_shift, range.blocks << ns.lba_shift);
  if (units.count != 0) context.model->deallocate(units.first, units.count, context.writes_before);
}
inline Outcome failed(nvme::Status status) {
  Outcome outcome;
  outcome.status = status;
  return outcome;
}

}  // namespace flashmob::command_set::commands
