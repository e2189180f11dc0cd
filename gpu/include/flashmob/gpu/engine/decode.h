// What a command asks for, by the checks that the host's engine has, too (command_set/nvm_decode.h), and the same
// demands on the timing model (NVM command set 1.0c, 3.2). Compiles as CUDA device code; pure functions.
//
// Executed are Read, Write, Flush, Write Zeroes, Compare, and Dataset Management's Deallocate. Not here: SGLs, fused
// pairs, and the other commands, which are answered as a controller answers what it does not have.
#pragma once

#include <cstdint>

#include "command_set/nvm_decode.h"
#include "flashmob/gpu/engine/data_pointer.h"
#include "flashmob/gpu/engine/layout.h"
#include "nvme/dataset.h"
#include "nvme/io_command.h"
#include "nvme/opcode.h"
#include "nvme/status.h"
#include "timing/demand.h"

namespace flashmob::gpu::engine {

inline constexpr std::uint32_t kBroadcastNsid = 0xFFFFFFFFu;

struct Decoded {
  nvme::Status status = nvme::Status::success;
  Operation operation = Operation::nothing;
  bool is_transfer = false;  // a good Read or Write
  std::byte* media = nullptr;
  std::uint32_t bytes = 0;
  timing::Demand demand{0, 0, timing::DemandKind::immediate, {}};
};

namespace detail {

FLASHMOB_HD inline Decoded rejected(nvme::Status status) {
  Decoded out;
  out.status = status;
  return out;
}

FLASHMOB_HD inline command_set::TransferRules rules_of(const DeviceNamespace& ns, const Tables& tables) {
  return {tables.max_transfer_bytes, false, ns.writable};
}

// A command on the blocks that SLBA and NLB name.
FLASHMOB_HD inline Decoded on_blocks(const nvme::Sqe& sqe, const DeviceNamespace& ns, Operation operation,
                                     timing::DemandKind kind) {
  const command_set::Transfer transfer = command_set::transfer_of(sqe, ns);
  Decoded out;
  out.operation = operation;
  out.media = ns.base + transfer.media_offset;
  out.bytes = transfer.bytes;
  if (kind != timing::DemandKind::immediate) ns.units().touch(transfer.media_offset, transfer.bytes, kind, out.demand);
  return out;
}

FLASHMOB_HD inline Decoded decode_transfer(const nvme::Sqe& sqe, const DeviceNamespace& ns, const Tables& tables) {
  const nvme::Status status = command_set::check_transfer(sqe, ns, rules_of(ns, tables));
  if (status != nvme::Status::success) return rejected(status);
  Decoded out = command_set::is_write(sqe.opcode) ? on_blocks(sqe, ns, Operation::write, timing::DemandKind::write)
                                                  : on_blocks(sqe, ns, Operation::read, timing::DemandKind::read);
  out.is_transfer = true;
  out.demand.sectors = timing::sectors_of(out.bytes);
  return out;
}

FLASHMOB_HD inline Decoded decode_compare(const nvme::Sqe& sqe, const DeviceNamespace& ns, const Tables& tables) {
  nvme::Status status = command_set::check_compare(sqe, ns, rules_of(ns, tables));
  if (status != nvme::Status::success) return rejected(status);
  const Decoded out = on_blocks(sqe, ns, Operation::compare, timing::DemandKind::read);
  status = check_pages(tables, sqe.prp1, sqe.prp2, out.bytes, false);
  if (status == nvme::Status::success) return out;
  // It was asked for, as it is of the host's engine, which looks at pages later.
  Decoded bad = rejected(status);
  bad.demand = out.demand;
  return bad;
}

FLASHMOB_HD inline Decoded decode_write_zeroes(const nvme::Sqe& sqe, const DeviceNamespace& ns) {
  const nvme::Status status = command_set::check_write_zeroes(sqe, ns, ns.writable);
  if (status != nvme::Status::success) return rejected(status);
  const bool deallocates = (sqe.cdw12 & nvme::kIoDeallocate) != 0;
  return on_blocks(sqe, ns, Operation::zero, deallocates ? timing::DemandKind::immediate : timing::DemandKind::write);
}

FLASHMOB_HD inline Decoded decode_dataset_management(const nvme::Sqe& sqe, const DeviceNamespace& ns,
                                                     const Tables& tables) {
  if (!command_set::is_data_pointer_kind_valid(sqe, false)) return rejected(nvme::Status::invalid_field);
  const std::uint32_t ranges = nvme::dataset_range_count(sqe);
  const nvme::Status status =
      check_pages(tables, sqe.prp1, sqe.prp2, std::uint64_t{ranges} * sizeof(nvme::DatasetRange), false);
  if (status != nvme::Status::success) return rejected(status);
  Decoded out;
  out.operation = (sqe.cdw11 & nvme::kDatasetDeallocate) != 0 ? Operation::deallocate
                                                              : Operation::check_ranges;  // others are hints
  out.media = ns.base;
  out.bytes = ranges;
  return out;
}

}  // namespace detail

FLASHMOB_HD inline Decoded decode(const nvme::Sqe& sqe, const Tables& tables) {
  using nvme::NvmOpcode;
  using nvme::Status;
  const std::uint8_t fuse = sqe.flags & nvme::kFlagFuseMask;
  if (fuse == nvme::kFlagFuseSecond) return detail::rejected(Status::aborted_missing_fused);
  if (fuse != 0) return detail::rejected(Status::invalid_field);
  const auto opcode = static_cast<NvmOpcode>(sqe.opcode);
  std::uint32_t index = 0;
  while (index < tables.namespace_count && tables.namespaces[index].nsid != sqe.nsid) ++index;
  if (index == tables.namespace_count) {
    if (opcode == NvmOpcode::flush && sqe.nsid == kBroadcastNsid) {
      Decoded out;
      out.demand.kind = timing::DemandKind::flush;
      return out;
    }
    // Base 2.0c, 3.2.1.2 and 3.2.1.4: an invalid NSID, and a valid one that is inactive.
    const bool valid = sqe.nsid >= 1 && sqe.nsid <= tables.max_nsid;
    return detail::rejected(valid ? Status::invalid_field : Status::invalid_namespace_or_format);
  }
  const DeviceNamespace& ns = tables.namespaces[index];
  Decoded out;
  switch (opcode) {
    case NvmOpcode::read:
    case NvmOpcode::write:
      out = detail::decode_transfer(sqe, ns, tables);
      break;
    case NvmOpcode::compare:
      out = detail::decode_compare(sqe, ns, tables);
      break;
    case NvmOpcode::write_zeroes:
      out = detail::decode_write_zeroes(sqe, ns);
      break;
    case NvmOpcode::dataset_management:
      out = detail::decode_dataset_management(sqe, ns, tables);
      break;
    case NvmOpcode::flush:
      out.demand.kind = timing::DemandKind::flush;
      break;
    default:
      out.status = Status::invalid_opcode;
  }
  return out;
}

}  // namespace flashmob::gpu::engine
