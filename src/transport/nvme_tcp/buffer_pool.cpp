#include "transport/nvme_tcp/buffer_pool.h"

#include "base/check.h"

namespace flashmob::transport {

BufferPool::BufferPool(std::uint64_t bytes)
    : memory_(bytes / kBlockBytes * kBlockBytes),
      next_(bytes / kBlockBytes, kNone),
      available_(static_cast<std::uint32_t>(bytes / kBlockBytes)) {}

std::uint32_t BufferPool::take(std::uint32_t count) {
  FLASHMOB_CHECK(count != 0);
  if (count > available_) return kNone;
  available_ -= count;
  std::uint32_t first = kNone;
  for (std::uint32_t i = 0; i < count; ++i) {
    // What was used last is warm; what was never used is not committed.
    std::uint32_t block = free_;
    if (block != kNone)
      free_ = next_[block];
    else
      block = fresh_++;
    next_[block] = first;
    first = block;
  }
  return first;
}

void BufferPool::give(std::uint32_t first) {
  while (first != kNone) {
    const std::uint32_t next = next_[first];
    next_[first] = free_;
    free_ = first;
    ++available_;
    first = next;
  }
}

}  // namespace flashmob::transport
