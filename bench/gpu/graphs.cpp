// Figure 11 of the AGILE paper: where the time of BFS, SpMV and PageRank goes on uniform (U) and Kronecker (K) graphs.
// In memory: no SSD and no cache. All cached: through a cache that holds the whole graph and was filled before. Cache
// cold: the cache holds a quarter of the graph and starts empty.
//
//   bench_gpu_graphs [--json FILE]
#include "bench/gpu/bench_gpu.h"

namespace {

using namespace flashmob::gpu;

struct Run {
  std::uint64_t duration_ns;
  std::uint64_t commands;
  bool verified;
};

Run run(const std::string& what, const workloads::Csr& graph, const workloads::AccessOptions& access) {
  const auto gpu = bench::attach_virtual({bench::ssd_of_50_us(2e6, 4096)}, 4, 256);
  workloads::Outcome outcome;
  if (what == "BFS") {
    outcome = workloads::run_bfs(*gpu, graph, workloads::busiest_vertex(graph), access);
  } else if (what == "SpMV") {
    outcome = workloads::run_spmv(*gpu, graph, std::vector<float>(graph.vertices(), 0.5f), access);
  } else {
    workloads::PagerankOptions options;
    options.access = access;
    options.iterations = 2;
    outcome = workloads::run_pagerank(*gpu, graph, options);
  }
  return {outcome.duration_ns, outcome.commands, outcome.verified};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string file = bench::json_file(argc, argv);
  bench::Table table("graphs of 2^11 vertices, 16 edges drawn per vertex; cache of 4 KiB lines, CLOCK; times in us",
                     {"workload", "in memory", "all cached", "cache cold", "commands", "cached / mem", "cold / mem"});
  bool verified = true;
  for (const auto kind : {workloads::GraphKind::uniform, workloads::GraphKind::kronecker}) {
    const workloads::Csr graph = workloads::make_graph({kind, 11, 16, 1});
    const std::uint64_t bytes = (graph.edges() + graph.vertices() + 1) * 8 + graph.edges() * 4;
    for (const std::string what : {"BFS", "SpMV", "PageRank"}) {
      workloads::AccessOptions access;
      access.access = "plain";
      const Run plain = run(what, graph, access);
      access.access = "cached";
      access.cache_bytes = 2 * bytes;
      access.preload = true;
      const Run warm = run(what, graph, access);
      access.preload = false;
      access.cache_bytes = bytes / 4;
      const Run cold = run(what, graph, access);
      verified &= plain.verified && warm.verified && cold.verified;
      const double memory = static_cast<double>(plain.duration_ns);
      table.row(what + (kind == workloads::GraphKind::uniform ? "-U" : "-K"),
                {memory / 1e3, static_cast<double>(warm.duration_ns) / 1e3, static_cast<double>(cold.duration_ns) / 1e3,
                 static_cast<double>(cold.commands), static_cast<double>(warm.duration_ns) / memory,
                 static_cast<double>(cold.duration_ns) / memory});
    }
  }
  return bench::finish(file, {&table}, verified);
}
