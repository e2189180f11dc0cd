// When the next completion is to be expected, for a driver that wants to sleep until just before it.
//
// Requests of one direction and size class (powers of two) are taken to complete in the order in which they were
// submitted; of how long they take, a low quantile is kept, so that whoever sleeps until then is seldom late. All in
// constant time and without allocation. For one thread; pure functions of the times that it is told.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace flashmob::load {

// A quantile of a stream, followed in steps of its usual distance (M. Ma et al., "Frugal streaming", 2013, with steps
// that adapt): where the stream stands still, so does the estimate; where it moves, a few dozen samples suffice.
class RunningQuantile {
 public:
  explicit RunningQuantile(double quantile) : quantile_(quantile) {}

  void note(std::uint64_t sample_ns) {
    const auto sample = static_cast<double>(sample_ns);
    if (count_ == 0) estimate_ = sample;
    const double distance = sample - estimate_;
    // What is far beyond counts as far, not as how far: one stall of a second must not be remembered for minutes.
    const double usual = std::max(distance_, estimate_ / 64);
    distance_ += (std::min(distance < 0 ? -distance : distance, 8 * usual) - distance_) / 16;
    estimate_ +=
        distance < 0 ? std::max(distance, -distance_ * (1 - quantile_)) : std::min(distance, distance_ * quantile_);
    ++count_;
  }
  bool knows() const { return count_ >= kEnough; }
  std::uint64_t estimate_ns() const { return static_cast<std::uint64_t>(std::max(estimate_, 0.0)); }
  // How far from the estimate samples usually are.
  std::uint64_t distance_ns() const { return static_cast<std::uint64_t>(distance_); }

 private:
  static constexpr std::uint64_t kEnough = 16;

  double quantile_;
  double estimate_ = 0;
  double distance_ = 0;
  std::uint64_t count_ = 0;
};

class CompletionPredictor {
 public:
  static constexpr std::uint64_t kNever = UINT64_MAX;
  // With more in flight something completes all the time, and nobody should sleep.
  static constexpr std::uint64_t kMostInFlight = 4096;

  // What is read, written, and all else (IoKind); so many requests are in flight at most.
  static constexpr std::size_t kKinds = 3;
  explicit CompletionPredictor(std::uint64_t most_in_flight) : is_crowded_(most_in_flight > kMostInFlight) {
    const std::uint64_t places = std::bit_ceil(std::max<std::uint64_t>(1, std::min(most_in_flight, kMostInFlight)));
    mask_ = static_cast<std::uint32_t>(places - 1);
    if (!is_crowded_) submitted_ns_.resize(kClasses * places);
  }

  void submitted(std::size_t kind, std::uint32_t sectors, std::uint64_t now_ns) {
    if (is_crowded_) return;
    const std::size_t index = class_of(kind, sectors);
    Class& one = classes_[index];
    submitted_ns_[index * (mask_ + 1) + (one.submitted++ & mask_)] = now_ns;
    with_any_ |= std::uint64_t{1} << index;
    ++in_flight_;
  }
  void completed(std::size_t kind, std::uint32_t sectors, std::uint64_t now_ns) {
    if (is_crowded_) return;
    const std::size_t index = class_of(kind, sectors);
    Class& one = classes_[index];
    const std::uint64_t since_ns = oldest_ns(index);
    one.takes.note(now_ns > since_ns ? now_ns - since_ns : 0);
    --in_flight_;
    if (++one.completed == one.submitted) with_any_ &= ~(std::uint64_t{1} << index);
  }

  struct Expected {
    std::uint64_t due_ns = kNever;  // 0: it cannot be told; kNever: nothing is in flight
    std::uint64_t takes_ns = 0;     // from its submission
    std::uint64_t spread_ns = 0;    // by how much such requests usually miss their time
    std::uint64_t in_flight = 0;    // requests of all classes
  };
  // The next completion.
  Expected next() const {
    if (is_crowded_) return {.due_ns = 0};
    Expected next;
    for (std::uint64_t left = with_any_; left != 0; left &= left - 1) {
      const auto index = static_cast<std::size_t>(std::countr_zero(left));
      const RunningQuantile& takes = classes_[index].takes;
      if (!takes.knows()) return {.due_ns = 0};
      const std::uint64_t due_ns = oldest_ns(index) + takes.estimate_ns();
      if (due_ns < next.due_ns) next = {due_ns, takes.estimate_ns(), takes.distance_ns(), in_flight_};
    }
    return next;
  }

 private:
  static constexpr std::size_t kSizes = 16;
  static constexpr std::size_t kClasses = kKinds * kSizes;
  static_assert(kClasses <= 64);
  static constexpr double kQuantile = 0.2;

  struct Class {
    RunningQuantile takes{kQuantile};
    std::uint32_t submitted = 0, completed = 0;
  };
  static std::size_t class_of(std::size_t kind, std::uint32_t sectors) {
    return kind * kSizes + std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(sectors)), kSizes - 1);
  }
  std::uint64_t oldest_ns(std::size_t index) const {
    return submitted_ns_[index * (mask_ + 1) + (classes_[index].completed & mask_)];
  }

  const bool is_crowded_;
  std::uint32_t mask_ = 0;
  std::uint64_t in_flight_ = 0;
  std::uint64_t with_any_ = 0;  // the classes that have any, a bit each
  Class classes_[kClasses];
  std::vector<std::uint64_t> submitted_ns_;  // of each class' requests in flight, in a ring
};

}  // namespace flashmob::load
