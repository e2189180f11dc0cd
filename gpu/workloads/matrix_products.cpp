#include "workloads/matrix_products.h"

#include <dlfcn.h>

#include <cstdlib>
#include <initializer_list>
#include <stdexcept>
#include <utility>
#include <vector>

#include "workloads/matrix.h"

namespace flashmob::gpu::workloads {
namespace {

// A library that stays loaded: neither BLAS nor CUDA likes to be unloaded.
class Library {
 public:
  // The first of `names` that is there.
  explicit Library(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) {
        name_ = name;
        return;
      }
      // The first name is what one would install.
      if (why_not_.empty()) why_not_ = dlerror();
    }
  }
  // The function, or nullptr.
  template <class Function>
  Function* find(const char* symbol) {
    if (handle_ == nullptr) return nullptr;
    auto* const found = reinterpret_cast<Function*>(dlsym(handle_, symbol));
    if (found == nullptr) why_not_ = name_ + " has no " + symbol;
    return found;
  }
  const std::string& name() const { return name_; }
  // One sentence on what is missing, if anything is.
  const std::string& why_not() const { return why_not_; }

 private:
  void* handle_ = nullptr;
  std::string name_;
  std::string why_not_;
};

std::vector<std::string> names_of(const std::string& chosen, const char* variable,
                                  std::initializer_list<const char*> usual) {
  if (!chosen.empty()) return {chosen};
  if (const char* const wish = std::getenv(variable); wish != nullptr && *wish != '\0') return {wish};
  return {usual.begin(), usual.end()};
}

class PlainLoops final : public MatrixProducts {
 public:
  explicit PlainLoops(std::string why) : why_(std::move(why)) {}
  std::string name() const override { return "plain loops (" + why_ + ")"; }
  void multiply(const float* a, const float* b, float* c, std::size_t rows, std::size_t inner,
                std::size_t columns) override {
    multiply_plain(a, b, c, rows, inner, columns);
  }

 private:
  std::string why_;
};

class Blas final : public MatrixProducts {
 public:
  using Sgemm = void(int layout, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a,
                     int stride_a, const float* b, int stride_b, float beta, float* c, int stride_c);

  Blas(std::string name, Sgemm* sgemm) : name_(std::move(name)), sgemm_(sgemm) {}
  std::string name() const override { return name_; }
  void multiply(const float* a, const float* b, float* c, std::size_t rows, std::size_t inner,
                std::size_t columns) override {
    constexpr int kRowMajor = 101, kAsItIs = 111;
    const auto m = static_cast<int>(rows), k = static_cast<int>(inner), n = static_cast<int>(columns);
    sgemm_(kRowMajor, kAsItIs, kAsItIs, m, n, k, 1.0f, a, k, b, n, 0.0f, c, n);
  }

 private:
  std::string name_;
  Sgemm* sgemm_;
};

// Statuses of cuBLAS and of the driver: 0 is success.
struct CublasFunctions {
  int (*create)(void** handle) = nullptr;
  int (*version)(void* handle, int* version) = nullptr;
  int (*sgemm)(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const float* alpha, const float* a,
               int stride_a, const float* b, int stride_b, const float* beta, float* c, int stride_c) = nullptr;
  int (*synchronize)(void* stream) = nullptr;  // of the driver
};

void check(int status, const char* call) {
  if (status != 0) throw std::runtime_error(std::string(call) + " failed with status " + std::to_string(status));
}

class Cublas final : public MatrixProducts {
 public:
  Cublas(const std::string& file, const CublasFunctions& functions) : functions_(functions) {
    check(functions_.create(&handle_), "cublasCreate");
    int version = 0;
    check(functions_.version(handle_, &version), "cublasGetVersion");
    name_ = "cuBLAS " + std::to_string(version / 10'000) + "." + std::to_string(version / 100 % 100) + "." +
            std::to_string(version % 100) + " (" + file + ")";
  }
  std::string name() const override { return name_; }
  bool on_gpu() const override { return true; }
  // cuBLAS counts by columns, in which our A is its transpose: C^T = B^T A^T. All in single precision, as on the CPU.
  void multiply(const float* a, const float* b, float* c, std::size_t rows, std::size_t inner,
                std::size_t columns) override {
    constexpr int kAsItIs = 0;
    const float one = 1, zero = 0;
    const auto m = static_cast<int>(rows), k = static_cast<int>(inner), n = static_cast<int>(columns);
    check(functions_.sgemm(handle_, kAsItIs, kAsItIs, n, m, k, &one, b, n, a, k, &zero, c, n), "cublasSgemm");
    check(functions_.synchronize(nullptr), "cuStreamSynchronize");
  }

 private:
  CublasFunctions functions_;
  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace

std::unique_ptr<MatrixProducts> load_cublas(std::string& why_not, const std::string& library,
                                            const std::string& driver) {
  Library cublas(
      names_of(library, "FLASHMOB_CUBLAS_LIBRARY", {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"}));
  Library cuda({driver});
  CublasFunctions functions;
  const auto find = [](Library& from, auto*& function, const char* symbol) {
    function = from.find<std::remove_pointer_t<std::remove_reference_t<decltype(function)>>>(symbol);
    return function != nullptr;
  };
  const bool complete = find(cublas, functions.create, "cublasCreate_v2") &&
                        find(cublas, functions.version, "cublasGetVersion_v2") &&
                        find(cublas, functions.sgemm, "cublasSgemm_v2");
  if (!complete || !find(cuda, functions.synchronize, "cuStreamSynchronize")) {
    why_not = "no cuBLAS: " + (complete ? cuda : cublas).why_not();
    return nullptr;
  }
  try {
    return std::make_unique<Cublas>(cublas.name(), functions);
  } catch (const std::runtime_error& error) {
    why_not = std::string("no cuBLAS: ") + error.what();
    return nullptr;
  }
}

std::unique_ptr<MatrixProducts> cpu_products(const std::string& library) {
  Library blas(names_of(library, "FLASHMOB_BLAS_LIBRARY",
                        {"libopenblas.so.0", "libblis.so.4", "libmkl_rt.so.2", "libcblas.so.3"}));
  if (auto* const sgemm = blas.find<Blas::Sgemm>("cblas_sgemm")) return std::make_unique<Blas>(blas.name(), sgemm);
  return std::make_unique<PlainLoops>("no BLAS: " + blas.why_not());
}

FoundProducts matrix_products(bool on_gpu) {
  static const std::unique_ptr<MatrixProducts> on_cpu = cpu_products();
  if (!on_gpu) return {*on_cpu, on_cpu->name()};
  static std::string why_not;
  // Never destroyed: the CUDA driver may be gone by then.
  static MatrixProducts* const cublas = load_cublas(why_not).release();
  if (cublas != nullptr) return {*cublas, cublas->name()};
  return {*on_cpu, on_cpu->name() + " on the CPU; " + why_not};
}

}  // namespace flashmob::gpu::workloads
