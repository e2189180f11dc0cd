// Which service a Gpu has, as GpuOptions::service says: a resident kernel, a thread of the host's (in virtual time an
// actor of the world), or the callers that wait. For the host thread that owns the Gpu.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "flashmob/gpu.h"
#include "flashmob/gpu/simt/host_lane.h"
#include "host/attach/ssd_queues.h"
#include "host/attach/virtual_ssd.h"
#include "host/service/service.h"

namespace flashmob::gpu {

class GpuService {
 public:
  // What is referred to outlives the service; `memory`, which the queues are of, holds what it shares with warps.
  // `world` nullptr: real time. Throws ConfigError: on a GPU no thread of the host's can be the service.
  GpuService(Gpu& gpu, VirtualWorld* world, const Clock& clock, const std::vector<SsdRef>& ssds, QueueMemory& memory);
  // Stops at once.
  ~GpuService();
  GpuService(const GpuService&) = delete;
  GpuService& operator=(const GpuService&) = delete;

  // Throws std::runtime_error if the resident kernel does not come up.
  void start();
  // At once; callers that wait take completions in from then on.
  void stop();
  // False, too, if the resident kernel has gone down with another kernel.
  bool running();

  // One look at all queues by the calling thread, where nobody else takes completions in.
  void help();
  // Waits until no command is in flight; false if that took longer.
  bool drain(std::uint64_t timeout_ns);
  // All but what is allocated. `lane` lets kernels go on while it waits.
  GpuStats stats(simt::HostLane& lane);

 private:
  bool is(const char* kind) const { return gpu_.options().service == kind; }
  bool on_gpu() const;
  // Of the service kernel.
  simt::Shape shape();
  void start_kernel();
  void end_kernel();
  bool await_idle(std::uint64_t timeout_ns);

  Gpu& gpu_;
  VirtualWorld* world_;
  Service service_;
  std::uint64_t kernel_ = 0;           // 0: none
  std::optional<std::size_t> actor_;   // of the virtual world
  bool started_ = false;
};

}  // namespace flashmob::gpu
