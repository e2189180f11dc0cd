// Virtual time: one thread polls every actor (dispatchers, workers, driver jobs) in a seeded order and moves the
// clock, so that a run is the same on every machine for the same seed.
//
// While anything has work, time advances by one poll period; when nothing has, it jumps to the earliest deadline. The
// order of actors within a step is drawn anew each time, as threads on real cores would race.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "flashmob/bench.h"
#include "load/job.h"

namespace flashmob::api {

class Simulator {
 public:
  // `clock` is the virtual clock that engine and jobs read.
  Simulator(Clock& clock, engine::Engine& engine, std::uint64_t poll_ns, std::uint64_t seed)
      : clock_(clock), engine_(engine), poll_ns_(poll_ns), rng_(seed) {
    for (unsigned actor = 0; actor < engine.actors(); ++actor) order_.push_back(actor);
  }

  void add_job(load::Job& job) {
    order_.push_back(kFirstJob + static_cast<unsigned>(jobs_.size()));
    jobs_.push_back(&job);
  }

  // Forgets all jobs, before they are destroyed.
  void remove_jobs() {
    jobs_.clear();
    late_.clear();
    std::erase_if(order_, [](unsigned actor) { return actor >= kFirstJob; });
  }

  // Asked before each turn of an actor; see BenchOptions::disturbance. Empty: nobody is held back. What is taken is a
  // gap where it is longer than gap_ns.
  void set_disturbance(std::function<std::uint64_t(BenchActor, std::uint64_t)> disturbance, std::uint64_t gap_ns) {
    disturbance_ = std::move(disturbance);
    gap_ns_ = gap_ns;
    held_.assign(engine_.actors() + jobs_.size(), 0);
  }

  // Queue `index` of the job has something; it is told now, or when the disturbance lets it be.
  void interrupt(load::Job& job, std::size_t index) {
    const std::uint64_t until_ns = disturbance_ ? disturbance_(BenchActor::interrupt, clock_.now_ns()) : 0;
    if (until_ns > clock_.now_ns()) [[unlikely]]
      late_.push_back({until_ns, &job, index});
    else
      job.mark_ready(index);
  }

  // Polls every actor once and moves time. False if nothing had work and nobody has a deadline: all wait forever.
  bool step() {
    shuffle();
    bool worked = false;
    std::uint64_t released_ns = UINT64_MAX;  // when the first of those who are held back may go on
    if (!late_.empty()) [[unlikely]]
      deliver();
    bool all_looked = true;  // every dispatcher, at its doorbells
    for (const unsigned actor : order_) {
      if (disturbance_) [[unlikely]] {
        const std::uint64_t until_ns = disturbance_(kind_of(actor), clock_.now_ns());
        if (until_ns > clock_.now_ns()) {
          released_ns = std::min(released_ns, until_ns);
          note_taken(actor, until_ns);
          all_looked &= kind_of(actor) != BenchActor::dispatcher;
          continue;
        }
      }
      worked |= actor >= kFirstJob ? jobs_[actor - kFirstJob]->poll() : engine_.poll_actor(actor);
    }
    std::uint64_t next_ns = clock_.now_ns() + poll_ns_;
    if (!worked) {
      std::uint64_t deadline_ns = released_ns;
      for (const Late& one : late_) deadline_ns = std::min(deadline_ns, one.at_ns);
      for (unsigned actor = 0; actor < engine_.actors(); ++actor)
        deadline_ns = std::min(deadline_ns, engine_.actor_deadline_ns(actor));
      for (const load::Job* job : jobs_) deadline_ns = std::min(deadline_ns, job->next_deadline_ns());
      if (deadline_ns == UINT64_MAX) {
        clock_.advance_to(next_ns);
        return false;
      }
      // An idle machine wakes exactly at the deadline; a poll period does not round it up.
      next_ns = std::max(deadline_ns, clock_.now_ns() + 1);
      // Nothing was found, and until then nobody rings: those who are held back do not either.
      if (all_looked) engine_.note_quiet(next_ns);
    }
    clock_.advance_to(next_ns);
    return true;
  }

 private:
  static constexpr unsigned kFirstJob = 1u << 16;

  BenchActor kind_of(unsigned actor) const {
    if (actor >= kFirstJob) return BenchActor::driver;
    return engine_.is_dispatcher(actor) ? BenchActor::dispatcher : BenchActor::worker;
  }

  void note_taken(unsigned actor, std::uint64_t until_ns) {
    const bool is_job = actor >= kFirstJob;
    std::uint64_t& held_ns = held_[is_job ? engine_.actors() + actor - kFirstJob : actor];
    const std::uint64_t from_ns = std::max(clock_.now_ns(), std::exchange(held_ns, std::max(held_ns, until_ns)));
    if (until_ns <= from_ns || until_ns - from_ns <= gap_ns_) return;
    if (is_job)
      jobs_[actor - kFirstJob]->taken(from_ns, until_ns);
    else if (engine_.is_dispatcher(actor))
      engine_.taken(actor, from_ns, until_ns);
  }

  // Interrupts that are due.
  void deliver() {
    std::erase_if(late_, [&](const Late& one) {
      const bool is_due = one.at_ns <= clock_.now_ns();
      if (is_due) one.job->mark_ready(one.index);
      return is_due;
    });
  }

  void shuffle() {
    if (order_.size() == 2) {
      if ((rng_.next() & 1) != 0) std::swap(order_[0], order_[1]);
      return;
    }
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[rng_.below(i)]);
  }

  Clock& clock_;
  engine::Engine& engine_;
  std::uint64_t poll_ns_;
  Rng rng_;
  std::vector<unsigned> order_;
  std::vector<load::Job*> jobs_;
  std::function<std::uint64_t(BenchActor, std::uint64_t)> disturbance_;
  std::uint64_t gap_ns_ = 0;
  std::vector<std::uint64_t> held_;  // until when, of dispatchers and workers, then of jobs
  struct Late {
    std::uint64_t at_ns;
    load::Job* job;
    std::size_t index;
  };
  std::vector<Late> late_;  // interrupts
};

}  // namespace flashmob::api
