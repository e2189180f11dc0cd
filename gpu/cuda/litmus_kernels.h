// Litmus programs: the few orders of memory that the protocols of queues, cache and engine stand on, each as small as
// it can be, run against itself until it would have failed (CUDA C++ Programming Guide, memory consistency model; PTX
// ISA 8.x, 8.10). What must hold is counted in `wrong` if it does not. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/simt/word.h"

namespace flashmob::gpu::cuda {

inline constexpr std::uint32_t kLitmusWords = 16;
inline constexpr std::uint64_t kLitmusDeadlineNs = 20'000'000'000;

// What two sides share; each word in a line of its own.
template <simt::Scope S>
struct LitmusPair {
  alignas(128) std::uint32_t data[kLitmusWords];
  alignas(128) simt::Word<std::uint32_t, S> flag;
  alignas(128) std::uint32_t answer_data[kLitmusWords];
  alignas(128) simt::Word<std::uint32_t, S> answer;
  alignas(128) simt::Word<std::uint32_t, S> word;
  alignas(128) simt::Word<std::uint32_t, S> ready[2];
  std::uint32_t seen;
};

// Until the word is `value` or more. False if it took too long: whoever waits for the other side ends then.
template <class Lane, simt::Scope S>
FLASHMOB_HD bool await(Lane& t, simt::Word<std::uint32_t, S>& word, std::uint32_t value) {
  const std::uint64_t end_ns = t.now_ns() + kLitmusDeadlineNs;
  while (word.load(t, simt::Order::acquire) < value) {
    if (t.now_ns() > end_ns) return false;
    t.pause(0);
  }
  return true;
}

// Message passing, as an entry and its doorbell, or data and the completion that tells of them: plain stores, then a
// release; an acquire, then plain loads. Blocks come in pairs, a writer and a reader of one lane each.
struct PassMessages {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, LitmusPair<simt::Scope::device>* pairs, std::uint32_t rounds,
                              simt::Word<std::uint32_t>* wrong) const {
    LitmusPair<simt::Scope::device>& pair = pairs[t.block() / 2];
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      bool came = true;
      if (t.block() % 2 == 0) {
        for (std::uint32_t i = 0; i < kLitmusWords; ++i) pair.data[i] = round + i;
        pair.flag.store(t, round, simt::Order::release);
        came = await(t, pair.answer, round);
      } else {
        came = await(t, pair.flag, round);
        for (std::uint32_t i = 0; came && i < kLitmusWords; ++i)
          if (pair.data[i] != round + i) wrong->fetch_add(t, 1);
        pair.answer.store(t, round, simt::Order::release);
      }
      if (!came) {
        wrong->fetch_add(t, 1);
        return;
      }
    }
  }
};

// How the combiner's word is given back (queue.h): a submitter stores, then exchanges the word; the combiner exchanges
// it back, then looks. If the submitter's exchange finds the word taken, the combiner's look sees the store.
struct GiveBack {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, LitmusPair<simt::Scope::device>* pairs, std::uint32_t rounds,
                              simt::Word<std::uint32_t>* wrong) const {
    LitmusPair<simt::Scope::device>& pair = pairs[t.block() / 2];
    const std::uint32_t side = t.block() % 2;
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      if (side == 0) pair.word.store(t, 1, simt::Order::relaxed);  // the combiner has it
      bool came = meet(t, pair, side, 2 * round - 1);
      std::uint32_t before = 0;
      if (side == 0) {
        pair.flag.store(t, round, simt::Order::relaxed);
        before = pair.word.exchange(t, 1, simt::Order::acq_rel);
      } else {
        pair.word.exchange(t, 0, simt::Order::acq_rel);
        pair.seen = pair.flag.load(t, simt::Order::acquire);
      }
      came = came && meet(t, pair, side, 2 * round);
      if (!came || (side == 0 && before == 1 && pair.seen != round)) wrong->fetch_add(t, 1);
      if (!came) return;
    }
  }

 private:
  template <class Lane>
  FLASHMOB_HD static bool meet(Lane& t, LitmusPair<simt::Scope::device>& pair, std::uint32_t side,
                               std::uint32_t number) {
    pair.ready[side].store(t, number, simt::Order::release);
    return await(t, pair.ready[1 - side], number);
  }
};

// One side of message passing both ways between two that are not of one device: the GPU and its host. Each writes what
// the other checks, and each word has one writer. Of one lane.
struct Correspond {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, LitmusPair<simt::Scope::system>* pair, std::uint32_t rounds,
                              std::uint32_t* wrong) const {
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      for (std::uint32_t i = 0; i < kLitmusWords; ++i) pair->data[i] = round + i;
      pair->flag.store(t, round, simt::Order::release);
      if (!await(t, pair->answer, round)) {
        ++*wrong;
        return;
      }
      for (std::uint32_t i = 0; i < kLitmusWords; ++i)
        if (pair->answer_data[i] != round * 3 + i) ++*wrong;
    }
  }
};
// The other side.
template <class Lane>
std::uint32_t answer_all(Lane& t, LitmusPair<simt::Scope::system>& pair, std::uint32_t rounds) {
  std::uint32_t wrong = 0;
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    if (!await(t, pair.flag, round)) return wrong + 1;
    for (std::uint32_t i = 0; i < kLitmusWords; ++i) wrong += pair.data[i] != round + i;
    for (std::uint32_t i = 0; i < kLitmusWords; ++i) pair.answer_data[i] = round * 3 + i;
    pair.answer.store(t, round, simt::Order::release);
  }
  return wrong;
}

}  // namespace flashmob::gpu::cuda
