// The kernel of the GPU engine: one service unit per block, at least three warps each. All blocks must be on the GPU at
// once with the application's, so the host launches it first and gives it no more blocks than it may have
// multiprocessors. Ends when Control::run says so. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/engine/completer.h"
#include "flashmob/gpu/engine/dispatcher.h"
#include "flashmob/gpu/engine/layout.h"
#include "flashmob/gpu/engine/mover.h"

namespace flashmob::gpu::engine {

inline constexpr std::uint32_t kLeastWarps = 3;

struct EngineKernel {
  static constexpr bool kStaysResident = true;
  static constexpr std::uint32_t kMaxBlockThreads = 512;
  static constexpr std::uint32_t kMaxRegisters = 128;  // a thread, on a GPU: as many as it takes without spilling

  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, const EngineRef& engine) const {
    UnitShared& shared = *reinterpret_cast<UnitShared*>(t.shared());
    const Unit& unit = engine.units[t.block()];
    if (t.thread_in_block() == 0) {
      shared.dispatched_to.store(t, 0, simt::Order::relaxed);
      shared.dispatcher_gone.store(t, 0, simt::Order::relaxed);
      shared.fetched_slots.store(t, 0, simt::Order::relaxed);
    }
    t.sync_block();
    switch (t.thread_in_block() / simt::kWarpLanes) {
      case 0:
        Dispatcher<Lane>(engine, unit, shared).run(t);
        break;
      case 1:
        Completer<Lane>(engine, unit, shared).run(t);
        break;
      default:
        Mover<Lane>(engine, unit, shared).run(t);
    }
  }
};

}  // namespace flashmob::gpu::engine
