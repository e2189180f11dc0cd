// Stands in for a BLAS, cuBLAS and the CUDA driver, for the test of how they are called: the same functions, by their
// definitions, in a library that is loaded as the real ones are. Refuses what it does not know.
#include <cstddef>

namespace {

// C = A B with A (m x k), B (k x n) and C all by columns, as cuBLAS takes them.
void multiply_by_columns(std::size_t m, std::size_t n, std::size_t k, const float* a, std::size_t lda, const float* b,
                         std::size_t ldb, float* c, std::size_t ldc) {
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = 0; i < m; ++i) {
      double sum = 0;
      for (std::size_t x = 0; x < k; ++x)
        sum += static_cast<double>(a[x * lda + i]) * static_cast<double>(b[j * ldb + x]);
      c[j * ldc + i] = static_cast<float>(sum);
    }
  }
}

int handles = 0;
int unfinished = 0;

}  // namespace

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_EXPORT int cublasCreate_v2(void** handle) {
  *handle = &handles;
  ++handles;
  return 0;
}
FAKE_EXPORT int cublasGetVersion_v2(void*, int* version) {
  *version = 130102;
  return 0;
}
FAKE_EXPORT int cublasSgemm_v2(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const float* alpha,
                               const float* a, int lda, const float* b, int ldb, const float* beta, float* c, int ldc) {
  constexpr int kInvalidValue = 7;
  if (handle != &handles || transpose_a != 0 || transpose_b != 0 || *alpha != 1 || *beta != 0) return kInvalidValue;
  if (lda < m || ldb < k || ldc < m) return kInvalidValue;
  multiply_by_columns(m, n, k, a, lda, b, ldb, c, ldc);
  ++unfinished;
  return 0;
}
FAKE_EXPORT int cuStreamSynchronize(void* stream) {
  unfinished = 0;
  return stream == nullptr ? 0 : 400;
}
FAKE_EXPORT int fake_unfinished() { return unfinished; }

FAKE_EXPORT void cblas_sgemm(int layout, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                             const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  constexpr int kRowMajor = 101, kNoTranspose = 111;
  if (layout != kRowMajor || transpose_a != kNoTranspose || transpose_b != kNoTranspose || alpha != 1 || beta != 0)
    return;
  // By rows, all three are the transposes of what they are by columns.
  multiply_by_columns(n, m, k, b, ldb, a, lda, c, ldc);
}
