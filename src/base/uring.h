// The two rings of io_uring(7) that a process shares with the kernel. The three system calls are made here themselves:
// what we use of them is less than a library for them would ask of everyone who builds this.
//
// Needs Linux 5.6. One thread uses a ring.
#pragma once

#include <linux/io_uring.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace flashmob {

class Uring {
 public:
  // `params` as io_uring_setup(2) takes them. nullptr, with errno set, where the kernel or a container's rules refuse.
  static std::unique_ptr<Uring> make(std::uint32_t entries, io_uring_params params);
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  // Whether the kernel has yet to take an entry before there can be another.
  bool full() const {
    return tail_ + unsent_ - field(params_.sq_off.head).load(std::memory_order_acquire) >= params_.sq_entries;
  }
  // An empty entry, behind those that were handed out before; the ring must not be full.
  io_uring_sqe& next_entry() {
    const std::uint32_t at = (tail_ + unsent_++) & (params_.sq_entries - 1);
    field(params_.sq_off.array + at * std::uint32_t{sizeof(std::uint32_t)}).store(at, std::memory_order_relaxed);
    entries_[at] = {};
    return entries_[at];
  }
  // Shows the kernel all entries that were handed out. A thread of its own may take them from here on; else enter() has
  // them taken.
  void show();
  // How many are shown that enter() has not had taken.
  std::uint32_t untaken() const { return shown_; }
  // io_uring_enter(2) with all that is shown: what it returns, or a negative errno. The kernel takes fewer only while
  // it lacks memory or completions are not picked up; the rest goes with the next call.
  long enter(std::uint32_t least_completions, std::uint32_t flags);
  // Sleeps until there is a completion, a signal comes, or the time is over; false after a signal. Has nothing taken.
  bool await(std::uint64_t at_most_ns) const;
  // With a thread of the kernel's that looks for entries: everything shown is its own business, and whether it sleeps.
  void leave_to_thread() { shown_ = 0; }
  bool thread_sleeps() const;
  // io_uring_register(2): 0, or a negative errno.
  long enroll(unsigned operation, const void* argument, unsigned count);

  // Calls taker(cqe) for at most `most` completions; how many there were.
  template <class Taker>
  std::size_t reap(std::size_t most, Taker&& taker) {
    std::uint32_t head = field(params_.cq_off.head).load(std::memory_order_relaxed);
    const std::uint32_t tail = field(params_.cq_off.tail).load(std::memory_order_acquire);
    const auto* const cqes = reinterpret_cast<const io_uring_cqe*>(rings_ + params_.cq_off.cqes);
    std::size_t count = 0;
    for (; head != tail && count < most; ++head, ++count) taker(cqes[head & (params_.cq_entries - 1)]);
    field(params_.cq_off.head).store(head, std::memory_order_release);
    return count;
  }

 private:
  Uring(int ring, const io_uring_params& params) : ring_(ring), params_(params) {}
  bool map();
  void* map_part(std::size_t bytes, std::uint64_t offset);
  // Where one of the rings' fields lies, as the kernel says.
  std::atomic_ref<std::uint32_t> field(std::uint32_t offset) const {
    return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(rings_ + offset));
  }

  int ring_;
  io_uring_params params_;
  std::byte* rings_ = nullptr;
  std::size_t rings_bytes_ = 0;
  io_uring_sqe* entries_ = nullptr;
  std::uint32_t tail_ = 0;    // as the kernel was shown last
  std::uint32_t unsent_ = 0;  // entries beyond it
  std::uint32_t shown_ = 0;   // entries before it that the kernel has not taken
};

}  // namespace flashmob
