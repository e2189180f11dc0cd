// What one worker holds: requests in their slots, the queues that they belong to, and the way of slots between the
// dispatcher's thread and the worker's, where these are two. The worker's organs (mover.h, executor.h, completer.h) all
// look at it.
//
// Laid out by who writes: what is set up once, the dispatcher's share, and the two rings lie on lines of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/move_queue.h"
#include "engine/port.h"
#include "engine/queues.h"
#include "engine/slab.h"
#include "engine/spsc_ring.h"
#include "engine/thread_clock.h"
#include "flashmob/config.h"
#include "timing/model.h"

namespace flashmob::engine {

// What every organ of a worker is made with.
struct WorkerContext {
  const EngineConfig& config;
  timing::TimingModel& model;
  ThreadClock& time;
  unsigned number;  // no other worker's of the engine
  command_set::PieceLocks* locks = nullptr;  // nullptr: nobody else copies

  // Nothing is locked around calls into media that wait for a disk: these hold locks of their own, and a thread that
  // waits for those may be waited for.
  command_set::PieceLocks* locks_of(const command_set::Namespace& ns) const {
    return ns.base != nullptr ? locks : nullptr;
  }
};

class Requests {
 public:
  struct Queue {
    Sq* sq = nullptr;
    Cq* cq = nullptr;
  };

  // How many slots of each controller's are its own, besides those of its admin commands.
  static constexpr std::uint32_t kLeastSlots = 64;
  static constexpr std::uint32_t kMostUnmoved = 1024;

  // `threaded`: the worker runs on another thread than its dispatcher.
  Requests(std::uint32_t slots, bool threaded);

  Slab& slab() { return slab_; }
  bool threaded() const { return threaded_; }
  HotRequest* hot_array() const { return hot_; }
  HotRequest& hot(Slot slot) const { return hot_[slot]; }
  ColdRequest& cold(Slot slot) { return slab_.cold(slot); }

  // --- Queues; changed by the dispatcher while the worker is paused ---
  // The SQ's index in this table is Sq::index then.
  void add_queue(Sq& sq, Cq& cq);
  void remove_queue(const Sq& sq) { queues_[sq.index] = {}; }
  void remove_leaving();
  std::size_t queue_count() const { return queues_.size(); }
  const Queue& queue(std::uint16_t index) const { return queues_[index]; }
  const Queue& queue_of(const HotRequest& hot) const { return queues_[hot.sq]; }
  PortContext& port_of(const HotRequest& hot) const { return *queues_[hot.sq].cq->port; }

  // --- Worker's thread ---
  // The error of one request to this block.
  void fail(HotRequest& hot, nvme::Status status, std::uint32_t nsid, std::uint64_t lba) const;
  void fail(HotRequest& hot, const ColdRequest& cold, nvme::Status status) const;
  // The request's data is where it belongs. Cold parts are the slab's: they go back on the thread that allocates.
  void release_cold(Slot slot) {
    if (!threaded_) slab_.release_cold(slot);
  }
  void give_back(Slot slot) {
    hot_[slot].flags = 0;
    if (threaded_)
      returns_.push(slot);
    else
      take_back(slot);
  }
  // Of requests of one queue without cold part, whose flags are cleared.
  void give_back_run(std::span<const Slot> run, Sq& sq) {
    if (threaded_) {
      for (const Slot slot : run) returns_.push(slot);
      return;
    }
    slab_.release_run(run);
    *sq.slots_held -= static_cast<std::uint32_t>(run.size());
  }
  // A request that was ended and whose data is left alone: the wheel gives it back if it still holds it; one without
  // target, or past it, is ours to give back.
  void drop_zombie(Slot slot) {
    HotRequest& hot = hot_[slot];
    hot.set(kDataDone);
    if (!hot.has(kTimed) || hot.has(kDue)) give_back(slot);
  }
  // Of a zombie whose queue goes: its place in the table may soon be another queue's.
  void disown(Slot slot) {
    uncharge(slot);
    hot_[slot].sq = 0;
  }
  // Threaded: slots that were handed over, oldest first, and asks for their lines; returns how many.
  std::uint32_t take_handed(std::span<Slot> into) {
    std::uint32_t count = 0;
    return inbox_.drain(static_cast<std::uint32_t>(into.size()), [&](Slot slot) {
      into[count++] = slot;
      __builtin_prefetch(&hot_[slot], 1, 3);
    });
  }
  // Threaded: the dispatcher sees what was given back.
  void publish_returns() {
    if (threaded_) returns_.publish();
  }
  // Calls visit(Slot, HotRequest&) for every request between fetch and completion, zombies too.
  template <class Visit>
  void for_each_live(Visit&& visit) {
    for_each_live(slab_.fresh(), visit);
  }
  // The same of one queue (Slab::for_each_of()), and of all that are about to go.
  template <class Visit>
  void for_each_of(const Sq& sq, Visit&& visit) {
    const std::uint16_t index = sq.index;
    slab_.for_each_of([index](std::uint16_t owner) { return owner == index; }, visit);
  }
  template <class Visit>
  void for_each_leaving(Visit&& visit) {
    std::vector<std::uint8_t> leaves(queues_.size());
    for (std::size_t i = 1; i < queues_.size(); ++i)
      leaves[i] = queues_[i].sq != nullptr && queues_[i].sq->port->is_leaving;
    slab_.for_each_of([&leaves](std::uint16_t owner) { return leaves[owner] != 0; }, visit);
  }
  template <class Visit>
  void for_each_live(Slot below, Visit&& visit) {
    for (Slot slot = 0; slot < below; ++slot)
      if (hot_[slot].has(kLive)) visit(slot, hot_[slot]);
  }

