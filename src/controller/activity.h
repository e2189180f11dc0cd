// What a monitor may know of a controller: whose it is, and what it did so far.
//
// A mutex inside, taken once per question: nothing here is on the way of a request.
#pragma once

#include <mutex>
#include <string>

#include "controller/queue_host.h"

namespace flashmob::controller {

struct ControllerActivity {
  std::string door;  // "vfio-user", "nvme-tcp"; empty where nobody said
  std::string host;  // a host NQN, a process
  IoCounters io;  // when an engine last forgot it
};

class ActivityBoard {
 public:
  void set_host(std::string door, std::string host) {
    const std::lock_guard lock(mutex_);
    latest_.door = std::move(door);
    latest_.host = std::move(host);
  }
  // Of an engine that knows nothing of the controller: nothing.
  void keep(const IoCounters& io) {
    const std::lock_guard lock(mutex_);
    latest_.io = IoCounters::larger(latest_.io, io);
  }
  ControllerActivity latest() const {
    const std::lock_guard lock(mutex_);
    return latest_;
  }

 private:
  mutable std::mutex mutex_;
  ControllerActivity latest_;
};

}  // namespace flashmob::controller
