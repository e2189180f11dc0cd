// A command in flight, as the thread that submitted it holds it.
//
// test() may be called by any lanes at once and frees nothing. status() and wait() give the slot back and belong to one
// owner, once. A wait that ends by its deadline or by the abort flag leaves the command in flight and the token valid:
// wait again, or abandon() it; its memory is the SSD's until the completion comes. Trivially copyable, 24 bytes.
// Compiles as CUDA device code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/queue.h"
#include "flashmob/gpu/status.h"

namespace flashmob::gpu {

class Token {
 public:
  // One that is finished: nothing was submitted.
  FLASHMOB_HD explicit Token(IoStatus status = {0, IoKind::stale}) : status_(status.to_bits()) {}
  FLASHMOB_HD Token(QueueRef queue, std::uint32_t slot, std::uint64_t ticket)
      : queue_(queue.get()), ticket_(ticket), slot_(slot) {}

  FLASHMOB_HD bool submitted() const { return queue_ != nullptr; }

  // True once the command is finished; what it has moved is there.
  template <class Lane>
  FLASHMOB_HD bool test(Lane& t) const {
    if (queue_ == nullptr) return true;
    const QueueRef queue(queue_);
    if (!queue.owns(t, slot_, ticket_)) return true;
    return (queue.slot(slot_).state.load(t) & slot_state::kMask) == slot_state::kDone;
  }

  // Takes the status of a finished command and frees its slot; kind is pending if it is not finished.
  template <class Lane>
  FLASHMOB_HD IoStatus status(Lane& t) const {
    if (queue_ == nullptr) return IoStatus::from_bits(status_);
    const QueueRef queue(queue_);
    if (!queue.owns(t, slot_, ticket_)) return {0, IoKind::stale};
    const std::uint32_t state = queue.slot(slot_).state.load(t);
    if ((state & slot_state::kMask) != slot_state::kDone) return {0, IoKind::pending};
    queue.release(t, slot_);
    return IoStatus::from_bits(state);
  }

  template <class Lane>
  FLASHMOB_HD IoStatus wait(Lane& t, WaitLimit limit = {}) const {
    if (queue_ == nullptr) return IoStatus::from_bits(status_);
    const QueueRef queue(queue_);
    const bool poll = queue.polled_by_callers(t);
    const std::uint64_t timeout_ns = limit.timeout_ns != 0 ? limit.timeout_ns : queue_->timeout_ns;
    const std::uint64_t start_ns = t.now_ns();
    for (Backoff backoff;;) {
      if (test(t)) return status(t);
      if (queue.aborted(t)) return {0, IoKind::aborted};
      if (t.now_ns() - start_ns >= timeout_ns) return {0, IoKind::deadline};
      if (!poll || !queue.help(t)) backoff.pause(t);
    }
  }

  // For a command that nobody will ask for any more. The slot frees itself when the SSD has answered.
  template <class Lane>
  FLASHMOB_HD void abandon(Lane& t) const {
    if (queue_ == nullptr) return;
    const QueueRef queue(queue_);
    if (queue.owns(t, slot_, ticket_)) queue.abandon(t, slot_);
  }

 private:
  Queue* queue_ = nullptr;
  std::uint64_t ticket_ = 0;
  std::uint32_t slot_ = 0;
  std::uint32_t status_ = 0;
};
static_assert(sizeof(Token) == 24);

}  // namespace flashmob::gpu
