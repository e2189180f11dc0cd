// A submission queue as its dispatcher sees it and a completion queue as its worker sees it, laid out by cache line.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/doorbell_watch.h"
#include "base/platform.h"
#include "controller/controller.h"
#include "engine/slab.h"
#include "nvme/command.h"

namespace flashmob::engine {

struct PortContext;  // a controller as one thread sees it: port.h

// First line: everything that polling and fetching touch. `head` is written by the dispatcher and read by the worker
// for the SQHD field.
struct alignas(kCacheLineBytes) Sq {
  std::uint32_t* doorbell = nullptr;  // BAR tail doorbell, or the shadow doorbell
  const nvme::Sqe* ring = nullptr;    // nullptr: the ring's memory is not mapped (any more)
  std::uint32_t entries = 0;
  std::atomic<std::uint32_t> head{0};
  std::uint32_t bad_tail = 0xFFFFFFFFu;  // last invalid doorbell value, so that it is reported once
  Slot fused_first = kNoSlot;            // first half of a fused pair whose second half has not been seen
  std::uint16_t sqid = 0;
  std::uint16_t index = 0;  // in the worker's table
  controller::QueuePriority priority = controller::QueuePriority::medium;
  bool admin = false;
  bool is_limited = false;  // its controller has a rate
  std::uint32_t* event_index = nullptr;  // Doorbell Buffer Config: where we say which tail we have seen
  PortContext* port = nullptr;           // the dispatcher's view of the controller
  // What counts against its controller's share of its worker's slots, all its queues together. The dispatcher's.
  std::uint32_t* slots_held = nullptr;

  // Second line: once per fetch, or cold.
  alignas(kCacheLineBytes) std::uint64_t iova = 0;
  std::uint32_t* bar_doorbell = nullptr;
  controller::Controller* controller = nullptr;
  DoorbellWatch watch{};  // how long the entries that are fetched may have waited
  std::uint64_t lost_since_ns = 0;  // when the first of its commands was fetched that a fault has swallowed
  std::uint32_t lost = 0;           // such commands
  bool noted_unfetched = false;     // it is about to go, and what is left in it has been dated
  std::uint16_t cqid = 0;
  std::uint16_t worker = 0;
};
static_assert(offsetof(Sq, iova) == kCacheLineBytes);

struct alignas(kCacheLineBytes) Cq {
  nvme::Cqe* ring = nullptr;
  std::uint32_t entries = 0;
  std::uint32_t tail = 0;
  std::uint32_t free = 0;  // entries that may be posted before the head must be read again
  std::uint32_t head = 0;  // last head seen
  std::uint16_t phase = 1;
  bool interrupts_enabled = false;
  bool dirty = false;             // in the worker's list of queues that got entries in this round
  std::uint32_t* head_doorbell = nullptr;
  Slot overflow_first = kNoSlot;  // completed requests that found the queue full, oldest first
  Slot overflow_last = kNoSlot;

  // Second line: interrupts and cold.
  alignas(kCacheLineBytes) std::uint64_t iova = 0;
  std::uint64_t coalescing_since_ns = 0;
  std::uint64_t full_ns = 0;  // the last look that found no room for what waits in the overflow list
  std::uint32_t coalesced = 0;  // entries posted since the last interrupt
  std::uint32_t bad_head = 0xFFFFFFFFu;
  std::uint32_t* bar_doorbell = nullptr;
  std::uint32_t* event_index = nullptr;
  controller::Controller* controller = nullptr;
  PortContext* port = nullptr;
  std::uint16_t cqid = 0;
  std::uint16_t vector = 0;
};

}  // namespace flashmob::engine
