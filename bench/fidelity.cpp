// Fidelity: an SSD of 2.47 M IOPS and 50 us in real time, saturated and with one request at a time. Each window
// compares IOPS with the model's, mean latency with the mean target latency, and says how late completions were.
//
// Usage: bench_fidelity [WINDOWS] [QUEUES] [DEPTH] [READ_IOPS]
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/bench_common.h"

namespace {

using namespace flashmob;

void measure(const char* load, const DeviceConfig& device, int windows, std::uint32_t queues, std::uint32_t depth) {
  BenchOptions options;
  options.queues = queues;
  options.queue_depth = depth;
  options.ramp_ns = 200'000'000;
  options.runtime_ns = 1'000'000'000;
  std::vector<double> iops_off, latency_off_ns, late_ns;
  int valid = 0;
  for (int i = 0; i < windows; ++i) {
    Bench bench(device, options);
    const std::string json = bench.run();
    const double iops = bench::number_of(json, "iops");
    const double model_iops = bench::number_of(json, "model_iops");
    const double latency_ns = bench::number_of(json, "mean", json.find("\"latency_ns\""));
    const double target_ns = bench::number_of(json, "mean", json.find("\"target_ns\""));
    const double p50_ns = bench::number_of(json, "p50", json.find("\"lateness_ns\""));
    const bool is_valid = json.find("\"verdict\":\"VALID\"") != std::string::npos;
    valid += is_valid;
    iops_off.push_back((iops / model_iops - 1) * 100);
    latency_off_ns.push_back(latency_ns - target_ns);
    late_ns.push_back(p50_ns);
    std::printf(
        "%s window %d: %.3f M IOPS (model %.3f), mean latency %.2f us (target %.2f), lateness p50 %.0f ns, %s\n", load,
        i, iops / 1e6, model_iops / 1e6, latency_ns / 1e3, target_ns / 1e3, p50_ns, is_valid ? "VALID" : "INVALID");
  }
  bench::print_summary("IOPS against the model", "%", iops_off);
  bench::print_summary("mean latency beyond the target", "ns", latency_off_ns);
  bench::print_summary("lateness p50", "ns", late_ns);
  std::printf("VALID: %d of %d windows\n", valid, windows);
}

}  // namespace

int main(int argc, char** argv) {
  const int windows = argc > 1 ? std::atoi(argv[1]) : 5;
  const auto queues = static_cast<std::uint32_t>(argc > 2 ? std::atoi(argv[2]) : 4);
  const auto depth = static_cast<std::uint32_t>(argc > 3 ? std::atoi(argv[3]) : 128);
  DeviceConfig device;
  device.timing.read_iops = argc > 4 ? std::atof(argv[4]) : 2.47e6;
  device.timing.read_latency_ns = 50'000;
  device.timing.unit_bytes = 4096;
  device.subsystem.namespaces[0].size_bytes = std::uint64_t{8} << 30;
  measure("saturated", device, windows, queues, depth);
  measure("light", device, windows, 1, 1);
  return 0;
}
