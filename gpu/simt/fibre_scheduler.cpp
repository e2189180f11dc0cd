#include "simt/fibre_scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace flashmob::gpu::simt::detail {
namespace {

constexpr std::uint32_t kLongestStarvation = 200;  // turns
// Between two looks at the world; its actors cost far more than a turn of a lane.
constexpr std::uint64_t kTurnsPerWorldStep = 8;

}  // namespace

FibreScheduler::FibreScheduler(World& world, const FibreOptions& options)
    : world_(world), options_(options), rng_(options.seed), stacks_(options.stack_bytes) {
  constexpr std::uint64_t kBursts[] = {1, 1, 2, 8};
  constexpr std::uint64_t kStarvations[] = {0, 0, 64, 8};
  switch_one_in_ = kBursts[rng_.below(std::size(kBursts))];
  starve_one_in_ = kStarvations[rng_.below(std::size(kStarvations))];
  if (!options.weak_memory.on) return;
  if (!WeakMemory::is_instrumented)
    throw std::logic_error("weak memory needs a program that is compiled for it (gpu/simt/weak_memory.h)");
  weak_ = std::make_unique<WeakMemory>(options.seed, options.weak_memory);
}

FibreScheduler::~FibreScheduler() { cancel_all(); }

std::uint64_t FibreScheduler::add(const Shape& shape, std::function<void(FibreLane&)> body) {
  FLASHMOB_CHECK(shape.blocks >= 1 && shape.block_threads >= 1 && shape.block_threads <= 1024);
  auto kernel = std::make_unique<FibreKernel>();
  kernel->id = next_kernel_++;
  kernel->body = std::move(body);
  for (std::uint32_t b = 0; b < shape.blocks; ++b) {
    FibreBlock& block = kernel->blocks.emplace_back();
    block.living = shape.block_threads;
    block.shared.resize(shape.shared_bytes);
    for (std::uint32_t thread = 0; thread < shape.block_threads; ++thread) {
      if (thread % kWarpLanes == 0) kernel->warps.emplace_back();
      auto fibre = std::make_unique<Fibre>();
      fibre->kernel = kernel.get();
      fibre->block = &block;
      fibre->warp = &kernel->warps.back();
      fibre->warp->lanes.push_back(fibre.get());
      fibre->lane.emplace(Place{thread, b, shape}, *this, *fibre);
      if (weak_) fibre->agent = weak_->add_lane();
      make_ready(*fibre, 0);
      kernel->fibres.push_back(std::move(fibre));
    }
  }
  kernel->living = static_cast<std::uint32_t>(kernel->fibres.size());
  living_ += kernel->living;
  const std::uint64_t id = kernel->id;
  kernels_.emplace(id, std::move(kernel));
  note_progress();
  return id;
}

void FibreScheduler::run(std::uint64_t kernel, std::uint64_t limit_ns) {
  note_progress();
  while (!finished(kernel) || (kernel == 0 && world_.now_ns() < limit_ns)) {
    if (!turn(limit_ns)) break;
    if (weak_ && !weak_->race().empty() && !error_) error_ = std::make_exception_ptr(RaceError(weak_->race()));
    if (error_) {
      cancel_all();
      std::rethrow_exception(std::exchange(error_, nullptr));
    }
  }
  if (weak_) weak_->note_ends();
}

// One turn of one lane, or a step of time. False when there is nothing left to wait for.
bool FibreScheduler::turn(std::uint64_t limit_ns) {
  wake_due();
  Fibre* fibre = pick();
  if (fibre != nullptr) {
    resume(*fibre);
    if (options_.schedule == Schedule::random && turns_ % kTurnsPerWorldStep == 0)
      pass_time(world_.now_ns() + kTurnsPerWorldStep * options_.turn_ns);
    return true;
  }
  if (asleep_.empty()) {
    if (living_ != 0) stuck("deadlock: every lane waits for another one");
    const std::uint64_t next_ns = std::min(world_.next_event_ns(), limit_ns);
    if (next_ns == UINT64_MAX) return false;
    pass_time(std::max(next_ns, world_.now_ns()));
    return true;
  }
  const std::uint64_t next_ns = std::min({asleep_.begin()->first, world_.next_event_ns(), limit_ns});
  pass_time(std::max(next_ns, world_.now_ns()));
  return true;
}

