// Matrix products in the plainest way that is not slow: what a BLAS stands in for, and what it is compared with.
// Host code; pure functions.
#pragma once

#include <cstddef>

namespace flashmob::gpu::workloads {

// C (rows x columns) = A (rows x inner) times B (inner x columns), all row by row without gaps.
void multiply_plain(const float* a, const float* b, float* c, std::size_t rows, std::size_t inner, std::size_t columns);

}  // namespace flashmob::gpu::workloads
