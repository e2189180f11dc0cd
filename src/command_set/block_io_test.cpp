// Blocks between threads: what the locks are for, without the engine around them.
#include "command_set/block_io.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "base/rng.h"

namespace flashmob::command_set {
namespace {

constexpr std::uint64_t kBlock = 4096;

class BlockIoTest : public ::testing::Test {
 protected:
  BlockIoTest() {
    media_ = media::open("memory", 16 * kBlock, 1, 1);
    ns_.blocks = 16;
    ns_.nsid = 1;
    ns_.lba_shift = 12;
    ns_.base = media_->base();
    ns_.media = media_.get();
  }
  std::unique_ptr<media::Media> media_;
  Namespace ns_;
  PieceLocks locks_;
};

// Pieces of host memory that end in the middle of blocks, and bit buckets.
TEST_F(BlockIoTest, PiecesOfHostMemoryNeedNotBeBlocks) {
  std::vector<std::byte> source(4 * kBlock), target(4 * kBlock);
  Rng rng(1);
  for (std::byte& byte : source) byte = static_cast<std::byte>(rng.next());
  for (PieceLocks* const locks : {static_cast<PieceLocks*>(nullptr), &locks_}) {
    const std::vector<memory::Segment> from = {
        {source.data(), 100}, {source.data() + 100, 2 * kBlock}, {source.data() + 100 + 2 * kBlock, 2 * kBlock - 100}};
    ASSERT_TRUE(write_blocks(ns_, locks, kBlock, from, 0, kBlock));
    ASSERT_TRUE(write_blocks(ns_, locks, 2 * kBlock, from, kBlock, 3 * kBlock));
    EXPECT_EQ(std::memcmp(media_->base() + kBlock, source.data(), source.size()), 0);
    std::fill(target.begin(), target.end(), std::byte{0});
    const std::vector<memory::Segment> to = {
        {target.data(), kBlock + 8}, {nullptr, kBlock}, {target.data() + 2 * kBlock + 8, 2 * kBlock - 8}};
    ASSERT_TRUE(read_blocks(ns_, locks, kBlock, to, 0, 4 * kBlock));
    EXPECT_EQ(std::memcmp(target.data(), source.data(), kBlock + 8), 0);
    EXPECT_EQ(target[kBlock + 8], std::byte{0}) << "a bit bucket";
    EXPECT_EQ(std::memcmp(target.data() + 2 * kBlock + 8, source.data() + 2 * kBlock + 8, 2 * kBlock - 8), 0);
    std::memset(media_->base(), 0, 16 * kBlock);
  }
}

// Read, add one, write back: as a fused pair does it, beside plain writes of another block of the same range.
TEST_F(BlockIoTest, ARangeIsHeldFromItsReadToItsWrite) {
  constexpr std::uint64_t kTurns = 5'000;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      std::vector<std::byte> data(4 * kBlock);
      for (std::uint64_t turn = 0; turn < kTurns; ++turn) {
        const PieceRangeGuard guard(&locks_, ns_, 0, data.size());
        ASSERT_TRUE(read_blocks(ns_, nullptr, 0, data));
        std::uint64_t value = 0;
        std::memcpy(&value, data.data(), sizeof(value));
        ++value;
        std::memcpy(data.data(), &value, sizeof(value));
        ASSERT_TRUE(write_blocks(ns_, nullptr, 0, data));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t value = 0;
  std::memcpy(&value, media_->base(), sizeof(value));
  EXPECT_EQ(value, 3 * kTurns);
}

// Longer than there are locks, and across the end of their table.
TEST_F(BlockIoTest, RangesOfAnyLengthAreLockedOnce) {
  for (const std::uint64_t first : {0ull, 4095ull, 4000ull, 123456789ull}) {
    for (const std::uint64_t count : {1ull, 2ull, 97ull, 4096ull, 100'000ull}) {
      locks_.lock(first, count);
      EXPECT_TRUE(PieceLocks::busy(locks_.look(first)));
      EXPECT_TRUE(PieceLocks::busy(locks_.look(first + count - 1)));
      locks_.unlock(first, count);
      EXPECT_FALSE(PieceLocks::busy(locks_.look(first)));
      EXPECT_FALSE(PieceLocks::busy(locks_.look(first + count - 1)));
    }
  }
}

}  // namespace
}  // namespace flashmob::command_set
