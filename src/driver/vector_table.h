// Interrupt handlers by vector, for devices of this room that call them on threads of their own.
//
// fire() and set() may run on any threads at once. When set() returns, the handler it replaced is not running and will
// not run again, unless set() was called from inside that very handler.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/check.h"

namespace flashmob::driver {

class VectorTable {
 public:
  static constexpr std::uint32_t kVectors = 2048;  // as many as MSI-X has

  VectorTable() : entries_(std::make_unique<Entry[]>(kVectors)) {}

  // An empty handler masks the vector.
  void set(std::uint16_t vector, std::function<void()> handler) {
    if (vector >= kVectors)
      throw ConfigError("interrupt vector " + std::to_string(vector) + ": there are vectors 0 to " +
                        std::to_string(kVectors - 1));
    std::shared_ptr<const std::function<void()>> next;
    if (handler) next = std::make_shared<const std::function<void()>>(std::move(handler));
    Entry& entry = entries_[vector];
    const std::lock_guard lock(entry.mutex);
    entry.set.store(next != nullptr, std::memory_order_release);
    entry.handler.swap(next);
  }

  void fire(std::uint16_t vector) {
    FLASHMOB_CHECK(vector < kVectors);  // creating a completion queue refuses others
    Entry& entry = entries_[vector];
    if (!entry.set.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(entry.mutex);
    // A copy, so that a handler that replaces itself does not free the function it is running.
    const auto handler = entry.handler;
    if (handler != nullptr) (*handler)();
  }

 private:
  struct Entry {
    std::atomic<bool> set{false};
    std::recursive_mutex mutex;  // a handler may mask its own vector
    std::shared_ptr<const std::function<void()>> handler;
  };

  std::unique_ptr<Entry[]> entries_;
};

}  // namespace flashmob::driver
