#include "workloads/graph.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "flashmob/error.h"
#include "workloads/reference.h"

namespace flashmob::gpu::workloads {
namespace {

void expect_sound(const Csr& graph) {
  ASSERT_EQ(graph.offsets.front(), 0u);
  ASSERT_EQ(graph.offsets.back(), graph.edges());
  ASSERT_EQ(graph.weights.size(), graph.edges());
  for (std::uint64_t v = 0; v < graph.vertices(); ++v) {
    for (std::uint64_t e = graph.offsets[v]; e < graph.offsets[v + 1]; ++e) {
      const std::uint64_t u = graph.targets[e];
      ASSERT_LT(u, graph.vertices());
      ASSERT_NE(u, v);
      if (e > graph.offsets[v]) {
        ASSERT_LT(graph.targets[e - 1], u);
      }
      const auto begin = graph.targets.begin() + static_cast<std::ptrdiff_t>(graph.offsets[u]);
      const auto end = graph.targets.begin() + static_cast<std::ptrdiff_t>(graph.offsets[u + 1]);
      ASSERT_TRUE(std::binary_search(begin, end, v)) << v << " -> " << u << " has no way back";
      ASSERT_GT(graph.weights[e], 0.0f);
      ASSERT_LE(graph.weights[e], 1.0f);
    }
  }
}

TEST(Graph, EdgesGoBothWaysWithoutLoopsAndRepeats) {
  for (const GraphKind kind : {GraphKind::uniform, GraphKind::kronecker}) {
    for (const std::uint32_t scale : {0u, 1u, 5u, 9u}) expect_sound(make_graph({kind, scale, 8, 3}));
  }
}

TEST(Graph, ASeedIsAGraph) {
  const GraphOptions options{GraphKind::kronecker, 8, 8, 7};
  EXPECT_EQ(make_graph(options).targets, make_graph(options).targets);
  GraphOptions other = options;
  other.seed = 8;
  EXPECT_NE(make_graph(options).targets, make_graph(other).targets);
}

TEST(Graph, KroneckerGraphsAreSkewedAndUniformOnesAreNot) {
  const Csr uniform = make_graph({GraphKind::uniform, 12, 16, 1});
  const Csr kronecker = make_graph({GraphKind::kronecker, 12, 16, 1});
  EXPECT_LT(uniform.degree(busiest_vertex(uniform)), 80u);
  EXPECT_GT(kronecker.degree(busiest_vertex(kronecker)), 500u);
}

TEST(Graph, OptionsOutOfRangeAreRefused) {
  EXPECT_THROW(make_graph({GraphKind::uniform, 33, 1, 1}), ConfigError);
  EXPECT_THROW(make_graph({GraphKind::uniform, 4, 0, 1}), ConfigError);
  EXPECT_THROW(make_graph({GraphKind::uniform, 32, 2, 1}), ConfigError);
}

// 0 - 1 - 2   3 - 4   5
Csr small_graph() {
  Csr graph;
  graph.offsets = {0, 1, 3, 4, 5, 6, 6};
  graph.targets = {1, 0, 2, 1, 4, 3};
  graph.weights = {0.5f, 0.25f, 1, 0.125f, 1, 1};
  return graph;
}

TEST(Reference, AnswersByHand) {
  const Csr graph = small_graph();
  constexpr std::uint32_t kNone = reference::kUnreached;
  EXPECT_EQ(reference::bfs_levels(graph, 0), (std::vector<std::uint32_t>{0, 1, 2, kNone, kNone, kNone}));
  EXPECT_EQ(reference::spmv(graph, std::vector<float>{1, 2, 4, 8, 16, 32}),
            (std::vector<double>{1, 4.25, 0.25, 16, 8, 0}));
  const std::vector<float> values{1, 2, 3, 6};
  EXPECT_EQ(reference::mean(values), 3);
  const std::vector<double> ranks = reference::pagerank(graph, 1, 0.85);
  const double rest = 0.15 / 6 + 0.85 / 36;
  EXPECT_NEAR(ranks[0], rest + 0.85 / 12, 1e-15);
  EXPECT_NEAR(ranks[1], rest + 0.85 / 3, 1e-15);
  EXPECT_NEAR(ranks[5], rest, 1e-15);
}

TEST(Reference, RanksAddUpToOne) {
  const std::vector<double> ranks = reference::pagerank(make_graph({GraphKind::kronecker, 9, 4, 5}), 12, 0.85);
  double sum = 0;
  for (const double rank : ranks) sum += rank;
  EXPECT_NEAR(sum, 1, 1e-12);
}

TEST(Reference, ErrorsAreRelativeAndNeverLost) {
  const std::vector<double> a{1, 2, 3}, b{1, 2, 4}, nan{1, 2, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_EQ(reference::largest_error(a, b), 0.25);
  EXPECT_EQ(reference::largest_error(std::span(a).first(2), b), std::numeric_limits<double>::infinity());
  EXPECT_EQ(reference::largest_error(nan, b), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace flashmob::gpu::workloads
