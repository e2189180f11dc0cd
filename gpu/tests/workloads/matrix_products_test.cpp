// The libraries that multiply matrices: found or not, the product is the same, and its maker is named. What they are
// called with is tested by a library that computes by the definition (fake/blas.cpp); real ones, where there are any.
#include "workloads/matrix_products.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "base/rng.h"
#include "workloads/matrix.h"

namespace flashmob::gpu::workloads {
namespace {

constexpr const char* kFake = FLASHMOB_FAKE_BLAS;
constexpr const char* kNowhere = "/nowhere/libnone.so";

std::vector<float> random_matrix(std::size_t size, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(2 * rng.unit() - 1);
  return values;
}

// How far the product of `multiply` is from the definition, at worst, over shapes with and without remainders.
template <class Multiply>
double worst_error(Multiply multiply) {
  double worst = 0;
  for (const auto& [rows, inner, columns] : {std::tuple<std::size_t, std::size_t, std::size_t>{1, 1, 1},
                                             {3, 5, 7},
                                             {2, 64, 256},
                                             {9, 65, 257},
                                             {31, 130, 300}}) {
    const std::vector<float> a = random_matrix(rows * inner, 1), b = random_matrix(inner * columns, 2);
    std::vector<float> c(rows * columns, 99);
    multiply(a.data(), b.data(), c.data(), rows, inner, columns);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) {
        double sum = 0;
        for (std::size_t x = 0; x < inner; ++x)
          sum += static_cast<double>(a[i * inner + x]) * static_cast<double>(b[x * columns + j]);
        worst = std::max(worst, std::abs(sum - static_cast<double>(c[i * columns + j])));
      }
    }
  }
  return worst;
}
double worst_error(MatrixProducts& products) {
  return worst_error([&](auto... arguments) { products.multiply(arguments...); });
}
constexpr double kTolerance = 1e-4;  // single precision over sums of at most 130

TEST(MatrixProducts, PlainLoopsMultiplyByTheDefinition) { EXPECT_LT(worst_error(multiply_plain), kTolerance); }

TEST(MatrixProducts, ABlasGivesTheSameAndIsNamed) {
  const auto products = cpu_products(kFake);
  EXPECT_EQ(products->name(), kFake);
  EXPECT_LT(worst_error(*products), kTolerance);
}

TEST(MatrixProducts, WhateverThisMachineHasGivesTheSameAndIsNamed) {
  const FoundProducts found = matrix_products(false);
  EXPECT_NE(found.name, "");
  EXPECT_LT(worst_error(found.products), kTolerance) << found.name;
  RecordProperty("products", found.name);
}

TEST(MatrixProducts, WithoutABlasPlainLoopsServeAndSayWhy) {
  const auto products = cpu_products(kNowhere);
  EXPECT_EQ(products->name().rfind("plain loops (no BLAS: /nowhere/libnone.so: ", 0), 0u) << products->name();
  EXPECT_LT(worst_error(*products), kTolerance);
  // There, but no BLAS.
  EXPECT_EQ(cpu_products("libdl.so.2")->name(), "plain loops (no BLAS: libdl.so.2 has no cblas_sgemm)");
}

TEST(MatrixProducts, CublasIsGivenRowsAsColumnsAndWaitedFor) {
  std::string why_not;
  const auto products = load_cublas(why_not, kFake, kFake);
  ASSERT_NE(products, nullptr) << why_not;
  EXPECT_EQ(products->name(), std::string("cuBLAS 13.1.2 (") + kFake + ")");
  EXPECT_LT(worst_error(*products), kTolerance);
  void* const fake = dlopen(kFake, RTLD_NOW);
  EXPECT_EQ(reinterpret_cast<int (*)()>(dlsym(fake, "fake_unfinished"))(), 0);
}

TEST(MatrixProducts, MissingCublasIsSaidInOneSentence) {
  std::string why_not;
  EXPECT_EQ(load_cublas(why_not, kNowhere, kFake), nullptr);
  EXPECT_EQ(why_not.rfind("no cuBLAS: /nowhere/libnone.so: ", 0), 0u) << why_not;
  EXPECT_EQ(why_not.find('\n'), std::string::npos);
  EXPECT_EQ(load_cublas(why_not, kFake, kNowhere), nullptr);
  EXPECT_EQ(why_not.rfind("no cuBLAS: /nowhere/libnone.so: ", 0), 0u) << why_not;
  EXPECT_EQ(load_cublas(why_not, "libdl.so.2", kFake), nullptr);
  EXPECT_EQ(why_not, "no cuBLAS: libdl.so.2 has no cublasCreate_v2");
}

}  // namespace
}  // namespace flashmob::gpu::workloads
