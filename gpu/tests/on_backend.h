// Where tests of kernels run, and for how many seeds. A suite whose kernels are compiled for GPUs too (gpu/cuda/tests)
// runs on fibres and, if FLASHMOB_GPU_TEST_BACKEND is "cuda", on a GPU. Where there is none, all its tests are skipped,
// with the reason.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "flashmob/error.h"
#include "flashmob/gpu.h"

namespace flashmob::gpu::test {

#if defined(FLASHMOB_ASAN)
constexpr std::uint64_t kUsualPercent = 20;  // AddressSanitizer makes a seed many times slower
#else
constexpr std::uint64_t kUsualPercent = 100;
#endif

// How many seeds a test runs: `usual`, scaled by FLASHMOB_GPU_SEEDS (per cent). Tests of few seeds run those few.
inline std::uint64_t seeds(std::uint64_t usual) {
  const char* const text = std::getenv("FLASHMOB_GPU_SEEDS");
  const std::uint64_t percent = text != nullptr ? std::strtoull(text, nullptr, 10) : kUsualPercent;
  return std::max(std::min<std::uint64_t>(usual, 5), usual * percent / 100);
}

inline std::string backend() {
  const char* const wish = std::getenv("FLASHMOB_GPU_TEST_BACKEND");
  return wish != nullptr && *wish != '\0' ? wish : "fibres";
}

inline GpuOptions backend_options(std::uint64_t seed) {
  GpuOptions options;
  options.backend = backend();
  options.schedule = "random";
  options.seed = seed;
  return options;
}

class BackendIsThere final : public testing::Environment {
 public:
  void SetUp() override {
    try {
      choose_backend(backend());
    } catch (const ConfigError& error) {
      GTEST_SKIP() << error.what();
    }
  }
};
inline testing::Environment* const kBackendIsThere = testing::AddGlobalTestEnvironment(new BackendIsThere);

}  // namespace flashmob::gpu::test
