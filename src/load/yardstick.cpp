// The ideal run of a closed loop: the model's steady state.
#include "load/yardstick.h"

#include <algorithm>
#include <cmath>

#include "load/ideal.h"
#include "timing/registry.h"

namespace flashmob::load {
namespace {

// A closed loop is simulated from several starts, up to so many requests each and about so many together.
constexpr std::uint64_t kBatch = 500'000;
constexpr std::uint64_t kEnough = 2'000'000;
// A tail that many servers' queues make is known only after more: no more than the run had, and so many at most. It is
// looked for where chance would otherwise leave a verdict undecided (kMostAllowance in engine/fidelity.cpp).
constexpr std::uint64_t kMost = 12'000'000;
constexpr double kUndecided = 0.1;
// Requesters that never meet in a run without a nanosecond's disturbance do meet in every real one, and then stay as
// they are for long: the model has many steady states. Starts that differ find some of them, half of them with so much
// noise between an answer and the next request, which is not counted as latency.
constexpr std::uint64_t kJitterNs = 200;

// Mean and deviation of what batches of requests gave.
class Spread {
 public:
  void add(double value) {
    ++count_;
    sum_ += value;
    squares_ += value * value;
  }
  double mean() const { return count_ == 0 ? 0 : sum_ / count_; }
  // Four standard deviations of the difference between our mean and one run that is `batches` of them long; a few more
  // where so few batches tell what a deviation is.
  double allowance(double batches) const {
    return count_ < 2 ? 0 : (4 + 8 / count_) * std::sqrt(variance() * (1 / batches + 1 / count_));
  }
  // What would be left of it if the mean were known.
  double least_allowance(double batches) const { return 4 * std::sqrt(variance() / batches); }

 private:
  double variance() const {
    if (count_ < 2) return 0;
    const double found = std::max(0.0, (squares_ - sum_ * sum_ / count_) / (count_ - 1));
    // Rounding leaves something of a variance that is none.
    return found < 1e-12 * squares_ / count_ ? 0 : found;
  }

  double count_ = 0, sum_ = 0, squares_ = 0;
};

// The same of a distribution's mean and p99.
class TimeSpread {
 public:
  // A batch's, which joins `sum`.
  void add(const Histogram& batch, Histogram& sum) {
    if (batch.count() == 0) return;
    mean_.add(batch.mean());
    p99_.add(static_cast<double>(batch.quantile(0.99)));
    sum.merge(batch);
  }
  bool is_certain() const { return p99_.allowance(1) == 0 && mean_.allowance(1) < 0.001 * mean_.mean(); }
  // The tail is not known well enough for a run so long, and could be.
  bool needs_more(double batches) const {
    const double undecided_ns = kUndecided * p99_.mean();
    return p99_.allowance(batches) > undecided_ns && p99_.least_allowance(batches) < undecided_ns;
  }
  Allowance allowance(double batches) const { return {0, 0, mean_.allowance(batches), p99_.allowance(batches)}; }

