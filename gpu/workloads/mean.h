// The mean of a long vector of floats: every element is used once, so this measures streaming. Compiles as CUDA device
// code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/simt/word.h"
#include "workloads/kernel_shape.h"
#include "workloads/reduce.h"

namespace flashmob::gpu::workloads {

// Adds all elements to `sum`. Values: read(t, mask, i) -> float.
template <class Values>
struct SumKernel : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Values values, std::uint64_t count, simt::Word<double>* sum) const {
    double mine = 0;
    const std::uint64_t warp_first = t.thread() - t.lane();
    for (std::uint64_t first = warp_first; first < count; first += t.threads()) {
      const std::uint64_t left = count - first;
      const std::uint32_t mask =
          t.lanes() & simt::mask_of(left < simt::kWarpLanes ? static_cast<std::uint32_t>(left) : simt::kWarpLanes);
      if ((mask >> t.lane() & 1) != 0) mine += static_cast<double>(values.read(t, mask, first + t.lane()));
    }
    const double warp = warp_sum(t, mine);
    if (t.lane() == 0) sum->fetch_add(t, warp);
  }
};

}  // namespace flashmob::gpu::workloads
