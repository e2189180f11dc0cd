// Figure 4 of the AGILE paper: how much faster asynchronous reads are than synchronous ones, by the ratio of
// computation to communication, beside the ideal 1 + r (r <= 1) or 1 + 1/r.
//
//   bench_gpu_ctc [--json FILE]
#include "bench/gpu/bench_gpu.h"

int main(int argc, char** argv) {
  using namespace flashmob::gpu;
  const std::string file = bench::json_file(argc, argv);
  // Far more requests per second than these threads can ask for: each waits for the latency and for nobody else.
  const auto gpu = bench::attach_virtual({bench::ssd_of_50_us(16e6, 4096)}, 4, 256);
  workloads::CtcOptions options;
  options.ratios.clear();
  for (int tenths = 0; tenths <= 20; ++tenths) options.ratios.push_back(tenths / 10.0);
  const workloads::CtcResult result = workloads::run_ctc(*gpu, options);
  bench::Table table("computation : communication, 64 threads x 64 reads of 4 KiB, one SSD of 50 us",
                     {"ratio", "sync us", "async us", "speedup", "ideal", "deviation"});
  for (const workloads::CtcPoint& point : result.points) {
    char label[16];
    std::snprintf(label, sizeof(label), "%.1f", point.ratio);
    table.row(label, {static_cast<double>(point.sync_ns) / 1e3, static_cast<double>(point.async_ns) / 1e3,
                      point.speedup, point.ideal, point.speedup / point.ideal - 1});
  }
  std::printf("peak %.3f, largest deviation from the ideal %.1f %%\n", result.peak_speedup,
              100 * result.worst_deviation);
  return bench::finish(file, {&table}, result.verified);
}
