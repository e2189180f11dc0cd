// The kernels of the DLRM workload beside the matrix products: fetching and prefetching rows of the embedding tables,
// bias and activation, the interaction of features, the score. Compiles as CUDA device code.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/platform.h"
#include "flashmob/gpu/simt/vocabulary.h"
#include "workloads/kernel_shape.h"

namespace flashmob::gpu::workloads {

// Copies rows of `dim` floats: a warp per row, so that its lanes ask for the row's line once. Embeddings:
// read(t, mask, i) -> float.
template <class Embeddings>
struct DlrmGather : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Embeddings embeddings, const std::uint64_t* rows, std::uint64_t count,
                              std::uint32_t dim, float* out) const {
    const std::uint32_t all = t.lanes();
    const std::uint32_t width = simt::count_lanes(all);
    for (std::uint64_t i = t.warp(); i < count; i += t.warps()) {
      for (std::uint32_t first = 0; first < dim; first += width) {
        const std::uint32_t left = dim - first;
        const std::uint32_t mask = left < width ? simt::mask_of(left) : all;
        if ((mask >> t.lane() & 1) == 0) continue;
        const std::uint32_t column = first + t.lane();
        out[i * dim + column] = embeddings.read(t, mask, rows[i] * dim + column);
      }
    }
  }
};

// Asks for the lines of rows that will be gathered later; waits for nothing. Embeddings: prefetch(t, mask, i).
template <class Embeddings>
struct DlrmPrefetch : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Embeddings embeddings, const std::uint64_t* rows, std::uint64_t count,
                              std::uint32_t dim) const {
    const std::uint64_t warp_first = t.thread() - t.lane();
    for (std::uint64_t first = warp_first; first < count; first += t.threads()) {
      const std::uint64_t left = count - first;
      const std::uint32_t mask =
          t.lanes() & simt::mask_of(left < simt::kWarpLanes ? static_cast<std::uint32_t>(left) : simt::kWarpLanes);
      if ((mask >> t.lane() & 1) != 0) embeddings.prefetch(t, mask, rows[first + t.lane()] * dim);
    }
  }
};

// C (rows x columns) = A (rows x inner) times B (inner x columns), a thread for each element of C: for GPUs on which no
// library's products can be had (MatrixProducts::on_gpu()).
struct MatrixProductKernel : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, const float* a, const float* b, float* c, std::uint64_t rows,
                              std::uint64_t inner, std::uint64_t columns) const {
    for (std::uint64_t i = t.thread(); i < rows * columns; i += t.threads()) {
      const float* const row = a + i / columns * inner;
      const float* const column = b + i % columns;
      float sum = 0;
      for (std::uint64_t k = 0; k < inner; ++k) sum += row[k] * column[k * columns];
      c[i] = sum;
    }
  }
};

// y += bias, and max(y, 0) if `rectify`.
struct DlrmActivate : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, float* y, const float* bias, std::uint64_t samples, std::uint32_t outputs,
                              bool rectify) const {
    for (std::uint64_t i = t.thread(); i < samples * outputs; i += t.threads()) {
      const float value = y[i] + bias[i % outputs];
      y[i] = rectify && value < 0 ? 0 : value;
    }
  }
};

// The top network's input: the dense vector, then the products of all pairs of the dense vector (number 0) and the
// sample's rows, pair (i, j < i) at i * (i - 1) / 2 + j.
struct DlrmInteract : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, const float* dense, const float* rows, std::uint64_t samples,
                              std::uint32_t categories, std::uint32_t dim, float* out) const {
    const std::uint32_t pairs = (categories + 1) * categories / 2;
    const std::uint32_t width = dim + pairs;
    for (std::uint64_t i = t.thread(); i < samples * width; i += t.threads()) {
      const std::uint64_t sample = i / width;
      const auto column = static_cast<std::uint32_t>(i % width);
      const float* own = dense + sample * dim;
      if (column < dim) {
        out[i] = own[column];
        continue;
      }
      std::uint32_t a = 1;
      std::uint32_t b = column - dim;
      while (b >= a) b -= a++;
      const float* table = rows + sample * categories * dim;
      const float* first = table + std::uint64_t{a - 1} * dim;
      const float* second = b == 0 ? own : table + std::uint64_t{b - 1} * dim;
      float sum = 0;
      for (std::uint32_t k = 0; k < dim; ++k) sum += first[k] * second[k];
      out[i] = sum;
    }
  }
};

// score = 1 / (1 + e^-score)
struct DlrmScore : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, float* scores, std::uint64_t samples) const {
    for (std::uint64_t i = t.thread(); i < samples; i += t.threads()) scores[i] = 1 / (1 + expf(-scores[i]));
  }
};

}  // namespace flashmob::gpu::workloads
