#include "timing/nand/superblocks.h"

#include "base/check.h"

namespace flashmob::timing::nand {

Superblocks::Superblocks(const Params& params)
    : policy_(params.victim),
      choices_(params.choices),
      units_(static_cast<std::uint32_t>(params.geometry.units_per_superblock())),
      recent_closings_(4 + 2 * (params.buffer_rows + kRowsToMove * params.geometry.dies()) /
                               params.geometry.rows_per_superblock()),
      blocks_(params.geometry.superblocks),
      last_free_(params.geometry.superblocks - 1),
      free_count_(params.geometry.superblocks),
      rng_(params.seed) {
  for (std::uint32_t i = 0; i < last_free_; ++i) blocks_[i].next_free = i + 1;
}

std::uint32_t Superblocks::open() {
  if (free_count_ == 0) return kNone;
  const std::uint32_t superblock = first_free_;
  Block& block = blocks_[superblock];
  FLASHMOB_CHECK(block.state == State::free && block.valid == 0);
  first_free_ = block.next_free;
  --free_count_;
  block.state = State::open;
  return superblock;
}

void Superblocks::close(std::uint32_t superblock) {
  Block& block = blocks_[superblock];
  FLASHMOB_CHECK(block.state == State::open);
  block.state = State::closed;
  block.closed_at = ++closings_;
}

void Superblocks::free(std::uint32_t superblock) {
  Block& block = blocks_[superblock];
  FLASHMOB_CHECK(block.state == State::collected && block.valid == 0);
  block.state = State::free;
  block.next_free = kNone;
  ++block.erases;
  if (free_count_ == 0)
    first_free_ = superblock;
  else
    blocks_[last_free_].next_free = superblock;
  last_free_ = superblock;
  ++free_count_;
}

bool Superblocks::is_better(std::uint32_t candidate, std::uint32_t best) const {
  const Block& a = blocks_[candidate];
  if (a.state != State::closed) return false;
  if (best == kNone) return true;
  const Block& b = blocks_[best];
  if (policy_ == Victim::fifo) return a.closed_at < b.closed_at;
  return a.valid != b.valid ? a.valid < b.valid : a.closed_at < b.closed_at;
}

std::uint32_t Superblocks::choose_victim() {
  const auto count = static_cast<std::uint32_t>(blocks_.size());
  std::uint32_t best = kNone;
  if (policy_ == Victim::d_choices || policy_ == Victim::random) {
    const std::uint32_t looks = policy_ == Victim::random ? 1 : choices_;
    for (std::uint32_t i = 0; i < looks; ++i) {
      const auto candidate = static_cast<std::uint32_t>(rng_.below(count));
      if (is_better(candidate, best)) best = candidate;
    }
    if (best != kNone && blocks_[best].valid == units_) best = kNone;
  }
  // Also where chance met nothing that gains room: the drive must go on.
  if (best == kNone) {
    for (std::uint32_t i = 0; i < count; ++i)
      if (is_better(i, best)) best = i;
  }
  // FIFO cleaning moves even a whole valid superblock; its order is its promise.
  if (best == kNone || (policy_ != Victim::fifo && blocks_[best].valid == units_)) return kNone;
  blocks_[best].state = State::collected;
  return best;
}

}  // namespace flashmob::timing::nand
