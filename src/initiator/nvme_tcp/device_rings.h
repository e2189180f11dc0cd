// The device's end of submission and completion rings in a host's memory (NVMe PCIe transport 1.0c, 3.1): what a door
// that plays a PCIe function in software reads commands from and posts completions to.
//
// One thread at a time per ring. Rings are reached through the reader's guard, for one access at a time, because the
// host may take their memory away; a ring that cannot be reached, or a doorbell out of range, ends in ok() == false.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "memory/address_space.h"
#include "nvme/command.h"

namespace flashmob::initiator {

inline std::uint32_t load_doorbell(std::uint32_t* doorbell) {
  return std::atomic_ref<std::uint32_t>(*doorbell).load(std::memory_order_acquire);
}

class SubmissionRing {
 public:
  SubmissionRing(std::uint64_t iova, std::uint32_t entries, std::uint32_t* tail_doorbell)
      : iova_(iova), entries_(entries), doorbell_(tail_doorbell) {}

  bool ok() const { return ok_; }
  std::uint32_t entries() const { return entries_; }
  std::uint16_t head() const { return static_cast<std::uint16_t>(head_); }
  // Looks at the doorbell; entries rung later do not exist until the next look. To be called before the reader's guard
  // is opened: what the host mapped before it rang is then in the guard's table. Inside a guard that is older than the
  // doorbell's value, a legal command's memory might be missing.
  void look() { tail_ = load_doorbell(doorbell_); }
  bool has_entry() const { return ok_ && tail_ != head_; }

  // Looks at the next entry without taking it: one copy of what the host may still be writing to.
  bool peek(memory::AddressSpace::Reader& reader, nvme::Sqe& out) {
    if (tail_ == head_) return false;
    const std::byte* entry = nullptr;
    if (tail_ < entries_) entry = reader.translate(iova_ + std::uint64_t{head_} * sizeof out, sizeof out, false);
    if (entry == nullptr) {
      ok_ = false;
      return false;
    }
    std::memcpy(&out, entry, sizeof out);
    asm volatile("" : : "r"(&out) : "memory");
    return true;
  }
  void take() {
    if (++head_ == entries_) head_ = 0;
  }

 private:
  std::uint64_t iova_;
  std::uint32_t entries_;
  std::uint32_t* doorbell_;
  std::uint32_t tail_ = 0;
  std::uint32_t head_ = 0;
  bool ok_ = true;
};

class CompletionRing {
 public:
  struct Interrupt {
    bool enabled = false;
    std::uint16_t vector = 0;
  };

  CompletionRing(std::uint64_t iova, std::uint32_t entries, std::uint32_t* head_doorbell, Interrupt interrupt)
      : iova_(iova), entries_(entries), doorbell_(head_doorbell), interrupt_(interrupt) {}

  bool ok() const { return ok_; }
  const Interrupt& interrupt() const { return interrupt_; }
  bool has_room() const {
    const std::uint32_t next = tail_ + 1 == entries_ ? 0 : tail_ + 1;
    return load_doorbell(doorbell_) != next;
  }

  // Posts one entry; there must be room. The phase tag of `entry` is filled in.
  void post(memory::AddressSpace::Reader& reader, nvme::Cqe entry) {
    std::byte* to = reader.translate(iova_ + std::uint64_t{tail_} * sizeof entry, sizeof entry, true);
    if (to == nullptr) {
      ok_ = false;
      return;
    }
    entry.status_phase = static_cast<std::uint16_t>((entry.status_phase & ~1u) | phase_);
    std::uint32_t words[4];
    std::memcpy(words, &entry, sizeof words);
    auto* at = reinterpret_cast<std::uint32_t*>(to);
    for (int i = 0; i < 3; ++i) std::atomic_ref<std::uint32_t>(at[i]).store(words[i], std::memory_order_relaxed);
    // The dword with the phase tag last: it says that the others are there.
    std::atomic_ref<std::uint32_t>(at[3]).store(words[3], std::memory_order_release);
    if (++tail_ == entries_) {
      tail_ = 0;
      phase_ ^= 1;
    }
    posted_ = true;
  }

  // True once after every round in which something was posted.
  bool take_posted() {
    const bool posted = posted_;
    posted_ = false;
    return posted;
  }

 private:
  std::uint64_t iova_;
  std::uint32_t entries_;
  std::uint32_t* doorbell_;
  Interrupt interrupt_;
  std::uint32_t tail_ = 0;
  std::uint32_t phase_ = 1;
  bool posted_ = false;
  bool ok_ = true;
};

}  // namespace flashmob::initiator
