// Computation against communication: kernels whose threads read blocks at random and compute on each. Compiles as CUDA
// device code.
//
// The synchronous kernel waits for a block, computes, and only then asks for the next. The asynchronous one asks for
// the next block before it computes on the one that it has, into the other of two buffers.
#pragma once

#include <cstdint>

#include "workloads/kernel_shape.h"
#include "workloads/ssd_set.h"

namespace flashmob::gpu::workloads {

struct CtcPlan : IoPlan {
  std::uint32_t commands = 64;   // per thread, which has two buffers
  std::uint64_t compute_ns = 0;  // per block
};

namespace ctc {

struct Target {
  std::uint32_t ssd;
  std::uint64_t block;
};
FLASHMOB_HD inline Target target_of(const CtcPlan& plan, std::uint32_t thread, std::uint32_t command) {
  const std::uint64_t number = std::uint64_t{thread} * plan.commands + command;
  return {static_cast<std::uint32_t>(number % plan.ssds.count), mix(plan.seed ^ mix(number)) % plan.span};
}

// One thread's two buffers.
template <class Lane>
class Reader {
 public:
  FLASHMOB_HD Reader(Lane& t, const CtcPlan& plan) : t_(t), plan_(plan) {}

  FLASHMOB_HD void ask(std::uint32_t command) const {
    const Target target = target_of(plan_, t_.thread(), command);
    const SsdRef& ssd = plan_.ssds.at[target.ssd];
    const std::uint32_t blocks = plan_.bytes >> ssd.ns(0).lba_shift;
    completion(command).arm(t_);
    ssd.read_into(t_, 0, target.block * blocks, blocks, buffer(command), completion(command));
  }
  FLASHMOB_HD void take(std::uint32_t command) const {
    const Target target = target_of(plan_, t_.thread(), command);
    const IoStatus status = plan_.ssds.at[target.ssd].wait(t_, completion(command));
    if (!status.ok())
      plan_.failed->fetch_add(t_, 1, simt::Order::relaxed);
    else if (!sample_is_pattern(reinterpret_cast<const std::uint64_t*>(buffer(command)), plan_.bytes, 0, target.ssd,
                                target.block))
      plan_.wrong->fetch_add(t_, 1, simt::Order::relaxed);
  }
  FLASHMOB_HD void compute() const {
    if (plan_.compute_ns == 0) return;
    if constexpr (Lane::kSharesInstructions) t_.sync(t_.lanes());
    t_.busy(plan_.compute_ns);
  }

 private:
  FLASHMOB_HD std::uint64_t slot(std::uint32_t command) const { return std::uint64_t{t_.thread()} * 2 + command % 2; }
  FLASHMOB_HD std::byte* buffer(std::uint32_t command) const { return plan_.buffers + slot(command) * plan_.bytes; }
  FLASHMOB_HD Completion& completion(std::uint32_t command) const { return plan_.completions[slot(command)]; }

  Lane& t_;
  const CtcPlan& plan_;
};

}  // namespace ctc

struct CtcSyncKernel : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, CtcPlan plan) const {
    const ctc::Reader<Lane> reader(t, plan);
    for (std::uint32_t c = 0; c < plan.commands; ++c) {
      reader.ask(c);
      reader.take(c);
      reader.compute();
    }
  }
};

struct CtcAsyncKernel : SmallBlocks {
  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, CtcPlan plan) const {
    const ctc::Reader<Lane> reader(t, plan);
    reader.ask(0);
    for (std::uint32_t c = 0; c < plan.commands; ++c) {
      reader.take(c);
      if (c + 1 < plan.commands) reader.ask(c + 1);
      reader.compute();
    }
  }
};

}  // namespace flashmob::gpu::workloads
