// What the workloads must answer, computed on a CPU in the plainest way. Host code; pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "workloads/graph.h"

namespace flashmob::gpu::workloads::reference {

inline constexpr std::uint32_t kUnreached = std::numeric_limits<std::uint32_t>::max();

double mean(std::span<const float> values);

// How many edges each vertex is away from the source; kUnreached where there is no way.
std::vector<std::uint32_t> bfs_levels(const Csr& graph, std::uint64_t source);

// y = A x, where A is the graph's weighted adjacency matrix.
std::vector<double> spmv(const Csr& graph, std::span<const float> x);

// `iterations` steps of PageRank from equal ranks. The ranks of vertices without edges are shared by all. A vertex
// takes from its neighbours, so edges must go both ways.
std::vector<double> pagerank(const Csr& graph, unsigned iterations, double damping);

// The largest |a - b| / max(|b|, floor); infinity for unequal lengths and for values that are not numbers.
double largest_error(std::span<const double> a, std::span<const double> b, double floor = 1e-300);
double largest_error(std::span<const float> a, std::span<const float> b, double floor);

}  // namespace flashmob::gpu::workloads::reference
