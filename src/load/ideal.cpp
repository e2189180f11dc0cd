// The ideal run of open loops and traces, and what all ideal runs share.
#include "load/ideal.h"

#include <bit>
#include <cmath>

namespace flashmob::load {
namespace {

// Replays with the same reactions in another order: of so many requests together, and up to how many they are worth it.
constexpr std::uint64_t kMostOrders = 24, kLeastOrders = 4;
constexpr std::uint64_t kReplayed = 200'000;
constexpr std::uint64_t kFewEnough = 500'000;
constexpr std::uint64_t kFetchedTogether = 16;
// In each so many-th of them queues have their turn in an order that lasts, by less than this.
constexpr std::uint64_t kInTurnOfQueues = 3, kTurnsNs = 64;

double mean_of(const Histogram& latency_ns) { return latency_ns.mean(); }
double p99_of(const Histogram& latency_ns) { return static_cast<double>(latency_ns.quantile(0.99)); }

// A tail of few requests may come out otherwise in one order out of very many, of which few are tried. Where orders
// differ at all, the p99 may be that of a neighbouring rank: three standard deviations of so many draws away.
void allow_for_rank(const Histogram& latency_ns, Allowance& allowance) {
  if (latency_ns.count() == 0 || allowance.mean_ns == 0) return;
  const double ranks = 3 * std::sqrt(0.99 * 0.01 / static_cast<double>(latency_ns.count()));
  for (const double share : {0.99 - ranks, std::min(1.0, 0.99 + ranks)}) {
    const double neighbour_ns = static_cast<double>(latency_ns.quantile(std::max(0.0, share)));
    allowance.p99_ns = std::max(allowance.p99_ns, std::fabs(neighbour_ns - p99_of(latency_ns)));
  }
}

}  // namespace

Ideal::Ideal(const TimingConfig& timing, YardstickLoad load, const std::atomic<bool>* cancelled,
             const timing::TimingModel* begun_with)
    : load_(std::move(load)), cancelled_(cancelled), begun_with_(begun_with) {
  if (begun_with_ == nullptr) model_ = timing::make_model(timing, false);
  units_.shift = static_cast<unsigned>(std::countr_zero(timing.unit_bytes));
  for (const YardstickQueue& queue : load_.queues) queues_.emplace_back(queue);
}

timing::Demand Ideal::transfer(std::uint64_t offset, std::uint64_t bytes, bool is_write) const {
  timing::Demand demand;
  units_.transfer(offset, bytes, is_write, demand);
  return demand;
}

timing::Demand Ideal::next_demand(Queue& queue, IoKind& kind) {
  if (load_.loop == LoopKind::trace || load_.loop == LoopKind::trace_as_fast) {
    const TraceIo& io = queue.asked.trace[queue.trace_next++];
    timing::Demand other{};
    other.kind = io.kind == TraceKind::flush ? timing::DemandKind::flush : timing::DemandKind::immediate;
    if (io.kind == TraceKind::read) kind = IoKind::read;
    if (io.kind == TraceKind::write) kind = IoKind::write;
    if (io.kind == TraceKind::trim) {
      const auto units = units_.within(io.offset_bytes, io.bytes);
      if (units.count != 0) deallocate(units.first, units.count);
    }
    if (io.kind == TraceKind::flush || io.kind == TraceKind::trim || io.bytes == 0) return other;
    return transfer(io.offset_bytes, io.bytes, io.kind == TraceKind::write);
  }
  Io io = queue.pattern.next();
  queue.moved.take(queue.drawn++, io.slba);
  kind = io.is_write ? IoKind::write : IoKind::read;
  timing::Demand demand =
      transfer(io.slba << load_.lba_shift, std::uint64_t{io.blocks} << load_.lba_shift, io.is_write);
  if (io.is_write && !load_.streams.empty() && queue.pattern.places())
    set_stream(demand, load_.streams[queue.pattern.handle_of(io.slba)]);
  return demand;
}

// A device tells its model when it carries a deallocation out: after some of the requests that were fetched with it.
// What they write is not taken away, but which places it takes may change.
void Ideal::deallocate(std::uint64_t first_unit, std::uint64_t units) {
  const std::uint64_t requests = reaction_varies_ ? rng_.below(kFetchedTogether) : 0;
  untold_.push_back({first_unit, units, model_->writes_scheduled(), requests});
  tell_deallocated();
}

void Ideal::tell_deallocated() {
  while (!untold_.empty() && untold_.front().requests == 0) {
    const Deallocation& one = untold_.front();
    model_->deallocate(one.first_unit, one.units, one.writes_before);
    untold_.pop_front();
  }
  if (!untold_.empty()) --untold_.front().requests;
}

Ideal::Answer Ideal::schedule(Queue& queue, std::uint64_t now_ns) {
  Answer answer{0, IoKind::other};
  const timing::Demand demand = next_demand(queue, answer.kind);
  model_->schedule({&demand, 1}, now_ns, {&answer.at_ns, 1});
  if (!untold_.empty()) tell_deallocated();
  return answer;
}

// Everything begins anew but the draws of patterns.
void Ideal::forget() {
  events_.clear();
  arriving_.clear();
  untold_.clear();
  // Reads alone leave what outlives load as it was.
  if (begun_with_ != nullptr && (!model_ || load_.changes)) {
    model_.reset();  // before there is another: it may be large
    model_ = begun_with_->clone();
    model_->set_path_ns(0);
  } else {
    model_->reset();
  }
  for (Queue& queue : queues_) {
    queue.trace_next = 0;
    queue.flying_ns.clear();
    queue.backlog_ns.clear();
    queue.arrived_ns = 0;
  }
}

void Ideal::submit(Queue& queue, std::uint64_t wanted_ns, std::uint64_t now_ns) {
  const Answer answer = schedule(queue, now_ns);
  const std::uint64_t done_ns = answer.at_ns + (waits_for_slots_ ? reaction_of(queue) : 0);
  std::uint64_t& drained_ns = drained_ns_[queue.asked.job];
  drained_ns = std::max(drained_ns, done_ns);
  queue.flying_ns.push_back(done_ns);
  std::ranges::push_heap(queue.flying_ns, std::greater<>());
  // A trace is measured from its first request on, and what costs the model nothing is answered in that moment.
  if (load_.loop == LoopKind::open && done_ns < queue.asked.measured_from_ns) return;
  found_->record(answer.kind, done_ns - wanted_ns);
  completed_ += done_ns < queue.asked.measured_until_ns;
}

std::uint64_t Ideal::reaction() { return reaction_varies_ ? rng_.below(2 * reaction_ns_ + 1) : reaction_ns_; }

// A host that looks at one queue after the other uses the slots of the first one first, always: what is answered to
// several queues in one moment is then no matter of chance each time.
std::uint64_t Ideal::reaction_of(const Queue& queue) {
  const bool in_turn = load_.loop == LoopKind::trace_as_fast && reaction_varies_ && order_ % kInTurnOfQueues == 0;
  if (!in_turn) return reaction();
  const auto index = static_cast<std::uint64_t>(&queue - queues_.data());
  return reaction_ns_ + splitmix64(splitmix64(order_) + index) % kTurnsNs;
}

// How much later than it came a request is fetched. Where places in a medium wait for each other, that decides who
// waits; and whose requests of one time are fetched first where several queues have some: all of a queue's, or in
// between. That is up to jobs and units.
std::uint64_t Ideal::lag(const Queue& queue, std::uint64_t wanted_ns) {
  if (!reaction_varies_) return 0;
  if (begun_with_ != nullptr || (queues_meet_ && bursts_mix_)) return reaction();
  if (!queues_meet_) return 0;
  return splitmix64(splitmix64(splitmix64(order_) + static_cast<std::uint64_t>(&queue - queues_.data())) + wanted_ns) %
         (2 * reaction_ns_ + 1);
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
  if (queue.backlog_ns.empty()) return;
  waits_for_slots_ = true;
  push(queue.flying_ns.front(), 0, index, What::slot);
}

bool Ideal::arrives_next() {
  return !arriving_.empty() && (events_.empty() || arriving_.front().at_ns < events_.next_ns());
}

void Ideal::arrive() {
  std::ranges::pop_heap(arriving_, std::greater<>());
  const Arrival arrival = arriving_.back();
  arriving_.pop_back();
  Queue& queue = queues_[arrival.queue];
  const bool waits = !queue.backlog_ns.empty();
  queue.backlog_ns.push_back(arrival.wanted_ns);
  // Whoever waits already has an event that brings the next slot.
  if (!waits) use_slots(arrival.queue, arrival.at_ns);
  next_arrival(arrival.queue);
}

void Ideal::next_arrival(std::size_t index) {
  Queue& queue = queues_[index];
  std::uint64_t wanted_ns = 0;
  if (load_.loop == LoopKind::open) {
    wanted_ns = arrivals_[index].next_ns();
    arrivals_[index].advance();
    if (wanted_ns >= queue.asked.measured_until_ns) return;
  } else {
    const std::size_t next = queue.trace_next + queue.backlog_ns.size();
    if (next >= queue.asked.trace.size()) return;
    wanted_ns = queue.asked.begun_ns + queue.asked.trace[next].time_ns;
    // What lies beyond the end of a run that was cut short was never asked for.
    if (wanted_ns >= queue.asked.measured_until_ns) return;
  }
  queue.arrived_ns = std::max(queue.arrived_ns, wanted_ns + lag(queue, wanted_ns));
  arriving_.push_back({queue.arrived_ns, static_cast<std::uint32_t>(index), wanted_ns});
  std::ranges::push_heap(arriving_, std::greater<>());
}

// A trace without its timing: a request follows each completion.
void Ideal::follow(std::size_t index, std::uint64_t now_ns) {
  Queue& queue = queues_[index];
  if (queue.trace_next == queue.asked.trace.size() || now_ns >= queue.asked.measured_until_ns) return;
  waits_for_slots_ = true;
  submit(queue, now_ns, now_ns);
  push(queue.flying_ns.front(), 0, index, What::completion);
  queue.flying_ns.clear();
}

// All slots are filled at once. Which queue's commands are fetched first is up to threads and looks, and whatever waits
// behind that burst depends on it: where reactions vary, so does this order, of queues or of all their commands.
void Ideal::begin_burst(std::size_t index) {
  const std::uint64_t begun_ns = queues_[index].asked.begun_ns;
  const std::uint64_t queue_ns = reaction_varies_ ? reaction() : 0;
  for (std::uint32_t i = 0; i < load_.queue_depth; ++i) {
    if (reaction_varies_)
      push(begun_ns + (bursts_mix_ ? reaction() : queue_ns), 0, index, What::completion);
    else
      follow(index, begun_ns);
  }
}

std::unique_ptr<Yardstick> Ideal::replay_once() {
  forget();
  found_ = std::make_unique<Yardstick>();
  completed_ = 0;
  arrivals_.clear();
  std::uint64_t until_ns = 0, from_ns = UINT64_MAX;
  std::uint32_t jobs = 0;
  for (const Queue& queue : queues_) jobs = std::max(jobs, queue.asked.job + 1);
  drained_ns_.assign(jobs, 0);
  for (std::size_t q = 0; q < queues_.size(); ++q) {
    const YardstickQueue& asked = queues_[q].asked;
    queues_[q].pattern = asked.pattern;
    queues_[q].drawn = 0;
    queues_[q].moved = MovedList::Reader(asked.moved);
    until_ns = std::max(until_ns, asked.measured_until_ns);
    from_ns = std::min(from_ns, asked.measured_from_ns);
    if (load_.loop == LoopKind::open) {
      arrivals_.emplace_back(asked.arrivals_seed, asked.arrivals_stream, asked.rate_iops, load_.poisson);
      arrivals_.back().start(asked.begun_ns);
    }
    if (load_.loop != LoopKind::trace_as_fast) next_arrival(q);
    if (load_.loop == LoopKind::trace_as_fast) begin_burst(q);
  }
  while ((!events_.empty() || !arriving_.empty()) && !is_cancelled()) {
    if (arrives_next()) {
      arrive();
      continue;
    }
    const Event event = events_.pop();
    if (event.what == What::slot)
      use_slots(event.queue, event.at_ns);
    else
      follow(event.queue, event.at_ns);
  }
  // As the run does: requests without a slot count with their age when their job's last command is answered.
  for (const Queue& queue : queues_) {
    const std::uint64_t drained_ns = std::max(drained_ns_[queue.asked.job], queue.asked.measured_until_ns);
    for (const std::uint64_t wanted_ns : queue.backlog_ns) found_->latency_ns.record(drained_ns - wanted_ns);
  }
  // A trace ends when all of it has been answered: by the ideal device, at its own time. What is cut off before its end
  // is counted as an open loop is.
  const bool ends = load_.loop != LoopKind::open && std::ranges::all_of(queues_, [](const Queue& queue) {
                      return queue.trace_next == queue.asked.trace.size();
                    });
  if (ends) completed_ = found_->latency_ns.count();
  const std::uint64_t end_ns = ends ? *std::ranges::max_element(drained_ns_) : until_ns;
  if (end_ns > from_ns) found_->iops = static_cast<double>(completed_) * 1e9 / static_cast<double>(end_ns - from_ns);
  return std::move(found_);
}

std::unique_ptr<Yardstick> Ideal::replay() {
  auto found = replay_once();
  const std::uint64_t completed = completed_;
  queues_meet_ = load_.loop == LoopKind::trace && (drained_ns_.size() > 1 || load_.units > 1);
  if ((waits_for_slots_ || queues_meet_ || begun_with_ != nullptr) && load_.reaction_ns != 0)
    allow_for_reaction(*found);
  // At each end, one request may fall on the other side of it.
  found->allowance.iops_share += 2.0 / static_cast<double>(std::max<std::uint64_t>(2, completed));
  return found;
}

// Where requests wait for slots, each waits for all that those before it were answered later: what is next to nothing
// for one answer adds up. Where they wait for each other's places in a medium, next to nothing decides which of them
// does. The same replay, in which each answer is used and each request fetched a little later, tells to how much.
void Ideal::allow_for_reaction(Yardstick& found) {
  reaction_ns_ = load_.reaction_ns;
  const std::uint64_t requests = std::max<std::uint64_t>(1, found.latency_ns.count());
  const std::uint64_t orders = requests > kFewEnough ? 0 : std::clamp(kReplayed / requests, kLeastOrders, kMostOrders);
  // Twice, because a run differs from each of them as they do from each other.
  const auto widen = [](double& allowance, double other, double ideal, double scale) {
    allowance = std::max(allowance, 2 * std::fabs(other - ideal) / scale);
  };
  const auto widen_times = [&](Allowance& allowance, const Histogram& other, const Histogram& ideal) {
    widen(allowance.mean_ns, mean_of(other), mean_of(ideal), 1);
    widen(allowance.p99_ns, p99_of(other), p99_of(ideal), 1);
  };
  for (std::uint64_t i = 0; i <= orders && !is_cancelled(); ++i) {
    order_ = i;
    reaction_varies_ = i != 0;
    bursts_mix_ = i % 2 != 0;
    const auto other = replay_once();
    widen(found.allowance.iops_share, other->iops, found.iops, std::max(1.0, found.iops));
    widen_times(found.allowance, other->latency_ns, found.latency_ns);
    for (std::size_t kind = 0; kind < kDirections; ++kind)
      widen_times(found.direction_allowance[kind], other->direction_ns[kind], found.direction_ns[kind]);
  }
  allow_for_rank(found.latency_ns, found.allowance);
  for (std::size_t kind = 0; kind < kDirections; ++kind)
    allow_for_rank(found.direction_ns[kind], found.direction_allowance[kind]);
}

}  // namespace flashmob::load
