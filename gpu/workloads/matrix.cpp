#include "workloads/matrix.h"

#include <algorithm>

namespace flashmob::gpu::workloads {

void multiply_plain(const float* a, const float* b, float* c, std::size_t rows, std::size_t inner,
                    std::size_t columns) {
  // A tile of B (64 x 256 floats, 64 KiB) stays in the second-level cache while all rows of A pass over it.
  constexpr std::size_t kInnerTile = 64;
  constexpr std::size_t kColumnTile = 256;
  std::fill(c, c + rows * columns, 0.0f);
  for (std::size_t k0 = 0; k0 < inner; k0 += kInnerTile) {
    const std::size_t k1 = std::min(inner, k0 + kInnerTile);
    for (std::size_t j0 = 0; j0 < columns; j0 += kColumnTile) {
      const std::size_t j1 = std::min(columns, j0 + kColumnTile);
      for (std::size_t i = 0; i < rows; ++i) {
        float* row = c + i * columns;
        for (std::size_t k = k0; k < k1; ++k) {
          const float factor = a[i * inner + k];
          const float* other = b + k * columns;
          for (std::size_t j = j0; j < j1; ++j) row[j] += factor * other[j];
        }
      }
    }
  }
}

}  // namespace flashmob::gpu::workloads
