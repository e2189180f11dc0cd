// Blocks of memory for transfers that are larger than their command's own buffer. One pool serves a target's
// connections; every controller has it in its address space. A transfer takes as many blocks as it needs, or none and
// waits. Hosts have shares of it, and the pool knows whose data a block may still hold: what a host is sent never holds
// another's, whatever its command has filled. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/fair_share.h"
#include "memory/host_memory.h"

namespace flashmob::transport {

class BufferPool {
 public:
  static constexpr std::uint32_t kBlockBytes = 64 * 1024;
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  // `bytes` is rounded down to whole blocks; no transfer is larger than `largest_bytes`. Memory is committed when it is
  // first used.
  explicit BufferPool(std::uint64_t bytes, std::uint64_t largest_bytes = kBlockBytes);

  // A host that takes blocks.
  struct User {
    std::uint64_t id = 0;  // not 0, and no other host's that ever was
    FairShare::Holder blocks;
  };

  // A chain of `count` blocks, or kNone. `answer` says why there is none. With `own_only`, none of those that are
  // shared.
  std::uint32_t take(std::uint32_t count, User& user, FairShare::Answer& answer, bool own_only = false);
  void give(std::uint32_t first, User& user);
  // Before a command fills the chain's first `bytes` bytes for the user to see: zeroes what may be somebody else's.
  void show_to(std::uint32_t first, std::uint32_t bytes, const User& user);
  // Before the user's own data goes into the chain.
  void fill_by(std::uint32_t first, const User& user);

  std::uint32_t next(std::uint32_t block) const { return next_[block]; }
  std::byte* data(std::uint32_t block) const { return memory_.data() + std::size_t{block} * kBlockBytes; }
  std::uint32_t blocks() const { return static_cast<std::uint32_t>(next_.size()); }
  std::uint32_t available() const { return static_cast<std::uint32_t>(share_.free()); }
  const memory::HostMemory& memory() const { return memory_; }

 private:
  memory::HostMemory memory_;
  std::vector<std::uint32_t> next_;  // of a chain, or of the free list
  // Whose data alone a block holds, apart from zeroes: a User::id.
  static constexpr std::uint64_t kNobody = 0;
  static constexpr std::uint64_t kSeveral = UINT64_MAX;
  std::vector<std::uint64_t> data_of_;
  std::uint32_t free_ = kNone;
  std::uint32_t fresh_ = 0;  // blocks from here on were never used
  FairShare share_;
};

}  // namespace flashmob::transport
