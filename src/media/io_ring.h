// Reads and writes of one file descriptor by io_uring (io_uring(7)), as a BlockPort. The three system calls are made
// here themselves: what we use of them is less than a library for them would ask of everyone who builds this.
//
// Needs Linux 5.6. Thread rule: as BlockPort.
#pragma once

#include <memory>

#include "media/block_store.h"

namespace flashmob::media {

// `fd` outlives the port. nullptr, with errno set, where the kernel or a container's rules refuse.
std::unique_ptr<BlockPort> make_io_ring(int fd, std::uint32_t depth);

}  // namespace flashmob::media
