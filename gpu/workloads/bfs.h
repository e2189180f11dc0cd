// Breadth-first search, one launch per level: a warp takes a vertex of the current level and its lanes take the
// vertex's edges. Nothing is tuned for any graph, so that the cost of the access to the graph shows. Compiles as CUDA
// device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/simt/word.h"
#include "workloads/kernel_shape.h"

namespace flashmob::gpu::workloads {

inline constexpr std::uint32_t kBfsUnreached = 0xFFFFFFFFu;

struct BfsState {
  std::uint64_t vertices = 0;
  simt::Word<std::uint32_t>* levels = nullptr;  // by vertex
  simt::Word<std::uint32_t>* found = nullptr;   // set if the next level has vertices
};

// Index: read(t, mask, i) -> std::uint64_t.
template <class Index>
struct BfsKernel : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Index offsets, Index targets, BfsState state, std::uint32_t level) const {
    const std::uint32_t all = t.lanes();
    const std::uint32_t width = simt::count_lanes(all);
    for (std::uint64_t v = t.warp(); v < state.vertices; v += t.warps()) {
      // All lanes decide alike: within this launch no vertex gets or loses this level.
      if (state.levels[v].load(t, simt::Order::relaxed) != level) continue;
      const std::uint64_t begin = offsets.read(t, all, v);
      const std::uint64_t end = offsets.read(t, all, v + 1);
      for (std::uint64_t edge = begin; edge < end; edge += width) {
        const std::uint64_t left = end - edge;
        const std::uint32_t mask = left < width ? simt::mask_of(static_cast<std::uint32_t>(left)) : all;
        if ((mask >> t.lane() & 1) == 0) continue;
        reach(t, state, targets.read(t, mask, edge + t.lane()), level + 1);
      }
    }
  }

 private:
  template <class Lane>
  FLASHMOB_HD static void reach(Lane& t, const BfsState& state, std::uint64_t vertex, std::uint32_t level) {
    if (vertex >= state.vertices) return;  // what a failed read left
    std::uint32_t expected = kBfsUnreached;
    if (state.levels[vertex].load(t, simt::Order::relaxed) != expected) return;
    if (state.levels[vertex].compare_exchange(t, expected, level)) state.found->store(t, 1, simt::Order::relaxed);
  }
};

}  // namespace flashmob::gpu::workloads
