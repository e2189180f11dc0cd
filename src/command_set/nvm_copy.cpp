// Copy with source range descriptors of format 0 (NVM 1.0c, 3.2.2).
#include <array>
#include <memory>
#include <new>

#include "command_set/block_io.h"
#include "command_set/nvm_commands.h"
#include "nvme/dataset.h"

namespace flashmob::command_set::commands {

using nvme::Status;

namespace {

constexpr std::uint32_t kMaxSourceRanges = nvme::kMaxCopySourceRanges;
// PRINFOR, CDW12 bits 15:12: protection information on the source side.
constexpr std::uint32_t kProtectionRead = 0xFu << 12;
constexpr std::uint32_t kUnsupported = nvme::kIoProtectionMask | kProtectionRead;
constexpr std::uint8_t kDescriptorFormat = 0;

using SourceRanges = std::span<const nvme::CopySourceRange>;

std::uint64_t blocks_of(const nvme::CopySourceRange& range) { return std::uint64_t{range.nlb} + 1; }

// On a failed Copy, DW0 names the first source range that was not copied.
Outcome failed_at(Status status, std::size_t range) {
  Outcome outcome = failed(status);
  outcome.result = range;
  return outcome;
}

Status check_lengths(SourceRanges sources, std::uint64_t& total) {
  total = 0;
  for (const nvme::CopySourceRange& source : sources) {
    if (blocks_of(source) > kMaxSingleSourceRangeLength) return Status::command_size_limit_exceeded;
    total += blocks_of(source);
  }
  return total > kMaxCopyLength ? Status::command_size_limit_exceeded : Status::success;
}

Outcome check_sources(const Namespace& ns, SourceRanges sources, WriteGate* gate) {
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (!is_in_range(ns, sources[i].slba, blocks_of(sources[i]))) return failed_at(Status::lba_out_of_range, i);
  for (std::size_t i = 0; gate != nullptr && i < sources.size(); ++i)
    if (const Status bad = gate->check_source(sources[i].slba, blocks_of(sources[i])); bad != Status::success)
      return failed_at(bad, i);
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (has_uncorrectable(ns, sources[i].slba, blocks_of(sources[i])))
      return failed_at(Status::unrecovered_read_error, i);
  return {};
}

Outcome read_sources(Namespace& ns, PieceLocks* locks, SourceRanges sources, std::span<std::byte> buffer) {
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::uint64_t bytes = blocks_of(sources[i]) << ns.lba_shift;
    if (!read_blocks(ns, locks, sources[i].slba << ns.lba_shift, buffer.subspan(at, bytes)))
      return failed_at(Status::unrecovered_read_error, i);
    at += bytes;
  }
  return {};
}

void note(const Namespace& ns, SourceRanges sources, const BlockRange& destination, Copying& copying) {
  for (const nvme::CopySourceRange& source : sources)
    copying.sources[copying.count++] = {source.slba << ns.lba_shift, blocks_of(source) << ns.lba_shift};
  copying.destination = {destination.first << ns.lba_shift, destination.blocks << ns.lba_shift};
}

Outcome copied(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context, const BlockRange& destination) {
  Outcome outcome;
  if (!note_unmarked(ns, destination, outcome)) return outcome;
  force_unit_access(sqe, ns, context, destination, true, outcome);
  ask_for_written(sqe, ns, context, destination, outcome);
  return outcome;
}

}  // namespace

Outcome copy(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) {
  if ((sqe.cdw12 & kUnsupported) != 0 || !is_directive_accepted(sqe, ns) ||
      nvme::copy_descriptor_format(sqe) != kDescriptorFormat ||
      !is_data_pointer_kind_valid(sqe, context.limits.sgl_supported))
    return failed(Status::invalid_field);
  const std::uint32_t count = nvme::copy_range_count(sqe);
  if (count > kMaxSourceRanges) return failed(Status::command_size_limit_exceeded);
  std::array<nvme::CopySourceRange, kMaxSourceRanges> storage;
  const auto sources = std::span(storage).first(count);
  Status status = memory::copy_from_host(context.reader, sqe, std::as_writable_bytes(sources),
                                         context.limits.data_pointer, context.segments);
  if (status != Status::success) return failed(status);
  BlockRange destination{nvme::starting_lba(sqe), 0};
  status = check_lengths(sources, destination.blocks);
  if (status != Status::success) return failed(status);
  if (!is_in_range(ns, destination.first, destination.blocks)) return failed(Status::lba_out_of_range);
  if (const Outcome bad = check_sources(ns, sources, context.gate); bad.status != Status::success) return bad;
  if (!may_write(ns, context.limits)) return failed(Status::namespace_is_write_protected);

  if (context.copying != nullptr) {
    note(ns, sources, destination, *context.copying);
    return {};
  }
  // The thread's buffer is sized for MDTS, which does not bound Copy. The rare larger one is allocated.
  const std::uint64_t bytes = destination.blocks << ns.lba_shift;
  std::span<std::byte> buffer = context.bounce;
  std::unique_ptr<std::byte[]> larger;
  if (bytes > buffer.size()) {
    larger.reset(new (std::nothrow) std::byte[bytes]);
    if (larger == nullptr) return failed(Status::internal_error);
    buffer = {larger.get(), bytes};
  }
  buffer = buffer.first(bytes);
  // All sources are read before the destination is written, so that they may overlap it, and before it is asked for: a
  // source that cannot be read leaves a zone as it was.
  if (const Outcome bad = read_sources(ns, context.locks, sources, buffer); bad.status != Status::success) return bad;
  status = admit(context, destination);
  if (status != Status::success) return failed(status);
  if (!write_blocks(ns, context.locks, destination.first << ns.lba_shift, buffer))
    return failed_at(ns.write_failure(), 0);
  return copied(sqe, ns, context, destination);
}

Outcome end_copying(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context, const Copying& copying,
                    Status status) {
  if (status != Status::success) return failed_at(status, copying.is_writing() ? 0 : copying.done);
  return copied(sqe, ns, context,
                {copying.destination.offset >> ns.lba_shift, copying.destination.bytes >> ns.lba_shift});
}

}  // namespace flashmob::command_set::commands
