// Breadth-first search of a graph that lies on SSDs, by three ways to reach it. Each is compared with a search on the
// CPU.
//
//   example_gpu_graph_search [log2 of the vertices]
#include <cstdio>
#include <cstdlib>

#include "workloads/workloads.h"

int main(int argc, char** argv) {
  using namespace flashmob;
  const auto scale = static_cast<std::uint32_t>(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 8);
  const gpu::workloads::Csr graph =
      gpu::workloads::make_graph({.kind = gpu::workloads::GraphKind::kronecker, .scale = scale, .degree = 8});
  std::printf("%llu vertices, %llu edges\n", static_cast<unsigned long long>(graph.vertices()),
              static_cast<unsigned long long>(graph.edges()));
  DeviceConfig ssd;
  ssd.subsystem.namespaces[0].size_bytes = 256 << 20;
  bool verified = true;
  for (const char* access : {"plain", "cached", "uncached", "share_table"}) {
    const auto gpu = gpu::attach({ssd, ssd}, {.queues = 2, .queue_depth = 128});
    gpu::workloads::AccessOptions options;
    options.access = access;
    options.cache_bytes = 64 << 10;
    const gpu::workloads::BfsResult result =
        gpu::workloads::run_bfs(*gpu, graph, gpu::workloads::busiest_vertex(graph), options);
    std::printf("%-12s %u levels, %llu vertices reached, %8.2f ms, %6llu commands, %s\n", access, result.depth,
                static_cast<unsigned long long>(result.reached), static_cast<double>(result.duration_ns) / 1e6,
                static_cast<unsigned long long>(result.commands), result.verified ? "verified" : "WRONG");
    verified &= result.verified;
  }
  return verified ? EXIT_SUCCESS : EXIT_FAILURE;
}
