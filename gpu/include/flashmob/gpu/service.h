// Taking completions for everybody: service kernels and host threads (ServiceMode::service).
//
// serve() is one warp's work: it takes up to 32 entries of a queue at a time, goes on to the next queue whether or not
// more are to come, and rings each completion doorbell as it advances. Queues are dealt out to the warps round robin.
// A service kernel must be on the GPU before the kernels that wait for it, and stay: it leaves when it is told to.
//
// ServiceControl lies near to the warps; where the host does not see it, orders are copied there. Told to drain, the
// warps go on until nothing is in flight, which a lost command prevents until they are told to stop; told to stop, they
// leave at once, and commands in flight are taken by whoever serves or polls next.
// Thread rule: one host thread gives the orders. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/queue.h"

namespace flashmob::gpu {

enum class ServiceOrder : std::uint32_t { serve, drain, stop };

struct ServiceControl {
  simt::Word<ServiceOrder, simt::Scope::system> order;
  simt::Word<std::uint32_t> started;  // warps that have begun
  simt::Word<std::uint32_t> left;  // and that have ended
  simt::Word<std::uint64_t> passes;  // looks at all queues, of those that have ended
};

// All queues of all SSDs, as one array of handles in memory that the warps see.
struct ServiceRef {
  // Busy warps look for orders now and then only.
  static constexpr std::uint32_t kPassesPerLook = 64;

  ServiceControl* control = nullptr;
  const QueueRef* queues = nullptr;
  std::uint32_t queue_count = 0;

  // One look at every `stride`-th queue from `first` on by the lanes of `mask` together; how many completions.
  template <class Lane>
  FLASHMOB_HD std::uint32_t pass(Lane& t, std::uint32_t mask, std::uint32_t first, std::uint32_t stride) const {
    std::uint32_t count = 0;
    for (std::uint32_t i = first; i < queue_count; i += stride) {
      count += queues[i].reap(t, mask);
      // A submitter that was held up between publishing and ringing costs the others nothing.
      if (t.elect(mask) && queues[i].get()->ready.load(t, simt::Order::relaxed) != 0) queues[i].combine(t);
    }
    return count;
  }

  template <class Lane>
  FLASHMOB_HD bool idle(Lane& t, std::uint32_t first, std::uint32_t stride) const {
    for (std::uint32_t i = first; i < queue_count; i += stride) {
      if (!queues[i].idle(t)) return false;
    }
    return true;
  }

  // Until the host's order. Every lane of `mask` calls it.
  template <class Lane>
  FLASHMOB_HD void serve(Lane& t, std::uint32_t mask) const {
    // Few variables live across the loop: the kernel stays on the GPU beside the user's, and registers are what it
    // takes.
    std::uint32_t passes = 0;
    if (t.elect(mask)) control->started.fetch_add(t, 1);
    for (Backoff backoff;; ++passes) {
      if (pass(t, mask, t.warp(), t.warps()) != 0) {
        backoff = Backoff{};
        if (passes % kPassesPerLook != 0) continue;
      }
      // The lanes leave together, by what one of them has read.
      bool leave = false;
      if (t.elect(mask)) {
        const ServiceOrder order = control->order.load(t);
        leave = order == ServiceOrder::stop || (order == ServiceOrder::drain && idle(t, t.warp(), t.warps()));
      }
      if (t.ballot(mask, leave) != 0) break;
      backoff.pause(t);
    }
    if (t.elect(mask)) {
      control->passes.fetch_add(t, std::uint64_t{passes}, simt::Order::relaxed);
      control->left.fetch_add(t, 1);
    }
  }
};

// The resident service: any number of blocks of whole warps; more warps than queues are of no use.
struct ServiceKernel {
  static constexpr bool kStaysResident = true;
  static constexpr std::uint32_t kMaxRegisters = 37;  // a thread, on a GPU: enough, without spilling

  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, const ServiceRef& service) const {
    service.serve(t, t.lanes());
  }
};

}  // namespace flashmob::gpu
