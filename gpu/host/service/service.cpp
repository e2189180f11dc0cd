#include "host/service/service.h"

#include <new>

#include "base/check.h"
#include "base/platform.h"

namespace flashmob::gpu {
namespace {

constexpr std::uint32_t kYieldFromNs = 500;

}  // namespace

Service::Service(const std::vector<SsdRef>& ssds, QueueMemory& memory, const Clock& clock) : clock_(clock) {
  std::uint32_t count = 0;
  for (const SsdRef& ssd : ssds) count += ssd.queue_count();
  ref_.control = new (memory.allocate(sizeof(ServiceControl))) ServiceControl();
  auto* queues = reinterpret_cast<QueueRef*>(memory.allocate(count * sizeof(QueueRef)));
  ref_.queues = queues;
  // The SSDs take turns, so that each warp's share of the queues is spread over all of them.
  for (std::uint32_t q = 0; ref_.queue_count < count; ++q) {
    for (const SsdRef& ssd : ssds) {
      if (q < ssd.queue_count()) new (queues + ref_.queue_count++) QueueRef(ssd.queue(q));
    }
  }
}

Service::~Service() { stop_thread(false); }

// Spins for short pauses and gives the core away for longer ones.
simt::HostLane Service::lane() const {
  return simt::HostLane([this] { return clock_.now_ns(); },
                        [](std::uint32_t ns) {
                          if (ns >= kYieldFromNs)
                            std::this_thread::yield();
                          else
                            cpu_pause();
                        });
}

void Service::begin() {
  simt::HostLane t = lane();
  ref_.control->order.store(t, ServiceOrder::serve);
  ref_.control->started.store(t, 0);
  ref_.control->left.store(t, 0);
}

std::uint32_t Service::started() {
  simt::HostLane t = lane();
  return ref_.control->started.load(t);
}

void Service::drain() {
  simt::HostLane t = lane();
  ref_.control->order.store(t, ServiceOrder::drain);
}

void Service::stop() {
  simt::HostLane t = lane();
  ref_.control->order.store(t, ServiceOrder::stop);
}

bool Service::pass() {
  simt::HostLane t = lane();
  ref_.control->passes.fetch_add(t, 1, simt::Order::relaxed);
  bool any = false;
  while (ref_.pass(t, 1, 0, 1) != 0) any = true;
  return any;
}

void Service::start_thread() {
  FLASHMOB_CHECK(!thread_.joinable());
  begin();
  thread_ = std::thread([this] {
    simt::HostLane t = lane();
    ref_.serve(t, 1);
  });
}

void Service::stop_thread(bool drained) {
  if (!thread_.joinable()) return;
  if (drained)
    drain();
  else
    stop();
  thread_.join();
}

bool Service::idle() {
  simt::HostLane t = lane();
  return ref_.idle(t, 0, 1);
}

QueueStats Service::stats() {
  simt::HostLane t = lane();
  QueueStats sum;
  for (std::uint32_t i = 0; i < ref_.queue_count; ++i) sum += ref_.queues[i].stats(t);
  return sum;
}

std::uint64_t Service::passes() {
  simt::HostLane t = lane();
  return ref_.control->passes.load(t, simt::Order::relaxed);
}

}  // namespace flashmob::gpu
