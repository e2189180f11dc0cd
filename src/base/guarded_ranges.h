// Ranges of memory whose pages may be gone when they are touched, as a signal handler looks them up: no lock, and no
// range is ever freed, so the list may be walked at any moment. Free ones are used again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace flashmob {

struct GuardedRange {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};  // 0: free
  std::atomic<std::size_t> page_bytes{0};
  std::atomic<bool> hit{false};  // a page of it was gone
  GuardedRange* next = nullptr;
};

// For objects of static storage that are never destroyed. add() and remove() on any thread.
class GuardedRanges {
 public:
  GuardedRange* add(const void* begin, std::size_t bytes, std::size_t page_bytes) {
    const std::lock_guard lock(mutex_);
    GuardedRange* range = nullptr;
    if (!free_.empty()) {
      range = free_.back();
      free_.pop_back();
    } else {
      free_.reserve(free_.capacity() + 1);  // so that remove() need not allocate
      range = new GuardedRange;
      range->next = first_.load(std::memory_order_relaxed);
      first_.store(range, std::memory_order_release);
    }
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    range->begin.store(address, std::memory_order_relaxed);
    range->page_bytes.store(page_bytes, std::memory_order_relaxed);
    range->hit.store(false, std::memory_order_relaxed);
    range->end.store(address + bytes, std::memory_order_release);
    return range;
  }
  // Before the memory is unmapped.
  void remove(GuardedRange* range) {
    const std::lock_guard lock(mutex_);
    range->end.store(0, std::memory_order_release);
    free_.push_back(range);
  }
  // Safe in signal handlers. nullptr: none holds it.
  GuardedRange* find(std::uintptr_t address) const {
    for (GuardedRange* range = first_.load(std::memory_order_acquire); range != nullptr; range = range->next) {
      if (address < range->end.load(std::memory_order_acquire) &&
          address >= range->begin.load(std::memory_order_relaxed))
        return range;
    }
    return nullptr;
  }

 private:
  std::atomic<GuardedRange*> first_{nullptr};
  std::mutex mutex_;
  std::vector<GuardedRange*> free_;
};

}  // namespace flashmob
