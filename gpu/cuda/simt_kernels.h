// Kernels that count what is wrong with the vocabulary of simt/vocabulary.h on the backend they run on. Compiles as
// CUDA device code.
#pragma once

#include "flashmob/gpu/simt/word.h"

namespace flashmob::gpu::cuda {

struct CheckCollectives {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, simt::Word<std::uint32_t>* wrong) const {
    const std::uint32_t lanes = t.lanes();
    const std::uint32_t odd = t.ballot(lanes, t.lane() % 2 == 1);
    const auto expect = [&](bool right) {
      if (!right) wrong->fetch_add(t, 1);
    };
    expect(odd == (lanes & 0xAAAAAAAAu));
    const std::uint64_t wide = t.thread() * 0x1'0000'0001ull;
    const std::uint32_t last = simt::count_lanes(lanes) - 1;
    expect(t.shuffle(lanes, wide, last) == (t.thread() - t.lane() + last) * 0x1'0000'0001ull);
    expect(t.shuffle(lanes, static_cast<std::uint8_t>(t.lane()), 0) == 0);
    expect(t.match(lanes, t.lane() / 4) == (lanes & (0xFu << (t.lane() / 4 * 4))));
    expect(t.match(lanes, wide) == 1u << t.lane());
    const std::uint32_t half = t.lane() % 2 == 1 ? odd : lanes & ~odd;
    expect(t.ballot(half, true) == half);
    expect(t.elect(half) == (simt::first_lane(half) == t.lane()));
    t.sync(lanes);
    const std::uint64_t before_ns = t.now_ns();
    t.pause(100);
    t.busy(1000);
    expect(t.now_ns() >= before_ns + 1000);
  }
};

struct CheckAtomics {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, simt::Word<std::uint64_t>* sum, simt::Word<std::uint16_t>* narrow,
                              simt::Word<std::uint32_t>* bits) const {
    sum->fetch_add(t, t.thread() + 1);
    bits->fetch_or(t, 1u << t.lane());
    // One more, by compare and exchange on a word of two bytes.
    std::uint16_t seen = narrow->load(t);
    while (!narrow->compare_exchange(t, seen, static_cast<std::uint16_t>(seen + 1))) t.pause();
  }
};

struct CheckBlock {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, std::uint64_t* sums) const {
    auto* const slots = reinterpret_cast<std::uint32_t*>(t.shared());
    slots[t.thread_in_block()] = t.thread();
    t.sync_block();
    if (t.thread_in_block() != 0) return;
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < t.block_threads(); ++i) sum += slots[i];
    sums[t.block()] = sum;
  }
};

}  // namespace flashmob::gpu::cuda
