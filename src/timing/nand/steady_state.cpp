#include "timing/nand/steady_state.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace flashmob::timing::nand {

SteadyState::SteadyState(Superblocks& superblocks, const Params& params, std::uint64_t units)
    : superblocks_(superblocks),
      count_(params.geometry.superblocks),
      units_per_superblock_(static_cast<std::uint32_t>(params.geometry.units_per_superblock())),
      free_superblocks_(params.free_superblocks + params.slc.fixed_superblocks),
      units_(units),
      rng_(params.seed) {
  FLASHMOB_CHECK(superblocks.free_count() == count_);
  fill(hosts_, units);
}

void SteadyState::write(double drive_writes, const std::atomic<bool>* cancelled) {
  // A handful of superblocks never meets garbage collection.
  if (units_ < 8ull * units_per_superblock_) return;
  auto left = static_cast<std::uint64_t>(drive_writes * static_cast<double>(units_));
  while (left != 0 && (cancelled == nullptr || !*cancelled)) {
    std::uint32_t victim = Superblocks::kNone;
    if (superblocks_.free_count() <= free_superblocks_) victim = superblocks_.choose_victim();
    const std::uint32_t valid = victim == Superblocks::kNone ? 0 : superblocks_.valid(victim);
    const std::uint64_t written = std::min<std::uint64_t>(left, units_per_superblock_ - valid);
    lose(written);
    fill(hosts_, written);
    left -= written;
    if (victim == Superblocks::kNone) continue;
    const std::uint32_t moved = superblocks_.valid(victim);
    superblocks_.drop_valid(victim, moved);
    fill(moved_, moved);
    superblocks_.free(victim);
  }
}

void SteadyState::fill(Open& open, std::uint64_t units) {
  while (units != 0) {
    if (open.superblock == Superblocks::kNone) open = {superblocks_.open(), 0};
    FLASHMOB_CHECK(open.superblock != Superblocks::kNone);
    const auto some = static_cast<std::uint32_t>(std::min<std::uint64_t>(units, units_per_superblock_ - open.filled));
    superblocks_.add_valid(open.superblock, some);
    open.filled += some;
    units -= some;
    if (open.filled < units_per_superblock_) continue;
    superblocks_.close(open.superblock);
    open = {};
  }
}

// So many overwrites fall on all valid units alike.
void SteadyState::lose(std::uint64_t units) {
  const double share = static_cast<double>(units) / static_cast<double>(units_);
  std::int64_t left = static_cast<std::int64_t>(units);
  for (std::uint32_t i = 0; i < count_; ++i) {
    const std::uint32_t valid = superblocks_.valid(i);
    if (valid == 0) continue;
    const auto lost = static_cast<std::uint32_t>(std::min<std::uint64_t>(valid, poisson(share * valid)));
    superblocks_.drop_valid(i, lost);
    left -= lost;
  }
  // What chance gave too much or too little of, so that each write has overwritten one.
  while (left != 0) {
    const auto i = static_cast<std::uint32_t>(rng_.below(count_));
    const std::uint32_t valid = superblocks_.valid(i);
    if (rng_.below(units_per_superblock_) >= valid) continue;
    if (left > 0) {
      superblocks_.drop_valid(i, 1);
      --left;
    } else if (!superblocks_.is_open(i) && valid < units_per_superblock_) {
      superblocks_.add_valid(i, 1);
      ++left;
    }
  }
}

std::uint64_t SteadyState::poisson(double mean) {
  if (mean > 30) {
    const double normal = std::sqrt(-2 * std::log1p(-rng_.unit())) * std::cos(6.283185307179586 * rng_.unit());
    return static_cast<std::uint64_t>(std::max(0.0, std::round(mean + std::sqrt(mean) * normal)));
  }
  std::uint64_t count = 0;
  const double least = std::exp(-mean);
  double left = rng_.unit();
  while (left > least) {
    left *= rng_.unit();
    ++count;
  }
  return count;
}

}  // namespace flashmob::timing::nand
