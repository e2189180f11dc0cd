// Kernels that show whether the host's side keeps CUDA's rules. Compile as CUDA device code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "flashmob/gpu/simt/word.h"
#include "flashmob/gpu/ssd.h"

namespace flashmob::gpu::rules {

using HostWord = simt::Word<std::uint32_t, simt::Scope::system>;

// As a service does: runs until the host says that it may end.
struct Linger {
  static constexpr bool kStaysResident = true;

  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, HostWord* began, HostWord* may_end) const {
    if (t.thread_in_block() == 0) began->fetch_add(t, 1);
    while (may_end->load(t) == 0) t.pause(200);
  }
};

struct Fill {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, std::uint32_t* words, std::uint32_t count, std::uint32_t value) const {
    for (std::uint32_t i = t.thread(); i < count; i += t.threads()) words[i] = value;
  }
};

// Counts the words that are not `value`.
struct CountOthers {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, const std::uint32_t* words, std::uint32_t count, std::uint32_t value,
                              HostWord* others) const {
    for (std::uint32_t i = t.thread(); i < count; i += t.threads())
      if (words[i] != value) others->fetch_add(t, 1);
  }
};

// Needs more local memory than what has run before it.
struct Deep {
  static constexpr std::uint32_t kLocalBytes = 16 << 10;

  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, HostWord* sum) const {
    std::uint32_t own[2048];
    for (std::uint32_t i = 0; i < 2048; ++i) own[i] = i ^ t.thread();
    for (std::uint32_t i = 1; i < 2048; ++i) own[i] += own[own[i] % i];
    sum->fetch_add(t, own[2047] | 1);
  }
};

// Each lane reads the block of its number.
struct ReadBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, SsdRef ssd, std::byte* to) const {
    ssd.read(t, 0, t.thread(), 1, to + std::size_t{t.thread()} * 512).wait(t);
  }
};

}  // namespace flashmob::gpu::rules
