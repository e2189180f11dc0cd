#include "controller/queue_table.h"

#include <algorithm>

namespace flashmob::controller {

QueueTable::QueueTable(std::uint32_t max_pairs)
    : max_pairs_(max_pairs),
      granted_sqs_(max_pairs),
      granted_cqs_(max_pairs),
      sqs_(new std::atomic<State>[max_pairs + 1]()),
      cqs_(new std::atomic<State>[max_pairs + 1]()),
      cq_of_sq_(max_pairs + 1),
      users_(max_pairs + 1),
      specs_(max_pairs + 1) {}

void QueueTable::set(std::atomic<State>& slot, State state) {
  const State before = slot.load(std::memory_order_relaxed);
  const bool is_io = &slot != &sqs_[0] && &slot != &cqs_[0];
  if (is_io && before == State::none && state != State::none) ++io_queues_;
  if (is_io && before != State::none && state == State::none) --io_queues_;
  slot.store(state, std::memory_order_release);
}

void QueueTable::describe_cq(const CqSpec& spec) {
  const std::lock_guard lock(specs_mutex_);
  specs_[spec.cqid] = spec;
}

std::vector<CqSpec> QueueTable::interrupting() const {
  std::vector<CqSpec> found;
  const std::lock_guard lock(specs_mutex_);
  for (std::uint32_t qid = 0; qid <= max_pairs_; ++qid) {
    if (specs_[qid].interrupts_enabled && cqs_[qid].load(std::memory_order_acquire) == State::ready)
      found.push_back(specs_[qid]);
  }
  return found;
}

void QueueTable::link(std::uint16_t sqid, std::uint16_t cqid) {
  cq_of_sq_[sqid] = cqid;
  ++users_[cqid];
}

void QueueTable::unlink(std::uint16_t sqid) { --users_[cq_of_sq_[sqid]]; }

void QueueTable::grant(std::uint32_t sqs, std::uint32_t cqs) {
  granted_sqs_ = std::min(sqs, max_pairs_);
  granted_cqs_ = std::min(cqs, max_pairs_);
}

void QueueTable::reset() {
  for (std::uint32_t qid = 0; qid <= max_pairs_; ++qid) {
    sqs_[qid].store(State::none, std::memory_order_release);
    cqs_[qid].store(State::none, std::memory_order_release);
    users_[qid] = 0;
  }
  io_queues_ = 0;
  grant(max_pairs_, max_pairs_);
}

}  // namespace flashmob::controller
