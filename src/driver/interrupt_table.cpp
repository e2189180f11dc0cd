#include "driver/interrupt_table.h"

#include <string>
#include <utility>

#include "base/check.h"

namespace flashmob::driver {

InterruptTable::InterruptTable(std::uint32_t vectors, Threads threads)
    : vectors_(vectors), threads_(threads), entries_(std::make_unique<Entry[]>(vectors)) {}

inline std::unique_lock<std::recursive_mutex> InterruptTable::lock(Entry& entry) const {
  if (threads_ == Threads::one) return {};
  return std::unique_lock(entry.mutex);
}

void InterruptTable::set(std::uint16_t vector, std::function<void()> handler) {
  if (vector >= vectors_)
    throw ConfigError("interrupt vector " + std::to_string(vector) + ": the device has vectors 0 to " +
                      std::to_string(vectors_ - 1));
  Handler next;
  if (handler) next = std::make_unique<const std::function<void()>>(std::move(handler));
  Entry& entry = entries_[vector];
  const auto held = lock(entry);
  entry.set.store(next != nullptr, std::memory_order_release);
  entry.handler.swap(next);
  // A handler that replaces itself must not free the function it is running.
  if (entry.running != 0) entry.replaced.push_back(std::move(next));
}

void InterruptTable::fire(std::uint16_t vector) {
  FLASHMOB_CHECK(vector < vectors_);  // Create I/O Completion Queue refuses vectors that do not exist
  Entry& entry = entries_[vector];
  if (!entry.set.load(std::memory_order_acquire)) return;
  const auto held = lock(entry);
  if (entry.handler == nullptr) return;
  ++entry.running;
  (*entry.handler)();
  if (--entry.running == 0 && !entry.replaced.empty()) [[unlikely]]
    entry.replaced.clear();
}

}  // namespace flashmob::driver
