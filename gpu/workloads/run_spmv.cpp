#include "workloads/reference.h"
#include "workloads/spmv.h"
#include "workloads/workbench.h"

namespace flashmob::gpu::workloads {

SpmvResult run_spmv(Gpu& gpu, const Csr& graph, const std::vector<float>& x, const AccessOptions& options) {
  if (x.size() != graph.vertices())
    throw ConfigError("x: has " + std::to_string(x.size()) + " elements; the matrix has " +
                      std::to_string(graph.vertices()) + " columns");
  SpmvResult result;
  Workbench bench(gpu, options, result);
  const float* vector = bench.copy_of(x);
  auto* y = bench.array<double>(graph.vertices());
  with_access(bench, result, [&](auto access) {
    const auto offsets = access.array(graph.offsets);
    const auto targets = access.array(graph.targets);
    const auto weights = access.array(graph.weights);
    bench.run(SpmvKernel<std::remove_const_t<decltype(offsets)>, std::remove_const_t<decltype(weights)>>{}, offsets,
              targets, weights, graph.vertices(), vector, y);
  });
  result.y = bench.values(y, graph.vertices());
  // The kernel adds a row's products in another order, in doubles.
  verify(result, result.y, reference::spmv(graph, x), 1e-12);
  bench.finish();
  return result;
}

}  // namespace flashmob::gpu::workloads
