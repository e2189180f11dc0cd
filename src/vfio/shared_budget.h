// Something that the process has only so much of, and its clients share: each may have at most as much as is then left
// for all others, so that however many take what they can, there is some for the next.
//
// Any thread.
#pragma once

#include <atomic>
#include <cstddef>

namespace flashmob::vfio {

class SharedBudget {
 public:
  explicit SharedBudget(std::size_t total) : left_(total) {}

  // One more for a client that has `held`; false if that is its share.
  bool take(std::size_t held) {
    std::size_t left = left_.load(std::memory_order_relaxed);
    do {
      if (left <= held) return false;
    } while (!left_.compare_exchange_weak(left, left - 1, std::memory_order_relaxed));
    return true;
  }
  void give_back(std::size_t count = 1) { left_.fetch_add(count, std::memory_order_relaxed); }

 private:
  std::atomic<std::size_t> left_;
};

// Mappings of memory that clients share with this process: a third of what the kernel allows it, because one that is
// cut short becomes two.
SharedBudget& client_mappings();
// Descriptors that clients leave with this process: half of its limit.
SharedBudget& client_descriptors();

}  // namespace flashmob::vfio
