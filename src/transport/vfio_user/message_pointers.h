// The data pointer of a command whose memory messages reach: the pieces of the client's memory that it names (NVMe Base
// 2.0c, 4.1.1 and 4.1.2), with lists read by messages. memory/data_pointer.h is the same for memory that is shared.
//
// Only finds the pieces: a pointer that breaks a rule is left to the engine, which names the status. On the thread of
// MessageQueues.
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

// The pieces of `bytes` bytes; false if the pointer does not name so many, or cannot be read.
bool find_pieces(MessageMemory& client, const nvme::Sqe& sqe, std::uint64_t bytes, std::vector<ClientPiece>& pieces);

}  // namespace flashmob::transport
