// The frontend alone: fetch, decode, timing model, hold, complete; no bytes are copied (--no-data).
//
// One emulator thread, one driver thread, 512 B random reads, a model with 8 instances whose rate is out of reach.
// Prints IOPS of each window, the median and the spread, and the CPU share of both threads: two polling threads on two
// cores collapse when a third runs, so windows without a whole core each are listed but left out of the median.
// Usage: bench_frontend [WINDOWS] [QUEUES] [DEPTH] [INSTANCES] [FETCH_LIMIT] [WHEEL_SHIFT], the last two those of
// [engine]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/bench_common.h"

int main(int argc, char** argv) {
  using namespace flashmob;
  const int windows = argc > 1 ? std::atoi(argv[1]) : 15;
  DeviceConfig device;
  device.timing.read_iops = 1e9;
  device.timing.read_latency_ns = 10'000;
  device.timing.instances = argc > 4 ? static_cast<std::uint32_t>(std::atoi(argv[4])) : 8;
  device.engine.move_data = false;
  if (argc > 5) device.engine.fetch_limit = static_cast<std::uint32_t>(std::atoi(argv[5]));
  if (argc > 6) device.engine.wheel_shift = static_cast<std::uint32_t>(std::atoi(argv[6]));
  BenchOptions options;
  options.queues = argc > 2 ? static_cast<std::uint32_t>(std::atoi(argv[2])) : 8;
  options.queue_depth = argc > 3 ? static_cast<std::uint32_t>(std::atoi(argv[3])) : 1024;
  options.verify_percent = 0;
  options.ramp_ns = 50'000'000;
  options.runtime_ns = 300'000'000;
  std::vector<double> miops;
  for (int i = 0; i < windows; ++i) {
    const bench::Outcome one = bench::run(device, options);
    std::printf("window %2d: %6.1f M IOPS, CPU share unit %.2f driver %.2f%s\n", i, one.iops / 1e6, one.unit_share,
                one.driver_share, one.quiet() ? "" : "  (preempted, left out)");
    if (one.quiet()) miops.push_back(one.iops / 1e6);
  }
  bench::print_summary("frontend", "M IOPS", miops);
  return 0;
}
