// Figures 5 and 6 of the AGILE paper, in 4 KiB and 512 B: random reads and writes over 1 to 4 SSDs by how many commands
// are in flight, beside what the SSDs' timing model allows: the lesser of its rate and in-flight / latency.
//
//   bench_gpu_random_io [--json FILE]
#include <algorithm>

#include "bench/gpu/bench_gpu.h"

int main(int argc, char** argv) {
  using namespace flashmob::gpu;
  const std::string file = bench::json_file(argc, argv);
  constexpr double kIops = 1e6;
  constexpr double kLatency = 50e-6;
  bool verified = true;
  std::vector<std::unique_ptr<bench::Table>> tables;
  for (const std::uint32_t bytes : {4096u, 512u}) {
    for (const bool write : {false, true}) {
      bench::Table& table = *tables.emplace_back(std::make_unique<bench::Table>(
          std::string("random ") + (write ? "writes" : "reads") + " of " + std::to_string(bytes) +
              " bytes; SSDs of 50 us and 1 M requests of this size per second each",
          std::vector<std::string>{"SSDs", "in flight", "k IOPS", "model k IOPS", "share", "GB/s"}));
      for (std::uint32_t ssds = 1; ssds <= 4; ++ssds) {
        for (const std::uint32_t in_flight : {32u, 256u, 1024u}) {
          const auto gpu = bench::attach_virtual(
              std::vector<flashmob::DeviceConfig>(ssds, bench::ssd_of_50_us(kIops, bytes)), 4, 512);
          workloads::RandomIoOptions options;
          options.write = write;
          options.bytes = bytes;
          options.threads = std::min(256u, in_flight);
          options.in_flight = in_flight / options.threads;
          options.commands = std::uint64_t{in_flight} * 16;
          const workloads::RandomIoResult result = workloads::run_random_io(*gpu, options);
          verified &= result.verified;
          const double model = std::min(kIops * ssds, in_flight / kLatency);
          table.row(std::to_string(ssds), {static_cast<double>(in_flight), result.iops / 1e3, model / 1e3,
                                           result.iops / model, result.bytes_per_s / 1e9});
        }
      }
    }
  }
  std::vector<const bench::Table*> all;
  for (const auto& table : tables) all.push_back(table.get());
  return bench::finish(file, all, verified);
}
