// A kernel over an array that does not fit in the GPU's memory: the array lies on two SSDs, a cache of a quarter
// of its size in device memory, and threads fetch what they touch. docs/guide/gpu-kernels.md goes through this file.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "flashmob/gpu.h"
#include "flashmob/gpu/cache_owner.h"
#include "flashmob/gpu/cache_policy/clock.h"
#include "flashmob/gpu/simt/word.h"
#include "flashmob/gpu/striped.h"

using namespace flashmob;
using Samples = gpu::StripedRef<float, gpu::CacheRef<gpu::ClockPolicy>>;

// Raises what is below `least`, and counts how often.
struct Clamp {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Samples samples, std::uint64_t count, float least,
                              gpu::simt::Word<std::uint64_t>* raised) const {
    for (std::uint64_t i = t.thread(); i < count; i += t.threads()) {
      if (samples.read(t, i) >= least) continue;
      samples.write(t, i, least);
      raised->fetch_add(t, 1);
    }
  }
};

int main() {
  constexpr std::uint64_t kCount = 1 << 14;
  constexpr std::uint32_t kLineBytes = 512;
  DeviceConfig ssd;
  ssd.subsystem.namespaces[0].size_bytes = 64 << 20;
  const auto gpu = gpu::attach({ssd, ssd}, {.queues = 4, .queue_depth = 256});
  std::printf("%s: %s\n", gpu->backend().name.c_str(), gpu->backend().reason.c_str());

  // The data, line by line in turn on both SSDs.
  std::vector<float> values(kCount);
  for (std::uint64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 1000) - 10;
  constexpr std::uint64_t kPerLine = kLineBytes / sizeof(float);
  for (std::uint64_t line = 0; line < kCount / kPerLine; ++line)
    gpu->write(static_cast<std::uint32_t>(line % 2), 0, line / 2 * (kLineBytes / 512), &values[line * kPerLine],
               kLineBytes);

  gpu::Cache<gpu::ClockPolicy> cache(*gpu, {.line_bytes = kLineBytes, .lines = kCount / kPerLine / 4, .ways = 16});
  const gpu::Memory memory = gpu->allocate(sizeof(gpu::Fault) + 64, gpu::Placement::host);
  auto* fault = new (memory.data()) gpu::Fault{};
  auto* raised = new (memory.data() + sizeof(gpu::Fault)) gpu::simt::Word<std::uint64_t>{};
  const Samples samples = gpu::striped<float>(cache.ref(), fault, {.ssds = 2});

  const std::uint64_t start_ns = gpu->now_ns();
  gpu->run({.blocks = 4, .block_threads = 64}, Clamp{}, samples, kCount, 0.0f, raised);
  const bool flushed = cache.flush().ok();
  std::printf("%llu of %llu elements raised in %.2f ms, %llu failed accesses\n",
              static_cast<unsigned long long>(raised->value), static_cast<unsigned long long>(kCount),
              static_cast<double>(gpu->now_ns() - start_ns) / 1e6, static_cast<unsigned long long>(fault->count.value));

  std::uint64_t wrong = 0;
  std::vector<float> line(kPerLine);
  for (std::uint64_t l = 0; l < kCount / kPerLine; ++l) {
    gpu->read(static_cast<std::uint32_t>(l % 2), 0, l / 2 * (kLineBytes / 512), line.data(), kLineBytes);
    for (std::uint64_t i = 0; i < kPerLine; ++i)
      wrong += line[i] != (values[l * kPerLine + i] < 0 ? 0 : values[l * kPerLine + i]);
  }
  std::printf("%llu elements on the SSDs are wrong\n", static_cast<unsigned long long>(wrong));
  return flushed && wrong == 0 && fault->count.value == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
