// What I/O commands mean. A command set executes one command of its kind completely: it checks every field, moves
// the data, and says what the command asks of the timing model.
//
// The engine handles the common case, Read and Write, itself (nvm.h: decode_read_write) so that whole batches are
// decoded, timed and copied without a call per command; everything else goes through execute().
#pragma once

#include <cstdint>
#include <span>

#include "command_set/namespace.h"
#include "memory/address_space.h"
#include "memory/data_pointer.h"
#include "nvme/command.h"
#include "nvme/status.h"
#include "timing/demand.h"

namespace flashmob::command_set {

// What a controller allows; fixed while it is enabled.
struct IoLimits {
  memory::DataPointerLimits data_pointer;
  std::uint64_t max_transfer_bytes = 1 << 20;  // MDTS in bytes
  bool volatile_write_cache = true;            // Flush and FUA then mean media->flush()
  bool sgl_supported = true;
};

// What a command needs to run on some thread. One per thread; the reader is inside its guard.
struct ExecContext {
  memory::AddressSpace::Reader& reader;
  memory::SegmentList& segments;
  std::span<std::byte> bounce;  // at least max_transfer_bytes + one page: for compare, copy, unmapped media
  const IoLimits& limits;
};

struct Outcome {
  nvme::Status status = nvme::Status::success;
  std::uint32_t dw0 = 0;
  timing::Demand demand{0, 0, timing::DemandKind::immediate, {}};
  // For SMART: bytes that the host read or wrote by this command (0 for others).
  std::uint64_t host_read_bytes = 0;
  std::uint64_t host_write_bytes = 0;
};

class CommandSet {
 public:
  virtual ~CommandSet() = default;
  virtual std::uint8_t csi() const = 0;
  // Executes one command on an attached namespace, fused halves excepted. NSIDs that name no attached namespace were
  // answered by the caller, and a Flush to the broadcast NSID reaches every attached namespace one by one.
  virtual Outcome execute(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) = 0;
  // Executes a fused pair (first: Compare, second: Write). Fills one outcome each.
  virtual void execute_fused(const nvme::Sqe& first, const nvme::Sqe& second, Namespace& ns, ExecContext& context,
                             Outcome& first_outcome, Outcome& second_outcome) = 0;
};

}  // namespace flashmob::command_set
