#include "load/yardstick.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>

#include "timing/model.h"

namespace flashmob::load {
namespace {

// A closed loop is simulated from several starts, up to so many requests each and about so many together.
constexpr std::uint64_t kBatch = 500'000;
constexpr std::uint64_t kEnough = 2'000'000;
// Requesters that never meet in a run without a nanosecond's disturbance do meet in every real one, and then stay as
// they are for long: the model has many steady states. Starts that differ find some of them, half of them with so much
// noise between an answer and the next request, which is not counted as latency.
constexpr std::uint64_t kJitterNs = 200;

// A run that nobody's own time disturbs. Requests are asked of the model in the order of time.
class Ideal {
 public:
  Ideal(const TimingConfig& timing, YardstickLoad load, const std::atomic<bool>* cancelled)
      : load_(std::move(load)), cancelled_(cancelled), model_(timing::make_model(timing, false)) {
    while ((1u << unit_shift_) < timing.unit_bytes) ++unit_shift_;
    for (YardstickQueue& queue : load_.queues) queues_.emplace_back(queue);
  }

  std::unique_ptr<Yardstick> replay();
  std::unique_ptr<Yardstick> steady();

 private:
  struct Queue {
    explicit Queue(YardstickQueue& of) : asked(of) {}
    YardstickQueue& asked;
    std::size_t trace_next = 0;
    // When the commands that hold its slots are done: a heap, the earliest first; those that are, until a slot is
    // wanted.
    std::vector<std::uint64_t> flying_ns;
    std::deque<std::uint64_t> backlog_ns;   // when requests without a slot were wanted
  };
  enum class What : std::uint8_t { arrival, slot, completion, thought };
  struct Event {
    std::uint64_t at_ns;
    std::uint64_t wanted_ns;
    std::uint32_t queue;
    What what;
    bool operator>(const Event& other) const { return at_ns > other.at_ns; }
  };

  std::uint64_t schedule(Queue& queue, std::uint64_t now_ns);
  timing::Demand next_demand(Queue& queue);
  timing::Demand transfer(std::uint64_t offset, std::uint64_t bytes, bool is_write) const;
  void push(std::uint64_t at_ns, std::uint64_t wanted_ns, std::size_t queue, What what) {
    events_.push_back({at_ns, wanted_ns, static_cast<std::uint32_t>(queue), what});
    std::ranges::push_heap(events_, std::greater<>());
  }
  void arrive(std::size_t index, const Event& event);
  void next_arrival(std::size_t index);
  void follow(std::size_t index, std::uint64_t now_ns);
  void use_slots(std::size_t index, std::uint64_t now_ns);
  void submit(Queue& queue, std::uint64_t wanted_ns, std::uint64_t now_ns);
  void begin(bool spread);
  void want(std::size_t index, std::uint64_t now_ns);
  void take_slot(std::size_t index, std::uint64_t now_ns);
  Event turn();
  void record_flying(Histogram& latency_ns, std::uint64_t every) const;
  bool is_cancelled() const { return cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed); }
  const Event pop() {
    std::ranges::pop_heap(events_, std::greater<>());
    const Event event = events_.back();
    events_.pop_back();
    return event;
  }

