// Virtual time: one thread gives every actor its turns and moves the clock, so that a run is the same on every machine
// for the same seed. Actors are the dispatchers and workers of engines, and whoever else works: a host's jobs, a
// service thread.
//
// There are three ways to let time pass, for three kinds of callers: step() runs the world by itself, pump() is for
// host code that waits for something, and run_to() for whoever has a time of its own. All of them give turns by poll()
// and look for the next event by deadline_ns(). For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"

namespace flashmob::engine {

class Engine;

class VirtualWorld {
 public:
  enum class ActorKind : std::uint8_t { dispatcher, worker, host };
  // Asked before each turn with the kind of actor and the time, ns: it has no turn before the time that is returned.
  using HoldBack = std::function<std::uint64_t(ActorKind kind, std::uint64_t now_ns)>;
  // Told of a time that was taken from an actor.
  using Taken = std::function<void(std::uint64_t from_ns, std::uint64_t to_ns)>;

  // `clock` is the virtual clock that all actors read.
  explicit VirtualWorld(Clock& clock) : clock_(clock) {}

  // All actors of an engine, whose number does not change; it stays until remove().
  void add(Engine& engine);
  void remove(Engine& engine);
  // poll() does what is due, and returns whether that was anything; deadline_ns() says when it wants a turn at the
  // latest (UINT64_MAX: never by itself). Without deadline_ns() it is called whenever time passes. No poll() adds or
  // removes anybody. Returns a number that names it.
  std::size_t add_actor(std::function<bool()> poll, std::function<std::uint64_t()> deadline_ns = {}, Taken taken = {});
  void remove_actor(std::size_t number);

  // From now on the order of turns is drawn anew for each round, as threads on real cores would race; it was that in
  // which actors came.
  void shuffle(std::uint64_t seed) { rng_.emplace(seed); }
  // Empty: nobody is held back. What takes longer than `gap_ns` from a dispatcher or a host is told to it as time that
  // the machine took; a worker's copies are slow then.
  void set_hold_back(HoldBack hold_back, std::uint64_t gap_ns = UINT64_MAX);
  // Before the first round at this time or later. In any order among those that are due; a call
  // asks for no other.
  void call_at(std::uint64_t at_ns, std::function<void()> call) { calls_.push_back({at_ns, std::move(call)}); }
  void forget_calls() { calls_.clear(); }

  // One turn for everybody who is not held back. True if anything was done.
  bool poll();
  // When somebody wants a turn, or may have one again, ns; UINT64_MAX: all wait for ever.
  std::uint64_t deadline_ns() const;

  // One round, after which time moves by `poll_ns` if anything was done, and to the next deadline otherwise. False if
  // nothing was done and nobody has a deadline.
  bool step(std::uint64_t poll_ns);
  // One round, after which time moves by `busy_step_ns` if anything was done; else by steps that grow, so that long
  // time-outs pass quickly, but never past a deadline, nor past `limit_ns`.
  void pump(std::uint64_t busy_step_ns = kBusyStepNs, std::uint64_t limit_ns = UINT64_MAX);
  // Lets time come to `to_ns` and everything happen until then. Doorbells may have been rung since the last call, so
  // there is a round before time moves, and one after it. True if anything was done.
  bool run_to(std::uint64_t to_ns);

  static constexpr std::uint64_t kBusyStepNs = 50;

 private:
  struct Actor {
    Engine* engine = nullptr;  // nullptr: `poll` is called
    unsigned index = 0;        // of the engine's actors
    ActorKind kind = ActorKind::host;
    std::size_t number = 0;    // of add_actor()
    std::uint64_t released_ns = 0;  // has no turn before: hold_back_
    std::function<bool()> poll;
    std::function<std::uint64_t()> deadline_ns;
    Taken taken;
  };
  struct Call {
    std::uint64_t at_ns;
    std::function<void()> call;
  };

  void draw_order();
  void make_calls();
  bool hold_back(Actor& actor);

  Clock& clock_;
  std::vector<Actor> actors_;
  std::vector<std::uint32_t> order_;  // of turns: places in actors_
  std::vector<Engine*> engines_;
  std::optional<Rng> rng_;
  HoldBack hold_back_;
  std::uint64_t gap_ns_ = UINT64_MAX;
  std::vector<Call> calls_;
  std::uint64_t released_ns_ = UINT64_MAX;  // when the first of those who were held back in the last round may go on
  bool all_looked_ = true;                  // every dispatcher had its turn in the last round
  std::uint64_t idle_step_ns_ = kFirstIdleStepNs;
  std::size_t next_number_ = 0;

  static constexpr std::uint64_t kFirstIdleStepNs = 200;
  static constexpr std::uint64_t kLastIdleStepNs = 5'000'000;
};

}  // namespace flashmob::engine
