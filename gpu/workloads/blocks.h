// Blocks of an SSD, read into and written from the caller's own memory: no cache and no copy in between. A thread has
// one command in flight. The kernels compile as CUDA device code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "flashmob/gpu/array.h"
#include "flashmob/gpu/ssd.h"
#include "workloads/kernel_shape.h"

namespace flashmob::gpu::workloads {

struct BlockPlan {
  const std::uint64_t* lbas = nullptr;
  std::uint64_t count = 0;
  std::uint32_t ns_index = 0;
  std::uint32_t blocks = 1;  // at each address
  std::byte* data = nullptr;  // count * blocks blocks, one behind the other
  Fault* fault = nullptr;
};

namespace blocks {

template <bool kWrite, class Lane>
FLASHMOB_HD void move(Lane& t, SsdRef ssd, const BlockPlan& plan) {
  const std::uint64_t block_bytes = ssd.block_bytes(plan.ns_index);
  const auto most = static_cast<std::uint32_t>(ssd.max_transfer_bytes() / block_bytes);
  for (std::uint64_t i = t.thread(); i < plan.count; i += t.threads()) {
    std::byte* const data = plan.data + i * plan.blocks * block_bytes;
    for (std::uint32_t at = 0; at < plan.blocks; at += most) {
      const std::uint32_t part = plan.blocks - at < most ? plan.blocks - at : most;
      std::byte* const here = data + at * block_bytes;
      const Token token = kWrite ? ssd.write(t, plan.ns_index, plan.lbas[i] + at, part, here)
                                 : ssd.read(t, plan.ns_index, plan.lbas[i] + at, part, here);
      const IoStatus status = token.wait(t);
      if (!status.ok()) plan.fault->note(t, status);
    }
  }
}

}  // namespace blocks

struct GatherBlocks : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, SsdRef ssd, BlockPlan plan) const {
    blocks::move<false>(t, ssd, plan);
  }
};
struct ScatterBlocks : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, SsdRef ssd, BlockPlan plan) const {
    blocks::move<true>(t, ssd, plan);
  }
};

}  // namespace flashmob::gpu::workloads
