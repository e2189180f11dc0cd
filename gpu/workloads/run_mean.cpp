#include "base/rng.h"
#include "workloads/mean.h"
#include "workloads/reference.h"
#include "workloads/workbench.h"

namespace flashmob::gpu::workloads {

MeanResult run_mean(Gpu& gpu, const MeanOptions& options) {
  if (options.count == 0) throw ConfigError("count: the mean of no values is undefined; choose at least 1");
  Rng rng(options.seed);
  std::vector<float> values(options.count);
  for (float& value : values) value = static_cast<float>(rng.unit());
  MeanResult result;
  Workbench bench(gpu, options.access, result);
  auto* sum = bench.array<simt::Word<double>>(1);
  with_access(bench, result, [&](auto access) {
    const auto array = access.array(values);
    bench.run(SumKernel<std::remove_const_t<decltype(array)>>{}, array, options.count, sum);
  });
  result.mean = bench.value(sum).value / static_cast<double>(options.count);
  // The kernel adds in another order, in doubles.
  verify(result, {result.mean}, {reference::mean(values)}, 1e-12);
  bench.finish();
  return result;
}

}  // namespace flashmob::gpu::workloads
