// Blocks of 4096 bytes of a store, kept in memory of a fixed size: sets of eight frames, of which the one not used for
// a while gives way (the clock algorithm). Write-through: it never holds what the store does not, so nothing is lost
// with it and it is never written back.
//
// Thread rule: any thread. Whoever calls holds the block in BlockLocks: shared for read() and fill(), exclusively for
// patch() and drop(). A set's own lock is held for one copy of a block.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace flashmob::media {

class BlockCache {
 public:
  static constexpr std::uint64_t kBlockBytes = 4096;

  // 0: holds nothing, ever. Throws ConfigError where there is no room for it.
  explicit BlockCache(std::uint64_t bytes);
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // Copies a block to `out`; false if it is not here.
  bool read(std::uint64_t block, std::byte* out);
  // What the store holds.
  void fill(std::uint64_t block, const std::byte* data);
  // Part of a block has changed.
  void patch(std::uint64_t block, std::uint64_t at, const std::byte* data, std::uint64_t bytes);
  void drop(std::uint64_t first, std::uint64_t blocks);

 private:
  static constexpr unsigned kWays = 8;
  struct alignas(64) Set {
    std::atomic_flag busy;
    std::uint8_t hand = 0;
    std::uint8_t used = 0;                   // a bit for each frame: since the hand passed it last
    std::array<std::uint64_t, kWays> tag{};  // block + 1; 0: free
  };
  class Hold;

  Set& set_of(std::uint64_t block);
  std::byte* frame(const Set& set, unsigned way);
  static unsigned find(const Set& set, std::uint64_t block);

  std::uint64_t count_;  // of sets
  std::unique_ptr<Set[]> sets_;
  std::byte* frames_ = nullptr;
};

}  // namespace flashmob::media
