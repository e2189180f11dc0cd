// The data path against the machine's own limit: random reads with data, verified by sample, from a large store, beside
// the raw bound: the same copy kernel moving the same sizes between the same kinds of memory, with nothing else to do.
//
// For 512 B and 4 KiB, windows of both alternate within one run, so that ratios compare like with like.
// Usage: bench_data_path [WINDOWS] [STORE_GIB] [QUEUES] [DEPTH]
#include <cstring>

#include "base/clock.h"
#include "base/rng.h"
#include "bench/bench_common.h"
#include "engine/copy_engine.h"
#include "memory/host_memory.h"

namespace {

using namespace flashmob;

// Copies random blocks of the store to `slots` buffers in turn for `duration_ns`; returns copies per second. Sources
// are prefetched as far ahead as pays: the best of three distances is the bound.
double raw_copies(const memory::HostMemory& store, const memory::HostMemory& buffers, std::uint32_t bytes,
                  std::uint64_t slots, bool streaming, std::uint64_t duration_ns) {
  const engine::CopyFunction copy = engine::copy_function("auto", streaming);
  const Clock clock = Clock::real();
  constexpr std::size_t kBatch = 256;
  const std::uint64_t blocks = store.size() / bytes;
  double best = 0;
  for (const std::size_t distance : {std::size_t{4}, std::size_t{8}, std::size_t{16}}) {
    Rng rng(7);
    std::uint64_t copied = 0;
    std::uint64_t slot = 0;
    const std::uint64_t start_ns = clock.now_ns();
    std::uint64_t now_ns = start_ns;
    while (now_ns - start_ns < duration_ns / 3) {
      const std::byte* from[kBatch + 16];
      for (auto& source : from) source = store.data() + rng.below(blocks) * bytes;
      for (std::size_t i = 0; i < kBatch; ++i) {
        const std::byte* ahead = from[i + distance];
        for (std::uint32_t at = 0; at < std::min(bytes, 1024u); at += 64) __builtin_prefetch(ahead + at, 0, 2);
        copy(buffers.data() + slot * bytes, from[i], bytes);
        if (++slot == slots) slot = 0;
      }
      copied += kBatch;
      now_ns = clock.now_ns();
    }
    best = std::max(best, static_cast<double>(copied) * 1e9 / static_cast<double>(now_ns - start_ns));
  }
  return best;
}

void compare(std::uint32_t bytes, int windows, std::uint64_t store_bytes, std::uint32_t queues, std::uint32_t depth) {
  std::vector<double> raw, device, ratio;
  const std::uint64_t slots = std::uint64_t{queues} * depth;
  for (int i = 0; i < windows; ++i) {
    double bound = 0;
    {
      memory::HostMemory store(store_bytes);
      std::memset(store.data(), 0x5A, store.size());
      memory::HostMemory buffers(slots * bytes);
      std::memset(buffers.data(), 1, buffers.size());
      bound = std::max(raw_copies(store, buffers, bytes, slots, false, 300'000'000),
                       raw_copies(store, buffers, bytes, slots, true, 300'000'000));
    }
    DeviceConfig config;
    config.timing.model = "none";
    config.subsystem.namespaces[0].size_bytes = store_bytes;
    BenchOptions options;
    options.block_sizes = {{bytes, 1.0}};
    options.queues = queues;
    options.queue_depth = depth;
    options.verify_percent = 0.5;
    options.ramp_ns = 100'000'000;
    options.runtime_ns = 500'000'000;
    const bench::Outcome one = bench::run(config, options);
    std::printf("%u B window %d: raw bound %.2f M/s, device %.2f M IOPS (%.0f %%), CPU share unit %.2f driver %.2f%s\n",
                bytes, i, bound / 1e6, one.iops / 1e6, one.iops / bound * 100, one.unit_share, one.driver_share,
                one.quiet() ? "" : "  (preempted, left out)");
    if (!one.quiet()) continue;
    raw.push_back(bound / 1e6);
    device.push_back(one.iops / 1e6);
    ratio.push_back(one.iops / bound * 100);
  }
  bench::print_summary("raw copy bound", "M/s", raw);
  bench::print_summary("device", "M IOPS", device);
  bench::print_summary("device / bound", "%", ratio);
}

}  // namespace

int main(int argc, char** argv) {
  const int windows = argc > 1 ? std::atoi(argv[1]) : 5;
  const std::uint64_t store = std::uint64_t(argc > 2 ? std::atoi(argv[2]) : 8) << 30;
  const auto queues = static_cast<std::uint32_t>(argc > 3 ? std::atoi(argv[3]) : 8);
  const auto depth = static_cast<std::uint32_t>(argc > 4 ? std::atoi(argv[4]) : 128);
  compare(512, windows, store, queues, depth);
  compare(4096, windows, store, queues, depth);
  return 0;
}
