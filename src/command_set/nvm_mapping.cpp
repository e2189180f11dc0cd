// The commands that change what blocks hold without moving host data: Write Zeroes, Write Uncorrectable and Dataset
// Management (NVM 1.0c, 3.2.8, 3.2.7 and 3.2.3).
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "command_set/block_io.h"
#include "command_set/nvm_commands.h"
#include "nvme/dataset.h"

namespace flashmob::command_set::commands {

using nvme::Status;

namespace {

// In `context.zeroing`, or now. False: the media failed.
bool zero(Namespace& ns, const ExecContext& context, const BlockRange& range, bool discard, bool deallocate) {
  const Zeroing::Range bytes{range.first << ns.lba_shift, range.blocks << ns.lba_shift};
  if (context.zeroing == nullptr) {
    if (!zero_blocks(ns, context.locks, bytes.offset, bytes.bytes, discard)) return false;
    if (deallocate) tell_deallocated(ns, context, range);
    return true;
  }
  Zeroing& zeroing = *context.zeroing;
  zeroing.ranges[zeroing.count++] = bytes;
  zeroing.is_discard = discard;
  zeroing.is_deallocated = deallocate;
  return true;
}

bool deallocates(const nvme::Sqe& sqe) { return (sqe.cdw12 & nvme::kIoDeallocate) != 0; }

Outcome zeroed(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context, const BlockRange& range) {
  Outcome outcome;
  if (!note_unmarked(ns, range, outcome)) return outcome;
  force_unit_access(sqe, ns, context, range, true, outcome);
  if (!deallocates(sqe)) ask_for_written(sqe, ns, context, range, outcome);
  return outcome;
}

}  // namespace

Outcome write_zeroes(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context) {
  BlockRange range = blocks_of(sqe);
  const Status status = check_write_zeroes(sqe, ns, may_write(ns, context.limits));
  if (status != Status::success) return failed(status);
  if (const Status refused = admit(context, range); refused != Status::success) return failed(refused);
  // All media can do that without a buffer, however many blocks there are.
  if (!zero(ns, context, range, false, deallocates(sqe))) return failed(ns.write_failure());
  return context.zeroing != nullptr ? Outcome{} : zeroed(sqe, ns, context, range);
}

Outcome write_uncorrectable(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context) {
  BlockRange range = blocks_of(sqe);
  if (!is_directive_accepted(sqe, ns)) return failed(Status::invalid_field);
  const Status status = check_blocks(sqe, ns, 0);
  if (status != Status::success) return failed(status);
  if (!may_write(ns, context.limits)) return failed(Status::namespace_is_write_protected);
  if (const Status refused = admit(context, range); refused != Status::success) return failed(refused);
  // No room for one more mark is our limit, not the host's mistake.
  if (!ns.mark(range.first, range.blocks)) return failed(Status::internal_error);
  Outcome outcome;
  outcome.marks_changed = true;
  return outcome;
}

namespace {

// The same blocks in the fewest ranges, in place and in order: however often a host names a block in one command, it is
// deallocated once. Ranges lie inside the namespace.
std::span<nvme::DatasetRange> joined(std::span<nvme::DatasetRange> ranges) {
  constexpr std::uint64_t kMaxBlocks = std::numeric_limits<std::uint32_t>::max();  // of one range
  std::ranges::sort(ranges, {}, &nvme::DatasetRange::slba);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < ranges.size();) {
    std::uint64_t at = ranges[i].slba;
    std::uint64_t end = at;
    // What is joined needs no more ranges than it was.
    for (; i < ranges.size() && ranges[i].slba <= end; ++i) end = std::max(end, ranges[i].slba + ranges[i].nlb);
    for (std::uint64_t part = 0; at < end; at += part) {
      part = std::min(end - at, kMaxBlocks);
      ranges[kept++] = {0, static_cast<std::uint32_t>(part), at};
    }
  }
  return ranges.first(kept);
}

}  // namespace

Outcome dataset_management(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) {
  if (!is_data_pointer_kind_valid(sqe, context.limits.sgl_supported)) return failed(Status::invalid_field);
  std::array<nvme::DatasetRange, nvme::kMaxDatasetManagementRanges> storage;
  const auto named = std::span(storage).first(nvme::dataset_range_count(sqe));
  const Status status = memory::copy_from_host(context.reader, sqe, std::as_writable_bytes(named),
                                               context.limits.data_pointer, context.segments);
  if (status != Status::success) return failed(status);
  for (const nvme::DatasetRange& range : named)
    if (!is_in_range(ns, range.slba, range.nlb)) return failed(Status::lba_out_of_range);
  // Integral Read, Integral Write and the context attributes are hints, which the specification lets us ignore.
  if ((sqe.cdw11 & nvme::kDatasetDeallocate) == 0) return {};
  if (!may_write(ns, context.limits)) return failed(Status::namespace_is_write_protected);
  const auto ranges = joined(named);
  Outcome outcome;
  for (const nvme::DatasetRange& range : ranges) {
    const BlockRange blocks{range.slba, range.nlb};
    if (!zero(ns, context, blocks, true, true)) {
      outcome.status = ns.write_failure();
      break;
    }
    if (context.zeroing == nullptr && !note_unmarked(ns, blocks, outcome)) break;
  }
  return outcome;
}

Outcome end_zeroing(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context, const Zeroing& zeroing,
                    Status status) {
  const auto blocks_of_range = [&](std::uint32_t i) {
    const Zeroing::Range& range = zeroing.ranges[i];
    return BlockRange{range.offset >> ns.lba_shift, range.bytes >> ns.lba_shift};
  };
  if (sqe.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::write_zeroes))
    return status == Status::success ? zeroed(sqe, ns, context, blocks_of_range(0)) : failed(status);
  Outcome outcome;
  outcome.status = status;
  for (std::uint32_t i = 0; i < zeroing.done; ++i)
    if (!note_unmarked(ns, blocks_of_range(i), outcome)) break;
  return outcome;
}

}  // namespace flashmob::command_set::commands
