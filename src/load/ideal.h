// The yardstick's ideal run: requests are asked of the model in the order of time, and nobody takes any time of their
// own. Internal to src/load; for one thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "load/event_queue.h"
#include "load/yardstick.h"
#include "timing/model.h"

namespace flashmob::load {

class Ideal {
 public:
  // `begun_with`: as for measure_model().
  Ideal(const TimingConfig& timing, YardstickLoad load, const std::atomic<bool>* cancelled,
        const timing::TimingModel* begun_with);

  // Open loops and traces: the same requests at the same times.
  std::unique_ptr<Yardstick> replay();
  // Closed loops: the model's steady state.
  std::unique_ptr<Yardstick> steady();

 private:
  struct Queue {
    explicit Queue(const YardstickQueue& of) : asked(of), pattern(of.pattern) {}
    const YardstickQueue& asked;
    Pattern pattern;
    std::uint64_t drawn = 0;  // of the pattern
    MovedList::Reader moved;
    std::size_t trace_next = 0;
    // When the commands that hold its slots are done: a heap, the earliest first; those that are, until a slot is
    // wanted.
    std::vector<std::uint64_t> flying_ns;
    std::deque<std::uint64_t> backlog_ns;  // when requests without a slot were wanted
    std::uint64_t arrived_ns = 0;  // the last of its arrivals: they keep their order
  };
  enum class What : std::uint8_t { slot, completion, thought };
  struct Event {
    std::uint64_t at_ns;
    std::uint64_t wanted_ns;
    std::uint32_t queue;
    What what;
    IoKind kind = IoKind::other;  // of a completion in a closed loop
  };
  // Of what happens at one time, arrivals come last: all of one queue's before the next one's, as a job submits them.
  struct Arrival {
    std::uint64_t at_ns;
    std::uint32_t queue;
    std::uint64_t wanted_ns;  // of its request, which may be fetched a little later
    auto operator<=>(const Arrival&) const = default;
  };
  struct Answer {
    std::uint64_t at_ns;
    IoKind kind;
  };

  // Which the model is yet to be told of, after so many more requests.
  struct Deallocation {
    std::uint64_t first_unit, units, writes_before, requests;
  };

  void deallocate(std::uint64_t first_unit, std::uint64_t units);
  void tell_deallocated();
  Answer schedule(Queue& queue, std::uint64_t now_ns);
  timing::Demand next_demand(Queue& queue, IoKind& kind);
  timing::Demand transfer(std::uint64_t offset, std::uint64_t bytes, bool is_write) const;
  void push(std::uint64_t at_ns, std::uint64_t wanted_ns, std::size_t queue, What what, IoKind kind = IoKind::other) {
    events_.push({at_ns, wanted_ns, static_cast<std::uint32_t>(queue), what, kind});
  }
  bool is_cancelled() const { return cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed); }
  void forget();

  std::unique_ptr<Yardstick> replay_once();
  void allow_for_reaction(Yardstick& found);
  std::uint64_t reaction();
  std::uint64_t reaction_of(const Queue& queue);
  std::uint64_t lag(const Queue& queue, std::uint64_t wanted_ns);
  bool arrives_next();
  void arrive();
  void next_arrival(std::size_t index);
  void begin_burst(std::size_t index);
  void follow(std::size_t index, std::uint64_t now_ns);
  void use_slots(std::size_t index, std::uint64_t now_ns);
  void submit(Queue& queue, std::uint64_t wanted_ns, std::uint64_t now_ns);

  void begin(bool spread);
  void want(std::size_t index, std::uint64_t now_ns);
  void take_slot(std::size_t index, std::uint64_t now_ns);
  Event turn();
  double batch(std::uint64_t requests, std::uint64_t measured, std::uint64_t population, Yardstick& one);
  void record_flying(Yardstick& into, std::uint64_t every) const;

  YardstickLoad load_;
  const std::atomic<bool>* cancelled_;
  const timing::TimingModel* begun_with_;
  std::unique_ptr<timing::TimingModel> model_;
  timing::UnitMap units_;
  std::vector<Queue> queues_;
  std::vector<Arrivals> arrivals_;
  std::deque<Deallocation> untold_;
  EventQueue<Event> events_;
  std::vector<Arrival> arriving_;  // the next one of each queue: a heap, the earliest first
  std::unique_ptr<Yardstick> found_;
  Rng rng_{1};
  // Replays.
  std::uint64_t completed_ = 0;  // within the measured time
  std::vector<std::uint64_t> drained_ns_;  // when the last command of each job is answered
  bool waits_for_slots_ = false;  // some request did
  std::uint64_t reaction_ns_ = 0;  // between an answer and the next use of its slot, on average
  bool reaction_varies_ = false;
  bool bursts_mix_ = false;
  bool queues_meet_ = false;  // requests of one time may come on several queues
  std::uint64_t order_ = 0;  // which of the replays it is
  // Closed loops.
  std::vector<std::uint64_t> free_slots_;
  std::uint64_t jitter_ns_ = 0;
  std::uint64_t now_ns_ = 0;  // of the last completion
};

}  // namespace flashmob::load
