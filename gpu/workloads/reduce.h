// Sums over a warp. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/simt/vocabulary.h"

namespace flashmob::gpu::workloads {

// The sum of `value` over all lanes of the warp, in an order that depends on nothing; valid in lane 0.
template <class Lane>
FLASHMOB_HD double warp_sum(Lane& t, double value) {
  const std::uint32_t all = t.lanes();
  const std::uint32_t count = simt::count_lanes(all);
  for (std::uint32_t distance = simt::kWarpLanes / 2; distance != 0; distance /= 2) {
    const bool paired = t.lane() + distance < count;
    const double other = t.shuffle(all, value, paired ? t.lane() + distance : t.lane());
    if (paired) value += other;
  }
  return value;
}

}  // namespace flashmob::gpu::workloads
