// The data path against the machine's own limit: random reads with data, verified by sample, from a large store, beside
// two raw bounds of one thread that does nothing else: the same copy kernel in a plain loop over random blocks of the
// same store into as many buffers, which is what a random copy costs; and that loop with prefetches at their best
// distance, which is what the memory gives.
//
// For 512 B and 4 KiB, windows of all three alternate within one run, so that ratios compare like with like.
// Usage: bench_data_path [WINDOWS] [STORE_GIB] [QUEUES] [DEPTH]
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "bench/bench_common.h"
#include "engine/copy_engine.h"
#include "memory/host_memory.h"

namespace {

using namespace flashmob;

// So many different blocks that none is still in a cache when its turn comes again.
constexpr std::size_t kSources = std::size_t{1} << 22;
constexpr std::size_t kPerLook = 16384;  // copies between two looks at the clock
constexpr std::size_t kFarthest = 64;
constexpr std::size_t kPrefetchBytes = 2048;

class RawCopies {
 public:
  RawCopies(std::uint64_t store_bytes, std::uint32_t bytes, std::uint64_t slots)
      : store_(store_bytes), buffers_(slots * bytes), sources_(kSources + kFarthest), bytes_(bytes), slots_(slots) {
    std::memset(store_.data(), 0x5A, store_.size());
    std::memset(buffers_.data(), 1, buffers_.size());
    Rng rng(7);
    for (auto& source : sources_) source = store_.data() + rng.below(store_.size() / bytes) * bytes;
  }

  // Copies block after block to the buffers in turn, each prefetched `ahead` copies before its turn (0: not at all);
  // returns copies per second.
  double run(engine::CopyFunction copy, std::size_t ahead, std::uint64_t duration_ns) {
    const Clock clock = Clock::real();
    std::uint64_t copied = 0, slot = 0;
    const std::uint64_t start_ns = clock.now_ns();
    std::uint64_t now_ns = start_ns;
    for (; now_ns - start_ns < duration_ns; now_ns = clock.now_ns()) {
      const std::byte* const* const from = sources_.data() + next_;
      for (std::size_t i = 0; i < kPerLook; ++i) {
        for (std::size_t at = 0; ahead != 0 && at < std::min<std::size_t>(bytes_, kPrefetchBytes); at += 64)
          __builtin_prefetch(from[i + ahead] + at, 0, 2);
        copy(buffers_.data() + slot * bytes_, from[i], bytes_);
        if (++slot == slots_) slot = 0;
      }
      copied += kPerLook;
      next_ = (next_ + kPerLook) % kSources;
    }
    return static_cast<double>(copied) * 1e9 / static_cast<double>(now_ns - start_ns);
  }

 private:
  memory::HostMemory store_;
  memory::HostMemory buffers_;
  std::vector<const std::byte*> sources_;
  std::size_t next_ = 0;
  std::uint32_t bytes_;
  std::uint64_t slots_;
};

struct Bounds {
  double plain = 0;
  double prefetched = 0;
};

// With stores through the cache and past it, whichever is faster.
Bounds measure_bounds(std::uint64_t store_bytes, std::uint32_t bytes, std::uint64_t slots) {
  constexpr std::uint64_t kEachNs = 60'000'000;
  RawCopies copies(store_bytes, bytes, slots);
  Bounds best;
  for (const bool streaming : {false, true}) {
    const engine::CopyFunction copy = engine::copy_function("auto", streaming);
    best.plain = std::max(best.plain, copies.run(copy, 0, kEachNs));
    for (const std::size_t ahead : {std::size_t{4}, std::size_t{8}, std::size_t{16}, std::size_t{32}, kFarthest})
      best.prefetched = std::max(best.prefetched, copies.run(copy, ahead, kEachNs));
  }
  best.prefetched = std::max(best.prefetched, best.plain);
  return best;
}

void compare(std::uint32_t bytes, int windows, std::uint64_t store_bytes, std::uint32_t queues, std::uint32_t depth) {
  std::vector<double> plain, prefetched, device, to_plain, to_prefetched;
  for (int i = 0; i < windows; ++i) {
    const Bounds bounds = measure_bounds(store_bytes, bytes, std::uint64_t{queues} * depth);
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
    std::printf(
        "%u B window %d: copy loop %.2f M/s, with prefetch %.2f M/s, device %.2f M IOPS (%.0f %%, %.0f %%), "
        "CPU share unit %.2f driver %.2f%s\n",
        bytes, i, bounds.plain / 1e6, bounds.prefetched / 1e6, one.iops / 1e6, one.iops / bounds.plain * 100,
        one.iops / bounds.prefetched * 100, one.unit_share, one.driver_share,
        one.quiet() ? "" : "  (preempted, left out)");
    if (!one.quiet()) continue;
    plain.push_back(bounds.plain / 1e6);
    prefetched.push_back(bounds.prefetched / 1e6);
    device.push_back(one.iops / 1e6);
    to_plain.push_back(one.iops / bounds.plain * 100);
    to_prefetched.push_back(one.iops / bounds.prefetched * 100);
  }
  bench::print_summary("copy loop", "M/s", plain);
  bench::print_summary("copy loop with prefetch", "M/s", prefetched);
  bench::print_summary("device", "M IOPS", device);
  bench::print_summary("device / copy loop", "%", to_plain);
  bench::print_summary("device / copy loop with prefetch", "%", to_prefetched);
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
