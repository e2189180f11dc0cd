// A resource that serves one transfer at a time, with a calendar of what is promised: a channel, a link, firmware
// cores.
//
// Requests come in the order of their fetch but are ready in another, so a transfer takes the earliest time that is
// free after it is ready, also between transfers that were promised before it. Time is cut into buckets; a transfer
// fills the first buckets with room, and ends where its last part lies. What an idle resource gives is exact; beside
// others the end is exact to a bucket; what a bucket can carry is never exceeded, so neither is the resource's rate.
//
// A backlog may be longer than what the calendar remembers. It is then served in the order of arrival, at the rate that
// its kind may have: transfers within the share wait behind each other, and others take what those leave.
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

  // `buckets` (a power of two) are how far ahead gaps are remembered; half of them must cover by how much transfers are
  // ready in another order than they come.
  // `share_ticks`: what transfers that may not have all of the resource leave nothing of in a bucket.
  explicit Calendar(std::uint32_t buckets = 16384, std::uint32_t share_ticks = kBucketTicks)
      : slots_(buckets),
        ways_(share_ticks < kBucketTicks ? buckets : 0),
        mask_(buckets - 1),
        share_ticks_(share_ticks) {
    FLASHMOB_CHECK(std::has_single_bit(buckets));
  }

  // Takes `ticks` (1/64 ns) of the resource, none before ready_ns. Returns when the last part ends, at least
  // `at_least_ns` after ready_ns.
  std::uint64_t reserve(std::uint64_t ready_ns, std::uint64_t ticks, std::uint64_t at_least_ns) {
    return take<false>(ready_ns, ticks, at_least_ns);
  }
  // The same within the share: no bucket is filled beyond it.
  std::uint64_t reserve_share(std::uint64_t ready_ns, std::uint64_t ticks, std::uint64_t at_least_ns) {
    return share_ticks_ < kBucketTicks ? take<true>(ready_ns, ticks, at_least_ns)
                                       : take<false>(ready_ns, ticks, at_least_ns);
  }

  void clear() {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    std::fill(ways_.begin(), ways_.end(), Way{});
    all_end_ = share_end_ = {};
  }

 private:
  // Eight bytes, so that eight buckets share a cache line. A slot whose tag is another bucket's is empty.
  struct Slot {
    std::uint32_t tag = ~0u;
    std::uint16_t used = 0;
    std::uint16_t skip = 1;  // a full bucket: how many from here to the next that may have room
  };
  // What `skip` is to transfers within the share; apart, because most never look at it.
  struct Way {
    std::uint32_t tag = ~0u;
    std::uint16_t skip = 1;
  };

  // Where the backlog beyond the calendar ends: nothing before `bucket` is left of it, and `used` of it is taken.
  struct End {
    std::uint64_t bucket = 0;
    std::uint32_t used = 0;
  };

  template <bool kShare>
  std::uint64_t take(std::uint64_t ready_ns, std::uint64_t ticks, std::uint64_t at_least_ns) {
    const std::uint32_t limit_ticks = kShare ? share_ticks_ : kBucketTicks;
    const std::uint64_t first = ready_ns >> kBucketShift;
    const std::uint64_t beyond = first + slots_.size() / 2;
    std::uint64_t bucket = std::max(first, end_of<kShare>().bucket);
    if (bucket >= beyond) return behind<kShare>(ready_ns, ticks, at_least_ns, beyond);
    while (true) {
      Slot& slot = at(bucket);
      if (slot.used < limit_ticks) {
        const auto part = static_cast<std::uint32_t>(std::min<std::uint64_t>(ticks, limit_ticks - slot.used));
        slot.used = static_cast<std::uint16_t>(slot.used + part);
        ticks -= part;
        if (ticks == 0) return std::max((bucket << kBucketShift) + slot.used / kTicksPerNs, ready_ns + at_least_ns);
      }
      bucket = next_with_room<kShare>(bucket, limit_ticks, beyond);
      if (bucket >= beyond) return behind<kShare>(ready_ns, ticks, at_least_ns, beyond);
    }
  }

  Slot& at(std::uint64_t bucket) {
    Slot& slot = slots_[bucket & mask_];
    if (slot.tag != static_cast<std::uint32_t>(bucket))
      slot = {static_cast<std::uint32_t>(bucket), static_cast<std::uint16_t>(backlog_in(bucket)), 1};
    return slot;
  }

  template <bool kShare>
  End& end_of() {
    return kShare ? share_end_ : all_end_;
  }

  // What the backlog takes of a bucket. Each end counts all that was taken there before.
  std::uint32_t backlog_in(std::uint64_t bucket) const {
    const auto taken = [bucket](const End& end, std::uint32_t limit_ticks) {
      return bucket < end.bucket ? limit_ticks : bucket == end.bucket ? end.used : 0;
    };
    return std::max(taken(all_end_, kBucketTicks), taken(share_end_, share_ticks_));
  }

  template <bool kShare>
  std::uint16_t& skip_of(std::uint64_t bucket) {
    if constexpr (!kShare) {
      return at(bucket).skip;
    } else {
      Way& way = ways_[bucket & mask_];
      if (way.tag != static_cast<std::uint32_t>(bucket)) way = {static_cast<std::uint32_t>(bucket), 1};
      return way.skip;
    }
  }

  // Full buckets are jumped over. Who has looked leaves a short way to all on it, so that a look costs no more than
  // what was filled since, however long the backlog is.
  template <bool kShare>
  std::uint64_t next_with_room(std::uint64_t bucket, std::uint32_t limit_ticks, std::uint64_t beyond) {
    std::uint64_t next = bucket + skip_of<kShare>(bucket);
    // Beyond, a look would take a slot away from what lies behind.
    while (next < beyond && at(next).used >= limit_ticks) next += skip_of<kShare>(next);
    while (bucket < next && at(bucket).used >= limit_ticks) {
      std::uint16_t& skip = skip_of<kShare>(bucket);
      const std::uint16_t step = skip;
      skip = static_cast<std::uint16_t>(std::min<std::uint64_t>(next - bucket, UINT16_MAX));
      bucket += step;
    }
    return next;
  }

  // Buckets in which others were promised something keep it; no slot is taken away from what lies before.
  template <bool kShare>
  std::uint64_t behind(std::uint64_t ready_ns, std::uint64_t ticks, std::uint64_t at_least_ns, std::uint64_t beyond) {
    const std::uint32_t limit_ticks = kShare ? share_ticks_ : kBucketTicks;
    End& end = end_of<kShare>();
    std::uint64_t bucket = std::max({beyond, end.bucket, all_end_.bucket});
    while (true) {
      Slot& slot = slots_[bucket & mask_];
      const bool is_kept = slot.tag == static_cast<std::uint32_t>(bucket);
      std::uint32_t used = is_kept ? slot.used : backlog_in(bucket);
      const std::uint64_t part = std::min<std::uint64_t>(ticks, limit_ticks - std::min(limit_ticks, used));
      used += static_cast<std::uint32_t>(part);
      ticks -= part;
      if (is_kept) slot.used = static_cast<std::uint16_t>(used);
      if (ticks == 0) {
        end = {bucket, used};
        return std::max((bucket << kBucketShift) + used / kTicksPerNs, ready_ns + at_least_ns);
      }
      ++bucket;
    }
  }

  std::vector<Slot> slots_;
  std::vector<Way> ways_;
  std::uint64_t mask_;
  std::uint32_t share_ticks_;
  End all_end_;
  End share_end_;
};

static_assert(Calendar::kBucketTicks <= UINT16_MAX);

// How long `bytes` take at a rate, in the calendar's ticks.
inline std::uint64_t ticks_of(std::uint64_t bytes, std::uint64_t bytes_per_s) {
  return static_cast<std::uint64_t>(
      std::llround(static_cast<double>(bytes) * 1e9 * Calendar::kTicksPerNs / static_cast<double>(bytes_per_s)));
}

}  // namespace flashmob::timing::nand
