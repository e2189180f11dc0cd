#include "evaluation/evaluation.h"

#include <bit>
#include <functional>
#include <limits>
#include <map>

#include "evaluation/point_report.h"
#include "evaluation/point_run.h"
#include "flashmob/gpu/simt/cuda_library.h"
#include "flashmob/gpu/simt/fibre.h"
#include "flashmob/gpu/simt/threads.h"
#include "flashmob/gpu/simt/world.h"
#include "host/engine/cuda_engine_memory.h"
#include "load/result.h"

namespace flashmob::gpu::evaluation {
namespace {

constexpr std::uint32_t kMostThreads = 1u << 22;
constexpr std::uint32_t kMostBytes = 1u << 16;
constexpr std::uint32_t kBlockThreads = 256;

void require(bool good, const std::string& sentence) {
  if (!good) throw ConfigError(sentence);
}

// How long a run's last reads may take: those that wait for their turn behind all others.
std::uint64_t backlog_ns(const PointOptions& options) {
  return static_cast<std::uint64_t>(4e9 * options.threads / options.iops) + 10 * options.latency_ns;
}

// Leaves what is owned to the end of the process.
template <class T>
void abandon(std::unique_ptr<T>& owner) {
  [[maybe_unused]] T* const left = owner.release();
}

// Media that points share, filled once.
template <class Allocate>
class MediaShelf {
 public:
  explicit MediaShelf(Allocate allocate) : allocate_(std::move(allocate)) {}

  template <class Device>
  std::byte* get(Device& device, const std::string& media, std::uint64_t bytes) {
    Held& held = held_[media];
    if (held.bytes < bytes) {
      held.data = static_cast<std::byte*>(allocate_(media, bytes));
      device.run({.blocks = 32, .block_threads = 128}, FillMedia{}, held.data, bytes);
      held.bytes = bytes;
    }
    return held.data;
  }

 private:
  struct Held {
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
  };
  Allocate allocate_;
  std::map<std::string, Held> held_;
};

// On fibres in virtual time, or on threads.
class CpuEvaluation final : public Evaluation {
 public:
  explicit CpuEvaluation(bool is_virtual)
      : is_virtual_(is_virtual),
        media_([this](const std::string&, std::uint64_t bytes) { return media_memory_.allocate_device(bytes); }) {}

  std::string describe() const override { return load::cpu_model(); }
  std::uint32_t multiprocessors() const override { return 0; }
  double media_limit(const std::string&, std::uint64_t, std::uint32_t) override { return 0; }

  PointReport run(const PointOptions& options, const std::string& command) override {
    options.validate();
    Surroundings around;
    around.resident_threads = std::numeric_limits<std::uint32_t>::max();
    if (is_virtual_) {
      around.step_ns = 5'000;
      around.patience_ns = 20'000'000 + backlog_ns(options);
      simt::EmptyWorld world{1'000'000};
      simt::FibreDevice device(world, {.seed = options.seed, .schedule = simt::Schedule::timed});
      return run_on(device, around, options, command);
    }
    around.step_ns = 1'000'000;
    around.patience_ns = 60'000'000'000;
    simt::ThreadDevice device(Clock::real());
    return run_on(device, around, options, command);
  }

 private:
  template <class Device>
  PointReport run_on(Device& device, Surroundings around, const PointOptions& options, const std::string& command) {
    around.media = media_.get(device, options.media, options.media_bytes);
    HostEngineMemory memory;
    PointPlace place;
    place.backend = is_virtual_ ? "fibres" : "threads";
    place.device = describe();
    const Measured measured = PointRun<Device>(device, memory, around, options).run();
    return report_of(options, measured, place, command);
  }

  const bool is_virtual_;
  HostEngineMemory media_memory_;
  MediaShelf<std::function<void*(const std::string&, std::uint64_t)>> media_;
};

class CudaEvaluation final : public Evaluation {
 public:
  CudaEvaluation()
      : cuda_(std::make_unique<simt::CudaBackend>()),
        media_memory_(std::make_unique<CudaEngineMemory>(*cuda_)),
        media_([this](const std::string& media, std::uint64_t bytes) {
          return media == "host" ? media_memory_->allocate_shared(bytes) : media_memory_->allocate_device(bytes);
        }) {}

  std::string describe() const override { return cuda().describe(); }
  std::uint32_t multiprocessors() const override { return cuda().multiprocessors(); }

  PointReport run(const PointOptions& options, const std::string& command) override {
    options.validate();
    Surroundings around = surroundings(options);
    around.media = media_.get(cuda(), options.media, options.media_bytes);
    auto memory = std::make_unique<CudaEngineMemory>(cuda());
    PointPlace place;
    place.backend = "cuda";
    place.device = describe();
    place.multiprocessors = multiprocessors();
    try {
      cuda().check_clock();
      const Measured measured = PointRun<simt::CudaBackend>(cuda(), *memory, around, options).run();
      place.clock = cuda().check_clock();
      return report_of(options, measured, place, command);
    } catch (const StuckKernels&) {
      // Freeing anything would wait for them for ever.
      abandon(memory);
      abandon(media_memory_);
      abandon(cuda_);
      throw;
    }
  }

