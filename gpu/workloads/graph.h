// Graphs for the workloads: seeded generators and compressed sparse rows with 64-bit indices.
//
// The two kinds are those of the GAP benchmark suite: endpoints drawn uniformly, and a Kronecker (R-MAT) graph with the
// Graph500 parameters, whose few vertices of very high degree are what makes a cache's hot lines hot. Edges go both
// ways; loops and repeated edges are left out. Host code; pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace flashmob::gpu::workloads {

struct Csr {
  std::vector<std::uint64_t> offsets{0};  // of each vertex's first edge; one more than there are vertices
  std::vector<std::uint64_t> targets;  // sorted within a vertex
  std::vector<float> weights;  // one per edge, in (0, 1]

  std::uint64_t vertices() const { return offsets.size() - 1; }
  std::uint64_t edges() const { return targets.size(); }
  std::uint64_t degree(std::uint64_t vertex) const { return offsets[vertex + 1] - offsets[vertex]; }
};

enum class GraphKind : std::uint8_t { uniform, kronecker };

struct GraphOptions {
  GraphKind kind = GraphKind::uniform;
  std::uint32_t scale = 10;  // log2 of the number of vertices, 0...32
  std::uint32_t degree = 16;  // edges drawn per vertex, before both directions and the removal of repeats
  std::uint64_t seed = 1;
};

// Throws ConfigError if the options are out of range.
Csr make_graph(const GraphOptions& options);

// A vertex to start a search from: the one of highest degree, the lowest of these.
std::uint64_t busiest_vertex(const Csr& graph);

}  // namespace flashmob::gpu::workloads
