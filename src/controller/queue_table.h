// Which I/O queues of a controller exist, which SQ feeds which CQ, and how many the host was granted.
//
// Changed by the admin thread only; exists() and interrupting() may be asked by any thread (a trapped doorbell write, a
// door's interrupt line).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "controller/queue_host.h"

namespace flashmob::controller {

class QueueTable {
 public:
  enum class State : std::uint8_t { none, creating, ready, deleting };

  explicit QueueTable(std::uint32_t max_pairs);

  // Any thread. Identifier 0 is the admin pair.
  bool sq_exists(std::uint32_t qid) const {
    return qid <= max_pairs_ && sqs_[qid].load(std::memory_order_acquire) != State::none;
  }
  bool cq_exists(std::uint32_t qid) const {
    return qid <= max_pairs_ && cqs_[qid].load(std::memory_order_acquire) != State::none;
  }
  // I/O submission queues that exist, counted one by one.
  std::uint32_t io_sq_count() const {
    std::uint32_t count = 0;
    for (std::uint32_t qid = 1; qid <= max_pairs_; ++qid) count += sq_exists(qid) ? 1 : 0;
    return count;
  }

  State sq(std::uint16_t qid) const { return sqs_[qid].load(std::memory_order_relaxed); }
  State cq(std::uint16_t qid) const { return cqs_[qid].load(std::memory_order_relaxed); }
  void set_sq(std::uint16_t qid, State state) { set(sqs_[qid], state); }
  void set_cq(std::uint16_t qid, State state) { set(cqs_[qid], state); }

  // What a completion queue is made of, told before it exists.
  void describe_cq(const CqSpec& spec);
  // The completion queues that are ready and interrupt.
  std::vector<CqSpec> interrupting() const;

  // A submission queue starts and stops to feed its completion queue.
  void link(std::uint16_t sqid, std::uint16_t cqid);
  void unlink(std::uint16_t sqid);
  bool cq_in_use(std::uint16_t cqid) const { return users_[cqid] != 0; }
  // True if any I/O queue exists.
  bool any_io() const { return io_queues_ != 0; }

  // Granted by the Number of Queues feature: identifiers 1...granted are usable.
  void grant(std::uint32_t sqs, std::uint32_t cqs);
  bool sq_granted(std::uint16_t qid) const { return qid >= 1 && qid <= granted_sqs_; }
  bool cq_granted(std::uint16_t qid) const { return qid >= 1 && qid <= granted_cqs_; }

  // All queues are gone; grants fall back to the maximum.
  void reset();

 private:
  void set(std::atomic<State>& slot, State state);

  std::uint32_t max_pairs_;
  std::uint32_t granted_sqs_;
  std::uint32_t granted_cqs_;
  std::uint32_t io_queues_ = 0;
  std::unique_ptr<std::atomic<State>[]> sqs_;
  std::unique_ptr<std::atomic<State>[]> cqs_;
  std::vector<std::uint16_t> cq_of_sq_;
  std::vector<std::uint32_t> users_;
  mutable std::mutex specs_mutex_;
  std::vector<CqSpec> specs_;  // by CQ identifier
};

}  // namespace flashmob::controller
