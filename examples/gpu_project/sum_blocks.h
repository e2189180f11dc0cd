// Device code: each lane reads blocks of an SSD by itself and adds up their words.
#pragma once

#include <cstdint>

#include "flashmob/gpu/simt/word.h"
#include "flashmob/gpu/ssd.h"

struct SumBlocks {
  static constexpr std::uint32_t kBlockBytes = 512;

  // `buffers` has a block for every thread. An SsdRef is a few addresses: kernels are given a copy.
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, flashmob::gpu::SsdRef ssd, std::uint64_t blocks, std::byte* buffers,
                              flashmob::gpu::simt::Word<std::uint64_t>* sum,
                              flashmob::gpu::simt::Word<std::uint64_t>* failed) const {
    std::byte* const mine = buffers + std::uint64_t{t.thread()} * kBlockBytes;
    for (std::uint64_t block = t.thread(); block < blocks; block += t.threads()) {
      flashmob::gpu::Token token = ssd.read(t, 0, block, 1, mine);
      if (!token.wait(t).ok()) {
        failed->fetch_add(t, 1);
        continue;
      }
      std::uint64_t part = 0;
      for (std::uint32_t i = 0; i < kBlockBytes / 8; ++i) part += reinterpret_cast<const std::uint64_t*>(mine)[i];
      sum->fetch_add(t, part);
    }
  }
};
