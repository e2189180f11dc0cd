// What a Job keeps for each of its queues and for each command slot of a queue. Internal to src/load; for the job's
// thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/platform.h"
#include "driver/data_buffer.h"
#include "driver/queue_pair.h"
#include "load/arrivals.h"
#include "load/job.h"

namespace flashmob::load {

// A command slot; its index is the CID. None lies on two cache lines: with hundreds of thousands of requesters they
// come from far away.
struct alignas(32) Job::SlotState {
  std::uint64_t wanted_ns = 0;
  std::uint64_t waited_ns = 0;  // for this slot
  std::uint64_t first_sector = 0;
  std::uint32_t sectors = 0;
  IoKind kind = IoKind::read;
  bool held = false;        // the verifier holds its sectors
  bool unverified = false;  // held as a write (or deallocation) that nobody can vouch for
  bool verify = false;
  bool is_write() const { return kind == IoKind::write; }
};

struct alignas(kCacheLineBytes) Job::Queue {
  Queue(driver::QueuePair& queue_pair, Pattern requests, Rng places)
      : pattern(std::move(requests)), elsewhere(pattern), pair(queue_pair) {
    elsewhere.draw_from(places);
  }

  // Together first, because a simulation of many queues takes one completion from each in turn.
  Pattern pattern;
  Pattern elsewhere;  // other places, for requests that the verifier cannot hold where they were drawn
  alignas(kCacheLineBytes) driver::QueuePair& pair;
  SlotState* slots = nullptr;
  std::byte* buffers = nullptr;
  std::uint64_t buffers_iova = 0;
  std::uint64_t stride = 0;
  std::unique_ptr<driver::PrpLists> lists;
  std::uint64_t drawn = 0;  // requests, where some are held by the verifier
  MovedList moved;
  std::deque<std::uint64_t> backlog_ns;  // requests wanted, without a slot
  std::deque<std::uint64_t> waits_since_ns;  // when each of them found none; in a plain closed loop that is the same

  std::uint64_t requesters = 0;
  std::optional<Arrivals> arrivals;  // open loop
  double rate_iops = 0;
  std::vector<TraceIo> trace;
  std::size_t trace_next = 0;
  std::vector<std::uint16_t> free;        // command identifiers
  std::deque<std::uint64_t> thinking_ns;  // when each pausing requester will want its next
};

}  // namespace flashmob::load
