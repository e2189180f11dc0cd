// Who may touch which blocks of 4096 bytes: any number of readers, or one writer; and readers that take nothing, but
// see afterwards whether somebody wrote. Shared by all threads that use the blocks, without a lock that all of them
// would meet at: each block has a word of its own, or shares one with others.
//
// Thread rule: any thread. try_lock() takes all blocks of a range or none and waits for nobody, so whoever holds blocks
// may ask for more. lock() waits; who waits in it holds only what it has taken of the same range, and all take words in
// the same order.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/backoff.h"

namespace flashmob::media {

class BlockLocks {
 public:
  static constexpr unsigned kBlockShift = 12;
  static constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << kBlockShift;

  // A range of as many blocks as there are words, a power of two, or of more, takes all of them.
  explicit BlockLocks(std::uint64_t words) : words_(std::make_unique<Word[]>(words)), count_(words) {}

  std::uint64_t words() const { return count_; }

  // A writer who finds readers keeps new ones out until the present ones have left: none is kept waiting for ever.
  bool try_lock(std::uint64_t first, std::uint64_t blocks, bool exclusive) {
    blocks = blocks < count_ ? blocks : count_;
    for (std::uint64_t i = 0; i < blocks; ++i) {
      if (take(word(first + i), exclusive)) continue;
      unlock(first, i, exclusive);
      return false;
    }
    return true;
  }
  void lock(std::uint64_t first, std::uint64_t blocks, bool exclusive = true) {
    // Ascending, each once.
    const std::uint64_t begin = first & (count_ - 1);
    blocks = blocks < count_ ? blocks : count_;
    const std::uint64_t wrapped = begin + blocks > count_ ? begin + blocks - count_ : 0;
    for (std::uint64_t i = 0; i < wrapped; ++i) wait_for(words_[i], exclusive);
    for (std::uint64_t i = begin; i < begin + blocks - wrapped; ++i) wait_for(words_[i], exclusive);
  }
  void unlock(std::uint64_t first, std::uint64_t blocks, bool exclusive = true) {
    blocks = blocks < count_ ? blocks : count_;
    for (std::uint64_t i = 0; i < blocks; ++i) leave(word(first + i), exclusive);
  }

  // For reads that take no lock: what is read between a look that is not busy() and unchanged() is whole.
  std::uint64_t look(std::uint64_t block) const { return word(block).load(std::memory_order_acquire) & kWriters; }
  static bool busy(std::uint64_t look) { return (look & kExclusive) != 0; }
  bool unchanged(std::uint64_t block, std::uint64_t look) const {
    std::atomic_thread_fence(std::memory_order_acquire);
    return (word(block).load(std::memory_order_relaxed) & kWriters) == look;
  }

 private:
  using Word = std::atomic<std::uint64_t>;
  static constexpr std::uint64_t kWanted = 1ull << 30;  // only while there are readers; their last one clears it
  static constexpr std::uint64_t kExclusive = 1ull << 31;
  static constexpr std::uint64_t kOneMore = 1ull << 32;  // those above count writers that have left
  static constexpr std::uint64_t kReaders = kWanted - 1;
  static constexpr std::uint64_t kWriters = ~(kReaders | kWanted);
  static constexpr unsigned kSpins = 1000;

  Word& word(std::uint64_t block) const { return words_[block & (count_ - 1)]; }

  static bool take(Word& word, bool exclusive) {
    std::uint64_t seen = word.load(std::memory_order_relaxed);
    for (;;) {
      if ((seen & kExclusive) != 0 || (!exclusive && (seen & kWanted) != 0)) return false;
      const bool waits = exclusive && (seen & kReaders) != 0;
      if (waits && (seen & kWanted) != 0) return false;
      const std::uint64_t next = waits ? seen | kWanted : exclusive ? seen | kExclusive : seen + 1;
      if (word.compare_exchange_weak(seen, next, std::memory_order_acquire, std::memory_order_relaxed)) {
        if (exclusive)
          std::atomic_thread_fence(std::memory_order_release);  // stores to the blocks stay behind the mark
        return !waits;
      }
    }
  }
  // The holder copies 4 KiB, unless it has lost its core, or waits for a disk.
  static void wait_for(Word& word, bool exclusive) {
    for (Backoff backoff(kSpins); !take(word, exclusive);) backoff.pause();
  }
  static void leave(Word& word, bool exclusive) {
    std::uint64_t seen = word.load(std::memory_order_relaxed);
    if (exclusive) return word.store((seen & ~kExclusive) + kOneMore, std::memory_order_release);
    while (!word.compare_exchange_weak(seen, (seen & kReaders) == 1 ? (seen & ~kWanted) - 1 : seen - 1,
                                       std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

  std::unique_ptr<Word[]> words_;
  std::uint64_t count_;
};

}  // namespace flashmob::media