 private:
  Spread mean_, p99_;
};

}  // namespace

// Starts every requester: all at once, as a run does, or spread over one round trip. Sequential streams that keep their
// distance never forget where they began, so these begin as the run did, each time.
void Ideal::begin(bool spread) {
  forget();
  free_slots_.assign(queues_.size(), load_.queue_depth);
  if (load_.sequential)
    for (Queue& queue : queues_) queue.pattern = queue.asked.pattern;
  const std::uint64_t first_ns = load_.sequential ? 0 : schedule(queues_[0], 1).at_ns;
  for (std::size_t q = 0; q < queues_.size(); ++q) {
    const std::uint64_t begun_ns = load_.sequential ? 1 + queues_[q].asked.begun_ns : 1;
    for (std::uint64_t i = 0; i < queues_[q].asked.requesters; ++i)
      push(spread && first_ns != 0 ? 1 + rng_.below(first_ns) : begun_ns, 0, q, What::thought);
  }
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
  const Answer answer = schedule(queue, now_ns + jitter_ns);
  push(answer.at_ns, wanted_ns + jitter_ns, index, What::completion, answer.kind);
}

// Up to the next completion.
Ideal::Event Ideal::turn() {
  for (;;) {
    const Event event = events_.pop();
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
void Ideal::record_flying(Yardstick& into, std::uint64_t every) const {
  std::uint64_t turn = 0;
  events_.for_each([&](const Event& event) {
    if (event.what == What::completion && turn++ % every == 0) into.record(event.kind, event.at_ns - event.wanted_ns);
  });
}

namespace {

// What batches of a closed loop give.
struct Batches {
  Spread iops;
  TimeSpread all, direction[kDirections];

  void add(double rate, const Yardstick& one, Yardstick& sum) {
    iops.add(rate);
    all.add(one.latency_ns, sum.latency_ns);
    for (std::size_t kind = 0; kind < kDirections; ++kind)
      direction[kind].add(one.direction_ns[kind], sum.direction_ns[kind]);
  }
  // Of a run that is so many batches long.
  void tell(double length, Yardstick& found) const {
    found.iops = iops.mean();
    found.allowance = all.allowance(length);
    found.allowance.iops_share = iops.allowance(length) / std::max(1.0, iops.mean());
    for (std::size_t kind = 0; kind < kDirections; ++kind)
      found.direction_allowance[kind] = direction[kind].allowance(length);
  }
};

}  // namespace

// So many requests, of a run of `measured`: their rate, and their times in `one`.
double Ideal::batch(std::uint64_t requests, std::uint64_t measured, std::uint64_t population, Yardstick& one) {
  one = {};
  const std::uint64_t since_ns = now_ns_;
  for (std::uint64_t i = 0; i < requests; ++i) {
    const Event event = turn();
    one.record(event.kind, event.at_ns - event.wanted_ns);
    now_ns_ = event.at_ns;
  }
  record_flying(one, std::max<std::uint64_t>(1, measured / requests));
  // Without the noise in each round trip.
  const double pause_ns =
      static_cast<double>(jitter_ns_) / 2 * static_cast<double>(requests) / static_cast<double>(population);
  const double span_ns = std::max(1.0, static_cast<double>(now_ns_ - since_ns) - pause_ns);
  return static_cast<double>(requests) * 1e9 / span_ns;
}

std::unique_ptr<Yardstick> Ideal::steady() {
  std::uint64_t population = 0, in_flight = 0;
  for (const Queue& queue : queues_) {
    population += queue.asked.requesters;
    in_flight += std::min<std::uint64_t>(queue.asked.requesters, load_.queue_depth);
  }
  found_ = std::make_unique<Yardstick>();
  if (population == 0) return std::move(found_);
  const std::uint64_t measured = std::max<std::uint64_t>(1, load_.ios);
  // The imbalance of several servers grows for long after the start. A run that is not too long for it is simulated
  // from its ramp to its end; of a longer one, a part from its middle.
  // A model whose state writes change has no steady state to look for: all of the run is simulated, twice at least.
  const bool ages = begun_with_ != nullptr && load_.changes;
  const std::uint64_t size = ages ? measured : std::min(measured, std::max(kBatch, population));
  const std::uint64_t before = std::clamp<std::uint64_t>(load_.ramp_ios, 1, std::max(2 * population, kBatch));
  const std::uint64_t warm_up =
      ages ? std::max<std::uint64_t>(1, load_.ramp_ios) : std::max(before, std::min(kBatch, (measured - size) / 2));
  const std::uint64_t starts = std::clamp<std::uint64_t>(kEnough / (warm_up + size), ages ? 2 : 4, 16);
  const double length = static_cast<double>(measured) / static_cast<double>(size);
  Batches batches;
  auto one = std::make_unique<Yardstick>();
  const auto add = [&] {
    const double rate = batch(size, measured, population, *one);
    batches.add(rate, *one, *found_);
  };
  for (std::uint64_t start = 0; start < starts && !is_cancelled(); ++start) {
    begin(start % 2 != 0);
    // Streams that begin alike and meet no noise are the same run.
    const bool noisy = load_.sequential ? start != 0 : start % 2 != 0;
    jitter_ns_ = noisy ? kJitterNs : 0;
    for (std::uint64_t i = 0; i < warm_up; ++i) now_ns_ = turn().at_ns;
    add();
    // Where chance has no part, two starts say as much as sixteen.
    if (start == 1 && batches.all.is_certain()) break;
  }
  // The last start goes on: it has forgotten how it began.
  jitter_ns_ = kJitterNs;
  const std::uint64_t most = ages ? 0 : std::min(measured, kMost);
  for (std::uint64_t more = size; more <= most && batches.all.needs_more(length) && !is_cancelled(); more += size)
    add();
  batches.tell(length, *found_);
  // Requesters that start together stay together: at each end of the measured time, a burst of all that are in flight
  // falls inside or outside.
  found_->allowance.edge_share = static_cast<double>(in_flight) / static_cast<double>(measured);
  return std::move(found_);
}

std::unique_ptr<Yardstick> measure_model(const TimingConfig& timing, YardstickLoad load,
                                         const std::atomic<bool>* cancelled, const timing::TimingModel* begun_with) {
  if (!timing::model_of(timing).is_timed) return nullptr;
  const bool closed = load.loop == LoopKind::closed;
  Ideal ideal(timing, std::move(load), cancelled, begun_with);
  auto found = closed ? ideal.steady() : ideal.replay();
  if (cancelled != nullptr && *cancelled) return nullptr;
  return found;
}

}  // namespace flashmob::load
