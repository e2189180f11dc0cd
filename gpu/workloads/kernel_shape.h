// The shape that the kernels of the workloads have. Compiles as CUDA device code.
#pragma once

#include <cstdint>

namespace flashmob::gpu::workloads {

inline constexpr std::uint32_t kBlockThreads = 128;

// Base of the workloads' kernels: small blocks leave each thread enough registers that nothing is spilled to memory,
// which is what would bound them (simt/cuda.h).
struct SmallBlocks {
  static constexpr std::uint32_t kMaxBlockThreads = kBlockThreads;
};

}  // namespace flashmob::gpu::workloads
