#include "engine/virtual_world.h"

#include <algorithm>
#include <utility>

#include "engine/engine.h"

namespace flashmob::engine {

void VirtualWorld::add(Engine& engine) {
  engines_.push_back(&engine);
  for (unsigned index = 0; index < engine.actors(); ++index) {
    const ActorKind kind = engine.is_dispatcher(index) ? ActorKind::dispatcher : ActorKind::worker;
    actors_.push_back({.engine = &engine, .index = index, .kind = kind, .poll = {}, .deadline_ns = {}, .taken = {}});
  }
  draw_order();
}

void VirtualWorld::remove(Engine& engine) {
  std::erase(engines_, &engine);
  std::erase_if(actors_, [&](const Actor& actor) { return actor.engine == &engine; });
  draw_order();
}

std::size_t VirtualWorld::add_actor(std::function<bool()> poll, std::function<std::uint64_t()> deadline_ns,
                                    Taken taken) {
  actors_.push_back({.number = next_number_,
                     .poll = std::move(poll),
                     .deadline_ns = std::move(deadline_ns),
                     .taken = std::move(taken)});
  draw_order();
  return next_number_++;
}

void VirtualWorld::remove_actor(std::size_t number) {
  std::erase_if(actors_, [&](const Actor& actor) { return actor.engine == nullptr && actor.number == number; });
  draw_order();
}

void VirtualWorld::set_hold_back(HoldBack hold_back, std::uint64_t gap_ns) {
  hold_back_ = std::move(hold_back);
  gap_ns_ = gap_ns;
  released_ns_ = UINT64_MAX;
  for (Actor& actor : actors_) actor.released_ns = 0;
}

// Who takes turns has changed.
void VirtualWorld::draw_order() {
  order_.resize(actors_.size());
  for (std::uint32_t i = 0; i < order_.size(); ++i) order_[i] = i;
}

bool VirtualWorld::poll() {
  if (rng_) {
    if (order_.size() == 2) {
      // One draw for the commonest case, a unit and its host.
      if ((rng_->next() & 1) != 0) std::swap(order_[0], order_[1]);
    } else {
      for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[rng_->below(i)]);
    }
  }
  if (!calls_.empty()) [[unlikely]]
    make_calls();
  bool worked = false;
  released_ns_ = UINT64_MAX;
  all_looked_ = true;
  for (const std::uint32_t place : order_) {
    Actor& actor = actors_[place];
    if (hold_back_) [[unlikely]] {
      if (hold_back(actor)) continue;
    }
    worked |= actor.engine != nullptr ? actor.engine->poll_actor(actor.index) : actor.poll();
  }
  return worked;
}

void VirtualWorld::make_calls() {
  std::erase_if(calls_, [&](const Call& one) {
    const bool is_due = one.at_ns <= clock_.now_ns();
    if (is_due) one.call();
    return is_due;
  });
}

// Whether the actor has no turn now; notes until when.
bool VirtualWorld::hold_back(Actor& actor) {
  const std::uint64_t now_ns = clock_.now_ns();
  const std::uint64_t until_ns = hold_back_(actor.kind, now_ns);
  const std::uint64_t from_ns = std::max(now_ns, std::exchange(actor.released_ns, until_ns));
  if (until_ns <= now_ns) return false;
  released_ns_ = std::min(released_ns_, until_ns);
  all_looked_ &= actor.kind != ActorKind::dispatcher;
  // Told once, though it is asked again and again.
  if (until_ns > from_ns && until_ns - from_ns > gap_ns_) {
    if (actor.kind == ActorKind::dispatcher)
      actor.engine->taken(actor.index, from_ns, until_ns);
    else if (actor.taken)
      actor.taken(from_ns, until_ns);
  }
  return true;
}

std::uint64_t VirtualWorld::deadline_ns() const {
  std::uint64_t deadline_ns = released_ns_;
  for (const Call& one : calls_) deadline_ns = std::min(deadline_ns, one.at_ns);
  for (const Actor& actor : actors_) {
    std::uint64_t own_ns = UINT64_MAX;
    if (actor.engine != nullptr)
      own_ns = actor.engine->actor_deadline_ns(actor.index);
    else if (actor.deadline_ns)
      own_ns = actor.deadline_ns();
    deadline_ns = std::min(deadline_ns, std::max(own_ns, actor.released_ns));
  }
  return deadline_ns;
}

bool VirtualWorld::step(std::uint64_t poll_ns) {
  const bool worked = poll();
  const std::uint64_t now_ns = clock_.now_ns();
  if (worked) {
    clock_.advance_to(now_ns + poll_ns);
    return true;
  }
  const std::uint64_t deadline = deadline_ns();
  if (deadline == UINT64_MAX) {
    clock_.advance_to(now_ns + poll_ns);
    return false;
  }
  // An idle machine wakes exactly at the deadline; a poll period does not round it up.
  const std::uint64_t next_ns = std::max(deadline, now_ns + 1);
  // Nothing was found, and until then nobody rings: those who are held back do not either.
  if (all_looked_) {
    for (Engine* engine : engines_) engine->note_quiet(next_ns);
  }
  clock_.advance_to(next_ns);
  return true;
}

void VirtualWorld::pump(std::uint64_t busy_step_ns, std::uint64_t limit_ns) {
  const bool worked = poll();
  const std::uint64_t now_ns = clock_.now_ns();
  if (worked) {
    idle_step_ns_ = kFirstIdleStepNs;
    clock_.advance_to(std::min(now_ns + busy_step_ns, limit_ns));
    return;
  }
  std::uint64_t next_ns = now_ns + idle_step_ns_;
  if (const std::uint64_t deadline = deadline_ns(); deadline > now_ns) next_ns = std::min(next_ns, deadline);
  idle_step_ns_ = std::min(idle_step_ns_ * 2, kLastIdleStepNs);
  clock_.advance_to(std::min(next_ns, limit_ns));
}

bool VirtualWorld::run_to(std::uint64_t to_ns) {
  bool worked = poll();
  bool anything = worked;
  while (clock_.now_ns() < to_ns) {
    const std::uint64_t now_ns = clock_.now_ns();
    std::uint64_t next_ns = to_ns;
    if (worked)
      next_ns = std::min(next_ns, now_ns + kBusyStepNs);
    else if (const std::uint64_t deadline = deadline_ns(); deadline > now_ns)
      next_ns = std::min(next_ns, deadline);
    clock_.advance_to(next_ns);
    worked = poll();
    anything |= worked;
  }
  return anything;
}

}  // namespace flashmob::engine
