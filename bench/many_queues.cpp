// What thousands of queues cost: a round of the engine over idle ones, and the rate of 4,096 queues with one command in
// flight each against 256 queues with sixteen (SwarmIO reports 88.9 % at 2,048).
//
// Windows of the three kinds take turns. One thread serves, one plays the host (ring_host.h); no data. A round holds
// all that a unit does besides, the clock's readings and the admin side included.
// Usage: bench_many_queues [WINDOWS] [QUEUES] [FEW_QUEUES]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/bench_common.h"
#include "bench/ring_windows.h"

int main(int argc, char** argv) {
  using namespace flashmob;
  const int windows = argc > 1 ? std::atoi(argv[1]) : 15;
  const auto many = static_cast<std::uint32_t>(argc > 2 ? std::atoi(argv[2]) : 4096);
  const auto few = static_cast<std::uint32_t>(argc > 3 ? std::atoi(argv[3]) : 256);
  DeviceConfig device = bench::frontend_device(8);
  device.engine.idle_spin_ns = 3'600'000'000'000;
  device.controller.max_queue_pairs = many;
  const Clock clock = Clock::real();
  engine::pin_this_thread(bench::kHostCore);
  std::vector<double> round_us, idle_us, ratio, many_miops, few_miops;
  for (int i = 0; i < windows; ++i) {
    const bench::Window idle = bench::rings_window(device, clock, many, 0);
    const bench::Window none = bench::rings_window(device, clock, 1, 0);
    const bench::Window all = bench::rings_window(device, clock, many, 1);
    const bench::Window some = bench::rings_window(device, clock, few, many / few);
    std::printf(
        "window %2d: idle round %.2f us over %u queues, %.2f us over one; %.1f M IOPS of %u queues, %.1f of %u\n", i,
        idle.round_us, many, none.round_us, all.miops, many, some.miops, few);
    if (idle.quiet()) round_us.push_back(idle.round_us);
    if (idle.quiet() && none.quiet()) idle_us.push_back(idle.round_us - none.round_us);
    if (!all.quiet() || !some.quiet()) continue;
    many_miops.push_back(all.miops);
    few_miops.push_back(some.miops);
    ratio.push_back(all.miops / some.miops);
  }
  bench::print_summary("idle round", "us", round_us);
  bench::print_summary("of it, the pass over idle queues", "us", idle_us);
  bench::print_summary("many queues", "M IOPS", many_miops);
  bench::print_summary("few queues", "M IOPS", few_miops);
  bench::print_summary("many to few", "times", ratio);
  return 0;
}
