// The vocabulary on a real GPU. Skipped, with the reason, where there is none.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/simt_kernels.h"
#include "flashmob/gpu/simt/cuda_library.h"
#include "flashmob/gpu/simt/fibre.h"

namespace flashmob::gpu::simt {
namespace {

using cuda::CheckAtomics;
using cuda::CheckBlock;
using cuda::CheckCollectives;

template <class T>
class Pinned {
 public:
  Pinned(CudaBackend& device, std::size_t count)
      : device_(device), data_(static_cast<T*>(device.allocate(CudaPlace::pinned_host, count * sizeof(T)))) {}
  ~Pinned() { device_.release(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  T* get() const { return data_; }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  CudaBackend& device_;
  T* data_;
};

class OnAGpu : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = why_no_cuda();
    if (!reason.empty()) GTEST_SKIP() << reason;
    device_ = std::make_unique<CudaBackend>();
  }
  std::unique_ptr<CudaBackend> device_;
};

TEST_F(OnAGpu, CollectivesMean) {
  Pinned<Word<std::uint32_t>> wrong(*device_, 1);
  device_->run({.blocks = 64, .block_threads = 256}, CheckCollectives{}, wrong.get());
  device_->run({.blocks = 3, .block_threads = 45}, CheckCollectives{}, wrong.get());
  EXPECT_EQ(wrong[0].value, 0u);
}

TEST_F(OnAGpu, AtomicsOfEveryWidthLoseNothing) {
  Pinned<Word<std::uint64_t>> sum(*device_, 1);
  Pinned<Word<std::uint16_t>> narrow(*device_, 1);
  Pinned<Word<std::uint32_t>> bits(*device_, 1);
  device_->run({.blocks = 16, .block_threads = 128}, CheckAtomics{}, sum.get(), narrow.get(), bits.get());
  EXPECT_EQ(sum[0].value, 2048u * 2049 / 2);
  EXPECT_EQ(narrow[0].value, 2048);
  EXPECT_EQ(bits[0].value, 0xFFFFFFFFu);
}

TEST_F(OnAGpu, ABlockSharesItsMemory) {
  Pinned<std::uint64_t> sums(*device_, 8);
  device_->run({.blocks = 8, .block_threads = 1024, .shared_bytes = 4096}, CheckBlock{}, sums.get());
  for (std::uint64_t block = 0; block < 8; ++block)
    EXPECT_EQ(sums[block], (block * 1024 + block * 1024 + 1023) * 1024 / 2);
}

// The same kernels on fibres: what the GPU is compared with is itself tested everywhere.
TEST(CudaKernels, AreRightOnFibres) {
  EmptyWorld world;
  FibreDevice device(world, {.seed = 3, .schedule = Schedule::timed});
  Word<std::uint32_t> wrong, bits;
  Word<std::uint64_t> sum;
  Word<std::uint16_t> narrow;
  device.run({.blocks = 2, .block_threads = 45}, CheckCollectives{}, &wrong);
  EXPECT_EQ(wrong.value, 0u);
  device.run({.blocks = 4, .block_threads = 32}, CheckAtomics{}, &sum, &narrow, &bits);
  EXPECT_EQ(sum.value, 128u * 129 / 2);
  EXPECT_EQ(narrow.value, 128);
  std::vector<std::uint64_t> sums(2);
  device.run({.blocks = 2, .block_threads = 64, .shared_bytes = 256}, CheckBlock{}, sums.data());
  EXPECT_EQ(sums[1], (64 + 127) * 64u / 2);
}

TEST(CudaLibrary, SaysInOneSentenceWhyThereIsNoGpu) {
  const std::string reason = why_no_cuda();
  if (reason.empty()) GTEST_SKIP() << "there is one";
  EXPECT_NE(reason.find("CUDA"), std::string::npos) << reason;
  EXPECT_EQ(reason.find('\n'), std::string::npos) << reason;
  EXPECT_THROW(CudaBackend(), CudaError);
}

}  // namespace
}  // namespace flashmob::gpu::simt
