// The least that a host can do with NVMe queue pairs: write entries, ring, reap. And the least that a device can: fetch
// them, decide a target that nobody waits for, post completions. What a frontend costs stands between the two.
//
// No data, no checks, no statistics. Each end is for one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/platform.h"
#include "nvme/command.h"
#include "nvme/opcode.h"

namespace flashmob::bench {

// What both ends know of one queue pair.
struct RingPair {
  nvme::Sqe* sq;
  nvme::Cqe* cq;
  std::uint32_t* sq_doorbell;
  std::uint32_t* cq_doorbell;
  std::uint32_t entries;  // of each ring
};

// Each on a line of its own, as no bound should do worse.
struct PaddedDoorbells {
  alignas(kCacheLineBytes) std::uint32_t sq = 0;
  alignas(kCacheLineBytes) std::uint32_t cq = 0;
};

// Keeps `depth` reads of one block in flight on each pair, on random blocks of the first 2^24, which must be there.
class RingHost {
 public:
  // How many completions it reaps, and how many entries it writes, in one turn at a queue.
  static constexpr std::uint32_t kTurn = 128;

  RingHost(const std::vector<RingPair>& pairs, std::uint32_t depth, std::uint64_t buffer_iova) : depth_(depth) {
    for (const RingPair& pair : pairs) {
      Queue queue{pair, {}, 0, 0, 0, 1};
      for (std::uint32_t cid = 0; cid < depth; ++cid) queue.free_ids.push_back(static_cast<std::uint16_t>(cid));
      queues_.push_back(std::move(queue));
      for (std::uint32_t i = 0; i < pair.entries; ++i) {
        pair.sq[i] = {};
        pair.sq[i].opcode = static_cast<std::uint8_t>(nvme::NvmOpcode::read);
        pair.sq[i].nsid = 1;
        pair.sq[i].prp1 = buffer_iova;
      }
    }
  }

  // One turn at each queue; returns how many completions were reaped. With `submits` false it only reaps.
  std::uint32_t poll(bool submits = true) {
    std::uint32_t reaped = 0;
    for (Queue& queue : queues_) {
      reaped += reap(queue);
      if (submits) submit(queue);
    }
    return reaped;
  }

  std::uint64_t in_flight() const {
    std::uint64_t sum = 0;
    for (const Queue& queue : queues_) sum += queue.in_flight;
    return sum;
  }

 private:
  struct alignas(kCacheLineBytes) Queue {
    RingPair pair;
    std::vector<std::uint16_t> free_ids;  // those from in_flight on are free
    std::uint32_t in_flight;
    std::uint32_t tail;
    std::uint32_t head;
    std::uint32_t phase;
  };

  static std::uint32_t reap(Queue& queue) {
    const RingPair& pair = queue.pair;
    std::uint32_t count = 0;
    while (count < kTurn) {
      auto* const last = reinterpret_cast<std::uint32_t*>(&pair.cq[queue.head]) + 3;
      const std::uint32_t dw3 = std::atomic_ref<std::uint32_t>(*last).load(std::memory_order_acquire);
      if (((dw3 >> 16) & 1) != queue.phase) break;
      queue.free_ids[--queue.in_flight] = static_cast<std::uint16_t>(dw3);
      if (++queue.head == pair.entries) {
        queue.head = 0;
        queue.phase ^= 1;
      }
      ++count;
    }
    if (count != 0) std::atomic_ref<std::uint32_t>(*pair.cq_doorbell).store(queue.head, std::memory_order_release);
    return count;
  }

  void submit(Queue& queue) {
    const RingPair& pair = queue.pair;
    std::uint32_t count = 0;
    for (; queue.in_flight < depth_ && count < kTurn; ++count) {
      random_ ^= random_ << 13;
      random_ ^= random_ >> 7;
      random_ ^= random_ << 17;
      nvme::Sqe& sqe = pair.sq[queue.tail];
      sqe.cid = queue.free_ids[queue.in_flight++];
      sqe.cdw10 = static_cast<std::uint32_t>(random_) & 0xFFFFFF;
      if (++queue.tail == pair.entries) queue.tail = 0;
    }
    if (count != 0) std::atomic_ref<std::uint32_t>(*pair.sq_doorbell).store(queue.tail, std::memory_order_release);
  }

  std::vector<Queue> queues_;
  const std::uint32_t depth_;
  std::uint64_t random_ = 88'172'645'463'325'252;
};

// The other end of the same rings, of a device that could be no quicker.
class RingBound {
 public:
  explicit RingBound(const std::vector<RingPair>& pairs) {
    for (const RingPair& pair : pairs) queues_.push_back({pair, 0, 0, 1});
  }

  // One turn at each queue; returns how many entries were taken.
  std::uint32_t poll(std::uint64_t now) {
    std::uint32_t taken = 0;
    for (std::size_t i = 0; i < queues_.size(); ++i) taken += serve(queues_[i], static_cast<std::uint16_t>(i + 1), now);
    return taken;
  }

  // So that what is computed has a reader.
  std::uint64_t sum() const { return sum_; }

 private:
  static constexpr std::uint32_t kTurn = 256;
  static constexpr std::uint32_t kAhead = 8;

  struct alignas(kCacheLineBytes) Queue {
    RingPair pair;
    std::uint32_t head;
    std::uint32_t cq_tail;
    std::uint32_t phase;
  };

  // Targets are those of one instance at a unit a nanosecond, whatever the engine's model has: more of them are more to
  // look up, and this is to be the least.
  std::uint32_t serve(Queue& queue, std::uint16_t sqid, std::uint64_t now) {
    const RingPair& pair = queue.pair;
    const std::uint32_t tail = std::atomic_ref<std::uint32_t>(*pair.sq_doorbell).load(std::memory_order_acquire);
    std::uint64_t busy_until = busy_until_, sum = sum_;
    std::uint32_t count = 0;
    for (; queue.head != tail && count < kTurn; ++count) {
      const std::uint32_t ahead = queue.head + kAhead;
      __builtin_prefetch(&pair.sq[ahead < pair.entries ? ahead : ahead - pair.entries]);
      const nvme::Sqe& sqe = pair.sq[queue.head];
      if (++queue.head == pair.entries) queue.head = 0;
      busy_until = (busy_until > now ? busy_until : now) + 1;
      sum += busy_until + sqe.cdw10 % 2;
      post(queue, sqe.cid, sqid);
    }
    busy_until_ = busy_until;
    sum_ = sum;
    return count;
  }

  void post(Queue& queue, std::uint16_t cid, std::uint16_t sqid) {
    using Words [[gnu::vector_size(16), gnu::may_alias]] = std::uint64_t;
    const std::uint64_t upper =
        queue.head | (std::uint32_t{sqid} << 16) | (std::uint64_t{cid} << 32) | (std::uint64_t{queue.phase} << 48);
    *reinterpret_cast<volatile Words*>(&queue.pair.cq[queue.cq_tail]) = Words{0, upper};
    if (++queue.cq_tail == queue.pair.entries) {
      queue.cq_tail = 0;
      queue.phase ^= 1;
    }
  }

  std::vector<Queue> queues_;
  std::uint64_t busy_until_ = 0;
  std::uint64_t sum_ = 0;
};

}  // namespace flashmob::bench
