// What doors add to commands that pass through a thread of theirs: from a command's arrival, of which looks at its
// socket give an upper bound, to its doorbell, and from its completion to the hands of the kernel. Any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <span>

#include "base/histogram.h"

namespace flashmob::engine {

class DoorDelays {
 public:
  // `path_ns`: what the model's latencies are shortened by, because the way takes it (TimingConfig::path_ns).
  explicit DoorDelays(std::uint64_t path_ns) : path_ns_(path_ns) {}

  void add(std::span<const std::uint64_t> delays_ns) {
    const std::lock_guard lock(mutex_);
    for (const std::uint64_t ns : delays_ns) delays_ns_.record(ns - std::min(ns, path_ns_));
  }
  // Since the engine was made.
  Histogram look() const {
    const std::lock_guard lock(mutex_);
    return delays_ns_;
  }

 private:
  const std::uint64_t path_ns_;
  mutable std::mutex mutex_;
  Histogram delays_ns_;
};

}  // namespace flashmob::engine
