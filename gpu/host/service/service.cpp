#include "host/service/service.h"

#include <algorithm>

#include "base/check.h"
#include "base/platform.h"

namespace flashmob::gpu {
namespace {

constexpr std::uint32_t kYieldFromNs = 500;

}  // namespace

Service::Service(const std::vector<SsdRef>& ssds, QueueMemory& memory, const Clock& clock)
    : clock_(clock), memory_(memory) {
  std::uint32_t most = 0;
  for (const SsdRef& ssd : ssds) most = std::max(most, ssd.queue_count());
  // The SSDs take turns, so that each warp's share of the queues is spread over all of them.
  for (std::uint32_t q = 0; q < most; ++q) {
    for (const SsdRef& ssd : ssds) {
      if (q >= ssd.queue_count()) continue;
      queues_.push_back(ssd.queue(q));
      views_.emplace_back(memory_, ssd.queue(q));
    }
  }
  ref_.control = put_near(memory_, std::vector<ServiceControl>(1));
  ref_.queues = put_near(memory_, queues_);
  ref_.queue_count = static_cast<std::uint32_t>(queues_.size());
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

void Service::set_mode(ServiceMode mode) {
  for (const QueueRef& queue : queues_) put_word(memory_, queue.get()->mode, mode);
}

void Service::begin() {
  put_word(memory_, ref_.control->order, ServiceOrder::serve);
  put_word(memory_, ref_.control->started, 0u);
  put_word(memory_, ref_.control->left, 0u);
}

std::uint32_t Service::started() { return get_word(memory_, ref_.control->started); }

void Service::drain() { put_word(memory_, ref_.control->order, ServiceOrder::drain); }

void Service::stop() { put_word(memory_, ref_.control->order, ServiceOrder::stop); }

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
  return std::all_of(views_.begin(), views_.end(), [&t](const QueueView& view) { return view.idle(t); });
}

QueueStats Service::stats(simt::HostLane& lane) {
  QueueStats sum;
  for (const QueueView& view : views_) sum += view.stats(lane);
  return sum;
}

std::uint64_t Service::passes() { return get_word(memory_, ref_.control->passes); }

}  // namespace flashmob::gpu
