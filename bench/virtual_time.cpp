// How many I/Os a second of processor time are simulated: a 100 MIOPS drive in virtual time, random reads of 512 B by
// 262,144 requesters over 256 queues, as GPU threads would (SwarmIO's figure 13).
//
// Prints for each window I/Os per second of this thread's processor time, the comparison with the model included and
// without it, median and spread. Processor time, because the machine's other tenants take none of it; their caches and
// clocks they share, so compare builds by alternating runs.
// Usage: bench_virtual_time [WINDOWS] [REQUESTERS] [QUEUES] [IOS] [MIOPS]
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/bench_common.h"

namespace {

double cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace flashmob;
  const int windows = argc > 1 ? std::atoi(argv[1]) : 7;
  const auto requesters = static_cast<std::uint32_t>(argc > 2 ? std::atoi(argv[2]) : 262'144);
  DeviceConfig device;
  device.timing.read_iops = argc > 5 ? std::atof(argv[5]) * 1e6 : 100e6;
  device.timing.read_latency_ns = 27'000;
  device.timing.instances = 8;
  device.engine.move_data = false;
  BenchOptions options;
  options.clock = "virtual";
  options.queues = static_cast<std::uint32_t>(argc > 3 ? std::atoi(argv[3]) : 256);
  options.requesters = requesters;
  options.ios = argc > 4 ? static_cast<std::uint64_t>(std::atoll(argv[4])) : 5'000'000;
  options.verify_percent = 0;
  std::vector<double> whole;
  for (int i = 0; i < windows; ++i) {
    Bench bench(device, options);
    const double before = cpu_seconds();
    const std::string json = bench.run();
    const double took = cpu_seconds() - before;
    const double ios = bench::number_of(json, "ios");
    whole.push_back(ios / took / 1e6);
    std::printf("window %2d: %.0f I/Os in %.2f s: %.2f M a second\n", i, ios, took, whole.back());
  }
  bench::print_summary("simulated, comparison included", "M I/Os per CPU second", whole);
  return 0;
}
