#include "transport/nvme_tcp/buffer_pool.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace flashmob::transport {

BufferPool::BufferPool(std::uint64_t bytes, std::uint64_t largest_bytes)
    : memory_(bytes / kBlockBytes * kBlockBytes),
      next_(bytes / kBlockBytes, kNone),
      data_of_(bytes / kBlockBytes, kNobody),
      share_(bytes / kBlockBytes, 1, (largest_bytes + kBlockBytes - 1) / kBlockBytes) {}

std::uint32_t BufferPool::take(std::uint32_t count, User& user, FairShare::Answer& answer, bool own_only) {
  FLASHMOB_CHECK(count != 0);
  answer = share_.take(user.blocks, count, own_only);
  if (answer != FairShare::Answer::given) return kNone;
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

void BufferPool::give(std::uint32_t first, User& user) {
  std::uint64_t count = 0;
  for (; first != kNone; ++count) {
    const std::uint32_t next = next_[first];
    next_[first] = free_;
    free_ = first;
    first = next;
  }
  share_.give(user.blocks, count);
}

void BufferPool::show_to(std::uint32_t first, std::uint32_t bytes, const User& user) {
  for (std::uint32_t block = first; bytes != 0; block = next_[block]) {
    const std::uint32_t here = std::min(bytes, kBlockBytes);
    bytes -= here;
    if (data_of_[block] == user.id) continue;
    if (data_of_[block] != kNobody) std::memset(data(block), 0, here);
    data_of_[block] = here == kBlockBytes || data_of_[block] == kNobody ? user.id : kSeveral;
  }
}

void BufferPool::fill_by(std::uint32_t first, const User& user) {
  for (std::uint32_t block = first; block != kNone; block = next_[block]) {
    if (data_of_[block] != user.id) data_of_[block] = data_of_[block] == kNobody ? user.id : kSeveral;
  }
}

}  // namespace flashmob::transport
