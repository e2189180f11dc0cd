// Dispatch of the NVM command set, the fused pair, and the commands that only look: Read, Compare, Verify; and Write,
// which shares Read's path.
#include "command_set/nvm.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "command_set/block_io.h"
#include "command_set/nvm_commands.h"

namespace flashmob::command_set {
namespace commands {

using nvme::Status;
using timing::DemandKind;

Status decode_compare(const nvme::Sqe& sqe, const Namespace& ns, const IoLimits& limits) {
  const Status status = check_compare(sqe, ns, rules_of(ns, limits));
  if (status != Status::success) return status;
  return has_uncorrectable(ns, nvme::starting_lba(sqe), nvme::block_count(sqe)) ? Status::unrecovered_read_error
                                                                                : Status::success;
}

Outcome read_or_write(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) {
  Transfer transfer{};
  Status status = decode_read_write(sqe, ns, context.limits, transfer);
  if (status != Status::success) return failed(status);
  const auto direction = transfer.is_write ? memory::Direction::from_host : memory::Direction::to_host;
  status =
      memory::resolve(context.reader, sqe, transfer.bytes, direction, context.limits.data_pointer, context.segments);
  if (status != Status::success) return failed(status);

  Outcome outcome;
  BlockRange range{transfer.media_offset >> ns.lba_shift, transfer.bytes >> ns.lba_shift};
  if (transfer.is_write) status = admit(context, range);
  if (status != Status::success) return failed(status);
  transfer.media_offset = range.first << ns.lba_shift;
  const auto segments = context.segments.segments();
  if (transfer.is_write) {
    if (!write_blocks(ns, context.locks, transfer.media_offset, segments, 0, transfer.bytes))
      return failed(ns.write_failure());
    if (!note_unmarked(ns, range, outcome)) return outcome;
    outcome.host_write_bytes = transfer.bytes;
  } else {
    if (!read_blocks(ns, context.locks, transfer.media_offset, segments, 0, transfer.bytes))
      return failed(Status::unrecovered_read_error);
    outcome.host_read_bytes = transfer.bytes;
  }
  force_unit_access(sqe, ns, context, range, transfer.is_write, outcome);
  ns.units().transfer(transfer.media_offset, transfer.bytes, transfer.is_write, outcome.demand,
                      transfer.force_unit_access);
  if (transfer.is_write && ns.has_directives)
    ns.placement->place(sqe, transfer.bytes, context.fetched_ns, outcome.demand);
  return outcome;
}

Outcome compare(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) {
  const BlockRange range = blocks_of(sqe);
  Status status = decode_compare(sqe, ns, context.limits);
  if (status != Status::success) return failed(status);
  const std::uint64_t bytes = range.blocks << ns.lba_shift;
  status = memory::resolve(context.reader, sqe, bytes, memory::Direction::from_host, context.limits.data_pointer,
                           context.segments);
  if (status != Status::success) return failed(status);
  std::span<const std::byte> stored = context.stored;
  if (stored.empty()) {
    FLASHMOB_CHECK(context.bounce.size() >= bytes);
    const std::span<std::byte> room = context.bounce.first(bytes);
    if (!read_blocks(ns, context.locks, range.first << ns.lba_shift, room))
      return failed(Status::unrecovered_read_error);
    stored = room;
  }
  FLASHMOB_CHECK(stored.size() == bytes);

  Outcome outcome;
  force_unit_access(sqe, ns, context, range, false, outcome);
  std::uint64_t at = 0;
  for (const memory::Segment& segment : context.segments.segments()) {
    if (std::memcmp(segment.host, stored.data() + at, segment.bytes) != 0) outcome.status = Status::compare_failure;
    at += segment.bytes;
  }
  ask_for_blocks(ns, range, DemandKind::read, outcome);
  outcome.host_read_bytes = bytes;
  return outcome;
}

Status decode_verify(const nvme::Sqe& sqe, const Namespace& ns) {
  const BlockRange range = blocks_of(sqe);
  if (range.blocks << ns.lba_shift > kMaxVerifyBytes) return Status::invalid_field;
  const Status status = check_blocks(sqe, ns, nvme::kIoProtectionMask);
  if (status != Status::success) return status;
  return has_uncorrectable(ns, range.first, range.blocks) ? Status::unrecovered_read_error : Status::success;
}

Outcome verify(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) {
  const BlockRange range = blocks_of(sqe);
  const Status status = decode_verify(sqe, ns);
  if (status != Status::success) return failed(status);
  std::uint64_t offset = range.first << ns.lba_shift;
  for (std::uint64_t left = context.stored.empty() ? range.blocks << ns.lba_shift : 0; left != 0;) {
    const auto piece = context.bounce.first(std::min<std::uint64_t>(left, context.bounce.size()));
    if (!read_blocks(ns, context.locks, offset, piece)) return failed(Status::unrecovered_read_error);
    offset += piece.size();
    left -= piece.size();
  }
  Outcome outcome;
  force_unit_access(sqe, ns, context, range, false, outcome);
  ask_for_blocks(ns, range, DemandKind::read, outcome);
  return outcome;
}

}  // namespace commands

std::optional<timing::Demand> NvmCommandSet::demand_of(const nvme::Sqe& sqe, const Namespace& ns,
                                                       const IoLimits& limits) const {
  using nvme::NvmOpcode;
  using nvme::Status;
  Status status = Status::invalid_opcode;
  auto kind = timing::DemandKind::read;
  if (sqe.opcode == static_cast<std::uint8_t>(NvmOpcode::compare)) status = commands::decode_compare(sqe, ns, limits);
  if (sqe.opcode == static_cast<std::uint8_t>(NvmOpcode::verify)) status = commands::decode_verify(sqe, ns);
  // One that deallocates asks for nothing, and what places its blocks says so where it is carried out.
  if (sqe.opcode == static_cast<std::uint8_t>(NvmOpcode::write_zeroes) && (sqe.cdw12 & nvme::kIoDeallocate) == 0 &&
      !ns.has_directives) {
    status = check_write_zeroes(sqe, ns, may_write(ns, limits));
    kind = timing::DemandKind::write;
  }
  if (status != Status::success) return std::nullopt;
  Outcome outcome;
  commands::ask_for_blocks(ns, commands::blocks_of(sqe), kind, outcome);
  return outcome.demand;
}

std::optional<MediaRange> NvmCommandSet::looks_at(const nvme::Sqe& sqe, const Namespace& ns,
                                                  const IoLimits& limits) const {
  using nvme::NvmOpcode;
  nvme::Status status = nvme::Status::invalid_opcode;
  if (sqe.opcode == static_cast<std::uint8_t>(NvmOpcode::compare)) status = commands::decode_compare(sqe, ns, limits);
  if (sqe.opcode == static_cast<std::uint8_t>(NvmOpcode::verify)) status = commands::decode_verify(sqe, ns);
  if (status != nvme::Status::success) return std::nullopt;
  const commands::BlockRange range = commands::blocks_of(sqe);
  return MediaRange{range.first << ns.lba_shift, range.blocks << ns.lba_shift};
}

Outcome NvmCommandSet::execute(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) const {
  switch (static_cast<nvme::NvmOpcode>(sqe.opcode)) {
    case nvme::NvmOpcode::flush:
      break;  // of every attached namespace perhaps: the caller's
    case nvme::NvmOpcode::write:
    case nvme::NvmOpcode::read:
      return commands::read_or_write(sqe, ns, context);
    case nvme::NvmOpcode::write_uncorrectable:
      return commands::write_uncorrectable(sqe, ns, context);
    case nvme::NvmOpcode::compare:
      return commands::compare(sqe, ns, context);
    case nvme::NvmOpcode::write_zeroes:
      return commands::write_zeroes(sqe, ns, context);
    case nvme::NvmOpcode::dataset_management:
      return commands::dataset_management(sqe, ns, context);
    case nvme::NvmOpcode::verify:
      return commands::verify(sqe, ns, context);
    case nvme::NvmOpcode::copy:
      return commands::copy(sqe, ns, context);
    case nvme::NvmOpcode::io_management_receive:
      return commands::io_management_receive(sqe, ns, context);
    case nvme::NvmOpcode::io_management_send:
      return commands::io_management_send(sqe, ns, context);
  }
  return commands::failed(nvme::Status::invalid_opcode);
}

Outcome NvmCommandSet::end_zeroing(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context,
                                   const Zeroing& zeroing, nvme::Status status) const {
  return commands::end_zeroing(sqe, ns, context, zeroing, status);
}

Outcome NvmCommandSet::end_copying(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context,
                                   const Copying& copying, nvme::Status status) const {
  return commands::end_copying(sqe, ns, context, copying, status);
}

// Base 2.0c, 3.4.2: both halves are answered, in order. Two halves that do not fit together are both at fault; when one
// half alone is wrong, it gets its own status and the other was aborted because of it.
void NvmCommandSet::execute_fused(const nvme::Sqe& first, const nvme::Sqe& second, Namespace& ns, ExecContext& context,
                                  Outcome& first_outcome, Outcome& second_outcome) const {
  using nvme::Status;
  const bool is_pair = first.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::compare) &&
                       second.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::write);
  if (!is_pair || first.nsid != second.nsid || nvme::starting_lba(first) != nvme::starting_lba(second) ||
      nvme::block_count(first) != nvme::block_count(second)) {
    first_outcome = second_outcome = commands::failed(Status::invalid_field);
    return;
  }
  const std::lock_guard lock(ns.fused_mutex);
  Transfer transfer{};
  const Status compare_status = commands::decode_compare(first, ns, context.limits);
  const Status write_status = decode_read_write(second, ns, context.limits, transfer);
  if (compare_status == Status::success && write_status != Status::success) {
    first_outcome = commands::failed(Status::aborted_failed_fused);
    second_outcome = commands::failed(write_status);
    return;
  }
  // Nobody writes these blocks between the two, and nobody reads them while they are half-written.
  const PieceRangeGuard guard(context.locks, ns, transfer.media_offset, transfer.bytes);
  const media::MediaHold hold(*ns.media, transfer.media_offset, transfer.bytes);
  ExecContext inside{context.reader, context.segments, context.bounce, context.limits, nullptr, context.write_through};
  first_outcome = commands::compare(first, ns, inside);
  second_outcome = first_outcome.status == Status::success ? commands::read_or_write(second, ns, inside)
                                                           : commands::failed(Status::aborted_failed_fused);
}

}  // namespace flashmob::command_set
