// What happens next, of many events: a queue by time whose cost does not grow with how many wait.
//
// A radix heap: an event lies in a bucket by the highest group of bits in which its time differs from the time that was
// reached last, and by its value there. The earliest non-empty bucket is dealt out anew when its turn comes, so that an
// event moves a few times, among its neighbours in memory, instead of once for each level of a tree. Buckets keep the
// order in which events came.
//
// Times may not go back: nothing is pushed that is earlier than what was popped last. For one thread.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"

namespace flashmob::load {

// Event has at_ns. Events of one time come out in the order in which they were pushed.
template <typename Event>
class EventQueue {
 public:
  bool empty() const { return count_ == 0; }

  void clear() {
    for (auto& level : levels_)
      for (Bucket& bucket : level) give_up(bucket);
    filled_ = {};
    reached_ns_ = first_ = count_ = 0;
    next_ns_ = kUnknown;
  }

  void push(const Event& event) {
    FLASHMOB_CHECK(event.at_ns >= reached_ns_);
    put(event);
    ++count_;
    if (event.at_ns < next_ns_ && next_ns_ != kUnknown) next_ns_ = event.at_ns;
  }

  // When the earliest one happens. Not of an empty queue. Does not reach that time yet: until pop(), earlier ones may
  // still be pushed.
  std::uint64_t next_ns() {
    if (next_ns_ != kUnknown) return next_ns_;
    FLASHMOB_CHECK(count_ != 0);
    std::size_t level = 0;
    while (filled_[level] == 0) ++level;
    const Bucket& bucket = levels_[level][earliest(level)];
    if (level == 0) return bucket.back().at_ns;  // of one time, all of them
    for (const Event& event : bucket) next_ns_ = event.at_ns < next_ns_ ? event.at_ns : next_ns_;
    return next_ns_;
  }

  // The earliest one. Not of an empty queue.
  Event pop() {
    if (filled_[0] == 0) deal_out();
    Bucket& bucket = levels_[0][earliest(0)];
    const Event event = bucket[first_];
    reached_ns_ = event.at_ns;
    next_ns_ = kUnknown;
    --count_;
    if (++first_ == bucket.size()) {
      filled_[0] &= filled_[0] - 1;
      bucket.clear();
      first_ = 0;
    }
    return event;
  }

  // In no order that means anything, but in the same one for the same pushes.
  template <typename F>
  void for_each(F&& f) const {
    for (std::size_t level = 0; level < kLevels; ++level) {
      for (std::uint64_t left = filled_[level]; left != 0; left &= left - 1) {
        const auto index = static_cast<std::size_t>(std::countr_zero(left));
        const Bucket& bucket = levels_[level][index];
        const bool is_begun = level == 0 && index == earliest(0);
        for (std::size_t i = is_begun ? first_ : 0; i < bucket.size(); ++i) f(bucket[i]);
      }
    }
  }

 private:
  static constexpr unsigned kBits = 6;  // of a group: one word says which of a level's buckets are filled
  static constexpr std::size_t kLevels = (64 + kBits - 1) / kBits;
  static constexpr std::uint64_t kUnknown = UINT64_MAX;
  static constexpr std::size_t kBuckets = std::size_t{1} << kBits;
  using Bucket = std::vector<Event>;

  static std::size_t digit(std::uint64_t at_ns, std::size_t level) { return (at_ns >> (kBits * level)) % kBuckets; }
  std::size_t earliest(std::size_t level) const { return static_cast<std::size_t>(std::countr_zero(filled_[level])); }

  void put(const Event& event) {
    const std::uint64_t differs = event.at_ns ^ reached_ns_;
    const std::size_t level = differs == 0 ? 0 : (63 - static_cast<std::size_t>(std::countl_zero(differs))) / kBits;
    const std::size_t index = digit(event.at_ns, level);
    Bucket& bucket = levels_[level][index];
    if (bucket.capacity() == 0 && !spare_.empty()) {
      bucket = std::move(spare_.back());
      spare_.pop_back();
    }
    filled_[level] |= std::uint64_t{1} << index;
    bucket.push_back(event);
  }

  // Its memory serves whichever bucket is filled next: there are more of them than are ever full.
  void give_up(Bucket& bucket) {
    bucket.clear();
    if (bucket.capacity() != 0) spare_.push_back(std::exchange(bucket, {}));
  }

  // Deals out the earliest bucket, until the earliest events are in one of level 0, which are of one time each.
  void deal_out() {
    FLASHMOB_CHECK(count_ != 0);
    while (filled_[0] == 0) {
      std::size_t level = 1;
      while (filled_[level] == 0) ++level;
      const std::size_t index = earliest(level);
      filled_[level] &= filled_[level] - 1;
      dealt_.swap(levels_[level][index]);
      // The first moment of this bucket; what it holds differs from it in lower groups only.
      const std::uint64_t below = (std::uint64_t{1} << (kBits * level)) - 1;
      reached_ns_ = dealt_.front().at_ns & ~below;
      for (const Event& event : dealt_) put(event);
      give_up(dealt_);
    }
  }

  std::array<std::array<Bucket, kBuckets>, kLevels> levels_;
  std::array<std::uint64_t, kLevels> filled_{};
  std::vector<Bucket> spare_;
  Bucket dealt_;
  std::uint64_t reached_ns_ = 0;
  std::uint64_t next_ns_ = kUnknown;
  std::size_t first_ = 0;  // of the earliest bucket of level 0, what was not popped yet
  std::uint64_t count_ = 0;
};

}  // namespace flashmob::load
