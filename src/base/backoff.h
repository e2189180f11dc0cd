// Waits for what another thread, or a disk, does in a moment: politely, so that whoever it is has a core to do it on.
//
// First without leaving the core, then passing it on; where that takes as long as a time slice, or has been done often,
// asleep. A thread that passed its core on without end would be given one half of the time where somebody computes, and
// would keep it from the kernel's own threads that work for the disk.
#pragma once

#include <chrono>
#include <thread>

#include "base/platform.h"

namespace flashmob {

class Backoff {
 public:
  // `spins` is how often it looks before it leaves its core for the first time.
  explicit Backoff(unsigned spins = 256) : spins_(spins) {}

  void pause() {
    if (spins_ != 0) {
      --spins_;
      cpu_pause();
    } else if (yields_ != 0) {
      const auto before = std::chrono::steady_clock::now();
      std::this_thread::yield();
      yields_ = std::chrono::steady_clock::now() - before < kLongYield ? yields_ - 1 : 0;
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }

 private:
  static constexpr std::chrono::microseconds kLongYield{100}, kNap{50};

  unsigned spins_;
  unsigned yields_ = 64;
};

}  // namespace flashmob
