// What tests of CUDA's rules share: the library that stands in for a GPU, as FLASHMOB_CUDA_LIBRARY names it, and what
// it has to say when the test is over.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "flashmob/gpu/simt/cuda_library.h"
#include "rules/kernels.h"
#include "stand_in/controls.h"

namespace flashmob::gpu::rules {

inline stand_in::Controls* controls() {
  const char* const path = std::getenv("FLASHMOB_CUDA_LIBRARY");
  void* const library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* const entry = library == nullptr ? nullptr : dlsym(library, stand_in::kControlsSymbol);
  return entry == nullptr ? nullptr : reinterpret_cast<stand_in::Controls* (*)()>(entry)();
}

class OnStandIn : public testing::Test {
 protected:
  void SetUp() override {
    gpu_ = controls();
    if (gpu_ == nullptr) GTEST_SKIP() << "FLASHMOB_CUDA_LIBRARY names no library that stands in for a GPU";
    gpu_->reset(model());
  }
  // Devices are closed before: nothing may be left.
  void TearDown() override {
    if (gpu_ == nullptr) return;
    EXPECT_EQ(gpu_->take_findings(), "");
    EXPECT_EQ(gpu_->ranges_held(), 0u);
    EXPECT_EQ(gpu_->allocations_held(), 0u);
  }
  // Late enough that nothing is finished by chance.
  static stand_in::Model model() {
    stand_in::Model made;
    made.late_ns = 100'000;
    made.patience_ns = 200'000;
    return made;
  }

  stand_in::Controls* gpu_ = nullptr;
};

// A kernel that stays, like a service, until the end of this object.
class Lingering {
 public:
  Lingering(simt::CudaBackend& device, std::uint32_t blocks = 1) : device_(device) {
    words_ = static_cast<HostWord*>(device_.allocate(simt::CudaPlace::pinned_host, 2 * sizeof(HostWord)));
    try {
      kernel_ = device_.launch({.blocks = blocks}, Linger{}, words_, words_ + 1);
    } catch (...) {
      device_.release(words_);
      throw;
    }
    while (std::atomic_ref(words_->value).load() != blocks) std::this_thread::yield();
  }
  ~Lingering() {
    std::atomic_ref(words_[1].value).store(1);
    device_.wait(kernel_);
    device_.release(words_);
  }
  Lingering(const Lingering&) = delete;
  Lingering& operator=(const Lingering&) = delete;

 private:
  simt::CudaBackend& device_;
  HostWord* words_;
  simt::CudaBackend::Kernel kernel_ = 0;
};

}  // namespace flashmob::gpu::rules
