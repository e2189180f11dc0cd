// Reads and writes of one file descriptor by io_uring (base/uring.h), as a BlockPort.
//
// Needs Linux 5.6. Thread rule: as BlockPort.
#pragma once

#include <memory>

#include "media/block_store.h"

namespace flashmob::media {

// `fd` outlives the port. nullptr, with errno set, where the kernel or a container's rules refuse.
std::unique_ptr<BlockPort> make_io_ring(int fd, std::uint32_t depth);

}  // namespace flashmob::media
