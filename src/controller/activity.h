// What a monitor may know of a controller: whose it is, and what it did so far.
//
// The engine's counters are safe to sum on the admin thread only, so a monitor asks and the admin thread publishes.
// A mutex inside, taken once per question: nothing here is on the way of a request.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "controller/queue_host.h"

namespace flashmob::controller {

struct ControllerActivity {
  std::string door;  // "vfio-user", "nvme-tcp"; empty where nobody said
  std::string host;  // a host NQN, a process
  std::uint64_t published_ns = 0;  // when the counters below were taken; 0: never
  IoCounters io;
};

class ActivityBoard {
 public:
  void set_host(std::string door, std::string host) {
    const std::lock_guard lock(mutex_);
    latest_.door = std::move(door);
    latest_.host = std::move(host);
  }
  void request() { wanted_.store(true, std::memory_order_release); }
  // True once for each request; the caller then publishes.
  bool take_request() { return wanted_.exchange(false, std::memory_order_acq_rel); }
  void publish(const IoCounters& io, std::uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    latest_.io = io;
    latest_.published_ns = now_ns;
  }
  ControllerActivity latest() const {
    const std::lock_guard lock(mutex_);
    return latest_;
  }

 private:
  std::atomic<bool> wanted_{false};
  mutable std::mutex mutex_;
  ControllerActivity latest_;
};

}  // namespace flashmob::controller
