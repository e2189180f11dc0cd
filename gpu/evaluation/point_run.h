// One point of the evaluation on any device: lays out queues and buffers, starts the engine, the service and the
// application, in this order, and ends them in the opposite one. Each wait has a deadline: what does not end in time is
// told to stop, and what does not stop either ends with an exception (StuckKernels).
// For one host thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "evaluation/evaluation.h"
#include "evaluation/random_reads.h"
#include "flashmob/config.h"
#include "flashmob/error.h"
#include "flashmob/gpu/engine/kernel.h"
#include "host/engine/device_engine.h"
#include "host/engine/queue_attachment.h"

namespace flashmob::gpu::evaluation {

// Kernels that do not end although they were told to. Their memory must not be freed.
struct StuckKernels : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How long things take on a device, and where data lie.
struct Surroundings {
  std::byte* media = nullptr;
  std::uint64_t step_ns = 10'000;  // between two looks of the waiting host
  std::uint32_t look_every_ns = 400;  // DeviceEngineOptions
  std::uint64_t patience_ns = 0;  // for a kernel to come up, or to end
  std::uint32_t resident_threads = 0;  // of the application; more take turns
  std::uint32_t sample_every = 1;
  // Shared memory of the engine's blocks and of all others, so that no two of the engine's, and none of the others,
  // share a multiprocessor with one. 0: they may.
  std::uint32_t engine_shared_bytes = 0;
  std::uint32_t other_shared_bytes = 0;
};

struct Measured {
  ReadAccount account;
  flashmob::engine::FidelityStats fidelity;
  std::uint64_t from_ns = 0;
  std::uint64_t until_ns = 0;
  std::uint32_t service_warps = 0;
  std::uint32_t at_once = 0;  // threads that have a read in flight, or wait for a slot, at the same time
};

TimingConfig timing_of(const PointOptions& options);
DeviceEngineOptions engine_options_of(const PointOptions& options, const Surroundings& around,
                                      std::uint64_t clock_start_ns);

template <class Device>
class PointRun {
 public:
  PointRun(Device& device, EngineMemory& memory, const Surroundings& around, const PointOptions& options)
      : device_(device),
        memory_(memory),
        around_(around),
        options_(options),
        engine_(memory, timing_of(options), engine_options_of(options, around, device.now_ns())) {}
  // After an exception kernels may still run.
  ~PointRun() {
    try {
      if (!kernels_.empty() && !is_stuck_) stop_all();
    } catch (const std::exception&) {
      is_stuck_ = true;
    }
  }
  PointRun(const PointRun&) = delete;
  PointRun& operator=(const PointRun&) = delete;

  Measured run() {
    lay_out();
    start_engine();
    start_service();
    start_application();
    watch();
    end();
    return collect();
  }

 private:
  using Kernel = typename Device::Kernel;
  static constexpr std::uint32_t kBlockThreads = 256;
  static constexpr std::uint64_t kWaitTimeoutNs = 10'000'000'000;  // of the application's commands

  template <class T>
  T* device_array(std::uint64_t count) {
    return static_cast<T*>(memory_.allocate_device(count * sizeof(T)));
  }

  void lay_out() {
    ArenaShape shape;
    shape.queues = options_.queues;
    shape.entries = options_.entries;
    shape.data_bytes = std::uint64_t{options_.threads} * options_.bytes;
    auto* const base = device_array<std::byte>(QueueArena(nullptr, shape).bytes() + kPageBytes);
    arena_ = QueueArena(base + (kPageBytes - reinterpret_cast<std::uintptr_t>(base) % kPageBytes) % kPageBytes, shape);
    completions_ = device_array<Completion>(options_.threads);
    account_ = device_array<ReadAccount>(1);
    const std::uint64_t blocks = options_.media_bytes / kBlockBytes;
    service_warps_ = options_.service_warps != 0 ? options_.service_warps : std::min(options_.queues, 512u);
    device_.run({.blocks = 8, .block_threads = 32}, PlaceQueues{}, arena_,
                NamespaceInfo{1, std::countr_zero(kBlockBytes), blocks}, ServiceMode::service, kWaitTimeoutNs);
    engine_.set_namespaces(
        {{{blocks, around_.media, 0, 1, 9, static_cast<std::uint8_t>(std::countr_zero(options_.bytes))}, false}},
        engine::kMaxTransferBytes, 1);
    engine_.set_regions({region_of(arena_, reinterpret_cast<std::uint64_t>(arena_.base()))});
    QueueAttachment(engine_, queues_of(arena_));
  }

  void start_engine() {
    const std::uint32_t epoch = engine_.commit();
    simt::Shape shape = engine_.shape();
    shape.shared_bytes = std::max(shape.shared_bytes, around_.engine_shared_bytes);
    kernels_.push_back(device_.launch(shape, engine::EngineKernel{}, engine_.ref()));
    until([&] { return engine_.taken_up(epoch); }, "the engine's blocks did not all get onto the GPU");
  }

