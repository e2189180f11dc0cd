#include "host/engine/engine_machine.h"

#include <thread>
#include <vector>

#include "flashmob/error.h"
#include "flashmob/gpu/simt/cuda_library.h"
#include "flashmob/gpu/simt/fibre.h"
#include "host/engine/cuda_engine_memory.h"
#include "host/engine/machine_world.h"

namespace flashmob::gpu {
namespace {

// Fewer than on a GPU: every warp is 32 fibres to be run.
constexpr std::uint32_t kFibreMovers = 1;
constexpr std::uint32_t kFibreSlots = 4096;

class FibreMachine final : public EngineMachine {
 public:
  FibreMachine(std::uint64_t seed, const Clock& clock, FibrePace pace)
      : pace_(pace), world_(clock), device_(world_, {.seed = seed, .schedule = simt::Schedule::timed}) {}

  EngineMemory& memory() override { return memory_; }
  DeviceEngineOptions options(const EngineConfig& config) const override {
    return {.units = config.sms,
            .movers = kFibreMovers,
            .slots = kFibreSlots,
            .longest_pause_ns = pace_.longest_pause_ns,
            .look_every_ns = pace_.look_every_ns,
            .rests = true};
  }
  void launch(const DeviceEngine& engine) override {
    kernel_ = device_.launch(engine.shape(), engine::EngineKernel{}, engine.ref());
  }
  void join() override { device_.wait(kernel_); }
  bool step(std::uint64_t ns) override {
    device_.pass(ns);
    return true;
  }
  bool runs_by_itself() const override { return false; }
  void share(void*, std::size_t) override {}
  void unshare(void*, std::size_t) override {}
  void* import(const simt::CudaMemoryHandle&) override {
    throw ConfigError("a GPU's memory is out of reach here: the engine runs on fibres, on the CPU; share a file");
  }
  void close_import(void*) override {}

 private:
  const FibrePace pace_;
  MachineWorld world_;
  HostEngineMemory memory_;
  simt::FibreDevice device_;
  simt::FibreDevice::Kernel kernel_ = 0;
};

class CudaMachine final : public EngineMachine {
 public:
  EngineMemory& memory() override { return memory_; }
  DeviceEngineOptions options(const EngineConfig& config) const override {
    // The kernel's clock counts from the SSD's, so that the host may compare what both say.
    return {.units = config.sms, .clock_start_ns = cuda_.now_ns()};
  }
  void launch(const DeviceEngine& engine) override {
    if (engine.shape().blocks > cuda_.multiprocessors())
      throw ConfigError("engine.sms = " + std::to_string(engine.shape().blocks) + " is not possible: this GPU has " +
                        std::to_string(cuda_.multiprocessors()) + " multiprocessors, and the application needs some");
    kernel_ = cuda_.launch(engine.shape(), engine::EngineKernel{}, engine.ref());
  }
  void join() override {
    cuda_.wait(kernel_);
    for (void* const memory : closed_) cuda_.close_import(memory);
    closed_.clear();
  }
  bool step(std::uint64_t) override {
    std::this_thread::yield();
    return !cuda_.finished(kernel_);
  }
  bool runs_by_itself() const override { return true; }
  void share(void* data, std::size_t bytes) override {
    try {
      cuda_.share_host_memory(data, bytes);
    } catch (const simt::CudaError& error) {
      throw ConfigError(std::string(error.what()) + "; raise the limit of locked memory (ulimit -l), or share less");
    }
  }
  void unshare(void* data, std::size_t bytes) override { cuda_.unshare_host_memory(data, bytes); }
  void* import(const simt::CudaMemoryHandle& handle) override { return cuda_.import_memory(handle); }
  // To close it waits for every kernel, the engine's own too.
  void close_import(void* memory) override { closed_.push_back(memory); }

 private:
  simt::CudaBackend cuda_;
  CudaEngineMemory memory_{cuda_};
  std::vector<void*> closed_;
  simt::CudaBackend::Kernel kernel_ = 0;
};

}  // namespace

std::unique_ptr<EngineMachine> make_paced_machine(const DeviceConfig& config, const Clock& clock, FibrePace pace) {
  return std::make_unique<FibreMachine>(config.seed, clock, pace);
}

std::unique_ptr<EngineMachine> make_fibre_machine(const DeviceConfig& config, const Clock& clock) {
  return make_paced_machine(config, clock, {});
}

std::unique_ptr<EngineMachine> make_engine_machine(const DeviceConfig& config, const Clock& clock) {
  if (!clock.is_virtual() && simt::why_no_cuda().empty()) return std::make_unique<CudaMachine>();
  return make_fibre_machine(config, clock);
}

}  // namespace flashmob::gpu
