#include "workloads/graph.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/rng.h"
#include "flashmob/error.h"

namespace flashmob::gpu::workloads {
namespace {

using Edge = std::pair<std::uint64_t, std::uint64_t>;

constexpr std::uint32_t kMaxScale = 32;
constexpr std::uint64_t kMaxDrawnEdges = std::uint64_t{1} << 32;

// Graph500: each bit of the two endpoints falls into one of four quadrants.
constexpr double kQuadrantA = 0.57;
constexpr double kQuadrantB = 0.19;
constexpr double kQuadrantC = 0.19;

Edge kronecker_edge(Rng& rng, std::uint32_t scale) {
  Edge edge{0, 0};
  for (std::uint32_t bit = 0; bit < scale; ++bit) {
    const double at = rng.unit();
    const bool lower = at >= kQuadrantA + kQuadrantB;
    const bool right = lower ? at >= kQuadrantA + kQuadrantB + kQuadrantC : at >= kQuadrantA;
    edge.first = edge.first << 1 | (lower ? 1 : 0);
    edge.second = edge.second << 1 | (right ? 1 : 0);
  }
  return edge;
}

// Kronecker edges favour low numbers; names drawn at random take that regularity away.
std::vector<std::uint64_t> random_names(Rng& rng, std::uint64_t count) {
  std::vector<std::uint64_t> names(count);
  std::iota(names.begin(), names.end(), 0);
  for (std::uint64_t i = count; i > 1; --i) std::swap(names[i - 1], names[rng.below(i)]);
  return names;
}

std::vector<Edge> draw_edges(const GraphOptions& options, Rng& rng) {
  const std::uint64_t vertices = std::uint64_t{1} << options.scale;
  std::vector<std::uint64_t> names;
  if (options.kind == GraphKind::kronecker) names = random_names(rng, vertices);
  std::vector<Edge> edges;
  edges.reserve(2 * vertices * options.degree);
  for (std::uint64_t i = 0; i < vertices * options.degree; ++i) {
    Edge edge;
    if (options.kind == GraphKind::kronecker) {
      edge = kronecker_edge(rng, options.scale);
      edge = {names[edge.first], names[edge.second]};
    } else {
      edge.first = rng.below(vertices);
      edge.second = rng.below(vertices);
    }
    if (edge.first == edge.second) continue;
    edges.push_back(edge);
    edges.emplace_back(edge.second, edge.first);
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

}  // namespace

Csr make_graph(const GraphOptions& options) {
  if (options.scale > kMaxScale)
    throw ConfigError("graph.scale: " + std::to_string(options.scale) + " is above 32; choose fewer vertices");
  if (options.degree < 1 || (std::uint64_t{options.degree} << options.scale) > kMaxDrawnEdges)
    throw ConfigError("graph.degree: " + std::to_string(options.degree) +
                      " edges per vertex are none or more than 2^32 in all; choose 1 or more, or a smaller scale");
  Rng rng(options.seed);
  const std::vector<Edge> edges = draw_edges(options, rng);
  const std::uint64_t vertices = std::uint64_t{1} << options.scale;
  Csr graph;
  graph.offsets.assign(vertices + 1, 0);
  graph.targets.reserve(edges.size());
  graph.weights.reserve(edges.size());
  for (const Edge& edge : edges) {
    ++graph.offsets[edge.first + 1];
    graph.targets.push_back(edge.second);
    graph.weights.push_back(static_cast<float>(1.0 - rng.unit()));
  }
  std::partial_sum(graph.offsets.begin(), graph.offsets.end(), graph.offsets.begin());
  return graph;
}

std::uint64_t busiest_vertex(const Csr& graph) {
  std::uint64_t best = 0;
  for (std::uint64_t v = 1; v < graph.vertices(); ++v) {
    if (graph.degree(v) > graph.degree(best)) best = v;
  }
  return best;
}

}  // namespace flashmob::gpu::workloads
