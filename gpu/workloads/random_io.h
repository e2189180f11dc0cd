// Random reads or writes over several SSDs with a fixed number of commands in flight per thread. Compiles as CUDA
// device code.
#pragma once

#include <cstdint>

#include "workloads/kernel_shape.h"
#include "workloads/ssd_set.h"

namespace flashmob::gpu::workloads {

struct RandomIoPlan : IoPlan {
  bool write = false;
  std::uint32_t in_flight = 8;  // per thread, which has as many buffers
  std::uint64_t commands = 0;   // of all threads
};

struct RandomIoTarget {
  std::uint32_t ssd;
  std::uint64_t block;
};
// Commands go to the SSDs in turn.
FLASHMOB_HD inline RandomIoTarget random_io_target(const RandomIoPlan& plan, std::uint64_t command) {
  return {static_cast<std::uint32_t>(command % plan.ssds.count), mix(plan.seed ^ mix(command)) % plan.span};
}
// What is on the SSDs before the run, and what writes put there.
inline constexpr std::uint32_t kReadGeneration = 0;
inline constexpr std::uint32_t kWriteGeneration = 1;

struct RandomIoKernel : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, RandomIoPlan plan) const {
    // This thread's commands are thread(), thread() + threads(), ...; command number k of them uses slot k mod
    // in_flight, after the slot's last one is finished.
    const std::uint64_t mine = plan.commands / t.threads() + (t.thread() < plan.commands % t.threads() ? 1 : 0);
    for (std::uint64_t k = 0; k < mine; ++k) {
      if (k >= plan.in_flight) end(t, plan, k - plan.in_flight);
      begin(t, plan, k);
    }
    for (std::uint64_t k = mine > plan.in_flight ? mine - plan.in_flight : 0; k < mine; ++k) end(t, plan, k);
  }

 private:
  template <class Lane>
  FLASHMOB_HD static RandomIoTarget target(Lane& t, const RandomIoPlan& plan, std::uint64_t k) {
    return random_io_target(plan, t.thread() + k * t.threads());
  }
  template <class Lane>
  FLASHMOB_HD static std::uint64_t slot(Lane& t, const RandomIoPlan& plan, std::uint64_t k) {
    return std::uint64_t{t.thread()} * plan.in_flight + k % plan.in_flight;
  }

  template <class Lane>
  FLASHMOB_HD static void begin(Lane& t, const RandomIoPlan& plan, std::uint64_t k) {
    const RandomIoTarget to = target(t, plan, k);
    const SsdRef& ssd = plan.ssds.at[to.ssd];
    std::byte* buffer = plan.buffers + slot(t, plan, k) * plan.bytes;
    Completion& done = plan.completions[slot(t, plan, k)];
    const std::uint32_t blocks = plan.bytes >> ssd.ns(0).lba_shift;
    done.arm(t);
    if (plan.write) {
      fill_pattern(reinterpret_cast<std::uint64_t*>(buffer), plan.bytes, kWriteGeneration, to.ssd, to.block);
      ssd.write_from(t, 0, to.block * blocks, blocks, buffer, done);
    } else {
      ssd.read_into(t, 0, to.block * blocks, blocks, buffer, done);
    }
  }
  template <class Lane>
  FLASHMOB_HD static void end(Lane& t, const RandomIoPlan& plan, std::uint64_t k) {
    const RandomIoTarget from = target(t, plan, k);
    const IoStatus status = plan.ssds.at[from.ssd].wait(t, plan.completions[slot(t, plan, k)]);
    const auto* words = reinterpret_cast<const std::uint64_t*>(plan.buffers + slot(t, plan, k) * plan.bytes);
    if (!status.ok())
      plan.failed->fetch_add(t, 1, simt::Order::relaxed);
    else if (!plan.write && !sample_is_pattern(words, plan.bytes, kReadGeneration, from.ssd, from.block))
      plan.wrong->fetch_add(t, 1, simt::Order::relaxed);
  }
};

}  // namespace flashmob::gpu::workloads
