// How long entries of a submission queue may have waited before they were fetched: a bound from looks at its doorbell.
//
// An entry came after the last look that did not show it, so its wait is at most the time from that look to its fetch.
// Entries that were seen but left behind keep the look before they were seen. One mark is held: where entries stay
// behind, those that come after it count from the look that set it, which is no later than the last one that did not
// show them. Compiles as CUDA device code. For the thread (or warp) that polls the queue.
#pragma once

#include <cstdint>

#include "base/platform.h"

namespace flashmob {

// Begins zeroed.
struct DoorbellWatch {
  std::uint64_t unseen_ns;       // a look no earlier than this showed nothing beyond the mark, or nothing at all
  std::uint64_t mark_unseen_ns;  // a look no earlier than this did not show the entries before the mark
  std::uint32_t mark;            // a tail that was seen
  bool marked;

  // A look at or after look_ns showed an empty queue. Told late, but before shows(), and without effect while entries
  // are left behind.
  FLASHMOB_HD void was_empty(std::uint64_t look_ns) {
    if (!marked && look_ns > unseen_ns) unseen_ns = look_ns;
  }
  // A look at or after now_ns showed `tail`, with entries to fetch.
  FLASHMOB_HD void shows(std::uint32_t tail, std::uint64_t now_ns) {
    if (marked) return;
    marked = true;
    mark = tail;
    mark_unseen_ns = unseen_ns;
    unseen_ns = now_ns;
  }
  // As of a look at look_ns, what is in the queue waits for its host, not for us: until then no wait counts.
  FLASHMOB_HD void waits_for_host(std::uint64_t look_ns) {
    marked = false;
    unseen_ns = look_ns;
  }
  // Of `count` entries that are being fetched from `head` on, how many were seen together as the oldest; `since_ns` is
  // the look that did not show them. After shows(); if fewer than `count`, shows() and this are called for the rest.
  FLASHMOB_HD std::uint32_t oldest(std::uint32_t head, std::uint32_t count, std::uint32_t entries,
                                   std::uint64_t& since_ns) {
    const std::uint32_t before_mark = mark >= head ? mark - head : mark + entries - head;
    since_ns = mark_unseen_ns;
    if (before_mark > count) return count;
    marked = false;
    return before_mark;
  }
};

}  // namespace flashmob