void FibreScheduler::pass_time(std::uint64_t to_ns) {
  if (world_.pass(to_ns)) note_progress();
  if (living_ != 0 && world_.now_ns() - last_progress_ns_ > options_.patience_ns)
    stuck("livelock: nothing has changed for too long");
}

Fibre* FibreScheduler::pick() {
  while (!ready_.empty()) {
    std::size_t at = 0;
    if (options_.schedule == Schedule::random) at = rng_.below(ready_.size());
    Fibre* fibre = ready_[at];
    if (fibre->starved > 0 && ready_.size() > 1) {
      --fibre->starved;
      continue;
    }
    fibre->starved = 0;
    ready_[at] = ready_.back();
    ready_.pop_back();
    return fibre;
  }
  return nullptr;
}

void FibreScheduler::wake_due() {
  while (!asleep_.empty() && asleep_.begin()->first <= world_.now_ns()) {
    // In timed order one at a time: what it does next may cost nothing, and others of this moment come after it.
    if (options_.schedule == Schedule::timed && !ready_.empty()) return;
    ready_.push_back(wake_first());
  }
}

// The next of those asleep, whose time has come.
Fibre* FibreScheduler::wake_first() {
  Waking& due = asleep_.begin()->second;
  Fibre* fibre = due.first;
  due.first = std::exchange(fibre->wakes_next, nullptr);
  if (due.first == nullptr) {
    if (newest_ == asleep_.begin()) newest_ = asleep_.end();
    asleep_.erase(asleep_.begin());
  }
  if (!fibre->pausing) note_progress();
  fibre->state = Fibre::State::ready;
  return fibre;
}

// Whom turn() would give the next turn, if that is a matter of this moment alone. nullptr: the scheduler has to see to
// time, chance or an end first.
Fibre* FibreScheduler::next_at_once() {
  if (options_.schedule != Schedule::timed || cancelling_ || !ready_.empty()) return nullptr;
  if (asleep_.empty() || asleep_.begin()->first > world_.now_ns()) return nullptr;
  return wake_first();
}

void FibreScheduler::make_ready(Fibre& fibre, std::uint64_t cost_ns) {
  if (options_.schedule == Schedule::timed) {
    fibre.pausing = true;
    put_to_sleep(fibre, world_.now_ns() + cost_ns);
    return;
  }
  fibre.state = Fibre::State::ready;
  ready_.push_back(&fibre);
}

void FibreScheduler::put_to_sleep(Fibre& fibre, std::uint64_t at_ns) {
  fibre.state = Fibre::State::asleep;
  fibre.wake_ns = at_ns;
  if (newest_ == asleep_.end() || newest_->first != at_ns) newest_ = asleep_.try_emplace(at_ns).first;
  Waking& waking = newest_->second;
  (waking.first == nullptr ? waking.first : waking.last->wakes_next) = &fibre;
  waking.last = &fibre;
}

void FibreScheduler::start(Fibre& fibre) {
  fibre.stack = stacks_.take();
  fibre.context = boost::context::fiber(std::allocator_arg, BorrowedStack{fibre.stack},
                                        [this, &fibre](boost::context::fiber&& from) {
                                          arrive(std::move(from), nullptr);
                                          enter_memory(fibre);
                                          body(fibre);
                                          left_ = &fibre;
                                          leaving_stack(home_bounds_, true);
                                          return std::move(home_);
                                        });
}

void FibreScheduler::body(Fibre& fibre) {
  try {
    if (!cancelling_) fibre.kernel->body(*fibre.lane);
  } catch (const Cancelled&) {
    // The device is being emptied.
  } catch (...) {
    if (!error_) error_ = std::current_exception();
  }
}

void FibreScheduler::resume(Fibre& fibre) {
  ++turns_;
  if (fibre.stack == nullptr) start(fibre);
  left_ = nullptr;
  void* token = leaving_stack(fibre.stack->bounds());
  boost::context::fiber from = std::move(fibre.context).resume();
  arrived_on_stack(token);
  if (weak_) weak_->enter(kWorld);
  // Not always the one that was resumed: fibres give the processor to each other.
  Fibre& last = *left_;
  last.context = std::move(from);
  if (!last.context) finish(last);
}

