#include "driver/interrupt_table.h"

#include <string>
#include <utility>

#include "base/check.h"

namespace flashmob::driver {

InterruptTable::InterruptTable(std::uint32_t vectors)
    : vectors_(vectors), entries_(std::make_unique<Entry[]>(vectors)) {}

void InterruptTable::set(std::uint16_t vector, std::function<void()> handler) {
  if (vector >= vectors_)
    throw ConfigError("interrupt vector " + std::to_string(vector) + ": the device has vectors 0 to " +
                      std::to_string(vectors_ - 1));
  std::shared_ptr<const std::function<void()>> next;
  if (handler) next = std::make_shared<const std::function<void()>>(std::move(handler));
  Entry& entry = entries_[vector];
  const std::lock_guard lock(entry.mutex);
  entry.set.store(next != nullptr, std::memory_order_release);
  entry.handler.swap(next);
}

void InterruptTable::fire(std::uint16_t vector) {
  FLASHMOB_CHECK(vector < vectors_);  // Create I/O Completion Queue refuses vectors that do not exist
  Entry& entry = entries_[vector];
  if (!entry.set.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(entry.mutex);
  // A copy, so that a handler that replaces itself does not free the function it is running.
  const auto handler = entry.handler;
  if (handler != nullptr) (*handler)();
}

}  // namespace flashmob::driver
