// Blocks of memory for transfers that are larger than their command's own buffer. One pool serves a target's
// connections; every controller has it in its address space. A transfer takes as many blocks as it needs, or none and
// waits. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/host_memory.h"

namespace flashmob::transport {

class BufferPool {
 public:
  static constexpr std::uint32_t kBlockBytes = 64 * 1024;
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  // `bytes` is rounded down to whole blocks. Memory is committed when it is first used.
  explicit BufferPool(std::uint64_t bytes);

  // A chain of `count` blocks, or kNone.
  std::uint32_t take(std::uint32_t count);
  void give(std::uint32_t first);

  std::uint32_t next(std::uint32_t block) const { return next_[block]; }
  std::byte* data(std::uint32_t block) const { return memory_.data() + std::size_t{block} * kBlockBytes; }
  std::uint32_t blocks() const { return static_cast<std::uint32_t>(next_.size()); }
  std::uint32_t available() const { return available_; }
  const memory::HostMemory& memory() const { return memory_; }

 private:
  memory::HostMemory memory_;
  std::vector<std::uint32_t> next_;  // of a chain, or of the free list
  std::uint32_t free_ = kNone;
  std::uint32_t fresh_ = 0;  // blocks from here on were never used
  std::uint32_t available_;
};

}  // namespace flashmob::transport
