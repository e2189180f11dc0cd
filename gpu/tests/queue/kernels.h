// Kernels of the queue suite, which CPU backends and GPUs run alike (gpu/cuda/tests/queue.cu).
#pragma once

#include <cstdint>
#include <cstring>

#include "flashmob/gpu/ssd.h"

namespace flashmob::gpu::testing {

// Every lane writes a block of its own and reads it back, several times.
struct WriteRead {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, SsdRef ssd, std::byte* data, std::uint32_t rounds, std::uint32_t* done) const {
    std::byte* mine = data + std::uint64_t{t.thread()} * 512;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const auto value = static_cast<std::byte>(t.thread() * 3 + round);
      std::memset(mine, static_cast<int>(value), 512);
      if (!ssd.write(t, 0, t.thread(), 1, mine).wait(t).ok()) return;
      std::memset(mine, 0, 512);
      if (!ssd.read(t, 0, t.thread(), 1, mine).wait(t).ok() || mine[0] != value || mine[511] != value) return;
      ++done[t.thread()];
    }
  }
};

// Lane 5 takes a slot and does not publish it until everyone else is finished.
struct HeldUp {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, SsdRef ssd, std::byte* data, simt::Word<std::uint32_t>* finished,
                              std::uint32_t* done) const {
    std::byte* mine = data + std::uint64_t{t.thread()} * 512;
    if (t.thread() != 5) {
      for (int i = 0; i < 4; ++i) done[t.thread()] += ssd.read(t, 0, t.thread(), 1, mine).wait(t).ok();
      finished->fetch_add(t, 1);
      return;
    }
    const QueueRef queue = ssd.queue(0);
    std::uint32_t slot = 0;
    while (!queue.claim(t, slot)) t.pause(100);
    const Token token(queue, slot, queue.slot(slot).ticket.load(t));
    while (finished->load(t) != 31) t.pause(1'000);
    queue.fill(slot, {nvme::NvmOpcode::read, ssd.ns(0).nsid, 5, 1, reinterpret_cast<std::uint64_t>(mine), 512},
               nullptr);
    queue.publish(t, slot);
    queue.combine(t);
    done[t.thread()] = token.wait(t).ok() ? 4 : 0;
  }
};

// Each lane takes its own way and time, and some never do any I/O.
struct OwnWays {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, SsdRef ssd, std::byte* data, std::uint32_t* done) const {
    if (t.lane() % 3 == 1) {
      done[t.thread()] = 2;
      return;
    }
    if (t.lane() % 3 == 2) t.busy(t.lane() * 500);
    WriteRead{}(t, ssd, data, 2, done);
  }
};

// Three commands that the SSD refuses, each in its own way, and one that it does not.
struct MakeErrors {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, SsdRef ssd, std::byte* data, IoStatus* out) const {
    out[0] = ssd.read(t, 0, ssd.ns(0).blocks, 1, data).wait(t);               // beyond the end
    out[1] = ssd.read(t, 0, 0, 1, data + 2).wait(t);                          // PRP1 is not dword-aligned
    out[2] = ssd.read(t, 0, 0, 1, reinterpret_cast<void*>(4096)).wait(t);     // no memory of the SSD's
    out[3] = ssd.read(t, 0, 0, 1, data).wait(t);
  }
};

// Namespace 1 has blocks of 4096 bytes.
struct FireAndForget {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, SsdRef ssd, std::byte* data, Completion* each) const {
    each[t.thread()].arm(t);
    ssd.read_into(t, 1, t.thread(), 1, data + std::uint64_t{t.thread()} * 4096, each[t.thread()]);
  }
};

}  // namespace flashmob::gpu::testing
