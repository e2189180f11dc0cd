// The fibres of a FibreDevice and who of them goes on (see simt/fibre.h). For one thread.
#pragma once

#include <boost/context/fiber.hpp>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "flashmob/gpu/simt/fibre.h"
#include "simt/fibre_stack.h"
#include "simt/weak_memory.h"

namespace flashmob::gpu::simt::detail {

struct FibreWarp {
  Rendezvous rendezvous;
  std::vector<Fibre*> lanes;
};

struct FibreBlock {
  std::uint32_t living = 0;   // threads that have not returned
  std::uint32_t arrived = 0;  // at the block's barrier
  std::vector<Fibre*> waiting;
  std::vector<std::byte> shared;
};

struct FibreKernel {
  std::uint64_t id = 0;
  std::function<void(FibreLane&)> body;
  std::deque<FibreWarp> warps;
  std::deque<FibreBlock> blocks;
  std::vector<std::unique_ptr<Fibre>> fibres;
  std::uint32_t living = 0;
};

struct Fibre {
  enum class State : std::uint8_t { ready, asleep, meeting, barrier, finished };

  boost::context::fiber context;  // while it does not run
  FibreStack* stack = nullptr;
  FibreKernel* kernel = nullptr;
  FibreWarp* warp = nullptr;
  FibreBlock* block = nullptr;
  std::optional<FibreLane> lane;
  State state = State::ready;
  bool cancelled = false;     // on its way out: it waits for nobody any more
  bool pausing = false;       // asleep in pause(), not in busy()
  std::uint32_t starved = 0;  // so many turns are still given to others
  std::uint64_t wake_ns = 0;
  Fibre* wakes_next = nullptr;  // at the same time
  std::uint32_t mask = 0;  // of the meeting
  Here here{"", 0};
  Agent agent = kWorld;  // in weak memory
};

class FibreScheduler {
 public:
  FibreScheduler(World& world, const FibreOptions& options);
  ~FibreScheduler();

  std::uint64_t add(const Shape& shape, std::function<void(FibreLane&)> body);
  // Runs until the kernel (0: none) is finished, or the world's time has come to limit_ns.
  void run(std::uint64_t kernel, std::uint64_t limit_ns);
  bool finished(std::uint64_t kernel) const { return kernels_.find(kernel) == kernels_.end(); }
  World& world() { return world_; }
  std::uint64_t turns() const { return turns_; }

  // --- Called on a fibre ---
  void before_atomic(Fibre& fibre, Here here);
  void after_atomic(Fibre& fibre, bool changed, Here here);
  void sleep(Fibre& fibre, std::uint64_t ns, bool pausing, Here here);
  std::uint64_t meet(Fibre& fibre, std::uint32_t mask, Rendezvous::Kind kind, std::uint64_t value, std::uint32_t source,
                     Here here);
  void barrier(Fibre& fibre, Here here);
  std::uint64_t pause_ns() const { return options_.pause_ns; }
  std::uint64_t clock_ns() {
    const OutsideMemory outside(weak_.get());
    return world_.clock_ns();
  }

 private:
  struct Cancelled {};
  // Fibres that wake at the same time: first come, first served. The lanes of a warp mostly do.
  struct Waking {
    Fibre* first = nullptr;
    Fibre* last = nullptr;
  };

  void start(Fibre& fibre);
  void body(Fibre& fibre);
  void resume(Fibre& fibre);
  void switch_out(Fibre& fibre);
  void arrive(boost::context::fiber&& from, void* token);
  void make_ready(Fibre& fibre, std::uint64_t cost_ns);
  void put_to_sleep(Fibre& fibre, std::uint64_t at_ns);
  void release_barrier(FibreBlock& block);
  void finish(Fibre& fibre);
  Fibre* pick();
  void wake_due();
  Fibre* wake_first();
  Fibre* next_at_once();
  bool turn(std::uint64_t limit_ns);
  void pass_time(std::uint64_t to_ns);
  void note_progress() { last_progress_ns_ = world_.now_ns(); }
  void cancel_all();
  [[noreturn]] void stuck(const char* what);
  std::string report() const;
  void enter_memory(Fibre& fibre) {
    if (weak_) weak_->enter(fibre.agent, &fibre.stack->bounds());
  }
  // It will wait for others.
  void rest_memory(Fibre& fibre) {
    if (!weak_) return;
    weak_->go_to(fibre.here);
    weak_->rest();
    WeakMemory::leave();
  }

  World& world_;
  FibreOptions options_;
  Rng rng_;
  // Schedule::random: a lane goes on with chance 1 - 1/switch_one_in_, and one in starve_one_in_ turns (0: none) makes
  // its lane stand back for some time.
  std::uint64_t switch_one_in_ = 1;
  std::uint64_t starve_one_in_ = 0;
  std::unique_ptr<WeakMemory> weak_;  // nullptr: all lanes see the same
  StackPool stacks_;
  std::map<std::uint64_t, std::unique_ptr<FibreKernel>> kernels_;
  std::vector<Fibre*> ready_;
  std::map<std::uint64_t, Waking> asleep_;  // by time
  std::map<std::uint64_t, Waking>::iterator newest_ = asleep_.end();  // whom the last fibre was put to
  std::uint64_t next_kernel_ = 1;
  std::uint64_t turns_ = 0;
  std::uint64_t last_progress_ns_ = 0;
  std::uint32_t living_ = 0;
  bool cancelling_ = false;
  std::exception_ptr error_;
  // The scheduler's own context while a fibre runs, its stack, and who gave the processor away last (nullptr: the
  // scheduler).
  boost::context::fiber home_;
  StackBounds home_bounds_;
  Fibre* left_ = nullptr;
};

}  // namespace flashmob::gpu::simt::detail