  YardstickLoad load_;
  const std::atomic<bool>* cancelled_;
  std::unique_ptr<timing::TimingModel> model_;
  unsigned unit_shift_ = 0;
  std::vector<Queue> queues_;
  std::vector<Arrivals> arrivals_;
  std::vector<Event> events_;  // a heap, the earliest first
  std::unique_ptr<Yardstick> found_ = std::make_unique<Yardstick>();
  std::uint64_t completed_ = 0;  // within the measured time
  std::uint64_t drained_ns_ = 0;  // when the last command is answered
  // Closed loop.
  std::vector<std::uint64_t> free_slots_;
  Rng rng_{1};
  std::uint64_t jitter_ns_ = 0;
};

timing::Demand Ideal::transfer(std::uint64_t offset, std::uint64_t bytes, bool is_write) const {
  const std::uint64_t first = offset >> unit_shift_;
  const std::uint64_t last = (offset + bytes - 1) >> unit_shift_;
  timing::Demand demand{};
  demand.first_unit = first;
  demand.units = static_cast<std::uint32_t>(last - first + 1);
  demand.kind = is_write ? timing::DemandKind::write : timing::DemandKind::read;
  demand.sectors = timing::sectors_of(bytes);
  return demand;
}

timing::Demand Ideal::next_demand(Queue& queue) {
  if (load_.loop == LoopKind::trace || load_.loop == LoopKind::trace_as_fast) {
    const TraceIo& io = queue.asked.trace[queue.trace_next++];
    timing::Demand other{};
    other.kind = io.kind == TraceKind::flush ? timing::DemandKind::flush : timing::DemandKind::immediate;
    if (io.kind == TraceKind::flush || io.kind == TraceKind::trim || io.bytes == 0) return other;
    return transfer(io.offset_bytes, io.bytes, io.kind == TraceKind::write);
  }
  const Io io = queue.asked.pattern.next();
  return transfer(io.slba << load_.lba_shift, std::uint64_t{io.blocks} << load_.lba_shift, io.is_write);
}

std::uint64_t Ideal::schedule(Queue& queue, std::uint64_t now_ns) {
  const timing::Demand demand = next_demand(queue);
  std::uint64_t done_ns = 0;
  model_->schedule({&demand, 1}, now_ns, {&done_ns, 1});
  return done_ns;
}

// --- Open loop and traces: the same requests at the same times ---

void Ideal::submit(Queue& queue, std::uint64_t wanted_ns, std::uint64_t now_ns) {
  const std::uint64_t done_ns = schedule(queue, now_ns);
  drained_ns_ = std::max(drained_ns_, done_ns);
  queue.flying_ns.push_back(done_ns);
  std::ranges::push_heap(queue.flying_ns, std::greater<>());
  if (done_ns < queue.asked.measured_from_ns) return;
  found_->latency_ns.record(done_ns - wanted_ns);
  completed_ += done_ns < queue.asked.measured_until_ns;
}

// Gives slots that are free by now to the requests that wait for them.
void Ideal::use_slots(std::size_t index, std::uint64_t now_ns) {
  Queue& queue = queues_[index];
  // Whoever has no slot by the end of the measured time is given up.
  if (now_ns >= queue.asked.measured_until_ns) return;
  while (!queue.backlog_ns.empty()) {
    if (queue.flying_ns.size() >= load_.queue_depth) {
      if (queue.flying_ns.front() > now_ns) break;
      std::ranges::pop_heap(queue.flying_ns, std::greater<>());
      queue.flying_ns.pop_back();
    }
    const std::uint64_t wanted_ns = queue.backlog_ns.front();
    queue.backlog_ns.pop_front();
    submit(queue, wanted_ns, now_ns);
  }
  if (!queue.backlog_ns.empty()) push(queue.flying_ns.front(), 0, index, What::slot);
}

void Ideal::arrive(std::size_t index, const Event& event) {
  Queue& queue = queues_[index];
  const bool waits = !queue.backlog_ns.empty();
  queue.backlog_ns.push_back(event.wanted_ns);
  // Whoever waits already has an event that brings the next slot.
  if (!waits) use_slots(index, event.at_ns);
  next_arrival(index);
}

void Ideal::next_arrival(std::size_t index) {
  Queue& queue = queues_[index];
  if (load_.loop == LoopKind::open) {
    const std::uint64_t at_ns = arrivals_[index].next_ns();
    arrivals_[index].advance();
    if (at_ns < queue.asked.measured_until_ns) push(at_ns, at_ns, index, What::arrival);
    return;
  }
  const std::size_t next = queue.trace_next + queue.backlog_ns.size();
  if (next >= queue.asked.trace.size()) return;
  const std::uint64_t at_ns = queue.asked.begun_ns + queue.asked.trace[next].time_ns;
  push(at_ns, at_ns, index, What::arrival);
}

// A trace without its timing: a request follows each completion.
void Ideal::follow(std::size_t index, std::uint64_t now_ns) {
  Queue& queue = queues_[index];
  if (queue.trace_next == queue.asked.trace.size() || now_ns >= queue.asked.measured_until_ns) return;
  submit(queue, now_ns, now_ns);
  push(queue.flying_ns.front(), 0, index, What::completion);
  queue.flying_ns.clear();
}

std::unique_ptr<Yardstick> Ideal::replay() {
  std::uint64_t until_ns = 0, from_ns = UINT64_MAX;
  for (std::size_t q = 0; q < queues_.size(); ++q) {
    const YardstickQueue& asked = queues_[q].asked;
    until_ns = std::max(until_ns, asked.measured_until_ns);
    from_ns = std::min(from_ns, asked.measured_from_ns);
    if (load_.loop == LoopKind::open) {
      arrivals_.emplace_back(asked.arrivals_seed, asked.arrivals_stream, asked.rate_iops, load_.poisson);
      arrivals_.back().start(asked.begun_ns);
    }
    if (load_.loop != LoopKind::trace_as_fast) next_arrival(q);
    for (std::uint32_t i = 0; load_.loop == LoopKind::trace_as_fast && i < load_.queue_depth; ++i)
      follow(q, asked.begun_ns);
  }
  while (!events_.empty() && !is_cancelled()) {
    const Event event = pop();
    if (event.what == What::slot)
      use_slots(event.queue, event.at_ns);
    else if (event.what == What::completion)
      follow(event.queue, event.at_ns);
    else
      arrive(event.queue, event);
  }
  // As the run does: requests without a slot count with their age when the last command is answered.
  const std::uint64_t last_answer_ns = drained_ns_;
  drained_ns_ = std::max(drained_ns_, until_ns);
  for (const Queue& queue : queues_)
    for (const std::uint64_t wanted_ns : queue.backlog_ns) found_->latency_ns.record(drained_ns_ - wanted_ns);
  // At each end, one request may fall on the other side of it.
  found_->allowance.iops_share = 2.0 / static_cast<double>(std::max<std::uint64_t>(2, completed_));
  // A trace ends when all of it has been answered: by the ideal device, at its own time.
  const bool is_trace = load_.loop != LoopKind::open;
  if (is_trace) completed_ = found_->latency_ns.count();
  const std::uint64_t end_ns = is_trace ? last_answer_ns : until_ns;
  if (end_ns > from_ns) found_->iops = static_cast<double>(completed_) * 1e9 / static_cast<double>(end_ns - from_ns);
  return std::move(found_);
}

// --- Closed loop: the model's steady state ---

// Starts every requester: all at once, as a run does, or spread over one round trip.
void Ideal::begin(bool spread) {
  events_.clear();
  model_->reset();
  free_slots_.assign(queues_.size(), load_.queue_depth);
  for (Queue& queue : queues_) queue.backlog_ns.clear();
  const std::uint64_t first_ns = schedule(queues_[0], 1);
  for (std::size_t q = 0; q < queues_.size(); ++q)
    for (std::uint64_t i = 0; i < queues_[q].asked.requesters; ++i)
      push(spread ? 1 + rng_.below(first_ns) : 1, 0, q, What::thought);
}

// A requester of the queue wants something. A slot is taken by whoever waits longest for one.
void Ideal::want(std::size_t index, std::uint64_t now_ns) {
  Queue& queue = queues_[index];
  queue.backlog_ns.push_back(now_ns);
  take_slot(index, now_ns);
}

void Ideal::take_slot(std::size_t index, std::uint64_t now_ns) {
  Queue& queue = queues_[index];
  if (free_slots_[index] == 0 || queue.backlog_ns.empty()) return;
  --free_slots_[index];
  const std::uint64_t wanted_ns = queue.backlog_ns.front();
  queue.backlog_ns.pop_front();
  const std::uint64_t jitter_ns = jitter_ns_ == 0 ? 0 : rng_.below(jitter_ns_);
  push(schedule(queue, now_ns + jitter_ns), wanted_ns + jitter_ns, index, What::completion);
}

// Up to the next completion.
Ideal::Event Ideal::turn() {
  for (;;) {
    const Event event = pop();
    if (event.what == What::thought) {
      want(event.queue, event.at_ns);
      continue;
    }
    ++free_slots_[event.queue];
    if (load_.think_time_ns != 0)
      push(event.at_ns + load_.think_time_ns, 0, event.queue, What::thought);
    else
      queues_[event.queue].backlog_ns.push_back(event.at_ns);
    take_slot(event.queue, event.at_ns);
    return event;
  }
}

// A run counts the requests that are in flight at its end, too, and long ones are more often caught in flight than
// short ones: as many of them as belong to a batch, one in `every`, are part of it.
void Ideal::record_flying(Histogram& latency_ns, std::uint64_t every) const {
  std::uint64_t turn = 0;
  for (const Event& event : events_)
    if (event.what == What::completion && turn++ % every == 0) latency_ns.record(event.at_ns - event.wanted_ns);
}

// Mean and deviation of what batches of requests gave.
class Spread {
 public:
  void add(double value) {
    ++count_;
    sum_ += value;
    squares_ += value * value;
  }
  double mean() const { return sum_ / count_; }
  // Four standard deviations of the difference between our mean and one run that is `batches` of them long; a few more
  // where so few batches tell what a deviation is.
  double allowance(double batches) const {
    if (count_ < 2) return 0;
    const double variance = std::max(0.0, (squares_ - sum_ * sum_ / count_) / (count_ - 1));
    // Rounding leaves something of a variance that is none.
    if (variance < 1e-12 * squares_ / count_) return 0;
    return (4 + 8 / count_) * std::sqrt(variance * (1 / batches + 1 / count_));
  }

