// Sparse matrix times vector, the matrix in compressed sparse rows: a warp takes a row, its lanes the row's entries.
// Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "workloads/kernel_shape.h"
#include "workloads/reduce.h"

namespace flashmob::gpu::workloads {

// Index: read(t, mask, i) -> std::uint64_t; Weights: -> float. `x` has `rows` elements.
template <class Index, class Weights>
struct SpmvKernel : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Index offsets, Index targets, Weights weights, std::uint64_t rows,
                              const float* x, double* y) const {
    const std::uint32_t all = t.lanes();
    const std::uint32_t width = simt::count_lanes(all);
    for (std::uint64_t row = t.warp(); row < rows; row += t.warps()) {
      const std::uint64_t begin = offsets.read(t, all, row);
      const std::uint64_t end = offsets.read(t, all, row + 1);
      double mine = 0;
      for (std::uint64_t entry = begin; entry < end; entry += width) {
        const std::uint64_t left = end - entry;
        const std::uint32_t mask = left < width ? simt::mask_of(static_cast<std::uint32_t>(left)) : all;
        if ((mask >> t.lane() & 1) == 0) continue;
        const std::uint64_t column = targets.read(t, mask, entry + t.lane());
        const float weight = weights.read(t, mask, entry + t.lane());
        if (column < rows) mine += static_cast<double>(weight) * static_cast<double>(x[column]);
      }
      const double sum = warp_sum(t, mine);
      if (t.lane() == 0) y[row] = sum;
    }
  }
};

}  // namespace flashmob::gpu::workloads
