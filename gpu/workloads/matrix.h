// Matrix products on the CPU: a BLAS where the build found one, else blocked loops of our own; multiply_backend() says
// which. Host code; pure functions. (On a GPU the products are cuBLAS's.)
#pragma once

#include <cstddef>

namespace flashmob::gpu::workloads {

// C (rows x columns) = A (rows x inner) times B (inner x columns), all row by row without gaps.
void multiply(const float* a, const float* b, float* c, std::size_t rows, std::size_t inner, std::size_t columns);
// The same without a BLAS.
void multiply_plain(const float* a, const float* b, float* c, std::size_t rows, std::size_t inner, std::size_t columns);

// "cblas: ..." or "plain loops".
const char* multiply_backend();

}  // namespace flashmob::gpu::workloads
