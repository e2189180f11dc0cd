// The superblocks: which are free, which are written, how much of each is valid, how often each was erased, and which
// to collect next.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "timing/nand/params.h"

namespace flashmob::timing::nand {

struct Wear {
  std::uint32_t fewest = 0;
  std::uint32_t most = 0;
  double mean = 0;
};

class Superblocks {
 public:
  static constexpr std::uint32_t kNone = ~0u;

  explicit Superblocks(const Params& params);

  // The free superblock with the fewest erases, of those the one that waited longest, now open; kNone if there is none.
  // `owner` is whoever fills it.
  std::uint32_t open(bool is_slc = false, std::uint32_t owner = 0);
  // It is full and may be collected.
  void close(std::uint32_t superblock);
  // A closed superblock by the victim policy, now being collected; kNone if none would gain room.
  std::uint32_t choose_victim();
  // The closed one of the SLC cache that was written longest ago, now being collected; kNone if there is none.
  std::uint32_t choose_cached();
  // A closed one that was erased far less often than another, now being collected; kNone if there is none, or one was
  // moved for that lately.
  std::uint32_t choose_cold();
  // It was erased (or will be before it is written).
  void free(std::uint32_t superblock);

  std::uint32_t free_count() const { return static_cast<std::uint32_t>(free_.size()); }
  std::uint32_t slc_count() const { return slc_count_; }  // that are open, written or being collected
  bool is_slc(std::uint32_t superblock) const { return blocks_[superblock].is_slc; }
  std::uint32_t owner(std::uint32_t superblock) const { return blocks_[superblock].owner; }
  std::uint32_t valid(std::uint32_t superblock) const { return blocks_[superblock].valid; }
  void add_valid(std::uint32_t superblock, std::uint32_t units = 1) { blocks_[superblock].valid += units; }
  void drop_valid(std::uint32_t superblock, std::uint32_t units = 1) { blocks_[superblock].valid -= units; }
  bool is_open(std::uint32_t superblock) const { return blocks_[superblock].state == State::open; }
  bool is_free(std::uint32_t superblock) const { return blocks_[superblock].state == State::free; }
  // Whether it is open or was closed so lately that some of it may still be on its way to the medium.
  bool is_recent(std::uint32_t superblock) const {
    const Block& block = blocks_[superblock];
    return block.state == State::open || closings_ - block.closed_at < recent_closings_;
  }
  std::uint32_t erases(std::uint32_t superblock) const { return blocks_[superblock].erases; }
  Wear wear() const;

 private:
  enum class State : std::uint8_t { free, open, closed, collected };
  struct Block {
    std::uint32_t valid = 0;
    std::uint32_t erases = 0;
    State state = State::free;
    bool is_slc = false;
    std::uint16_t owner = 0;
    std::uint64_t closed_at = 0;  // a count of closings: the smallest is the oldest
  };
  struct Free {
    std::uint32_t erases;
    std::uint32_t superblock;
    std::uint64_t since;
  };
  static bool waits_longer(const Free& a, const Free& b) {
    return a.erases != b.erases ? a.erases > b.erases : a.since > b.since;
  }

  bool is_better(std::uint32_t candidate, std::uint32_t best) const;

  const Victim policy_;
  const std::uint32_t choices_;
  const std::uint32_t units_;
  const std::uint64_t recent_closings_;
  const std::uint32_t wear_spread_;
  std::vector<Block> blocks_;
  std::vector<Free> free_;  // a heap: the next to open stands in front
  std::uint32_t slc_count_ = 0;
  std::uint32_t most_erases_ = 0;
  std::uint32_t since_cold_ = 0;
  std::uint64_t freed_ = 0;
  std::uint64_t closings_ = 0;
  Rng rng_;
};

}  // namespace flashmob::timing::nand
