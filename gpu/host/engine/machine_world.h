// The world of fibres that work in real time, or beside an SSD that has a clock of its own: they take their turns by
// the machine's time, which passes as they run, and read the other clock. For one thread.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "flashmob/gpu/simt/world.h"

namespace flashmob::gpu {

class MachineWorld final : public simt::World {
 public:
  // `clock` outlives the world.
  explicit MachineWorld(const Clock& clock) : clock_(clock) {}
  std::uint64_t now_ns() override { return now_ns_; }
  std::uint64_t clock_ns() override { return clock_.now_ns(); }
  bool pass(std::uint64_t to_ns) override {
    now_ns_ = to_ns;
    return false;
  }
  std::uint64_t next_event_ns() override { return UINT64_MAX; }

 private:
  const Clock& clock_;
  std::uint64_t now_ns_ = 1;
};

}  // namespace flashmob::gpu