 private:
  double count_ = 0, sum_ = 0, squares_ = 0;
};

std::unique_ptr<Yardstick> Ideal::steady() {
  std::uint64_t population = 0, in_flight = 0;
  for (const Queue& queue : queues_) {
    population += queue.asked.requesters;
    in_flight += std::min<std::uint64_t>(queue.asked.requesters, load_.queue_depth);
  }
  if (population == 0) return std::move(found_);
  const std::uint64_t measured = std::max<std::uint64_t>(1, load_.ios);
  // The imbalance of several servers grows for long after the start. A run that is not too long for it is simulated
  // from its ramp to its end; of a longer one, a part from its middle.
  const std::uint64_t batch = std::min(measured, std::max(kBatch, population));
  const std::uint64_t before = std::clamp<std::uint64_t>(load_.ramp_ios, 1, std::max(2 * population, kBatch));
  const std::uint64_t warm_up = std::max(before, std::min(kBatch, (measured - batch) / 2));
  const std::uint64_t starts = std::clamp<std::uint64_t>(kEnough / (warm_up + batch), 4, 16);
  Spread iops, mean, p99;
  auto one = std::make_unique<Histogram>();
  for (std::uint64_t start = 0; start < starts && !is_cancelled(); ++start) {
    begin(start % 2 != 0);
    jitter_ns_ = start % 2 == 0 ? 0 : kJitterNs;
    std::uint64_t since_ns = 0;
    for (std::uint64_t i = 0; i < warm_up; ++i) since_ns = turn().at_ns;
    one->clear();
    std::uint64_t now_ns = since_ns;
    for (std::uint64_t i = 0; i < batch; ++i) {
      const Event event = turn();
      one->record(event.at_ns - event.wanted_ns);
      now_ns = event.at_ns;
    }
    record_flying(*one, std::max<std::uint64_t>(1, measured / batch));
    // Without the noise in each round trip.
    const double pause_ns =
        static_cast<double>(jitter_ns_) / 2 * static_cast<double>(batch) / static_cast<double>(population);
    const double span_ns = std::max(1.0, static_cast<double>(now_ns - since_ns) - pause_ns);
    iops.add(static_cast<double>(batch) * 1e9 / span_ns);
    mean.add(one->mean());
    p99.add(static_cast<double>(one->quantile(0.99)));
    found_->latency_ns.merge(*one);
    // Where chance has no part, two starts say as much as sixteen.
    if (start == 1 && p99.allowance(1) == 0 && mean.allowance(1) < 0.001 * mean.mean()) break;
  }
  const double length = static_cast<double>(measured) / static_cast<double>(batch);
  found_->iops = iops.mean();
  found_->allowance = {iops.allowance(length) / std::max(1.0, iops.mean()), mean.allowance(length),
                       p99.allowance(length)};
  // Requesters that start together stay together: at each end of the measured time, a burst of all that are in flight
  // falls inside or outside.
  found_->allowance.iops_share += static_cast<double>(in_flight) / static_cast<double>(measured);
  return std::move(found_);
}

}  // namespace

std::unique_ptr<Yardstick> measure_model(const TimingConfig& timing, YardstickLoad load,
                                         const std::atomic<bool>* cancelled) {
  if (timing.model == "none") return nullptr;
  const bool closed = load.loop == LoopKind::closed;
  Ideal ideal(timing, std::move(load), cancelled);
  auto found = closed ? ideal.steady() : ideal.replay();
  if (cancelled != nullptr && *cancelled) return nullptr;
  return found;
}

}  // namespace flashmob::load
