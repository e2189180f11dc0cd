#include "host/service/gpu_service.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "flashmob/error.h"

namespace flashmob::gpu {
namespace {

constexpr std::uint64_t kStartTimeoutNs = 10'000'000'000;

// On a GPU: more warps than queues have nothing to do, and so many for each multiprocessor take little of the GPU.
constexpr std::uint32_t kWarpsPerMultiprocessor = 2;
constexpr std::uint32_t kWarpsPerBlock = 8;

// A waiting host thread lets kernels have so much time before it looks again.
constexpr std::uint64_t kWaitStepNs = 1'000;

}  // namespace

GpuService::GpuService(Gpu& gpu, VirtualWorld* world, const Clock& clock, const std::vector<SsdRef>& ssds,
                       QueueMemory& memory)
    : gpu_(gpu), world_(world), service_(ssds, memory, clock) {
  if (is("host") && on_gpu())
    throw ConfigError(
        "gpu.service = \"host\" is not possible on a GPU: a host's thread and the GPU's would update the same words, "
        "which "
        "no bus makes atomic; use \"kernel\" or \"callers\"");
}

GpuService::~GpuService() {
  try {
    stop();
  } catch (const std::exception&) {
    // A kernel beside it has failed, and whoever waited for that one knows.
  }
}

bool GpuService::running() {
  if (!started_) return false;
  return kernel_ == 0 || !gpu_.visit([this](auto& device) { return device.finished(kernel_); });
}

void GpuService::start() {
  if (running()) return;
  kernel_ = 0;
  service_.set_mode(is("callers") ? ServiceMode::callers : ServiceMode::service);
  started_ = true;
  if (is("kernel"))
    start_kernel();
  else if (is("host") && world_ != nullptr)
    actor_ = world_->add_actor([this] { return service_.pass(); });
  else if (is("host"))
    service_.start_thread();
}

simt::Shape GpuService::shape() {
  const std::uint32_t queues = service_.ref().queue_count;
  const std::uint32_t asked = gpu_.options().service_blocks;
  if (asked != 0) return {.blocks = std::min(asked, queues), .block_threads = simt::kWarpLanes};
  const std::uint32_t warps = gpu_.visit([&]<class Device>(Device& device) -> std::uint32_t {
    if constexpr (std::is_same_v<Device, simt::CudaBackend>)
      return std::min(queues, kWarpsPerMultiprocessor * device.multiprocessors());
    else
      return 1;
  });
  const std::uint32_t each = std::min(warps, kWarpsPerBlock);
  return {.blocks = (warps + each - 1) / each, .block_threads = each * simt::kWarpLanes};
}

void GpuService::start_kernel() {
  const simt::Shape shape = this->shape();
  const std::uint32_t warps = shape.blocks * shape.block_threads / simt::kWarpLanes;
  service_.begin();
  kernel_ = gpu_.visit([&](auto& device) { return device.launch(shape, ServiceKernel{}, service_.ref()); });
  // In virtual time it needs no head start: it runs whenever others wait.
  if (world_ != nullptr) return;
  const std::uint64_t deadline_ns = gpu_.now_ns() + kStartTimeoutNs;
  while (service_.started() < warps) {
    if (gpu_.now_ns() >= deadline_ns) {
      const std::uint32_t started = service_.started();
      stop();
      throw std::runtime_error("the service kernel has not come up within 10 s: " + std::to_string(started) + " of " +
                               std::to_string(warps) + " warps have started");
    }
    gpu_.pass(kWaitStepNs);
  }
}

void GpuService::stop() {
  if (!std::exchange(started_, false)) return;
  service_.stop_thread(false);
  if (actor_) world_->remove_actor(*actor_);
  actor_.reset();
  end_kernel();
  service_.set_mode(ServiceMode::callers);
}

void GpuService::end_kernel() {
  const std::uint64_t kernel = std::exchange(kernel_, 0);
  if (kernel == 0) return;
  service_.stop();
  gpu_.visit([&](auto& device) {
    if (!device.finished(kernel)) device.wait(kernel);
  });
}

// On a GPU the words that guard a queue are for its threads alone.
bool GpuService::on_gpu() const { return gpu_.backend().backend == Backend::cuda; }

void GpuService::help() {
  if (on_gpu()) return;
  if (!running() || is("callers")) service_.pass();
}

bool GpuService::drain(std::uint64_t timeout_ns) {
  // Nobody on the GPU takes completions in when its kernels have ended: a service does for so long.
  const bool lends = on_gpu() && (kernel_ == 0 || !running()) && !service_.idle();
  if (!lends) return await_idle(timeout_ns);
  start_kernel();
  const bool idle = await_idle(timeout_ns);
  end_kernel();
  return idle;
}

bool GpuService::await_idle(std::uint64_t timeout_ns) {
  const std::uint64_t start_ns = gpu_.now_ns();
  while (!service_.idle()) {
    if (gpu_.now_ns() - start_ns >= timeout_ns) return false;
    help();
    gpu_.pass(kWaitStepNs);
  }
  return true;
}

GpuStats GpuService::stats(simt::HostLane& lane) {
  const QueueStats queues = service_.stats(lane);
  GpuStats out;
  out.now_ns = gpu_.now_ns();
  out.submitted = queues.submitted;
  out.completed = queues.completed;
  out.failed = queues.failed;
  out.in_flight = queues.in_flight;
  out.doorbells = queues.doorbells_rung;
  out.unexpected = queues.unexpected;
  out.service_passes = service_.passes();
  out.service = gpu_.options().service;
  out.service_running = running();
  return out;
}

}  // namespace flashmob::gpu
