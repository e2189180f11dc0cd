// The pace of an engine's kernel that runs when it is let (EngineMachine::runs_by_itself() is false): as much time as
// has passed on the SSD's clock, and none while nothing changes and no target comes up. For one thread.
#pragma once

#include <cstdint>

#include "host/engine/device_engine.h"
#include "host/engine/engine_machine.h"

namespace flashmob::gpu {

class KernelPace {
 public:
  enum class Turn : std::uint8_t { ran, rested, lost };

  // `rested`: until due_ns(), or somebody rings a doorbell or changes something, the kernel has nothing to do. `lost`:
  // it has gone down.
  Turn let_run(DeviceEngine& engine, EngineMachine& machine, std::uint64_t now_ns);
  std::uint64_t due_ns() const { return due_ns_; }
  // EngineActivity::busy, as the last turn found it.
  std::uint64_t busy() const { return busy_; }

 private:
  std::uint64_t last_run_ns_ = 0;
  std::uint64_t print_ = 0;
  std::uint64_t busy_ = 0;
  std::uint64_t quiet_ns_ = 0;
  std::uint64_t due_ns_ = UINT64_MAX;
};

}  // namespace flashmob::gpu
