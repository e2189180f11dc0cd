// Who multiplies the matrices of a workload: cuBLAS where kernels run on a GPU, a BLAS on the CPU, or plain loops where
// there is neither. The libraries are loaded at run time, as the CUDA driver is: nothing needs them to be installed,
// and name() says which one it is.
//
// Interfaces: cublasSgemm_v2 (cuBLAS 11 to 13, its C ABI), cblas_sgemm (the C interface to BLAS, 32-bit indices).
// Host code, for one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace flashmob::gpu::workloads {

class MatrixProducts {
 public:
  virtual ~MatrixProducts() = default;
  // One line: "cuBLAS 13.1.0 (libcublas.so.13)", "libopenblas.so.0", "plain loops (why)".
  virtual std::string name() const = 0;
  // Whether a GPU multiplies: all three matrices lie where it reaches them, else where the host does. A GPU loads code
  // at the first product of a shape, which waits for kernels that run: multiply once before anything stays.
  virtual bool on_gpu() const { return false; }
  // As multiply_plain(), finished when it returns. Throws std::runtime_error if the library fails.
  virtual void multiply(const float* a, const float* b, float* c, std::size_t rows, std::size_t inner,
                        std::size_t columns) = 0;
};

// cuBLAS on the GPU whose context the calling thread has. It takes memory of the GPU's, and giving that back would wait
// for a resident kernel: so it is made before a service starts, and kept for the process's lifetime. `library` is a
// file, or empty: FLASHMOB_CUBLAS_LIBRARY, then the usual names. nullptr with one sentence in `why_not`.
std::unique_ptr<MatrixProducts> load_cublas(std::string& why_not, const std::string& library = {},
                                            const std::string& driver = "libcuda.so.1");
// `library` is a file, or empty: FLASHMOB_BLAS_LIBRARY ("none": none), then the usual names.
std::unique_ptr<MatrixProducts> cpu_products(const std::string& library = {});

// The process's products beside kernels on a GPU, or on the CPU; found at the first call. `name` also says why a GPU's
// are done on the CPU, if they are.
struct FoundProducts {
  MatrixProducts& products;
  std::string name;
};
FoundProducts matrix_products(bool on_gpu);

}  // namespace flashmob::gpu::workloads
