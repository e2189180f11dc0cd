// The NVM command set's commands, one function each (NVM Command Set Specification 1.0c, 3.2); NvmCommandSet picks.
//
// Thread rule: any thread with its own ExecContext. Each function checks everything before it changes anything.
#pragma once

#include <cstdint>

#include "command_set/nvm.h"

namespace flashmob::command_set::commands {

Outcome flush(Namespace& ns, const ExecContext& context);
Outcome read_or_write(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome compare(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome verify(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome write_zeroes(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context);
Outcome write_uncorrectable(const nvme::Sqe& sqe, Namespace& ns);
Outcome dataset_management(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome copy(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);

// The blocks that SLBA and NLB name, checked to lie inside the namespace.
struct BlockRange {
  std::uint64_t first = 0;
  std::uint64_t blocks = 0;
};

// invalid_field if CDW12 has a bit of `unsupported`, lba_out_of_range if the blocks are not in the namespace.
nvme::Status decode_block_range(const nvme::Sqe& sqe, const Namespace& ns, std::uint32_t unsupported, BlockRange& out);
// Everything about a Compare that can be wrong before its data is looked at.
nvme::Status decode_compare(const nvme::Sqe& sqe, const Namespace& ns, const IoLimits& limits, BlockRange& out);

inline bool has_uncorrectable(const Namespace& ns, std::uint64_t first, std::uint64_t blocks) {
  return !ns.uncorrectable.empty() && ns.uncorrectable.intersects(first, blocks);
}
inline timing::Demand demand_of_blocks(const Namespace& ns, const BlockRange& range, timing::DemandKind kind) {
  return demand_of(ns, range.first << ns.lba_shift, range.blocks << ns.lba_shift, kind);
}
// With FUA, what a command wrote is durable before the command completes, and what it reads is made so first. True
// unless the media failed. Without a volatile write cache there is nothing to do.
inline bool force_unit_access(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context,
                              const BlockRange& range) {
  if ((sqe.cdw12 & nvme::kIoForceUnitAccess) == 0 || !context.limits.volatile_write_cache) return true;
  return ns.media->sync(range.first << ns.lba_shift, range.blocks << ns.lba_shift);
}
inline Outcome failed(nvme::Status status) {
  Outcome outcome;
  outcome.status = status;
  return outcome;
}

}  // namespace flashmob::command_set::commands
