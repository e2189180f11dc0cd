// The host's side of the completion service (flashmob/gpu/service.h): the orders that a service kernel follows, and the
// service that runs on the host itself, on a thread in real time or as an actor of the virtual world.
//
// For one host thread; the service's own thread is inside. The queues must outlive it. A service kernel is launched by
// whoever owns the device: device.launch({.blocks = n}, ServiceKernel{}, service.ref()), after begin().
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "flashmob/gpu/service.h"
#include "flashmob/gpu/simt/host_lane.h"
#include "flashmob/gpu/ssd.h"
#include "host/attach/ssd_queues.h"

namespace flashmob::gpu {

class Service {
 public:
  // Completions of all queues of all these SSDs. `clock` and `memory`, which the queues are of, outlive the service.
  Service(const std::vector<SsdRef>& ssds, QueueMemory& memory, const Clock& clock);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // For kernels; what it refers to is theirs, and host code may not see it.
  ServiceRef ref() const { return ref_; }
  // While nobody waits.
  void set_mode(ServiceMode mode);

  // --- Orders to a service kernel ---
  // Before the kernel is launched.
  void begin();
  // Warps that have begun, since begin(): on a GPU, kernels that wait for I/O are launched when all have.
  std::uint32_t started();
  // The kernel ends once nothing is in flight, or at once; then wait for it.
  void drain();
  void stop();

  // --- A service on the host, which sees the queues ---
  // Looks at all queues until there is nothing new; true if anything was done. For VirtualWorld::add_actor().
  bool pass();
  // Real time: a thread of its own, until stop_thread(), which lets commands in flight end first if `drained`.
  void start_thread();
  void stop_thread(bool drained);

  // True if no queue has a command that is published and not complete.
  bool idle();
  // Sums over all queues. `lane` lets kernels go on while it waits.
  QueueStats stats(simt::HostLane& lane);
  // Looks at all queues, of warps and threads that have ended and of pass().
  std::uint64_t passes();

 private:
  simt::HostLane lane() const;

  const Clock& clock_;
  QueueMemory& memory_;
  ServiceRef ref_;
  std::vector<QueueRef> queues_;  // those of ref_
  std::vector<QueueView> views_;  // of the same
  std::thread thread_;
};

}  // namespace flashmob::gpu
