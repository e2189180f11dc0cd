// The NVM command set (NVM Command Set Specification 1.0c): Read, Write, Flush, Compare, fused Compare and Write,
// Write Zeroes, Write Uncorrectable, Dataset Management, Verify and Copy.
//
// Atomicity: each logical block is read and written whole. A fused Compare and Write is atomic as a whole against every
// other command of the namespace.
#pragma once

#include <cstdint>

#include "command_set/command_set.h"
#include "nvme/io_command.h"
#include "nvme/opcode.h"

namespace flashmob::command_set {

// A checked Read or Write, ready to be timed and copied.
struct Transfer {
  std::uint64_t media_offset;  // bytes from the start of the namespace's media
  std::uint32_t bytes;
  bool is_write;
  bool force_unit_access;
};

// True for the opcodes that decode_read_write() takes.
inline bool is_read_or_write(std::uint8_t opcode) {
  return opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::read) ||
         opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::write);
}

// Limits of Copy (NVM 1.0c, Figure 97: MSSRL, MCL, MSRC) and Dataset Management reported by Identify.
inline constexpr std::uint16_t kMaxSingleSourceRangeLength = 256;  // blocks
inline constexpr std::uint32_t kMaxCopyLength = 1024;  // blocks
inline constexpr std::uint8_t kMaxSourceRangeCount = 127;  // 0's based
// VSL of Identify CNS 06h: Verify reads at most 2^8 pages of 4096 bytes, so that it cannot hold up other commands.
inline constexpr std::uint8_t kVerifySizeLimit = 8;
inline constexpr std::uint64_t kMaxVerifyBytes = std::uint64_t{4096} << kVerifySizeLimit;

// PSDT 11b is reserved, and both SGL values need a controller that has SGLs.
inline bool is_data_pointer_kind_valid(const nvme::Sqe& sqe, const IoLimits& limits) {
  const std::uint8_t psdt = sqe.flags & nvme::kFlagPsdtMask;
  return psdt == 0 || (psdt != nvme::kFlagPsdtMask && limits.sgl_supported);
}

// Written so that nothing wraps. No blocks at all fit anywhere up to the end.
inline bool is_in_range(const Namespace& ns, std::uint64_t first, std::uint64_t blocks) {
  return first <= ns.blocks && blocks <= ns.blocks - first;
}

// Checks a Read or Write against its namespace: range, MDTS, write protection, protection-information bits that we
// do not support, PSDT. The order of checks gives the status the specification ranks first. Inline because it runs
// for every request.
inline nvme::Status decode_read_write(const nvme::Sqe& sqe, const Namespace& ns, const IoLimits& limits,
                                      Transfer& out) {
  const std::uint64_t first = nvme::starting_lba(sqe);
  const std::uint64_t blocks = nvme::block_count(sqe);
  const std::uint64_t bytes = blocks << ns.lba_shift;
  const bool is_write = sqe.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::write);
  // PRINFO (29:26) needs metadata formats and DTYPE (23:20) directives; we offer neither.
  constexpr std::uint32_t kUnsupported = nvme::kIoProtectionMask | nvme::kIoDirectiveTypeMask;
  if ((sqe.cdw12 & kUnsupported) != 0) [[unlikely]]
    return nvme::Status::invalid_field;
  if (!is_data_pointer_kind_valid(sqe, limits)) [[unlikely]]
    return nvme::Status::invalid_field;
  if (bytes > limits.max_transfer_bytes) [[unlikely]]
    return nvme::Status::invalid_field;
  if (!is_in_range(ns, first, blocks)) [[unlikely]]
    return nvme::Status::lba_out_of_range;
  if (is_write) {
    if (!may_write(ns, limits)) [[unlikely]]
      return nvme::Status::namespace_is_write_protected;
  } else if (!ns.uncorrectable.empty() && ns.uncorrectable.intersects(first, blocks)) [[unlikely]] {
    return nvme::Status::unrecovered_read_error;
  }
  out.media_offset = first << ns.lba_shift;
  out.bytes = static_cast<std::uint32_t>(bytes);
  out.is_write = is_write;
  out.force_unit_access = (sqe.cdw12 & nvme::kIoForceUnitAccess) != 0;
  return nvme::Status::success;
}

// The commonest command, a Read with nothing special about it, in a few comparisons: decode() takes only Reads that
// decode_read_write() takes too, and leaves all others to it. Made once for a run of commands.
class PlainRead {
 public:
  PlainRead(const Namespace& ns, std::uint32_t nsid, const IoLimits& limits)
      : header_(static_cast<std::uint64_t>(nvme::NvmOpcode::read) | (std::uint64_t{nsid} << 32)),
        // While anything is marked uncorrectable, no Read is plain.
        ns_blocks_(ns.uncorrectable.empty() ? ns.blocks : 0),
        max_blocks_(limits.max_transfer_bytes >> ns.lba_shift),
        shift_(ns.lba_shift) {}

  bool decode(const nvme::Sqe& sqe, Transfer& out) const {
    using Word [[gnu::may_alias]] = const std::uint64_t;
    const std::uint64_t header = reinterpret_cast<Word*>(&sqe)[0];
    const std::uint64_t first = reinterpret_cast<Word*>(&sqe)[5];
    const std::uint64_t blocks = (sqe.cdw12 & 0xFFFFu) + 1u;
    // The CID may be anything; opcode, FUSE, PSDT and NSID may not, and of dword 12 only the count.
    if ((header & ~(0xFFFFull << 16)) != header_ || sqe.cdw12 > 0xFFFFu || blocks > max_blocks_ || first > ns_blocks_ ||
        blocks > ns_blocks_ - first)
      return false;
    out.media_offset = first << shift_;
    out.bytes = static_cast<std::uint32_t>(blocks << shift_);
    out.is_write = false;
    out.force_unit_access = false;
    return true;
  }

 private:
  std::uint64_t header_;
  std::uint64_t ns_blocks_;
  std::uint64_t max_blocks_;
  unsigned shift_;
};

// What a transfer of `bytes` bytes at `media_offset` asks of the timing model: every unit it touches.
inline timing::Demand demand_of(const Namespace& ns, std::uint64_t media_offset, std::uint64_t bytes,
                                timing::DemandKind kind) {
  const std::uint64_t first = media_offset >> ns.unit_shift;
  const std::uint64_t last = (media_offset + bytes - 1) >> ns.unit_shift;
  return {ns.unit_base + first, static_cast<std::uint32_t>(last - first + 1), kind, {}};
}

// Demands on the timing model: Read, Compare and Verify read their units, Write, Write Zeroes and the destination of a
// Copy write theirs (the sources are not counted again), Flush flushes; Write Uncorrectable, Dataset Management and
// Write Zeroes that deallocates change only the device's map and are immediate, as is every rejected command.
class NvmCommandSet final : public CommandSet {
 public:
  nvme::Csi csi() const override { return nvme::Csi::nvm; }
  std::string_view name() const override { return "nvm"; }
  bool hosts_create() const override { return true; }
  Outcome execute(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) const override;
  void execute_fused(const nvme::Sqe& first, const nvme::Sqe& second, Namespace& ns, ExecContext& context,
                     Outcome& first_outcome, Outcome& second_outcome) const override;
};

}  // namespace flashmob::command_set
