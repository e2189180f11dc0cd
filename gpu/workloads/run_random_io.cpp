#include <set>
#include <utility>

#include "workloads/random_io.h"
#include "workloads/workbench.h"

namespace flashmob::gpu::workloads {
namespace {

// Reads every block that was written by the host's own commands.
std::uint64_t count_wrong_blocks(Gpu& gpu, const RandomIoPlan& plan) {
  std::set<std::pair<std::uint32_t, std::uint64_t>> written;
  for (std::uint64_t c = 0; c < plan.commands; ++c) {
    const RandomIoTarget target = random_io_target(plan, c);
    written.emplace(target.ssd, target.block);
  }
  std::uint64_t wrong = 0;
  std::vector<std::uint64_t> got(plan.bytes / 8), expected(plan.bytes / 8);
  for (const auto& [ssd, block] : written) {
    gpu.read(ssd, 0, block * (plan.bytes / gpu.ssd_info(ssd).lba_bytes.at(0)), got.data(), plan.bytes);
    fill_pattern(expected.data(), plan.bytes, kWriteGeneration, ssd, block);
    wrong += got != expected;
  }
  return wrong;
}

}  // namespace

RandomIoResult run_random_io(Gpu& gpu, const RandomIoOptions& options) {
  if (options.in_flight < 1 || options.in_flight > 1024) throw ConfigError("in_flight: must be from 1 to 1024");
  if (options.span_blocks < 1) throw ConfigError("span_blocks: must be at least 1");
  RandomIoResult result;
  AccessOptions access;
  access.threads = options.threads;
  access.line_bytes = options.bytes;
  Workbench bench(gpu, access, result);
  RandomIoPlan plan;
  plan.write = options.write;
  plan.in_flight = options.in_flight;
  plan.commands = options.commands;
  bench.plan_io(plan, options.span_blocks, std::uint64_t{options.threads} * options.in_flight, options.seed);
  bench.run(RandomIoKernel{}, plan);
  result.mismatches = bench.value(plan.wrong).value;
  result.io_errors = bench.value(plan.failed).value;
  if (options.write) result.mismatches += count_wrong_blocks(gpu, plan);
  result.verified = result.mismatches == 0;
  if (result.duration_ns != 0) {
    result.iops = static_cast<double>(options.commands) / (static_cast<double>(result.duration_ns) * 1e-9);
    result.bytes_per_s = result.iops * options.bytes;
  }
  bench.finish();
  return result;
}

}  // namespace flashmob::gpu::workloads
