// One die: reads in the order they come, programs and erases in the order they were given, one operation at a time.
//
// A read goes before every program that has not begun. A running one lets it pass after suspend_ns and ends later by
// what that took; without suspension the read waits for its end. Programs begin by themselves as time passes, so a die
// is brought up to date by whoever looks at it; nothing needs an event.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "timing/nand/params.h"

namespace flashmob::timing::nand {

class Die {
 public:
  // Reads pass the last `operations` programs and erases that wait; more than those are settled as they are.
  Die(const CellTimes& times, std::uint32_t operations)
      : suspend_ns_(times.suspend_ns), resume_ns_(times.resume_ns), waiting_(std::bit_ceil(operations)) {}

  // Senses a page for read_ns, not before ready_ns; returns when its data lie in the die's register.
  std::uint64_t read(std::uint64_t ready_ns, std::uint32_t read_ns) {
    std::uint64_t start = std::max(ready_ns, read_end_ns_);
    if (head_ != tail_) [[unlikely]]
      start = among_operations(ready_ns, start, read_ns);
    read_end_ns_ = start + read_ns;
    return read_end_ns_;
  }

  // A program or an erase, not before ready_ns. Returns its number on this die, the first is 1.
  std::uint64_t give(std::uint64_t ready_ns, std::uint32_t duration_ns) {
    // So many writes came at one time that more waits than the ring holds: the oldest is settled.
    if (tail_ - head_ == waiting_.size()) [[unlikely]]
      run_to(expected_end_ns(head_ + 1));
    waiting_[tail_ & (waiting_.size() - 1)] = {ready_ns, duration_ns};
    return ++tail_;
  }

  // Whether operation `number` has ended by now_ns.
  bool has_ended(std::uint64_t number, std::uint64_t now_ns) {
    run_to(now_ns);
    return head_ >= number;
  }

  // When operation `number` ends if no read comes between, which has not ended yet.
  std::uint64_t expected_end_ns(std::uint64_t number) const {
    std::uint64_t end = running_ ? running_end_ns_ : free_ns();
    for (std::uint64_t i = head_ + (running_ ? 1 : 0); i < number; ++i) {
      const Operation& next = waiting_[i & (waiting_.size() - 1)];
      end = std::max(end, next.ready_ns) + next.duration_ns;
    }
    return end;
  }

  // All that was given has ended, and time may begin anew.
  void forget_load() {
    head_ = tail_;
    running_ = false;
    read_end_ns_ = operation_end_ns_ = running_end_ns_ = 0;
  }

  std::uint64_t busy_ns() const { return operations_ns_; }

 private:
  struct Operation {
    std::uint64_t ready_ns = 0;
    std::uint32_t duration_ns = 0;
  };

  std::uint64_t free_ns() const { return std::max(read_end_ns_, operation_end_ns_); }

  // Begins and ends what is due by now_ns.
  void run_to(std::uint64_t now_ns) {
    while (head_ != tail_) {
      if (!running_) {
        const Operation& next = waiting_[head_ & (waiting_.size() - 1)];
        const std::uint64_t start = std::max(next.ready_ns, free_ns());
        if (start > now_ns) return;
        running_ = true;
        running_end_ns_ = start + next.duration_ns;
        operations_ns_ += next.duration_ns;
      }
      if (running_end_ns_ > now_ns) return;
      running_ = false;
      operation_end_ns_ = running_end_ns_;
      ++head_;
    }
  }

  std::uint64_t among_operations(std::uint64_t ready_ns, std::uint64_t start, std::uint32_t read_ns) {
    // What would begin at the very time of the read begins after it.
    if (start > 0) run_to(start - 1);
    if (!running_ || running_end_ns_ <= start) return start;
    if (suspend_ns_ == 0) return running_end_ns_;
    // Reads that come while the operation is suspended for another share that suspension.
    if (ready_ns < read_end_ns_) {
      running_end_ns_ += read_ns;
      return start;
    }
    running_end_ns_ += suspend_ns_ + read_ns + resume_ns_;
    return start + suspend_ns_;
  }

  std::uint64_t read_end_ns_ = 0;
  std::uint64_t operation_end_ns_ = 0;
  std::uint64_t running_end_ns_ = 0;
  std::uint64_t head_ = 0;  // operations that have ended
  std::uint64_t tail_ = 0;  // operations given
  std::uint32_t suspend_ns_;
  std::uint32_t resume_ns_;
  bool running_ = false;
  std::uint64_t operations_ns_ = 0;
  std::vector<Operation> waiting_;
};

}  // namespace flashmob::timing::nand