// Most turns of timed order follow each other at the same moment, the lanes of a warp one after the other: they need
// no way home and back.
void FibreScheduler::switch_out(Fibre& fibre) {
  Fibre* const next = next_at_once();
  left_ = &fibre;
  if (next == nullptr) {
    void* token = leaving_stack(home_bounds_);
    arrive(std::move(home_).resume(), token);
  } else if (next != &fibre) {
    ++turns_;
    if (next->stack == nullptr) start(*next);
    void* token = leaving_stack(next->stack->bounds());
    arrive(std::move(next->context).resume(), token);
  } else {
    ++turns_;
  }
  enter_memory(fibre);
  if (!cancelling_) return;
  fibre.cancelled = true;
  throw Cancelled{};
}

// On a fibre that has just been given the processor, by the scheduler or by another fibre.
void FibreScheduler::arrive(boost::context::fiber&& from, void* token) {
  const StackBounds bounds = arrived_on_stack(token);
  if (left_ == nullptr) {
    home_ = std::move(from);
    home_bounds_ = bounds;
  } else {
    left_->context = std::move(from);
  }
}

void FibreScheduler::finish(Fibre& fibre) {
  fibre.state = Fibre::State::finished;
  if (weak_) weak_->end(fibre.agent);
  stacks_.give(std::exchange(fibre.stack, nullptr));
  --living_;
  note_progress();
  FibreBlock& block = *fibre.block;
  --block.living;
  if (!cancelling_ && block.arrived != 0 && block.arrived == block.living) release_barrier(block);
  if (--fibre.kernel->living == 0 && !cancelling_) kernels_.erase(fibre.kernel->id);
}

// --- On a fibre ---
// (While a lane that was cancelled is unwound, destructors of its own may still come here.)

void FibreScheduler::before_atomic(Fibre& fibre, Here here) {
  if (fibre.cancelled) return;
  fibre.here = here;
  if (weak_) weak_->go_to(here);
  if (options_.schedule == Schedule::random) {
    if (switch_one_in_ > 1 && rng_.below(switch_one_in_) != 0) return;
    if (starve_one_in_ != 0 && rng_.below(starve_one_in_) == 0)
      fibre.starved = static_cast<std::uint32_t>(rng_.below(kLongestStarvation));
  }
  if (weak_) WeakMemory::leave();
  make_ready(fibre, options_.atomic_ns);
  switch_out(fibre);
}

void FibreScheduler::after_atomic(Fibre& fibre, bool changed, Here here) {
  if (!changed) return;
  {
    const OutsideMemory outside(weak_.get());
    note_progress();
  }
  // What was published too early must be seen by others before this lane repairs it.
  if (options_.schedule == Schedule::random) before_atomic(fibre, here);
}

void FibreScheduler::sleep(Fibre& fibre, std::uint64_t ns, bool pausing, Here here) {
  if (fibre.cancelled) return;
  fibre.here = here;
  fibre.pausing = pausing;
  if (weak_) weak_->go_to(here);
  if (weak_) WeakMemory::leave();
  if (options_.schedule == Schedule::random && pausing) ns = 1 + rng_.below(2 * ns + 1);
  put_to_sleep(fibre, world_.now_ns() + ns);
  switch_out(fibre);
}

std::uint64_t FibreScheduler::meet(Fibre& fibre, std::uint32_t mask, Rendezvous::Kind kind, std::uint64_t value,
                                   std::uint32_t source, Here here) {
  if (fibre.cancelled) return 0;
  fibre.here = here;
  fibre.mask = mask;
  rest_memory(fibre);
  const std::uint32_t lane = fibre.lane->lane();
  if (fibre.warp->rendezvous.arrive(lane, mask, kind, value, source)) {
    // The other collectives order no memory on a GPU.
    if (weak_ && kind == Rendezvous::Kind::sync) {
      std::vector<Agent> met;
      for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1)
        met.push_back(fibre.warp->lanes[first_lane(rest)]->agent);
      weak_->meet(met);
    }
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1)
      make_ready(*fibre.warp->lanes[first_lane(rest)], options_.collective_ns);
  } else {
    fibre.state = Fibre::State::meeting;
  }
  switch_out(fibre);
  return fibre.warp->rendezvous.result(lane);
}

void FibreScheduler::barrier(Fibre& fibre, Here here) {
  if (fibre.cancelled) return;
  fibre.here = here;
  fibre.state = Fibre::State::barrier;
  rest_memory(fibre);
  FibreBlock& block = *fibre.block;
  block.waiting.push_back(&fibre);
  if (++block.arrived == block.living) release_barrier(block);
  switch_out(fibre);
}

