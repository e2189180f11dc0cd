// Buffers of rows on their way to the medium. A row leaves its buffer when its program ends, whatever began before it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "timing/nand/flash.h"

namespace flashmob::timing::nand {

// Thread rule: that of the Flash whose rows these are.
class RowSlots {
 public:
  explicit RowSlots(std::uint32_t slots) : slots_(slots) { leaving_.reserve(slots); }

  // Takes a buffer for a new row, for a request of now_ns; returns when it is free. So many other rows are being filled
  // and have theirs, fewer than there are buffers.
  std::uint64_t take(std::uint64_t now_ns, Flash& flash, std::uint32_t others = 0) {
    while (!leaving_.empty() && leaving_.front().end_ns <= now_ns) {
      if (flash.has_ended(leaving_.front().given, now_ns))
        pop();
      else
        put_back(flash.expected_end_ns(leaving_.front().given));
    }
    if (leaving_.size() + others + 1 <= slots_) return now_ns;
    // What was expected may have been put off since; it never comes sooner.
    while (true) {
      const std::uint64_t end_ns = flash.expected_end_ns(leaving_.front().given);
      if (end_ns > leaving_.front().end_ns) {
        put_back(end_ns);
        continue;
      }
      const std::uint64_t free_ns = std::max(now_ns, leaving_.front().end_ns);
      pop();
      return free_ns;
    }
  }

  // The row whose buffer was taken last is on its way.
  void put(const Given& given, const Flash& flash) {
    leaving_.push_back({flash.expected_end_ns(given), ++given_, given});
    std::ranges::push_heap(leaving_, ends_later);
  }

  void clear() { leaving_.clear(); }

 private:
  struct Leaving {
    std::uint64_t end_ns;  // as it was expected when it was last looked at
    std::uint64_t order;   // of those that end together the one given first leaves first
    Given given;
  };
  static bool ends_later(const Leaving& a, const Leaving& b) {
    return a.end_ns != b.end_ns ? a.end_ns > b.end_ns : a.order > b.order;
  }

  void pop() {
    std::ranges::pop_heap(leaving_, ends_later);
    leaving_.pop_back();
  }
  void put_back(std::uint64_t end_ns) {
    std::ranges::pop_heap(leaving_, ends_later);
    leaving_.back().end_ns = end_ns;
    std::ranges::push_heap(leaving_, ends_later);
  }

  std::uint32_t slots_;
  std::uint64_t given_ = 0;
  std::vector<Leaving> leaving_;  // a heap: the one that ends first stands in front
};

}  // namespace flashmob::timing::nand
