// What every warp of the GPU engine does beside its work: look at the host's words between two batches, answer them,
// and give way while there is nothing to do. Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/engine/layout.h"

namespace flashmob::gpu::engine {

// One warp's view; every lane has the same values.
class WarpControl {
 public:
  // The host's words are looked at once in so many rounds that found work, or after EngineRef::look_every_ns of pauses.
  static constexpr std::uint32_t kBusyRounds = 64;

  template <class Lane>
  FLASHMOB_HD WarpControl(Lane& t, const EngineRef& engine) : engine_(engine) {
    take_up(t, read_epoch(t));
  }

  FLASHMOB_HD Run run() const { return run_; }
  FLASHMOB_HD std::uint32_t epoch() const { return epoch_; }
  FLASHMOB_HD std::uint32_t phase() const { return phase_; }
  FLASHMOB_HD const Tables& tables(std::uint32_t controller) const { return engine_.tables[2 * controller + tables_]; }
  FLASHMOB_HD const QueueOrder& order(const Unit& unit) const { return unit.orders[tables_]; }

  // Between two batches; `worked` says whether the last round found anything. True if the host has changed something.
  template <class Lane>
  FLASHMOB_HD bool between(Lane& t, bool worked) {
    if (worked) {
      pause_ns_ = 0;
      if (++busy_rounds_ < kBusyRounds) return false;
    } else {
      pause_ns_ = pause_ns_ * 2 + 10 > engine_.longest_pause_ns ? engine_.longest_pause_ns : pause_ns_ * 2 + 10;
      t.pause(pause_ns_);
      idle_ns_ += pause_ns_;
      if (idle_ns_ < engine_.look_every_ns) return false;
    }
    busy_rounds_ = 0;
    idle_ns_ = 0;
    const std::uint32_t epoch = read_epoch(t);
    if (epoch == epoch_) return false;
    take_up(t, epoch);
    return true;
  }

 private:
  template <class Lane>
  FLASHMOB_HD std::uint32_t read_epoch(Lane& t) const {
    std::uint32_t epoch = 0;
    if (t.elect(t.lanes())) epoch = engine_.control->epoch.load(t);
    return t.shuffle(t.lanes(), epoch, 0);
  }
  template <class Lane>
  FLASHMOB_HD void take_up(Lane& t, std::uint32_t epoch) {
    // All four words in one meeting.
    std::uint64_t words = 0;
    if (t.elect(t.lanes())) {
      words = static_cast<std::uint64_t>(engine_.control->run.load(t));
      words |= std::uint64_t{engine_.control->tables.load(t)} << 8;
      words |= std::uint64_t{engine_.control->phase.load(t)} << 16;
      engine_.answers->warps[t.warp()].store(t, epoch);
    }
    words = t.shuffle(t.lanes(), words, 0);
    t.sync(t.lanes());  // a shuffle orders no memory: now every lane sees what the first one has acquired
    run_ = static_cast<Run>(words & 0xFF);
    tables_ = static_cast<std::uint32_t>(words >> 8) & 1;
    phase_ = static_cast<std::uint32_t>(words >> 16);
    epoch_ = epoch;
  }

  const EngineRef& engine_;
  Run run_ = Run::on;
  std::uint32_t epoch_ = 0;
  std::uint32_t tables_ = 0;
  std::uint32_t phase_ = 0;
  std::uint32_t busy_rounds_ = 0;
  std::uint32_t idle_ns_ = 0;  // of pauses since the last look
  std::uint32_t pause_ns_ = 0;
};

// Tells the host of a fault (layout.h, Fault).
template <class Lane>
FLASHMOB_HD void report(Lane& t, const EngineRef& engine, std::uint64_t place, std::uint64_t who, std::uint64_t what) {
  const std::uint32_t at = engine.fault_count->fetch_add(t, 1, simt::Order::relaxed);
  Fault& fault = engine.answers->faults[at % kFaults];
  fault.place.store(t, place, simt::Order::relaxed);
  fault.who.store(t, who, simt::Order::relaxed);
  fault.what.store(t, what, simt::Order::relaxed);
  fault.serial.store(t, std::uint64_t{at} + 1, simt::Order::release);
}

// Gives the slots of the lanes in `mask` (all of them call) to the completer.
template <class Lane>
FLASHMOB_HD void push_ready(Lane& t, const EngineRef& engine, Rings& rings, std::uint32_t mask, Slot slot) {
  std::uint32_t at = 0;
  if (t.elect(mask)) at = rings.ready_tail.fetch_add(t, simt::count_lanes(mask), simt::Order::relaxed);
  at = t.shuffle(mask, at, simt::first_lane(mask)) + simt::count_lanes(simt::lanes_below(mask, t.lane()));
  rings.ready[at & (engine.slots - 1)].store(t, slot + 1, simt::Order::release);
}

}  // namespace flashmob::gpu::engine
