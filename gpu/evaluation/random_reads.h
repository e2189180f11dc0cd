// The application of the GPU engine's evaluation: threads that each read a random block, wait for it, check it and read
// the next, and kernels that fill the media and measure how fast they could be read at all. Compiles as CUDA device
// code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/engine/layout.h"
#include "flashmob/gpu/engine/mover.h"
#include "flashmob/gpu/queue_arena.h"
#include "flashmob/gpu/simt/word.h"
#include "workloads/ssd_set.h"

namespace flashmob::gpu::evaluation {

inline constexpr std::uint32_t kBlockBytes = 512;

// What all threads have found, added up as they end.
struct ReadAccount {
  using Count = simt::Word<std::uint64_t>;
  Count reads;  // that ended within the measured time
  Count latency_sum_ns;  // of these
  Count latency_max_ns;
  Count checked;  // blocks' worth of data that were compared, at any time
  Count wrong;
  Count failed;  // commands that did not end well
  Count last_status;  // of these, IoStatus::to_bits()
  Count latency_ns[engine::kHistogramBuckets];  // of one read in ReadPlan::sample_every
};

struct ReadPlan {
  SsdRef ssd;
  std::uint32_t bytes = kBlockBytes;  // of each read
  std::uint32_t sample_every = 1;
  std::uint64_t span = 0;  // reads begin at a multiple of `bytes` below span * bytes
  std::uint64_t reads_each = 0;  // at most, of each thread
  std::uint64_t from_ns = 0;  // of the lanes' clock: what ends from here ...
  std::uint64_t until_ns = 0;  // ... until here is measured; nobody begins after it
  std::uint64_t seed = 1;
  std::byte* buffers = nullptr;  // `bytes` for each thread
  Completion* completions = nullptr;  // one for each thread
  ReadAccount* account = nullptr;
};

struct RandomReads {
  // A thread, on a GPU: few enough that four blocks of 256 fit on a multiprocessor.
  static constexpr std::uint32_t kMaxRegisters = 64;

  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, const ReadPlan& plan) const {
    Tally tally;
    Completion& done = plan.completions[t.thread()];
    std::byte* const buffer = plan.buffers + std::uint64_t{t.thread()} * plan.bytes;
    const std::uint32_t blocks = plan.bytes / kBlockBytes;
    for (std::uint64_t k = 0; k < plan.reads_each; ++k) {
      const std::uint64_t start_ns = t.now_ns();
      if (start_ns >= plan.until_ns) break;
      const std::uint64_t number = t.thread() + k * t.threads();
      const std::uint64_t first = workloads::mix(plan.seed ^ workloads::mix(number)) % plan.span * blocks;
      done.arm(t);
      plan.ssd.read_into(t, 0, first, blocks, buffer, done);
      const IoStatus status = plan.ssd.wait(t, done);
      const std::uint64_t end_ns = t.now_ns();
      if (!status.ok()) {
        plan.account->failed.fetch_add(t, 1, simt::Order::relaxed);
        plan.account->last_status.store(t, status.to_bits(), simt::Order::relaxed);
        // The buffer may still be the SSD's, and the others wait no better.
        if (status.kind != IoKind::completed) break;
        continue;
      }
      check(t, plan, buffer, first);
      tally.checked += blocks;
      if (end_ns >= plan.from_ns && end_ns < plan.until_ns) measured(t, plan, k, end_ns - start_ns, tally);
    }
    enter(t, plan, tally);
  }

 private:
  // One thread's sums; few, for they live in registers. What should not happen is entered as it does.
  struct Tally {
    std::uint32_t reads = 0;
    std::uint32_t checked = 0;
    std::uint64_t latency_sum_ns = 0;
    std::uint64_t latency_max_ns = 0;
  };

