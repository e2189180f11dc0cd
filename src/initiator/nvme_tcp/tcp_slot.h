// One command of an NVMe/TCP queue in flight: where its data lies in host memory and how far it has moved.
//
// One thread. Host addresses are valid only inside the reader's guard and until the host changes its mappings, so they
// are looked up again whenever the address space's generation has changed.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "memory/address_space.h"
#include "memory/command_data.h"
#include "memory/data_pointer.h"
#include "nvme/command.h"
#include "nvme/status.h"

namespace flashmob::initiator {

using memory::CommandData;
using memory::DataWay;

// The longest transfer a command may ask for, in pieces of host memory: 4 MiB in single pages.
inline constexpr std::size_t kMaxSegments = 1026;

class TcpSlot {
 public:
  TcpSlot() : list_(kMaxSegments) {}

  nvme::Sqe sqe{};  // as the host wrote it
  CommandData data;
  std::uint64_t requested = 0;  // bytes sent in the capsule or asked for by R2Ts
  std::uint64_t moved = 0;      // bytes that have arrived, or have been queued to be sent
  std::uint32_t unsent_pieces = 0;  // of the transmit queue that point into this command's data
  std::uint32_t open_r2ts = 0;
  bool active = false;
  bool memory_lost = false;    // the host took the data's memory away: what arrives is dropped
  bool digest_failed = false;  // data arrived damaged
  // Of the door's own commands: where the data is, and who is told.
  std::byte* local = nullptr;
  std::function<void(const nvme::Cqe&)> done;

  void start(const nvme::Sqe& command, CommandData command_data) {
    sqe = command;
    data = command_data;
    requested = moved = 0;
    unsent_pieces = open_r2ts = 0;
    active = true;
    memory_lost = digest_failed = false;
    local = nullptr;
    generation_ = 0;
  }

  // Finds the data in host memory; not success if the command's data pointer is wrong.
  nvme::Status resolve(memory::AddressSpace::Reader& reader);
  // Appends up to `limit` pieces that cover [offset, offset + bytes) or a beginning of it; returns how many. 0 when the
  // memory is not there any more.
  std::size_t pieces(memory::AddressSpace::Reader& reader, std::uint64_t offset, std::uint64_t bytes, iovec* out,
                     std::size_t limit);

 private:
  bool refresh(memory::AddressSpace::Reader& reader);
  void seek(std::uint64_t offset);

  memory::SegmentList list_;
  std::uint64_t generation_ = 0;  // of the address space when list_ was made; 0: never
  // Where the last access ended: data moves forward, so that the next one need not search from the start.
  std::size_t segment_ = 0;
  std::uint64_t segment_start_ = 0;
};

}  // namespace flashmob::initiator
