#include "workloads/ctc.h"

#include <algorithm>
#include <cmath>

#include "workloads/workbench.h"

namespace flashmob::gpu::workloads {
namespace {

constexpr std::uint64_t kSpanBlocks = 1024;  // on each SSD

double ideal_speedup(double ratio) { return ratio <= 1 ? 1 + ratio : 1 + 1 / ratio; }

}  // namespace

CtcResult run_ctc(Gpu& gpu, const CtcOptions& options) {
  if (options.commands < 1) throw ConfigError("commands: must be at least 1");
  CtcResult result;
  AccessOptions access;
  access.threads = options.threads;
  access.line_bytes = options.bytes;
  Workbench bench(gpu, access, result);
  CtcPlan plan;
  plan.commands = options.commands;
  bench.plan_io(plan, kSpanBlocks, std::uint64_t{options.threads} * 2, options.seed);
  const auto time = [&](auto kernel, double ratio) {
    plan.compute_ns = static_cast<std::uint64_t>(
        std::llround(ratio * static_cast<double>(result.communication_ns) / options.commands));
    const std::uint64_t before_ns = result.duration_ns;
    bench.run(kernel, plan);
    return result.duration_ns - before_ns;
  };
  result.communication_ns = time(CtcSyncKernel{}, 0);
  for (const double ratio : options.ratios) {
    CtcPoint point;
    point.ratio = ratio;
    point.sync_ns = time(CtcSyncKernel{}, ratio);
    point.async_ns = time(CtcAsyncKernel{}, ratio);
    point.speedup = static_cast<double>(point.sync_ns) / static_cast<double>(point.async_ns);
    point.ideal = ideal_speedup(ratio);
    result.peak_speedup = std::max(result.peak_speedup, point.speedup);
    result.worst_deviation = std::max(result.worst_deviation, std::abs(point.speedup / point.ideal - 1));
    result.points.push_back(point);
  }
  result.mismatches = bench.value(plan.wrong).value;
  result.io_errors = bench.value(plan.failed).value;
  result.verified = result.mismatches == 0;
  bench.finish();
  return result;
}

}  // namespace flashmob::gpu::workloads