  template <class Lane>
  FLASHMOB_HD static void check(Lane& t, const ReadPlan& plan, const std::byte* buffer, std::uint64_t first) {
    for (std::uint32_t block = 0; block < plan.bytes / kBlockBytes; ++block) {
      const auto* const words = reinterpret_cast<const std::uint64_t*>(buffer + block * kBlockBytes);
      if (!workloads::sample_is_pattern(words, kBlockBytes, 0, 0, first + block))
        plan.account->wrong.fetch_add(t, 1, simt::Order::relaxed);
    }
  }

  template <class Lane>
  FLASHMOB_HD static void measured(Lane& t, const ReadPlan& plan, std::uint64_t k, std::uint64_t latency_ns,
                                   Tally& tally) {
    ++tally.reads;
    tally.latency_sum_ns += latency_ns;
    if (latency_ns > tally.latency_max_ns) tally.latency_max_ns = latency_ns;
    if ((k + t.thread()) % plan.sample_every == 0)
      plan.account->latency_ns[engine::histogram_bucket(latency_ns)].fetch_add(t, plan.sample_every,
                                                                               simt::Order::relaxed);
  }

  template <class Lane>
  FLASHMOB_HD static void enter(Lane& t, const ReadPlan& plan, const Tally& tally) {
    const auto add = [&](ReadAccount::Count& count, std::uint64_t value) {
      if (value != 0) count.fetch_add(t, value, simt::Order::relaxed);
    };
    ReadAccount& account = *plan.account;
    add(account.reads, tally.reads);
    add(account.latency_sum_ns, tally.latency_sum_ns);
    add(account.checked, tally.checked);
    std::uint64_t seen = account.latency_max_ns.load(t, simt::Order::relaxed);
    while (seen < tally.latency_max_ns &&
           !account.latency_max_ns.compare_exchange(t, seen, tally.latency_max_ns, simt::Order::relaxed)) {
    }
  }
};

// Fills media with what RandomReads expects.
struct FillMedia {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, std::byte* media, std::uint64_t bytes) const {
    constexpr std::uint32_t kWords = kBlockBytes / sizeof(std::uint64_t);
    auto* const words = reinterpret_cast<std::uint64_t*>(media);
    for (std::uint64_t i = t.thread(); i < bytes / sizeof(std::uint64_t); i += t.threads())
      words[i] = workloads::pattern_word(0, 0, i / kWords, static_cast<std::uint32_t>(i % kWords));
  }
};

// Copies random stripes into the GPU's memory with nothing around it: what the way to the media carries at most. Each
// warp copies `each` stripes of `stripe_bytes`, a multiple of kTogether, into its own part of `to`, which has room for
// kTogether of them; of short ones so many are under way at once, as in the engine's movers.
struct ReadStripes {
  static constexpr std::uint32_t kTogether = 4;

  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, const std::byte* media, std::uint64_t stripes, std::uint32_t stripe_bytes,
                              std::uint64_t each, std::byte* to) const {
    std::byte* const mine = to + std::uint64_t{t.warp()} * stripe_bytes * kTogether;
    const auto stripe_of = [&](std::uint64_t k) { return workloads::mix(t.warp() + k * t.warps()) % stripes; };
    if (stripe_bytes != engine::kStripeBytes) {
      for (std::uint64_t k = 0; k < each; ++k)
        engine::copy_bytes(t, mine + k % kTogether * stripe_bytes, media + stripe_of(k) * stripe_bytes, stripe_bytes);
      return;
    }
    const auto* const from = reinterpret_cast<const engine::Chunk*>(media) + t.lane();
    auto* const out = reinterpret_cast<engine::Chunk*>(mine) + t.lane();
    for (std::uint64_t k = 0; k < each; k += kTogether) {
      // To different places: what a later store would overwrite, the compiler need not load at all.
      engine::Chunk held[kTogether];
      for (std::uint32_t i = 0; i < kTogether; ++i) held[i] = from[stripe_of(k + i) * simt::kWarpLanes];
      for (std::uint32_t i = 0; i < kTogether; ++i) out[i * simt::kWarpLanes] = held[i];
    }
  }
};

}  // namespace flashmob::gpu::evaluation