  void start_service() {
    const std::uint32_t blocks = (service_warps_ + 7) / 8;
    const std::uint32_t warps = std::min(service_warps_, 8u);
    kernels_.push_back(device_.launch({blocks, warps * simt::kWarpLanes, around_.other_shared_bytes}, ServiceKernel{},
                                      arena_.service()));
    until([&] { return memory_.load_word(&arena_.control()->started.value) == blocks * warps; },
          "the service's blocks did not all get onto the GPU");
  }

  void start_application() {
    ReadPlan plan;
    plan.ssd = arena_.ssd();
    plan.bytes = options_.bytes;
    plan.sample_every = around_.sample_every;
    plan.span = options_.media_bytes / options_.bytes;
    plan.reads_each = reads_each();
    plan.seed = options_.seed;
    plan.buffers = arena_.data();
    plan.completions = completions_;
    plan.account = account_;
    plan.from_ns = measured_.from_ns = device_.now_ns() + options_.ramp_ns;
    plan.until_ns = measured_.until_ns = measured_.from_ns + options_.measure_ns;
    const std::uint32_t block = std::min(options_.threads, kBlockThreads);
    application_ = device_.launch({options_.threads / block, block, around_.other_shared_bytes}, RandomReads{}, plan);
    kernels_.push_back(application_);
  }

  // A grid that does not fit takes turns by block, so each thread must make way after its share; what all of them do
  // together lasts longer than the measured time.
  std::uint64_t reads_each() const {
    if (options_.threads <= around_.resident_threads) return UINT64_MAX;
    const double seconds = static_cast<double>(options_.ramp_ns + options_.measure_ns) * 1e-9;
    const double reads = 1.5 * seconds * std::min(options_.iops, 400e6);
    return static_cast<std::uint64_t>(reads / options_.threads) + 1;
  }

  // The engine's account changes to the measured time and beyond it with the application's.
  void watch() {
    pass_until(measured_.from_ns);
    engine_.set_phase(flashmob::engine::kMeasured);
    engine_.commit();
    pass_until(measured_.until_ns);
    engine_.set_phase(flashmob::engine::kAfterwards);
    const std::uint32_t epoch = engine_.commit();
    until([&] { return engine_.taken_up(epoch); }, "the engine does not answer");
    const std::uint64_t limit_ns = device_.now_ns() + around_.patience_ns;
    while (!device_.finished(application_) && device_.now_ns() < limit_ns) device_.pass(around_.step_ns);
    if (!device_.finished(application_)) fail("the application's threads did not end in time");
  }

  void end() {
    stop_service();
    engine_.end(engine::Run::drain);
    engine_.commit();
    wait_all();
  }

  Measured collect() {
    memory_.copy(&measured_.account, account_, sizeof(ReadAccount));
    measured_.fidelity = engine_.fidelity(flashmob::engine::kMeasured);
    measured_.service_warps = service_warps_;
    measured_.at_once = std::min(options_.threads, around_.resident_threads);
    return measured_;
  }

  void pass_until(std::uint64_t time_ns) {
    for (std::uint64_t now_ns = device_.now_ns(); now_ns < time_ns; now_ns = device_.now_ns())
      device_.pass(std::min(time_ns - now_ns, around_.step_ns));
  }

  template <class Condition>
  void until(const Condition& condition, const char* what) {
    const std::uint64_t limit_ns = device_.now_ns() + around_.patience_ns;
    while (!condition()) {
      if (device_.now_ns() >= limit_ns) fail(what);
      device_.pass(around_.step_ns);
    }
  }

  [[noreturn]] void fail(const std::string& what) {
    stop_all();
    throw std::runtime_error(what);
  }

  // At once, whatever is in flight.
  void stop_all() {
    memory_.store_word(&arena_.abort()->value, 1);
    stop_service();
    engine_.end(engine::Run::stop);
    engine_.commit();
    wait_all();
  }
  void stop_service() {
    memory_.store_word(reinterpret_cast<std::uint32_t*>(&arena_.control()->order.value),
                       static_cast<std::uint32_t>(ServiceOrder::stop));
  }

  void wait_all() {
    const std::uint64_t limit_ns = device_.now_ns() + around_.patience_ns;
    for (const Kernel kernel : kernels_) {
      while (!device_.finished(kernel)) {
        is_stuck_ = device_.now_ns() >= limit_ns;
        if (is_stuck_)
          throw StuckKernels("kernels do not end although they were told to; this process cannot use the GPU any more");
        device_.pass(around_.step_ns);
      }
    }
    for (const Kernel kernel : kernels_) device_.wait(kernel);
    kernels_.clear();
  }

  Device& device_;
  EngineMemory& memory_;
  const Surroundings around_;
  const PointOptions options_;
  DeviceEngine engine_;
  QueueArena arena_;
  Completion* completions_ = nullptr;
  ReadAccount* account_ = nullptr;
  std::vector<Kernel> kernels_;
  Kernel application_ = 0;
  bool is_stuck_ = false;
  std::uint32_t service_warps_ = 0;
  Measured measured_;
};

}  // namespace flashmob::gpu::evaluation
