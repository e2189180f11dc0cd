#include "workloads/pagerank.h"
#include "workloads/reference.h"
#include "workloads/workbench.h"

namespace flashmob::gpu::workloads {

PagerankResult run_pagerank(Gpu& gpu, const Csr& graph, const PagerankOptions& options) {
  if (graph.vertices() == 0) throw ConfigError("graph: has no vertices");
  if (!(options.damping >= 0 && options.damping <= 1)) throw ConfigError("damping: must be from 0 to 1");
  PagerankResult result;
  Workbench bench(gpu, options.access, result);
  PagerankState state;
  state.vertices = graph.vertices();
  state.damping = options.damping;
  state.ranks = bench.array<double>(state.vertices, 1 / static_cast<double>(state.vertices));
  state.shares = bench.array<double>(state.vertices);
  state.dangling = bench.array<simt::Word<double>>(1);
  with_access(bench, result, [&](auto access) {
    const auto offsets = access.array(graph.offsets);
    const auto targets = access.array(graph.targets);
    using Index = std::remove_const_t<decltype(offsets)>;
    for (std::uint32_t i = 0; i < options.iterations; ++i) {
      bench.set(state.dangling, {0});
      bench.run(PagerankShares<Index>{}, offsets, state);
      bench.run(PagerankPull<Index>{}, offsets, targets, state);
    }
  });
  result.ranks = bench.values(state.ranks, state.vertices);
  // The kernel adds shares in another order, in doubles.
  verify(result, result.ranks, reference::pagerank(graph, options.iterations, options.damping), 1e-11);
  bench.finish();
  return result;
}

}  // namespace flashmob::gpu::workloads
