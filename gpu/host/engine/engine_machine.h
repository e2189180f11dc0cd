// What runs the GPU engine's kernel: a GPU, or fibres on the CPU, which stand still unless the host lets them run.
//
// Fibres take their turns by a time of the machine's own, which passes in step() alone, while their clock is the SSD's:
// a host that waits for the kernel costs none of the SSD's time, and in virtual time a run depends on its seed alone.
// Thread rule: one host thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "flashmob/config.h"
#include "flashmob/gpu/simt/cuda_abi.h"
#include "host/engine/device_engine.h"

namespace flashmob::gpu {

class EngineMachine {
 public:
  virtual ~EngineMachine() = default;

  virtual EngineMemory& memory() = 0;
  // What a DeviceEngine for this machine is made with.
  virtual DeviceEngineOptions options(const EngineConfig& config) const = 0;
  virtual void launch(const DeviceEngine& engine) = 0;
  // After DeviceEngine::end(): returns when the kernel has ended.
  virtual void join() = 0;
  // Gives the kernel so much of its own time, or waits a moment for one that runs by itself. False if it has gone down.
  virtual bool step(std::uint64_t ns) = 0;
  // False: the kernel runs in step() alone, and the host sees all of its memory.
  virtual bool runs_by_itself() const = 0;
  // Makes host memory reachable for the kernel, at its own address, as often as it is asked for. Throws ConfigError
  // with the reason where the GPU does not get it.
  virtual void share(void* data, std::size_t bytes) = 0;
  virtual void unshare(void* data, std::size_t bytes) = 0;
  // A GPU's memory that another process has exported, at an address of the kernel's. Throws ConfigError or CudaError.
  virtual void* import(const simt::CudaMemoryHandle& handle) = 0;
  // On a GPU it stays mapped, and its owner's, until the kernel has ended.
  virtual void close_import(void* memory) = 0;
};

// A GPU where there is one and the clock is real; else fibres. `clock` outlives the machine. Throws CudaError.
std::unique_ptr<EngineMachine> make_engine_machine(const DeviceConfig& config, const Clock& clock);
// How often the kernel on fibres looks for something to do, in its own time: every warp is 32 fibres to be run.
struct FibrePace {
  std::uint32_t longest_pause_ns = 50;
  std::uint32_t look_every_ns = 400;
};
std::unique_ptr<EngineMachine> make_fibre_machine(const DeviceConfig& config, const Clock& clock);
std::unique_ptr<EngineMachine> make_paced_machine(const DeviceConfig& config, const Clock& clock, FibrePace pace);

}  // namespace flashmob::gpu
