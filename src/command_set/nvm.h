// The NVM command set (NVM Command Set Specification 1.0c): Read, Write, Flush, Compare, fused Compare and Write,
// Write Zeroes, Write Uncorrectable, Dataset Management, Verify and Copy.
//
// Atomicity: each logical block is read and written whole. A fused Compare and Write is atomic as a whole against every
// other command of the namespace.
#pragma once

#include <cstdint>

#include "command_set/command_set.h"
#include "command_set/nvm_decode.h"
#include "nvme/io_command.h"
#include "nvme/opcode.h"

namespace flashmob::command_set {

// Limits of Copy (NVM 1.0c, Figure 97: MSSRL, MCL, MSRC) and Dataset Management reported by Identify.
inline constexpr std::uint16_t kMaxSingleSourceRangeLength = 256;  // blocks
inline constexpr std::uint32_t kMaxCopyLength = 1024;  // blocks
inline constexpr std::uint8_t kMaxSourceRangeCount = nvme::kMaxCopySourceRanges - 1;  // 0's based
// VSL of Identify CNS 06h: Verify reads at most 2^8 pages of 4096 bytes, so that it cannot hold up other commands.
inline constexpr std::uint8_t kVerifySizeLimit = 8;
inline constexpr std::uint64_t kMaxVerifyBytes = std::uint64_t{4096} << kVerifySizeLimit;

inline TransferRules rules_of(const Namespace& ns, const IoLimits& limits) {
  return {limits.max_transfer_bytes, limits.sgl_supported, may_write(ns, limits)};
}

// Checks a Read or Write against its namespace and its controller's limits. Inline because it runs for every request.
inline nvme::Status decode_read_write(const nvme::Sqe& sqe, const Namespace& ns, const IoLimits& limits,
                                      Transfer& out) {
  const nvme::Status status = check_transfer(sqe, ns, rules_of(ns, limits));
  if (status != nvme::Status::success) [[unlikely]]
    return status;
  out = transfer_of(sqe, ns);
  if (out.is_write && ns.has_directives && !ns.placement->accepts(sqe)) [[unlikely]]
    return nvme::Status::invalid_field;
  if (!out.is_write && !ns.uncorrectable.empty() &&
      ns.uncorrectable.intersects(nvme::starting_lba(sqe), nvme::block_count(sqe))) [[unlikely]]
    return nvme::Status::unrecovered_read_error;
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

// Demands on the timing model: Read, Compare and Verify read their units, Write, Write Zeroes and the destination of a
// Copy write theirs (the sources are not counted again), Flush flushes; Write Uncorrectable, Dataset Management and
// Write Zeroes that deallocates change only the device's map and are immediate, as is every rejected command.
class NvmCommandSet final : public CommandSet {
 public:
  nvme::Csi csi() const override { return nvme::Csi::nvm; }
  std::string_view name() const override { return "nvm"; }
  bool hosts_create() const override { return true; }
  std::optional<timing::Demand> demand_of(const nvme::Sqe& sqe, const Namespace& ns,
                                          const IoLimits& limits) const override;
  Outcome execute(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) const override;
  std::optional<MediaRange> looks_at(const nvme::Sqe& sqe, const Namespace& ns, const IoLimits& limits) const override;
  bool notes_zeroing(const nvme::Sqe& sqe) const override {
    return sqe.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::write_zeroes) ||
           sqe.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::dataset_management);
  }
  Outcome end_zeroing(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context, const Zeroing& zeroing,
                      nvme::Status status) const override;
  bool notes_copying(const nvme::Sqe& sqe) const override {
    return sqe.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::copy);
  }
  Outcome end_copying(const nvme::Sqe& sqe, Namespace& ns, const ExecContext& context, const Copying& copying,
                      nvme::Status status) const override;
  void execute_fused(const nvme::Sqe& first, const nvme::Sqe& second, Namespace& ns, ExecContext& context,
                     Outcome& first_outcome, Outcome& second_outcome) const override;
};

}  // namespace flashmob::command_set
