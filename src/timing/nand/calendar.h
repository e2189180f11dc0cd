// A resource that serves one transfer at a time, with a calendar of what is promised: a channel, a link, firmware
// cores.
//
// Requests come in the order of their fetch but are ready in another, so a transfer takes the earliest time that is
// free after it is ready, also between transfers that were promised before it. Time is cut into buckets; a transfer
// fills the first buckets with room, and ends where its last part lies. What an idle resource gives is exact; beside
// others the end is exact to a bucket; what a bucket can carry is never exceeded, so neither is the resource's rate.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace flashmob::timing::nand {

class Calendar {
 public:
  static constexpr std::uint32_t kTicksPerNs = 64;
  static constexpr std::uint32_t kBucketShift = 8;  // 256 ns
  static constexpr std::uint32_t kBucketTicks = kTicksPerNs << kBucketShift;

  // `buckets` (a power of two) are how far ahead gaps are remembered; half of them must cover what a transfer may wait.
  explicit Calendar(std::uint32_t buckets = 16384) : slots_(buckets), mask_(buckets - 1) {
    FLASHMOB_CHECK(std::has_single_bit(buckets));
  }

  // Takes `ticks` (1/64 ns) of the resource, none before ready_ns, filling no bucket beyond `limit_ticks`. Returns when
  // the last part ends, at least `at_least_ns` after ready_ns.
  std::uint64_t reserve(std::uint64_t ready_ns, std::uint64_t ticks, std::uint64_t at_least_ns,
                        std::uint32_t limit_ticks = kBucketTicks) {
    const std::uint64_t first = ready_ns >> kBucketShift;
    // A backlog beyond the calendar is served in the order of arrival.
    if (ready_ns < overflow_ns_) return behind(ready_ns, ticks, at_least_ns);
    const std::uint64_t beyond = first + slots_.size() / 2;
    std::uint64_t bucket = first;
    while (true) {
      Slot& slot = at(bucket);
      if (slot.used < limit_ticks) {
        const auto part = static_cast<std::uint32_t>(std::min<std::uint64_t>(ticks, limit_ticks - slot.used));
        slot.used = static_cast<std::uint16_t>(slot.used + part);
        ticks -= part;
        if (ticks == 0) return std::max((bucket << kBucketShift) + slot.used / kTicksPerNs, ready_ns + at_least_ns);
      }
      bucket = next_with_room(bucket);
      if (bucket >= beyond) {
        overflow_ns_ = beyond << kBucketShift;
        return behind(ready_ns, ticks, at_least_ns);
      }
    }
  }

  void clear() {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    overflow_ns_ = 0;
    overflow_rest_ = 0;
  }

 private:
  // Eight bytes, so that eight buckets share a cache line. A slot whose tag is another bucket's is empty.
  struct Slot {
    std::uint32_t tag = ~0u;
    std::uint16_t used = 0;
    std::uint16_t skip = 1;  // a full bucket: how many from here to the next that may have room
  };

  Slot& at(std::uint64_t bucket) {
    Slot& slot = slots_[bucket & mask_];
    if (slot.tag != static_cast<std::uint32_t>(bucket)) slot = {static_cast<std::uint32_t>(bucket), 0, 1};
    return slot;
  }

  // Full buckets are jumped over; each look shortens the way of the next.
  std::uint64_t next_with_room(std::uint64_t bucket) {
    std::uint64_t next = bucket + at(bucket).skip;
    while (at(next).used == kBucketTicks && next - bucket < slots_.size() / 2) next += at(next).skip;
    if (Slot& slot = at(bucket); slot.used == kBucketTicks)
      slot.skip = static_cast<std::uint16_t>(std::min<std::uint64_t>(next - bucket, UINT16_MAX));
    return next;
  }

  std::uint64_t behind(std::uint64_t ready_ns, std::uint64_t ticks, std::uint64_t at_least_ns) {
    const std::uint64_t whole = ticks + overflow_rest_;
    overflow_ns_ += whole / kTicksPerNs;
    overflow_rest_ = static_cast<std::uint32_t>(whole % kTicksPerNs);
    return std::max(overflow_ns_, ready_ns + at_least_ns);
  }

  std::vector<Slot> slots_;
  std::uint64_t mask_;
  std::uint64_t overflow_ns_ = 0;
  std::uint32_t overflow_rest_ = 0;
};

static_assert(Calendar::kBucketTicks <= UINT16_MAX);

// How long `bytes` take at a rate, in the calendar's ticks.
inline std::uint64_t ticks_of(std::uint64_t bytes, std::uint64_t bytes_per_s) {
  return static_cast<std::uint64_t>(
      std::llround(static_cast<double>(bytes) * 1e9 * Calendar::kTicksPerNs / static_cast<double>(bytes_per_s)));
}

}  // namespace flashmob::timing::nand