void FibreScheduler::release_barrier(FibreBlock& block) {
  block.arrived = 0;
  if (weak_) {
    std::vector<Agent> met;
    for (const Fibre* fibre : block.waiting) met.push_back(fibre->agent);
    weak_->meet(met);
  }
  for (Fibre* fibre : std::exchange(block.waiting, {})) make_ready(*fibre, options_.collective_ns);
}

// --- Ends ---

void FibreScheduler::cancel_all() {
  cancelling_ = true;
  for (auto& [id, kernel] : kernels_) {
    for (auto& fibre : kernel->fibres) {
      if (fibre->state != Fibre::State::finished && fibre->stack != nullptr) resume(*fibre);
    }
  }
  kernels_.clear();
  ready_.clear();
  asleep_.clear();
  newest_ = asleep_.end();
  living_ = 0;
  cancelling_ = false;
}

void FibreScheduler::stuck(const char* what) {
  const std::string text = std::string(what) + " (seed " + std::to_string(options_.seed) + ", turn " +
                           std::to_string(turns_) + ")\n" + report();
  cancel_all();
  throw StuckError(text);
}

std::string FibreScheduler::report() const {
  std::map<std::string, std::pair<std::uint32_t, std::string>> places;
  for (const auto& [id, kernel] : kernels_) {
    for (const auto& fibre : kernel->fibres) {
      if (fibre->state == Fibre::State::finished) continue;
      std::string place =
          "  kernel " + std::to_string(id) + ", " + fibre->here.file + ":" + std::to_string(fibre->here.line) + ", ";
      switch (fibre->state) {
        case Fibre::State::meeting:
          place += "in a collective of mask " + std::to_string(fibre->mask);
          break;
        case Fibre::State::barrier:
          place += "at the block's barrier";
          break;
        case Fibre::State::asleep:
          place += fibre->pausing ? "pausing" : "busy";
          break;
        default:
          place += fibre->stack == nullptr ? "not started" : "ready";
      }
      auto& [count, threads] = places[place];
      constexpr std::uint32_t kNamedThreads = 8;
      if (count < kNamedThreads)
        threads += (count == 0 ? "" : ", ") + std::to_string(fibre->lane->thread());
      else if (count == kNamedThreads)
        threads += ", ...";
      ++count;
    }
  }
  std::string text;
  for (const auto& [place, who] : places)
    text += place + ": " + std::to_string(who.first) + " threads (" + who.second + ")\n";
  return text;
}

}  // namespace flashmob::gpu::simt::detail

namespace flashmob::gpu::simt {

void FibreLane::sync_block(Here here) { scheduler_.barrier(fibre_, here); }
std::byte* FibreLane::shared() { return fibre_.block->shared.data(); }
std::uint64_t FibreLane::now_ns() { return scheduler_.clock_ns(); }
void FibreLane::pause(std::uint32_t ns, Here here) {
  scheduler_.sleep(fibre_, ns == 0 ? scheduler_.pause_ns() : ns, true, here);
}
void FibreLane::busy(std::uint64_t ns, Here here) { scheduler_.sleep(fibre_, ns, false, here); }
void FibreLane::before_atomic(Here here) { scheduler_.before_atomic(fibre_, here); }
void FibreLane::after_atomic(bool changed, Here here) { scheduler_.after_atomic(fibre_, changed, here); }
std::uint64_t FibreLane::meet(std::uint32_t mask, Rendezvous::Kind kind, std::uint64_t value, std::uint32_t source,
                              Here here) {
  return scheduler_.meet(fibre_, mask, kind, value, source, here);
}

FibreDevice::FibreDevice(World& world, const FibreOptions& options)
    : scheduler_(std::make_unique<detail::FibreScheduler>(world, options)) {}
FibreDevice::~FibreDevice() = default;
void FibreDevice::wait(Kernel kernel) { scheduler_->run(kernel, UINT64_MAX); }
void FibreDevice::pass(std::uint64_t duration_ns) { scheduler_->run(0, now_ns() + duration_ns); }
bool FibreDevice::finished(Kernel kernel) const { return scheduler_->finished(kernel); }
std::uint64_t FibreDevice::now_ns() const { return scheduler_->world().now_ns(); }
std::uint64_t FibreDevice::turns() const { return scheduler_->turns(); }
FibreDevice::Kernel FibreDevice::add(const Shape& shape, std::function<void(FibreLane&)> body) {
  return scheduler_->add(shape, std::move(body));
}

}  // namespace flashmob::gpu::simt
