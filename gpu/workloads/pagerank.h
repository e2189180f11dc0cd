// PageRank by pulling: per iteration one launch that works out what each vertex gives to each of its neighbours, and
// one in which each vertex collects. Edges go both ways. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/simt/word.h"
#include "workloads/kernel_shape.h"
#include "workloads/reduce.h"

namespace flashmob::gpu::workloads {

struct PagerankState {
  std::uint64_t vertices = 0;
  double damping = 0.85;
  double* ranks = nullptr;                // by vertex
  double* shares = nullptr;               // what each vertex gives to each of its neighbours
  simt::Word<double>* dangling = nullptr;  // the ranks of vertices without edges; zero before PagerankShares
};

// Index: read(t, mask, i) -> std::uint64_t.
template <class Index>
struct PagerankShares : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Index offsets, PagerankState state) const {
    double dangling = 0;
    const std::uint64_t warp_first = t.thread() - t.lane();
    for (std::uint64_t first = warp_first; first < state.vertices; first += t.threads()) {
      const std::uint64_t left = state.vertices - first;
      const std::uint32_t mask =
          t.lanes() & simt::mask_of(left < simt::kWarpLanes ? static_cast<std::uint32_t>(left) : simt::kWarpLanes);
      if ((mask >> t.lane() & 1) == 0) continue;
      const std::uint64_t v = first + t.lane();
      const std::uint64_t begin = offsets.read(t, mask, v);
      const std::uint64_t degree = offsets.read(t, mask, v + 1) - begin;
      state.shares[v] = degree == 0 ? 0 : state.ranks[v] / static_cast<double>(degree);
      if (degree == 0) dangling += state.ranks[v];
    }
    const double warp = warp_sum(t, dangling);
    if (t.lane() == 0 && warp != 0) state.dangling->fetch_add(t, warp);
  }
};

template <class Index>
struct PagerankPull : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Index offsets, Index targets, PagerankState state) const {
    const std::uint32_t all = t.lanes();
    const std::uint32_t width = simt::count_lanes(all);
    const double vertices = static_cast<double>(state.vertices);
    const double base = (1 - state.damping) / vertices;
    const double dangling = state.dangling->load(t) / vertices;
    for (std::uint64_t v = t.warp(); v < state.vertices; v += t.warps()) {
      const std::uint64_t begin = offsets.read(t, all, v);
      const std::uint64_t end = offsets.read(t, all, v + 1);
      double mine = 0;
      for (std::uint64_t edge = begin; edge < end; edge += width) {
        const std::uint64_t left = end - edge;
        const std::uint32_t mask = left < width ? simt::mask_of(static_cast<std::uint32_t>(left)) : all;
        if ((mask >> t.lane() & 1) == 0) continue;
        const std::uint64_t neighbour = targets.read(t, mask, edge + t.lane());
        if (neighbour < state.vertices) mine += state.shares[neighbour];
      }
      const double sum = warp_sum(t, mine);
      if (t.lane() == 0) state.ranks[v] = base + state.damping * (sum + dangling);
    }
  }
};

}  // namespace flashmob::gpu::workloads
