// The frontend alone: fetch, decode, timing model, hold, complete; no bytes are copied (--no-data). Beside its bound:
// the same host on the same rings, served by a loop that does the least a device can.
//
// One thread serves and one plays the host: 512 B random reads, a model whose rate is out of reach. Three kinds of
// windows take turns, because a virtual machine's cores change their distance within seconds:
//   bound   a host that only writes entries, rings and reaps, on a loop that fetches, decides a target and answers
//   rings   the same host on the engine
//   load    the load generator with its driver on the engine, as `flashmob bench` runs it
// Prints each window, and of "rings" and "load" the ratio to the bound window just before it: median, quartiles. Idle
// shares say who waited for whom: looks of a side that found nothing, of all its looks.
// Usage: bench_frontend [WINDOWS] [QUEUES] [DEPTH] [INSTANCES] [FETCH_LIMIT] [WHEEL_SHIFT], the last two those of
// [engine]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/bench_common.h"
#include "bench/ring_windows.h"

namespace {

using namespace flashmob;
using bench::Window;

Window load_window(const DeviceConfig& device, std::uint32_t queues, std::uint32_t depth) {
  BenchOptions options;
  options.queues = queues;
  options.queue_depth = depth;
  options.verify_percent = 0;
  options.cores = {bench::kHostCore};
  options.ramp_ns = bench::kRampNs;
  options.runtime_ns = bench::kMeasuredNs;
  const bench::Outcome one = bench::run(device, options);
  return {one.iops / 1e6, one.unit_share, one.driver_share, -1, -1};
}

void print_ratio(const char* what, std::vector<double> ratios) {
  if (ratios.size() < 4) {
    std::printf("%s: %zu quiet windows, too few to tell; try again on a quiet machine\n", what, ratios.size());
    return;
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("%s: ratio to the bound: median %.3f, quartiles %.3f to %.3f, %zu windows\n", what, bench::median(ratios),
              ratios[ratios.size() / 4], ratios[ratios.size() * 3 / 4], ratios.size());
}

void print_window(int number, const char* kind, const Window& window) {
  std::printf("window %2d %-5s %6.1f M IOPS", number, kind, window.miops);
  if (window.server_idle >= 0)
    std::printf(", idle looks: server %4.1f %%, host %4.1f %%", window.server_idle * 100, window.host_idle * 100);
  std::printf("%s\n", window.quiet() ? "" : "  (preempted, left out)");
}

}  // namespace

int main(int argc, char** argv) {
  const int windows = argc > 1 ? std::atoi(argv[1]) : 15;
  const auto queues = static_cast<std::uint32_t>(argc > 2 ? std::atoi(argv[2]) : 8);
  const auto depth = static_cast<std::uint32_t>(argc > 3 ? std::atoi(argv[3]) : 1024);
  DeviceConfig device = bench::frontend_device(argc > 4 ? static_cast<std::uint32_t>(std::atoi(argv[4])) : 8);
  if (argc > 5) device.engine.fetch_limit = static_cast<std::uint32_t>(std::atoi(argv[5]));
  if (argc > 6) device.engine.wheel_shift = static_cast<std::uint32_t>(std::atoi(argv[6]));
  const Clock clock = Clock::real();
  engine::pin_this_thread(bench::kHostCore);
  std::vector<double> rings_ratio, load_ratio, bound_miops, rings_miops, load_miops;
  for (int i = 0; i < windows; ++i) {
    const Window bound = bench::bound_window(clock, queues, depth);
    print_window(i, "bound", bound);
    const Window rings = bench::rings_window(device, clock, queues, depth);
    print_window(i, "rings", rings);
    const Window load = load_window(device, queues, depth);
    print_window(i, "load", load);
    if (rings.quiet()) rings_miops.push_back(rings.miops);
    if (load.quiet()) load_miops.push_back(load.miops);
    if (!bound.quiet()) continue;
    bound_miops.push_back(bound.miops);
    if (rings.quiet()) rings_ratio.push_back(rings.miops / bound.miops);
    if (load.quiet()) load_ratio.push_back(load.miops / bound.miops);
  }
  bench::print_summary("bound", "M IOPS", bound_miops);
  bench::print_summary("rings", "M IOPS", rings_miops);
  bench::print_summary("load", "M IOPS", load_miops);
  print_ratio("rings", rings_ratio);
  print_ratio("load", load_ratio);
  return 0;
}
