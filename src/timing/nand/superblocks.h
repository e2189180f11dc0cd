// The superblocks: which are free, which are written, how much of each is valid, and which to collect next.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "timing/nand/params.h"

namespace flashmob::timing::nand {

class Superblocks {
 public:
  static constexpr std::uint32_t kNone = ~0u;

  explicit Superblocks(const Params& params);

  // The free superblock that waited longest, now open; kNone if there is none.
  std::uint32_t open();
  // It is full and may be collected.
  void close(std::uint32_t superblock);
  // A closed superblock by the victim policy, now being collected; kNone if none would gain room.
  std::uint32_t choose_victim();
  // It was erased (or will be before it is written).
  void free(std::uint32_t superblock);

  std::uint32_t free_count() const { return free_count_; }
  std::uint32_t valid(std::uint32_t superblock) const { return blocks_[superblock].valid; }
  void add_valid(std::uint32_t superblock) { ++blocks_[superblock].valid; }
  void drop_valid(std::uint32_t superblock) { --blocks_[superblock].valid; }
  // Whether it is open or was closed so lately that some of it may still be on its way to the medium.
  bool is_recent(std::uint32_t superblock) const {
    const Block& block = blocks_[superblock];
    return block.state == State::open || closings_ - block.closed_at < recent_closings_;
  }
  std::uint32_t erases(std::uint32_t superblock) const { return blocks_[superblock].erases; }

 private:
  enum class State : std::uint8_t { free, open, closed, collected };
  struct Block {
    std::uint32_t valid = 0;
    std::uint32_t erases = 0;
    State state = State::free;
    std::uint64_t closed_at = 0;  // a count of closings: the smallest is the oldest
    std::uint32_t next_free = kNone;
  };

  bool is_better(std::uint32_t candidate, std::uint32_t best) const;

  const Victim policy_;
  const std::uint32_t choices_;
  const std::uint32_t units_;
  const std::uint64_t recent_closings_;
  std::vector<Block> blocks_;
  std::uint32_t first_free_ = 0;
  std::uint32_t last_free_ = 0;
  std::uint32_t free_count_;
  std::uint64_t closings_ = 0;
  Rng rng_;
};

}  // namespace flashmob::timing::nand
