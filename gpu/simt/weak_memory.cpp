#include "simt/weak_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace flashmob::gpu::simt::detail {
namespace {

std::uint64_t in_memory(std::uintptr_t at, std::uint32_t bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(at), bytes);
  return value;
}

std::uint64_t changed(WeakMemory::Update what, std::uint64_t before, std::uint64_t value) {
  switch (what) {
    case WeakMemory::Update::exchange:
      return value;
    case WeakMemory::Update::add:
      return before + value;
    case WeakMemory::Update::subtract:
      return before - value;
    case WeakMemory::Update::bits_or:
      return before | value;
    case WeakMemory::Update::bits_and:
      return before & value;
    case WeakMemory::Update::bits_xor:
      return before ^ value;
  }
  return value;
}

std::uint64_t cut(std::uint64_t value, std::uint32_t bytes) {
  return bytes == 8 ? value : value & ((std::uint64_t{1} << (8 * bytes)) - 1);
}

bool acquires(int order) { return order == __ATOMIC_ACQUIRE || order == __ATOMIC_CONSUME || order >= __ATOMIC_ACQ_REL; }
bool releases(int order) { return order == __ATOMIC_RELEASE || order >= __ATOMIC_ACQ_REL; }

}  // namespace

void AgentClock::join(const AgentClock& other) {
  if (at_.size() < other.at_.size()) at_.resize(other.at_.size());
  for (std::size_t i = 0; i < other.at_.size(); ++i) at_[i] = std::max(at_[i], other.at_[i]);
}

void AgentClock::set(Agent agent, std::uint32_t time) {
  if (at_.size() <= agent) at_.resize(agent + 1);
  at_[agent] = time;
}

WeakMemory::WeakMemory(std::uint64_t seed, const WeakMemoryOptions& options)
    : rng_(splitmix64(seed ^ 0x3EA4)), options_(options), seed_(seed) {
  constexpr std::uint64_t kOld[] = {2, 2, 4, 16};
  constexpr std::uint64_t kBuffered[] = {2, 3, 8, 1'000'000};
  old_one_in_ = kOld[rng_.below(std::size(kOld))];
  buffer_one_in_ = kBuffered[rng_.below(std::size(kBuffered))];
  lines_.push_back({"", 0});
  agents_.emplace_back().clock.set(kWorld, 1);
  current_ = this;
}

WeakMemory::~WeakMemory() { current_ = nullptr; }

// --- By the scheduler ---

Agent WeakMemory::add_lane() {
  const auto agent = static_cast<Agent>(agents_.size());
  State& state = agents_.emplace_back();
  state.clock = agents_[kWorld].clock;
  state.clock.set(agent, 1);
  tick(kWorld);
  return agent;
}

void WeakMemory::enter(Agent agent, const StackBounds* stack) {
  constexpr std::uint64_t kComesOutOneIn = 4;
  current_ = this;
  agent_ = agent;
  stack_ = stack == nullptr ? StackBounds{} : *stack;
  State& state = self();
  while (!state.buffer.empty() && rng_.below(kComesOutOneIn) == 0) take_out(state, rng_.below(state.buffer.size()));
}

void WeakMemory::go_to(Here here) {
  std::uint32_t& line = self().line;
  if (lines_[line].line == here.line && lines_[line].file == here.file) return;
  line = 0;
  while (line < lines_.size() && !(lines_[line].line == here.line && lines_[line].file == here.file)) ++line;
  if (line == lines_.size()) lines_.push_back(here);
}

void WeakMemory::rest() { take_out_all(self()); }

void WeakMemory::meet(const std::vector<Agent>& agents) {
  if (!has_order(__ATOMIC_ACQ_REL)) return;
  AgentClock all;
  for (const Agent agent : agents) all.join(agents_[agent].clock);
  for (const Agent agent : agents) {
    agents_[agent].clock = all;
    tick(agent);
  }
}

