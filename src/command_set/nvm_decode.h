// The checks of NVM commands (NVM Command Set Specification 1.0c, 3.2), once for every engine: the host's dispatcher
// and command set, and the GPU's. The order of checks gives the status that the specification ranks first.
//
// Pure functions over a copy of the command. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "command_set/namespace_shape.h"
#include "nvme/io_command.h"
#include "nvme/opcode.h"
#include "nvme/status.h"

namespace flashmob::command_set {

// A Read or Write, ready to be timed and copied.
struct Transfer {
  std::uint64_t media_offset;  // bytes from the start of the namespace's media
  std::uint32_t bytes;
  bool is_write;
  bool force_unit_access;
};

// What a controller allows of the commands to a namespace.
struct TransferRules {
  std::uint64_t max_bytes;  // MDTS
  bool has_sgl;
  bool may_write;
};

FLASHMOB_HD constexpr bool is_write(std::uint8_t opcode) {
  return opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::write);
}
FLASHMOB_HD constexpr bool is_read_or_write(std::uint8_t opcode) {
  return opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::read) || is_write(opcode);
}

// PSDT 11b is reserved, and both SGL values need a controller that has SGLs.
FLASHMOB_HD constexpr bool is_data_pointer_kind_valid(const nvme::Sqe& sqe, bool has_sgl) {
  const std::uint8_t psdt = sqe.flags & nvme::kFlagPsdtMask;
  return psdt == 0 || (psdt != nvme::kFlagPsdtMask && has_sgl);
}

// Written so that nothing wraps. No blocks at all fit anywhere up to the end.
FLASHMOB_HD constexpr bool is_in_range(const NamespaceShape& ns, std::uint64_t first, std::uint64_t blocks) {
  return first <= ns.blocks && blocks <= ns.blocks - first;
}

// The fields of a Read or Write as its namespace has them, checked or not.
FLASHMOB_HD inline Transfer transfer_of(const nvme::Sqe& sqe, const NamespaceShape& ns) {
  return {nvme::starting_lba(sqe) << ns.lba_shift, nvme::block_count(sqe) << ns.lba_shift, is_write(sqe.opcode),
          (sqe.cdw12 & nvme::kIoForceUnitAccess) != 0};
}

// A command's blocks, and the bits of its dword 12 that it may not set.
FLASHMOB_HD inline nvme::Status check_blocks(const nvme::Sqe& sqe, const NamespaceShape& ns,
                                             std::uint32_t unsupported) {
  if ((sqe.cdw12 & unsupported) != 0) [[unlikely]]
    return nvme::Status::invalid_field;
  return is_in_range(ns, nvme::starting_lba(sqe), nvme::block_count(sqe)) ? nvme::Status::success
                                                                          : nvme::Status::lba_out_of_range;
}

// The same of a command whose data pointer names as many bytes as the blocks have.
FLASHMOB_HD inline nvme::Status check_data_blocks(const nvme::Sqe& sqe, const NamespaceShape& ns,
                                                  const TransferRules& rules, std::uint32_t unsupported) {
  if (!is_data_pointer_kind_valid(sqe, rules.has_sgl) ||
      std::uint64_t{nvme::block_count(sqe)} << ns.lba_shift > rules.max_bytes) [[unlikely]]
    return nvme::Status::invalid_field;
  return check_blocks(sqe, ns, unsupported);
}

// Read and Write, all but marks of Write Uncorrectable, and the directives of a namespace that has any. PRINFO (29:26)
// needs metadata formats, which we do not offer, and DTYPE (23:20) directives. Reads have none, but fio sends there
// what it sends with Writes, and drives with directives let it.
FLASHMOB_HD inline nvme::Status check_transfer(const nvme::Sqe& sqe, const NamespaceShape& ns,
                                               const TransferRules& rules) {
  const std::uint32_t directive = ns.has_directives ? 0 : nvme::kIoDirectiveTypeMask;
  const nvme::Status status = check_data_blocks(sqe, ns, rules, nvme::kIoProtectionMask | directive);
  if (status == nvme::Status::success && is_write(sqe.opcode) && !rules.may_write) [[unlikely]]
    return nvme::Status::namespace_is_write_protected;
  return status;
}

FLASHMOB_HD inline nvme::Status check_compare(const nvme::Sqe& sqe, const NamespaceShape& ns,
                                              const TransferRules& rules) {
  return check_data_blocks(sqe, ns, rules, nvme::kIoProtectionMask);
}

FLASHMOB_HD inline nvme::Status check_write_zeroes(const nvme::Sqe& sqe, const NamespaceShape& ns, bool may_write) {
  const nvme::Status status = check_blocks(sqe, ns, nvme::kIoProtectionMask);
  return status == nvme::Status::success && !may_write ? nvme::Status::namespace_is_write_protected : status;
}

}  // namespace flashmob::command_set
