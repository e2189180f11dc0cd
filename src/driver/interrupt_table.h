// Interrupt handlers by vector: what stands between whoever raises interrupts and a host in the same process. For the
// in-process door, and for initiators whose own threads play the device's part.
//
// fire() and set() may run on any threads at once, unless the table was told that there is only one. When set()
// returns, the handler it replaced is not running and will not run again, unless set() was called from inside that very
// handler. A handler may therefore use whatever its owner frees after masking the vector, and must not wait for a
// thread that is inside set() of the same vector.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/platform.h"

namespace flashmob::driver {

class InterruptTable {
 public:
  // `one`: all of fire() and set() happen on one thread, as under a virtual clock, where at 100 million IOPS almost
  // every command raises an interrupt: then nothing locks, and no atomic operation makes stores under way be waited
  // for.
  enum class Threads { any, one };

  explicit InterruptTable(std::uint32_t vectors, Threads threads = Threads::any);
  InterruptTable(const InterruptTable&) = delete;
  InterruptTable& operator=(const InterruptTable&) = delete;

  std::uint32_t vectors() const { return vectors_; }
  // An empty handler masks the vector. Throws ConfigError where the table has no such vector.
  void set(std::uint16_t vector, std::function<void()> handler);
  // Calls the vector's handler, if there is one. Free of locks for masked vectors and with one thread; otherwise one
  // lock that only set() of the same vector contends for.
  void fire(std::uint16_t vector);

 private:
  using Handler = std::unique_ptr<const std::function<void()>>;

  struct alignas(kCacheLineBytes) Entry {
    std::atomic<bool> set{false};
    std::uint32_t running = 0;  // calls of handlers that have not returned
    Handler handler;
    std::vector<Handler> replaced;  // by themselves, while running
    // Recursive, because a handler may mask its own vector.
    std::recursive_mutex mutex;
  };

  std::unique_lock<std::recursive_mutex> lock(Entry& entry) const;

  std::uint32_t vectors_;
  Threads threads_;
  std::unique_ptr<Entry[]> entries_;
};

}  // namespace flashmob::driver
