#include "timing/nand/superblocks.h"

#include <algorithm>

#include "base/check.h"

namespace flashmob::timing::nand {

Superblocks::Superblocks(const Params& params)
    : policy_(params.victim),
      choices_(params.choices),
      units_(static_cast<std::uint32_t>(params.geometry.units_per_superblock())),
      recent_closings_(4 + 2 * (params.buffer_rows + kRowsToMove * params.geometry.dies()) /
                               params.geometry.rows_per_superblock()),
      wear_spread_(params.wear_spread),
      blocks_(params.geometry.superblocks),
      rng_(params.seed) {
  free_.reserve(blocks_.size());
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) free_.push_back({0, i, freed_++});
}

std::uint32_t Superblocks::open(bool is_slc, std::uint32_t owner) {
  if (free_.empty()) return kNone;
  std::ranges::pop_heap(free_, waits_longer);
  const std::uint32_t superblock = free_.back().superblock;
  free_.pop_back();
  Block& block = blocks_[superblock];
  FLASHMOB_CHECK(block.state == State::free && block.valid == 0);
  block.state = State::open;
  block.is_slc = is_slc;
  block.owner = static_cast<std::uint16_t>(owner);
  slc_count_ += is_slc ? 1 : 0;
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
  slc_count_ -= block.is_slc ? 1 : 0;
  most_erases_ = std::max(most_erases_, ++block.erases);
  free_.push_back({block.erases, superblock, freed_++});
  std::ranges::push_heap(free_, waits_longer);
}

std::uint32_t Superblocks::choose_cached() {
  std::uint32_t best = kNone;
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].state != State::closed || !blocks_[i].is_slc) continue;
    if (best == kNone || blocks_[i].closed_at < blocks_[best].closed_at) best = i;
  }
  if (best != kNone) blocks_[best].state = State::collected;
  return best;
}

std::uint32_t Superblocks::choose_cold() {
  // So that moving data for this alone stays a small part of what is moved.
  constexpr std::uint32_t kVictimsBetween = 16;
  if (wear_spread_ == 0 || ++since_cold_ < kVictimsBetween) return kNone;
  std::uint32_t best = kNone;
  for (std::uint32_t i = 0; i < blocks_.size(); ++i)
    if (blocks_[i].state == State::closed && (best == kNone || blocks_[i].erases < blocks_[best].erases)) best = i;
  if (best == kNone || most_erases_ - blocks_[best].erases <= wear_spread_) return kNone;
  since_cold_ = 0;
  blocks_[best].state = State::collected;
  return best;
}

Wear Superblocks::wear() const {
  Wear wear{.fewest = ~0u, .most = 0, .mean = 0};
  for (const Block& block : blocks_) {
    wear.fewest = std::min(wear.fewest, block.erases);
    wear.most = std::max(wear.most, block.erases);
    wear.mean += block.erases;
  }
  wear.mean /= static_cast<double>(blocks_.size());
  return wear;
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
