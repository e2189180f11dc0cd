// Elements of 1, 2, 4 or 8 bytes between an SSD's namespace and memory, through the software cache. Compiles as CUDA
// device code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "flashmob/gpu/array.h"
#include "flashmob/gpu/simt/vocabulary.h"
#include "workloads/kernel_shape.h"

namespace flashmob::gpu::workloads {

struct ElementPlan {
  std::uint32_t ssd = 0;
  std::uint32_t element_bytes = 4;
  const std::uint64_t* indices = nullptr;
  std::uint64_t count = 0;
  std::byte* elements = nullptr;
  Fault* fault = nullptr;
};

namespace elements {

// One load and one store, so that an element is never seen half written.
FLASHMOB_HD inline void copy_element(std::byte* to, const std::byte* from, std::uint32_t bytes) {
  switch (bytes) {
    case 1:
      *to = *from;
      return;
    case 2:
      *reinterpret_cast<std::uint16_t*>(to) = *reinterpret_cast<const std::uint16_t*>(from);
      return;
    case 4:
      *reinterpret_cast<std::uint32_t*>(to) = *reinterpret_cast<const std::uint32_t*>(from);
      return;
    default:
      *reinterpret_cast<std::uint64_t*>(to) = *reinterpret_cast<const std::uint64_t*>(from);
  }
}

template <bool kWrite, class Lane, class Cache>
FLASHMOB_HD void move_all(Lane& t, const Cache& cache, const ElementPlan& plan) {
  const LineSplit split(cache.line_bytes(), plan.element_bytes);
  const std::uint64_t warp_first = t.thread() - t.lane();
  for (std::uint64_t first = warp_first; first < plan.count; first += t.threads()) {
    const std::uint64_t left = plan.count - first;
    const std::uint32_t mask =
        t.lanes() & simt::mask_of(left < simt::kWarpLanes ? static_cast<std::uint32_t>(left) : simt::kWarpLanes);
    if ((mask >> t.lane() & 1) == 0) continue;
    const std::uint64_t index = plan.indices[first + t.lane()];
    const Pin pin =
        cache.acquire(t, mask, BlockKey{plan.ssd, 0, split.line(index)}, kWrite ? Access::write : Access::read);
    std::byte* mine = plan.elements + (first + t.lane()) * plan.element_bytes;
    if (pin.ok()) {
      std::byte* cell = pin.data + std::uint64_t{split.slot(index)} * plan.element_bytes;
      copy_element(kWrite ? cell : mine, kWrite ? mine : cell, plan.element_bytes);
    } else {
      plan.fault->note(t, pin.status);
    }
    cache.release(t, mask, pin);
  }
}

}  // namespace elements

template <class Cache>
struct GatherElements : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Cache cache, ElementPlan plan) const {
    elements::move_all<false>(t, cache, plan);
  }
};
template <class Cache>
struct ScatterElements : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Cache cache, ElementPlan plan) const {
    elements::move_all<true>(t, cache, plan);
  }
};
}  // namespace flashmob::gpu::workloads