void WeakMemory::end(Agent agent) {
  const Agent before = std::exchange(agent_, agent);
  take_out_all(self());
  agent_ = before;
  ended_.join(agents_[agent].clock);
}

void WeakMemory::note_ends() { agents_[kWorld].clock.join(ended_); }

Agent WeakMemory::enter_world() {
  const Agent lane = agent_;
  if (lane == kWorld) return lane;
  take_out_all(self());
  agents_[kWorld].clock.join(self().clock);
  tick(lane);
  agent_ = kWorld;
  return lane;
}

void WeakMemory::leave_world(Agent lane) { agent_ = lane; }

void WeakMemory::tick(Agent agent) { agents_[agent].clock.set(agent, agents_[agent].clock.of(agent) + 1); }

// Whether the present line's order counts, which is then noted.
bool WeakMemory::has_order(int order) {
  if (order == __ATOMIC_RELAXED) return false;
  const Here& here = lines_[self().line];
  if (options_.ordered_lines != nullptr && here.line != 0) options_.ordered_lines->emplace(here.file, here.line);
  const SourceLine& without = options_.without_order;
  return without.line == 0 || without.line != here.line || std::strcmp(without.file, here.file) != 0;
}

// --- Words ---

WeakMemory::Location& WeakMemory::location(std::uintptr_t at, std::uint32_t bytes) {
  Cell& first = cell(at);
  const std::uint64_t memory = in_memory(at, bytes);
  AgentClock& world = agents_[kWorld].clock;
  if (first.location != kNone) {
    Location& found = locations_[first.location];
    if (found.at == at && found.bytes == bytes) {
      // Whoever changes a word behind our back is the world: an SSD's plain store, or a host's that is not compiled for
      // this. It is there at once, and for whoever acquires it.
      if (found.values.back().value != memory) {
        found.values.clear();
        Value& value = push(found, memory);
        value.store = {kWorld, world.of(kWorld)};
        value.told = world;
        tick(kWorld);
      }
      return found;
    }
    drop(first);
  }
  const auto index = static_cast<std::uint32_t>(locations_.size());
  Location& made = locations_.emplace_back(Location{at, bytes, {}});
  for (std::uint32_t i = 0; i < bytes; i += kGrain) {
    Cell& each = cell(at + i);
    if (each.location != kNone) drop(each);
    each.location = index;
  }
  Value& value = push(made, memory);
  value.store = first.write.event;
  value.line = first.write.line;
  if (value.store.agent == kWorld && value.store.time != 0) {
    value.told = world;
    tick(kWorld);
  }
  return made;
}

void WeakMemory::drop(Cell& of) {
  const Location& location = locations_[of.location];
  const std::uint32_t index = of.location;
  for (std::uint32_t i = 0; i < location.bytes; i += kGrain) {
    Cell& each = cell(location.at + i);
    if (each.location == index) each.location = kNone;
  }
}

WeakMemory::Value& WeakMemory::push(Location& location, std::uint64_t value) {
  std::vector<Value>& values = location.values;
  if (values.size() < kValues) {
    values.emplace_back();
  } else {
    std::rotate(values.begin(), values.begin() + 1, values.end());
    values.back().told.clear();
    values.back().readers.clear();
  }
  Value& made = values.back();
  made.value = value;
  made.line = self().line;
  return made;
}

// `before`: what a release sequence goes on to tell.
void WeakMemory::put(std::uintptr_t at, std::uint32_t bytes, std::uint64_t value, bool releases,
                     const AgentClock* before) {
  AgentClock told;
  if (before != nullptr) told = *before;
  if (releases) told.join(self().clock);
  Value& made = push(location(at, bytes), cut(value, bytes));
  made.store = now();
  made.told = std::move(told);
  std::memcpy(reinterpret_cast<void*>(at), &value, bytes);
  if (releases) tick(agent_);
}

