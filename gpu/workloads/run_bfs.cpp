#include <algorithm>

#include "workloads/bfs.h"
#include "workloads/reference.h"
#include "workloads/workbench.h"

namespace flashmob::gpu::workloads {

BfsResult run_bfs(Gpu& gpu, const Csr& graph, std::uint64_t source, const AccessOptions& options) {
  if (source >= graph.vertices())
    throw ConfigError("source: " + std::to_string(source) + " is no vertex; the graph has " +
                      std::to_string(graph.vertices()));
  BfsResult result;
  result.source = source;
  Workbench bench(gpu, options, result);
  BfsState state;
  state.vertices = graph.vertices();
  state.levels = bench.array<simt::Word<std::uint32_t>>(state.vertices, {kBfsUnreached});
  state.found = bench.array<simt::Word<std::uint32_t>>(1);
  bench.set(&state.levels[source], {0});
  with_access(bench, result, [&](auto access) {
    const auto offsets = access.array(graph.offsets);
    const auto targets = access.array(graph.targets);
    do {
      bench.set(state.found, {0});
      bench.run(BfsKernel<std::remove_const_t<decltype(offsets)>>{}, offsets, targets, state, result.depth);
      ++result.depth;
    } while (bench.value(state.found).value != 0);
  });
  for (const simt::Word<std::uint32_t>& level : bench.values(state.levels, state.vertices)) {
    result.levels.push_back(level.value);
    result.reached += level.value != kBfsUnreached;
  }
  const std::vector<std::uint32_t> expected = reference::bfs_levels(graph, source);
  for (std::uint64_t v = 0; v < state.vertices; ++v) result.mismatches += result.levels[v] != expected[v];
  result.verified = result.mismatches == 0;
  bench.finish();
  return result;
}

}  // namespace flashmob::gpu::workloads
