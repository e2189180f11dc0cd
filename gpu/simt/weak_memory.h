// Memory as lanes of a GPU may see it: what the C++ and CUDA memory models allow, drawn by a seed, in place of one
// memory that all see alike (docs/decisions/0020-weak-memory.md; C++20 [intro.races]; PTX ISA 8.x, 8.10).
//
// Words: each keeps its last values. A load takes any of them that the lane has not been told to be out of date, by a
// release and an acquire, a sync() or a later value of the same word that it has seen. A relaxed store may lie in its
// lane's store buffer for some turns, where others' updates of the same word come before it and its lane's later stores
// to other words overtake it. Updates (exchange, compare_exchange, fetch_*) act on the newest value.
//
// Plain memory has one content; two accesses of which one writes must be ordered, or they are a race, which is reported
// with both places. Loads do not see values of stores that come later in their own lane's program (load buffering), and
// scopes are not told apart.
//
// An agent is a lane, or the world: host code and SSDs, which see the newest values. Atomics and plain accesses arrive
// by themselves from code that is compiled with -fsanitize=thread and linked with gpu/tests/weak/instrumented.cpp in
// place of ThreadSanitizer. For one thread, and one device at a time.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/rng.h"
#include "flashmob/gpu/simt/fibre.h"
#include "simt/fibre_stack.h"

namespace flashmob::gpu::simt::detail {

using Agent = std::uint32_t;
inline constexpr Agent kWorld = 0;

// How far an agent has come, of each agent, by what it has been told.
class AgentClock {
 public:
  std::uint32_t of(Agent agent) const { return agent < at_.size() ? at_[agent] : 0; }
  bool covers(Agent agent, std::uint32_t time) const { return time <= of(agent); }
  bool empty() const { return at_.empty(); }
  void clear() { at_.clear(); }
  void join(const AgentClock& other);
  void set(Agent agent, std::uint32_t time);

 private:
  std::vector<std::uint32_t> at_;
};

class WeakMemory {
 public:
  enum class Update : std::uint8_t { exchange, add, subtract, bits_or, bits_and, bits_xor };

  WeakMemory(std::uint64_t seed, const WeakMemoryOptions& options);
  ~WeakMemory();
  WeakMemory(const WeakMemory&) = delete;
  WeakMemory& operator=(const WeakMemory&) = delete;

  // The one that accesses arrive at; nullptr: memory is as usual.
  static WeakMemory* current() { return current_; }
  // Accesses do arrive in this program.
  static inline bool is_instrumented = false;

  // --- By the scheduler ---

  // One that has been told what the world knows.
  Agent add_lane();
  // Whose accesses come from now on. A lane's turn may bring its stores out.
  // `stack`: is its own, and not looked at.
  void enter(Agent agent, const StackBounds* stack = nullptr);
  // Until somebody is entered, accesses are the scheduler's, and memory is as usual.
  static void leave() { current_ = nullptr; }
  // The line of the next accesses.
  void go_to(Here here);
  // The present lane will wait for others: its stores come out.
  void rest();
  // These have met where all that each had written is there for all.
  void meet(const std::vector<Agent>& agents);
  void end(Agent agent);
  // The world has been told that kernels have ended.
  void note_ends();
  // The first race, "" if there was none.
  const std::string& race() const { return race_; }

  // --- Accesses of the agent that was entered; `order` as the compiler numbers them (__ATOMIC_RELAXED...) ---

  std::uint64_t load(std::uintptr_t at, std::uint32_t bytes, int order);
  void store(std::uintptr_t at, std::uint32_t bytes, std::uint64_t value, int order);
  std::uint64_t update(std::uintptr_t at, std::uint32_t bytes, Update what, std::uint64_t value, int order);
  // The value before; the word is changed if that was `expected`.
  std::uint64_t compare_exchange(std::uintptr_t at, std::uint32_t bytes, std::uint64_t expected, std::uint64_t desired,
                                 int order, int failed_order);
  void read(std::uintptr_t at, std::uint64_t bytes);
  void write(std::uintptr_t at, std::uint64_t bytes);
  // Memory that was given back, or out anew.
  void forget(std::uintptr_t at, std::uint64_t bytes);

  // From here on the world acts, which knows all that the lane knows (ActsAsWorld).
  Agent enter_world();
  void leave_world(Agent lane);

