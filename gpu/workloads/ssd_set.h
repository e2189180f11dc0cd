// The SSDs that a kernel uses, and the bytes that test data on them consist of. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/ssd.h"

namespace flashmob::gpu::workloads {

inline constexpr std::uint32_t kMaxSsds = 16;

// By value in a kernel's arguments.
struct SsdSet {
  SsdRef at[kMaxSsds];
  std::uint32_t count = 0;
};

// What kernels that read and write blocks of the pattern below have in common. Made by Workbench::plan_io().
struct IoPlan {
  SsdSet ssds;
  std::uint32_t bytes = 4096;  // per command, of every SSD a whole number of blocks
  std::uint64_t span = 0;      // blocks of `bytes` on each SSD
  std::uint64_t seed = 1;
  std::byte* buffers = nullptr;
  Completion* completions = nullptr;            // one for each buffer
  simt::Word<std::uint64_t>* wrong = nullptr;   // blocks with the wrong bytes
  simt::Word<std::uint64_t>* failed = nullptr;  // commands that did not end well
};

FLASHMOB_HD inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Word `word` of block `block` on an SSD, in generation `generation` of the data.
FLASHMOB_HD inline std::uint64_t pattern_word(std::uint32_t generation, std::uint32_t ssd, std::uint64_t block,
                                              std::uint32_t word) {
  return mix(std::uint64_t{generation} << 56 ^ std::uint64_t{ssd} << 48 ^ block << 12 ^ word);
}
FLASHMOB_HD inline void fill_pattern(std::uint64_t* words, std::uint32_t bytes, std::uint32_t generation,
                                     std::uint32_t ssd, std::uint64_t block) {
  for (std::uint32_t w = 0; w < bytes / 8; ++w) words[w] = pattern_word(generation, ssd, block, w);
}
// Compares the first word, the last, and some between: a thread of its own need not look at all to see that a block is
// the wrong one, stale or torn.
FLASHMOB_HD inline bool sample_is_pattern(const std::uint64_t* words, std::uint32_t bytes, std::uint32_t generation,
                                          std::uint32_t ssd, std::uint64_t block) {
  constexpr std::uint32_t kSamples = 16;
  const std::uint32_t count = bytes / 8;
  const std::uint32_t step = count > kSamples ? count / kSamples : 1;
  for (std::uint32_t w = 0; w < count; w += step) {
    if (words[w] != pattern_word(generation, ssd, block, w)) return false;
  }
  return words[count - 1] == pattern_word(generation, ssd, block, count - 1);
}

}  // namespace flashmob::gpu::workloads