  double media_limit(const std::string& media, std::uint64_t media_bytes, std::uint32_t stripe_bytes) override {
    std::byte* const data = media_.get(cuda(), media, media_bytes);
    // As many warps as fit, and so much that starting them counts for nothing.
    constexpr std::uint32_t kThreadsEach = 2048;
    constexpr std::uint64_t kTotalBytes = std::uint64_t{8} << 30;
    const std::uint32_t blocks = multiprocessors() * kThreadsEach / kBlockThreads;
    const std::uint64_t warps = std::uint64_t{blocks} * kBlockThreads / simt::kWarpLanes;
    constexpr std::uint64_t kTogether = ReadStripes::kTogether;
    const std::uint64_t each = (kTotalBytes / (warps * stripe_bytes) / kTogether + 1) * kTogether;
    CudaEngineMemory sink_memory(cuda());
    auto* const sink = static_cast<std::byte*>(sink_memory.allocate_device(warps * stripe_bytes * kTogether));
    double best = 0;
    for (int round = 0; round < 3; ++round) {
      const std::uint64_t start_ns = cuda().now_ns();
      cuda().run({.blocks = blocks, .block_threads = kBlockThreads}, ReadStripes{}, data, media_bytes / stripe_bytes,
                 stripe_bytes, each, sink);
      const auto took_ns = static_cast<double>(cuda().now_ns() - start_ns);
      best = std::max(best, static_cast<double>(warps * each * stripe_bytes) / took_ns * 1e9);
    }
    return best;
  }

 private:
  // Throws if an earlier run has left kernels behind.
  simt::CudaBackend& cuda() const {
    if (!cuda_)
      throw std::runtime_error("an earlier run's kernels did not end; this process cannot use the GPU any more");
    return *cuda_;
  }

  Surroundings surroundings(const PointOptions& options) const {
    Surroundings around;
    around.step_ns = 200'000;
    around.patience_ns = 10'000'000'000 + backlog_ns(options);
    around.sample_every = 13;
    around.look_every_ns = DeviceEngineOptions().look_every_ns;
    // A block of the engine's takes all of its multiprocessor's shared memory, and every other block a little.
    around.engine_shared_bytes = cuda().most_shared_bytes();
    around.other_shared_bytes = 1024;
    const simt::Shape shape{1, kBlockThreads, around.other_shared_bytes};
    const std::uint32_t all = multiprocessors();
    const std::uint32_t blocks_each = cuda().resident_blocks<RandomReads>(shape) / all;
    // The service's warps take as much as threads of the application.
    const std::uint32_t left = all > options.units ? all - options.units : 0;
    const std::uint32_t others = std::min(options.queues, 512u) * simt::kWarpLanes;
    const std::uint32_t most = left * blocks_each * kBlockThreads;
    around.resident_threads = most > others ? most - others : 0;
    return around;
  }

  std::unique_ptr<simt::CudaBackend> cuda_;
  std::unique_ptr<CudaEngineMemory> media_memory_;
  MediaShelf<std::function<void*(const std::string&, std::uint64_t)>> media_;
};

}  // namespace

void PointOptions::validate() const {
  require(threads >= 1 && threads <= kMostThreads && (threads <= kBlockThreads || threads % kBlockThreads == 0),
          "threads must be 1...4194304, above 256 a multiple of 256");
  require(queues >= 1 && queues <= 4096, "queues must be 1...4096");
  require(entries >= 2 && entries <= 65536, "entries must be 2...65536");
  require(std::has_single_bit(bytes) && bytes >= kBlockBytes && bytes <= kMostBytes,
          "bytes must be a power of two from 512 to 65536");
  require(media == "device" || media == "host", "media must be device or host");
  require(media_bytes >= bytes, "media_bytes must hold one read at least");
  require(measure_ns >= 1 && measure_ns <= 60'000'000'000 && ramp_ns <= 60'000'000'000,
          "measure_ns must be 1 to 60 s, ramp_ns at most 60 s");
  require(service_warps <= 4096 && (service_warps <= 8 || service_warps % 8 == 0),
          "service_warps must be at most 4096, above 8 a multiple of 8");
  timing_of(*this).validate();
}

TimingConfig timing_of(const PointOptions& options) {
  TimingConfig timing;
  timing.read_iops = timing.write_iops = options.iops;
  timing.read_latency_ns = timing.write_latency_ns = options.latency_ns;
  timing.unit_bytes = options.bytes;
  timing.per_request_updates = options.per_request_updates;
  return timing;
}

DeviceEngineOptions engine_options_of(const PointOptions& options, const Surroundings& around,
                                      std::uint64_t clock_start_ns) {
  DeviceEngineOptions engine;
  engine.units = options.units;
  engine.movers = options.movers;
  // Room for all that can be in flight in a unit.
  const std::uint64_t commands =
      std::min<std::uint64_t>(std::uint64_t{options.queues} * options.entries, options.threads) / options.units * 2;
  engine.slots = static_cast<std::uint32_t>(std::bit_ceil(std::clamp<std::uint64_t>(commands, 64, 1u << 18)));
  engine.look_every_ns = around.look_every_ns;
  engine.clock_start_ns = clock_start_ns;
  engine.fetch_batch = options.fetch_batch;
  engine.statistics = options.statistics;
  return engine;
}

std::unique_ptr<Evaluation> Evaluation::open(const std::string& backend) {
  if (backend == "cuda") return std::make_unique<CudaEvaluation>();
  require(backend == "fibres" || backend == "threads", "backend must be cuda, fibres or threads");
  return std::make_unique<CpuEvaluation>(backend == "fibres");
}

}  // namespace flashmob::gpu::evaluation
