// How submission queues take turns under weighted round robin with an urgent class (NVMe Base 2.0c, 3.4.4.2): for the
// dispatchers of both engines, on the host and on a GPU.
//
// Queues stand in an order, and a class is a run of them. The urgent class is asked first, and no other as long as that
// has anything; the three others then share each round by their weights. Within a class queues take turns, burst by
// burst. Pure; compiles as CUDA device code. For one thread or lane at a time.
#pragma once

#include <cstdint>

#include "base/platform.h"

namespace flashmob {

// Urgent, high, medium and low, as Create I/O Submission Queue numbers them (QPRIO).
inline constexpr std::uint32_t kPriorityClasses = 4;

struct PriorityClass {
  std::uint32_t first = 0;  // place of its first queue
  std::uint32_t count = 0;
  std::uint32_t next = 0;  // whose turn it is, counted from the first
  std::uint32_t credits = 0;  // commands in each round
  std::uint32_t left = 0;  // of those, in this round
};

// Credits of a class: the weights are 0's based. `urgent` are as many commands as one round may take of that class.
FLASHMOB_HD constexpr std::uint32_t credits_of(std::uint32_t priority, std::uint32_t urgent, std::uint8_t high_weight,
                                               std::uint8_t medium_weight, std::uint8_t low_weight) {
  if (priority == 0) return urgent;
  return (priority == 1 ? high_weight : priority == 2 ? medium_weight : low_weight) + 1u;
}

// One class's part of a round. `serve(place, limit)` takes up to `limit` commands of the queue at that place and says
// how many; a queue that had none is not asked again before another had some. True if any were taken.
template <class Serve>
FLASHMOB_HD bool serve_class(PriorityClass& group, std::uint32_t burst, Serve&& serve) {
  const std::uint32_t before = group.left;
  for (std::uint32_t empty_visits = 0; group.left != 0 && empty_visits < group.count;) {
    const std::uint32_t taken = serve(group.first + group.next, burst < group.left ? burst : group.left);
    group.next = group.next + 1 == group.count ? 0 : group.next + 1;
    group.left -= taken;
    empty_visits = taken == 0 ? empty_visits + 1 : 0;
  }
  return group.left != before;
}

// The classes' turns: urgent commands leave nothing for the others. True if any were taken.
template <class Serve>
FLASHMOB_HD bool serve_by_weights(PriorityClass* classes, std::uint32_t burst, Serve&& serve) {
  classes[0].left = classes[0].credits;
  if (serve_class(classes[0], burst, serve)) return true;
  bool any = false;
  for (std::uint32_t priority = 1; priority < kPriorityClasses; ++priority)
    any |= serve_class(classes[priority], burst, serve);
  return any;
}

// The next round: everybody has had what is due to them, or wanted no more.
FLASHMOB_HD inline void begin_round(PriorityClass* classes) {
  for (std::uint32_t priority = 1; priority < kPriorityClasses; ++priority)
    classes[priority].left = classes[priority].credits;
}

}  // namespace flashmob
