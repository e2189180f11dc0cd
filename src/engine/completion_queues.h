// The completion queues of one worker: room, entries, and the interrupts that tell of them. For the worker's thread, or
// while it is paused.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/port.h"
#include "engine/queues.h"
#include "engine/slab.h"
#include "engine/thread_clock.h"

namespace flashmob::engine {

class CompletionQueues {
 public:
  explicit CompletionQueues(const ThreadClock& time) : time_(time) {}

  Cq& add(std::unique_ptr<Cq> cq);
  Cq* find(const controller::Controller& controller, std::uint16_t cqid);
  void remove(Cq& cq);
  std::span<const std::unique_ptr<Cq>> all() const { return cqs_; }
  // Guest memory changed or shadow doorbells moved: host pointers of this controller's rings are looked up again.
  void refresh_rings(PortContext& port);

  // Whether an entry may be posted now.
  bool has_room(Cq& cq) { return cq.free != 0 || look_for_room(cq); }
  // Writes the entry of one request; there is room.
  void put(Cq& cq, const Sq& sq, const HotRequest& hot, std::uint32_t dw0);
  // `entries` have been written, none of them beyond the ring's end.
  void advance(Cq& cq, std::uint32_t entries) {
    cq.free -= entries;
    cq.tail += entries;
    if (cq.tail == cq.entries) [[unlikely]] {
      cq.tail = 0;
      cq.phase ^= 1;
    }
    if (!cq.interrupts_enabled) return;
    cq.coalesced += entries;
    if (!cq.dirty) {
      cq.dirty = true;
      dirty_.push_back(&cq);
    }
  }
  // Once a round: raises the interrupts that nothing is waited for with.
  void interrupt() {
    if (!dirty_.empty()) raise_interrupts();
  }
  // Entries were posted whose interrupt waits for more of them.
  bool is_coalescing() const { return coalescing_ != 0; }

 private:
  bool look_for_room(Cq& cq);
  void raise_interrupts();

  const ThreadClock& time_;
  std::vector<Cq*> dirty_;
  std::uint32_t coalescing_ = 0;  // CQs with entries posted but no interrupt raised yet
  std::vector<std::unique_ptr<Cq>> cqs_;
};

}  // namespace flashmob::engine
