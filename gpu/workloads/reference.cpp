#include "workloads/reference.h"

#include <algorithm>
#include <cmath>
#include <deque>

namespace flashmob::gpu::workloads::reference {
namespace {

template <class T>
double largest_error_of(std::span<const T> a, std::span<const T> b, double floor) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double expected = static_cast<double>(b[i]);
    const double error = std::abs(static_cast<double>(a[i]) - expected) / std::max(std::abs(expected), floor);
    if (std::isnan(error)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, error);
  }
  return worst;
}

}  // namespace

double mean(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

std::vector<std::uint32_t> bfs_levels(const Csr& graph, std::uint64_t source) {
  std::vector<std::uint32_t> levels(graph.vertices(), kUnreached);
  std::deque<std::uint64_t> frontier{source};
  levels.at(source) = 0;
  while (!frontier.empty()) {
    const std::uint64_t v = frontier.front();
    frontier.pop_front();
    for (std::uint64_t e = graph.offsets[v]; e < graph.offsets[v + 1]; ++e) {
      std::uint32_t& level = levels[graph.targets[e]];
      if (level != kUnreached) continue;
      level = levels[v] + 1;
      frontier.push_back(graph.targets[e]);
    }
  }
  return levels;
}

std::vector<double> spmv(const Csr& graph, std::span<const float> x) {
  std::vector<double> y(graph.vertices(), 0);
  for (std::uint64_t v = 0; v < graph.vertices(); ++v) {
    for (std::uint64_t e = graph.offsets[v]; e < graph.offsets[v + 1]; ++e)
      y[v] += static_cast<double>(graph.weights[e]) * static_cast<double>(x[graph.targets[e]]);
  }
  return y;
}

std::vector<double> pagerank(const Csr& graph, unsigned iterations, double damping) {
  const double vertices = static_cast<double>(graph.vertices());
  std::vector<double> ranks(graph.vertices(), 1 / vertices);
  std::vector<double> shares(graph.vertices());
  for (unsigned i = 0; i < iterations; ++i) {
    double dangling = 0;
    for (std::uint64_t v = 0; v < graph.vertices(); ++v) {
      const std::uint64_t degree = graph.degree(v);
      shares[v] = degree == 0 ? 0 : ranks[v] / static_cast<double>(degree);
      if (degree == 0) dangling += ranks[v];
    }
    for (std::uint64_t v = 0; v < graph.vertices(); ++v) {
      double sum = 0;
      for (std::uint64_t e = graph.offsets[v]; e < graph.offsets[v + 1]; ++e) sum += shares[graph.targets[e]];
      ranks[v] = (1 - damping) / vertices + damping * (sum + dangling / vertices);
    }
  }
  return ranks;
}

double largest_error(std::span<const double> a, std::span<const double> b, double floor) {
  return largest_error_of(a, b, floor);
}
double largest_error(std::span<const float> a, std::span<const float> b, double floor) {
  return largest_error_of(a, b, floor);
}

}  // namespace flashmob::gpu::workloads::reference
