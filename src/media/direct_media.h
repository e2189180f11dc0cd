// Media whose bytes lie in a BlockStore and pass through a bounded cache: for more capacity than there is memory.
//
// What is written is in the store when its Write is done (the cache is written through), and durable after flush(). Two
// commands that touch the same block of 4096 bytes, on whichever threads, are carried out one after the other unless
// both read: each is atomic against the other as a whole. So is all that happens between hold() and let_go().
//
// Thread rule: as media.h. queue(n) and what it returns are for one thread each. read(), write() and the others that
// wait are for threads that have no transfer outstanding, and hold no lock that a thread with transfers may wait for:
// they wait for the blocks of others'.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "media/block_cache.h"
#include "media/block_locks.h"
#include "media/block_store.h"
#include "media/media.h"

namespace flashmob::media {

class DirectQueue;

class DirectMedia final : public Media {
 public:
  // `saved`: where what hosts change besides blocks is kept; empty: nowhere.
  DirectMedia(std::unique_ptr<BlockStore> store, std::uint64_t size_bytes, std::uint64_t cache_bytes,
              std::shared_ptr<StateKeeper> saved = nullptr);
  ~DirectMedia() override;

  MediaQueue* queue(unsigned thread) override;
  bool is_disk_full() const override { return disk_full_.load(std::memory_order_relaxed); }
  bool read(std::uint64_t offset, std::span<std::byte> out) override;
  bool write(std::uint64_t offset, std::span<const std::byte> in) override;
  bool deallocate(std::uint64_t offset, std::uint64_t bytes) override;
  void hold(std::uint64_t offset, std::uint64_t bytes) override;
  void let_go(std::uint64_t offset, std::uint64_t bytes) override;
  bool sync_waits() const override { return true; }
  bool flush() override {
    if (!sync_failed_ && store_->flush() != 0) sync_failed_ = true;
    return !sync_failed_;
  }
  // A flush of all: there is no other for what went past the page cache.
  bool sync(std::uint64_t, std::uint64_t) override { return flush(); }
  std::string describe() const override { return store_->describe(); }
  std::shared_ptr<StateKeeper> saved() const override { return saved_; }

 private:
  class Hold;
  static thread_local const DirectMedia* held_;  // by this thread, with hold()
  static constexpr unsigned kMaxThreads = 64;
  static constexpr std::uint32_t kScratchBytes = 1 << 20;

  bool write_held(std::uint64_t offset, std::uint64_t bytes, const std::byte* data);
  bool transfer(std::uint64_t offset, std::uint32_t bytes, bool is_write);

  std::unique_ptr<BlockStore> store_;
  std::shared_ptr<StateKeeper> saved_;
  BlockLocks locks_{1 << 16};
  BlockCache cache_;
  std::atomic<bool> sync_failed_{false};  // as in file_media.h: of the disk's own cache, and of where blocks are
  std::atomic<bool> disk_full_{false};  // of the last write that failed while its caller waited
  std::mutex scratch_mutex_;  // one at a time of those that wait
  struct Scratch {
    alignas(4096) std::array<std::byte, kScratchBytes> bytes;
  };
  std::unique_ptr<Scratch> scratch_;
  struct Use {
    bool tried = false;
    std::unique_ptr<DirectQueue> queue;
  };
  std::array<Use, kMaxThreads> queues_;
};

}  // namespace flashmob::media
