// The data pointer of a command whose memory messages reach: the pieces of the client's memory that it names (NVMe Base
// 2.0c, 4.1.1 and 4.1.2), with lists read by messages. memory/data_pointer.h is the same for memory that is shared.
//
// Only finds the pieces. A pointer that breaks a rule never goes to the engine as it came, because the client could
// have made a good one of it by then, to memory that is not its own: one that breaks the same rule and names nothing
// does. On the thread of MessageQueues.
#pragma once

#include <cstdint>
#include <vector>

#include "nvme/command.h"
#include "transport/vfio_user/message_memory.h"

namespace flashmob::transport {

struct ClientPiece {
  std::uint64_t iova;
  std::uint64_t bytes;
  bool dropped;  // an SGL bit bucket: these bytes go nowhere
};

enum class Pointer : std::uint8_t {
  whole,
  unreachable,  // a list or segment cannot be read
  malformed,  // an offset, or a descriptor's type
  wrong_length,  // descriptors for fewer bytes, or for more
  bad_segment,  // a segment of descriptors that is none, or not where one may be
  too_many,  // descriptors, or links among them
};

// The pieces of `bytes` bytes, if it is whole.
Pointer find_pieces(MessageMemory& client, const nvme::Sqe& sqe, std::uint64_t bytes, bool to_device,
                    std::vector<ClientPiece>& pieces);

// Makes the command's pointer one that names no memory at all, and is refused for this reason.
void break_pointer(nvme::Sqe& sqe, Pointer reason, std::uint64_t bytes);

}  // namespace flashmob::transport