void WeakMemory::take_out(State& state, std::size_t index) {
  const Buffered out = state.buffer[index];
  state.buffer.erase(state.buffer.begin() + static_cast<std::ptrdiff_t>(index));
  const std::uint32_t line = std::exchange(state.line, out.line);
  put(out.at, out.bytes, out.value, false, nullptr);
  state.line = line;
}

void WeakMemory::take_out_all(State& state) {
  while (!state.buffer.empty()) take_out(state, 0);
}

WeakMemory::Buffered* WeakMemory::buffered(State& state, std::uintptr_t at) {
  for (Buffered& each : state.buffer) {
    if (each.at == at) return &each;
  }
  return nullptr;
}

// Coherence: nothing older than what the agent knows to be stored, or to have been seen by anyone.
std::size_t WeakMemory::oldest(const Location& location) {
  for (std::size_t i = location.values.size(); --i > 0;) {
    const Value& value = location.values[i];
    if (ordered(value.store)) return i;
    for (const Event& reader : value.readers) {
      if (ordered(reader)) return i;
    }
  }
  return 0;
}

std::uint64_t WeakMemory::load(std::uintptr_t at, std::uint32_t bytes, int order) {
  if (const Buffered* own = buffered(self(), at)) return own->value;
  check_atomic(at, bytes, false);
  Location& found = location(at, bytes);
  std::size_t index = found.values.size() - 1;
  if (agent_ != kWorld) {
    const std::size_t first = oldest(found);
    if (first != index && rng_.below(old_one_in_) == 0) index = first + rng_.below(index - first + 1);
  }
  Value& value = found.values[index];
  if (std::none_of(value.readers.begin(), value.readers.end(), [&](const Event& e) { return e.agent == agent_; }))
    value.readers.push_back(now());
  if (acquires(order) && has_order(order)) self().clock.join(value.told);
  return value.value;
}

void WeakMemory::store(std::uintptr_t at, std::uint32_t bytes, std::uint64_t value, int order) {
  check_atomic(at, bytes, true);
  const bool tells = releases(order) && has_order(order);
  if (tells) take_out_all(self());
  if (Buffered* own = buffered(self(), at)) {
    own->value = cut(value, bytes);
    return;
  }
  if (!tells && agent_ != kWorld && rng_.below(buffer_one_in_) == 0)
    self().buffer.push_back({at, bytes, cut(value, bytes), self().line});
  else
    put(at, bytes, value, tells, nullptr);
}

// What comes before an update: the newest value.
WeakMemory::Value& WeakMemory::newest(std::uintptr_t at, std::uint32_t bytes, bool writes) {
  State& state = self();
  for (std::size_t i = 0; i < state.buffer.size(); ++i) {
    if (state.buffer[i].at == at) take_out(state, i);
  }
  check_atomic(at, bytes, writes);
  return location(at, bytes).values.back();
}

std::uint64_t WeakMemory::update(std::uintptr_t at, std::uint32_t bytes, Update what, std::uint64_t value, int order) {
  const bool ordered = has_order(order);
  const bool tells = releases(order) && ordered;
  if (tells) take_out_all(self());
  const Value& last = newest(at, bytes, true);
  const std::uint64_t before = last.value;
  const AgentClock told = last.told;
  if (acquires(order) && ordered) self().clock.join(told);
  put(at, bytes, changed(what, before, value), tells, &told);
  return before;
}

std::uint64_t WeakMemory::compare_exchange(std::uintptr_t at, std::uint32_t bytes, std::uint64_t expected,
                                           std::uint64_t desired, int order, int failed_order) {
  Value& last = newest(at, bytes, false);
  if (last.value == cut(expected, bytes)) return update(at, bytes, Update::exchange, desired, order);
  last.readers.push_back(now());
  if (acquires(failed_order) && has_order(failed_order)) self().clock.join(last.told);
  return last.value;
}

}  // namespace flashmob::gpu::simt::detail
