// Attaches an SSD, fills some of it, has a kernel add it up, and compares. Exit status 1 if the sums differ.
#include <cstdio>
#include <new>
#include <vector>

#include "flashmob/error.h"
#include "flashmob/gpu.h"
#include "sum_blocks.h"

using namespace flashmob;
using Sum = gpu::simt::Word<std::uint64_t>;

#ifdef HAS_KERNEL
const char* load_sum_blocks();
const char* launch_sum_blocks(unsigned threads, gpu::SsdRef ssd, std::uint64_t blocks, std::byte* buffers, Sum* sum,
                              Sum* failed);
#endif

namespace {

constexpr unsigned kThreads = 64;
constexpr std::uint64_t kBlocks = 1000;

int run() {
  DeviceConfig ssd;
  ssd.subsystem.namespaces[0].size_bytes = 16 << 20;
  const auto gpu = gpu::attach({ssd}, {.queues = 2, .queue_depth = 64});
  std::printf("%s: %s\n", gpu->backend().name.c_str(), gpu->backend().reason.c_str());

  std::vector<std::uint64_t> words(kBlocks * SumBlocks::kBlockBytes / 8);
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < words.size(); ++i) expected += words[i] = i * 0x9E3779B97F4A7C15u;
  gpu->write(0, 0, 0, words.data(), words.size() * 8);

  const gpu::Memory buffers = gpu->allocate(kThreads * SumBlocks::kBlockBytes);
  const gpu::Memory sums = gpu->allocate(2 * sizeof(Sum));
  Sum* const sum = new (sums.data()) Sum[2]{};
#ifdef HAS_KERNEL
  if (gpu->backend().backend == gpu::Backend::cuda) {
    const char* error = load_sum_blocks();
    if (error == nullptr) {
      gpu->start_service();
      error = launch_sum_blocks(kThreads, gpu->ssd(0), kBlocks, buffers.data(), sum, sum + 1);
    }
    if (error != nullptr) {
      std::fprintf(stderr, "the kernel: %s\n", error);
      return 1;
    }
  } else
#endif
    gpu->run({.blocks = kThreads / 32}, SumBlocks{}, gpu->ssd(0), kBlocks, buffers.data(), sum, sum + 1);
  std::printf("%llu blocks, sum %016llx, expected %016llx, %llu reads failed\n",
              static_cast<unsigned long long>(kBlocks), static_cast<unsigned long long>(sum[0].value),
              static_cast<unsigned long long>(expected), static_cast<unsigned long long>(sum[1].value));
  return sum[0].value == expected && sum[1].value == 0 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
