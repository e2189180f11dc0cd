// A thread's transfers to and from DirectMedia: finds blocks in the cache, keeps others away from those under way,
// widens what is not aligned, and goes on where the store moved less than it was asked to.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "media/block_cache.h"
#include "media/block_locks.h"
#include "media/block_store.h"
#include "media/media_queue.h"

namespace flashmob::media {

class DirectQueue final : public MediaQueue {
 public:
  // nullptr where there is no room for one more. All that it is made of outlives it.
  static std::unique_ptr<DirectQueue> make(BlockStore& store, BlockLocks& locks, BlockCache& cache);
  ~DirectQueue() override;

  Transfer* start(std::uint64_t offset, std::uint32_t bytes, bool is_write, bool durable, std::uint32_t token) override;
  void write(Transfer& transfer) override;
  Transfer* start_zeroes(std::uint64_t offset, std::uint32_t bytes, std::uint32_t token) override;
  void kick() override { port_->kick(); }
  Transfer* poll() override;
  void finish(Transfer& transfer) override;

 private:
  // Buffers by size: most commands are small, and memory that was never used costs nothing.
  struct BufferClass {
    std::uint32_t bytes;
    std::uint32_t count;
  };
  static constexpr std::array<BufferClass, 3> kClasses{{{8 << 10, 512}, {136 << 10, 64}, {(16 << 20) + (8 << 10), 8}}};
  static constexpr std::uint32_t kTransfers = 512 + 64 + 8;
  struct Work;

  DirectQueue(BlockStore& store, BlockLocks& locks, BlockCache& cache);
  bool take_memory();
  Work* take_buffer(std::uint32_t bytes);
  bool hold(Work& work, std::uint64_t offset, std::uint32_t bytes, bool is_write, std::uint32_t token);
  bool read_cached(Work& work);
  void submit(Work& work, bool is_write);
  void advance(Work& work, std::int32_t result);
  void store_done(Work& work);
  void zero_next(Work& work);
  void zero_piece_done(Work& work);
  void punched(Work& work, std::int32_t result);

  BlockStore& store_;
  BlockLocks& locks_;
  BlockCache& cache_;
  std::unique_ptr<BlockPort> port_;
  std::byte* memory_ = nullptr;
  std::uint64_t memory_bytes_ = 0;
  std::unique_ptr<Work[]> works_;
  std::array<std::vector<std::uint32_t>, kClasses.size()> free_;
  std::uint32_t pending_ = 0;
  std::array<BlockDone, 64> done_{};  // [done_at_, done_count_) are not looked at
  std::size_t done_at_ = 0;
  std::size_t done_count_ = 0;
};

}  // namespace flashmob::media