  // --- Dispatcher's thread ---
  // Threaded: a slot goes to the worker with the next publish().
  void hand_over(Slot slot) { inbox_.push(slot); }
  void publish() {
    if (threaded_) inbox_.publish();
  }
  // Gives a checked Read or Write its cold part, which says what is to be moved.
  void add_transfer(Slot slot, const nvme::Sqe& sqe, command_set::Namespace& ns);
  // What a threaded worker is told of a plain transfer that is handed over without cold part.
  struct PlainRequest {
    PlainTransfer transfer;
    std::byte* media;
    std::uint32_t bytes;
  };
  PlainRequest& plain(Slot slot) { return plain_[slot]; }
  // Threaded: takes back slots that the worker has finished with.
  void reclaim() {
    if (threaded_) returns_.drain(Slab::kCapacity, [this](Slot slot) { take_back(slot); });
  }
  // Both, while the worker is paused.
  void settle_returns() {
    publish_returns();
    reclaim();
  }
  // Slots that are not shared: every controller's own. While the worker is paused.
  void reserve(std::uint32_t slots, std::size_t controllers) {
    reserved_ = slots;
    several_ = controllers > 1 && !threaded_;  // a worker with a thread of its own is not looked into
  }
  // How many more commands of this queue may be fetched. No controller has more than kMostShare times what is left for
  // all others. What they leave shrinks with their number, so kLeastSlots are each one's own, as are those that answer
  // its admin commands.
  std::uint32_t room_for(const Sq& sq) const {
    const std::uint32_t held = *sq.slots_held;
    if (sq.admin) [[unlikely]] {
      const std::uint32_t limit = sq.port->admin_limit();
      return held < limit ? limit - held : 0;
    }
    const std::uint32_t own = held < kLeastSlots ? kLeastSlots - held : 0;
    const std::uint32_t available = slab_.available();
    const std::uint32_t left = available > reserved_ ? available - reserved_ : 0;
    return std::max(own, held < kMostShare * left ? std::min(left, kMostShare * left - held) : 0);
  }
  // How many of them may be fetched now. Where several controllers are served, what one rings beyond kMostUnmoved waits
  // in its queues: fetching takes time, too, and a pass over them is then short for all others.
  std::uint32_t fetchable(const Sq& sq) const {
    const std::uint32_t room = room_for(sq);
    if (!several_ || sq.admin) [[likely]]
      return room;
    const std::uint32_t unmoved = sq.port->moves->size();
    return unmoved < kMostUnmoved ? std::min(room, kMostUnmoved - unmoved) : 0;
  }

 private:
  static constexpr std::uint32_t kMostShare = 4;

  // A slot counts no longer against its queue's controller.
  void uncharge(Slot slot) {
    const Sq* const sq = queues_[hot_[slot].sq].sq;
    if (sq != nullptr && *sq->slots_held != 0) --*sq->slots_held;
  }
  void take_back(Slot slot) {
    uncharge(slot);
    slab_.release(slot);
  }

  // Read by both threads with every request, changed while the worker is paused.
  HotRequest* hot_;
  PlainRequest* plain_;
  const bool threaded_;
  bool several_ = false;  // controllers
  std::uint32_t reserved_ = 0;
  std::vector<Queue> queues_;  // the first is nobody's: what is left of requests whose queue is gone refers to it

  memory::HostMemory plain_memory_;
  Slab slab_;
  SlotRing inbox_;
  SlotRing returns_;
};

}  // namespace flashmob::engine