 private:
  static constexpr std::size_t kValues = 8;  // of a word
  static constexpr std::uint32_t kGrain = 4;
  static constexpr std::uint32_t kPageBytes = 4096;
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct Event {
    Agent agent = kWorld;
    std::uint32_t time = 0;
  };
  struct Value {
    std::uint64_t value = 0;
    Event store;
    std::uint32_t line = 0;
    AgentClock told;  // whoever acquires it knows this; empty: nothing was released
    std::vector<Event> readers;  // each agent's first
  };
  struct Location {
    std::uintptr_t at = 0;
    std::uint32_t bytes = 0;
    std::vector<Value> values;  // the newest last
  };
  struct Access {
    Event event;
    std::uint32_t line = 0;
  };
  // What was done to kGrain bytes of memory.
  struct Cell {
    Access write;
    Access read;  // the last
    std::uint32_t others = kNone;  // other readers since the last write, in readers_
    std::uint32_t location = kNone;
  };
  struct Page {
    std::array<Cell, kPageBytes / kGrain> cells;
  };
  struct Buffered {
    std::uintptr_t at;
    std::uint32_t bytes;
    std::uint64_t value;
    std::uint32_t line;
  };
  struct State {
    AgentClock clock;
    std::vector<Buffered> buffer;  // at most one for a word
    std::uint32_t line = 0;  // in lines_: where it is, as far as it has said
  };

  State& self() { return agents_[agent_]; }
  Event now() { return {agent_, self().clock.of(agent_)}; }
  void tick(Agent agent);
  bool ordered(const Event& event) { return agents_[agent_].clock.covers(event.agent, event.time); }
  bool has_order(int order);
  Location& location(std::uintptr_t at, std::uint32_t bytes);
  void drop(Cell& of);
  Value& push(Location& location, std::uint64_t value);
  void put(std::uintptr_t at, std::uint32_t bytes, std::uint64_t value, bool releases, const AgentClock* before);
  Value& newest(std::uintptr_t at, std::uint32_t bytes, bool writes);
  void take_out(State& state, std::size_t index);
  void take_out_all(State& state);
  Buffered* buffered(State& state, std::uintptr_t at);
  std::size_t oldest(const Location& location);

  Cell& cell(std::uintptr_t at);
  bool on_own_stack(std::uintptr_t at) const;
  void read_cell(Cell& cell);
  void write_cell(Cell& cell);
  void check_atomic(std::uintptr_t at, std::uint32_t bytes, bool writes);
  void race(const char* what, const Access& with, const char* with_what);
  std::string place(Agent agent, std::uint32_t line) const;

  friend class OutsideMemory;
  static inline WeakMemory* current_ = nullptr;
  Rng rng_;
  const WeakMemoryOptions options_;
  std::uint64_t seed_;
  std::uint64_t old_one_in_;  // loads that take an old value if they may
  std::uint64_t buffer_one_in_;  // relaxed stores that are buffered
  Agent agent_ = kWorld;
  StackBounds stack_;
  std::vector<Here> lines_;
  std::deque<State> agents_;
  AgentClock ended_;
  std::unordered_map<std::uintptr_t, Page> pages_;
  std::uintptr_t last_page_at_ = 0;
  Page* last_page_ = nullptr;
  std::deque<Location> locations_;
  std::deque<std::vector<Access>> readers_;
  std::string race_;
};

// While it lives the scheduler acts. nullptr: memory is as usual anyway; other threads' fibres must not meet here.
class OutsideMemory {
 public:
  explicit OutsideMemory(WeakMemory* memory) : current_(memory == nullptr ? nullptr : WeakMemory::current()) {
    if (current_ != nullptr) WeakMemory::leave();
  }
  ~OutsideMemory() {
    if (current_ != nullptr) WeakMemory::current_ = current_;
  }
  OutsideMemory(const OutsideMemory&) = delete;
  OutsideMemory& operator=(const OutsideMemory&) = delete;

 private:
  WeakMemory* const current_;
};

// While it lives the world acts: in SSDs that lanes call as functions.
class ActsAsWorld {
 public:
  ActsAsWorld() {
    if (memory_ != nullptr) lane_ = memory_->enter_world();
  }
  ~ActsAsWorld() {
    if (memory_ != nullptr) memory_->leave_world(lane_);
  }
  ActsAsWorld(const ActsAsWorld&) = delete;
  ActsAsWorld& operator=(const ActsAsWorld&) = delete;

 private:
  WeakMemory* const memory_ = WeakMemory::current();
  Agent lane_ = kWorld;
};

// What the C library does to memory arrives by nothing else.
inline void note_read(const void* at, std::uint64_t bytes) {
  if (WeakMemory* memory = WeakMemory::current()) memory->read(reinterpret_cast<std::uintptr_t>(at), bytes);
}
inline void note_write(const void* at, std::uint64_t bytes) {
  if (WeakMemory* memory = WeakMemory::current()) memory->write(reinterpret_cast<std::uintptr_t>(at), bytes);
}

}  // namespace flashmob::gpu::simt::detail
