// The CPU backend for finding faults and for virtual time: every lane is a fibre, all of them on the calling thread,
// and a scheduler that depends on nothing but its seed says who goes on at each atomic, collective and pause.
//
// Schedule::random looks for bad interleavings: who is next is drawn, in bursts and with lanes left out for a while,
// as the seed decides; a failure is replayed by running the same seed. Schedule::timed is a discrete-event simulation:
// every operation takes its cost, lanes run in the order of their own times, and busy(ns) overlaps with everything
// else, as on a GPU that has multiprocessors enough for all.
//
// A device that no lane can ever leave is found: if all wait in collectives (deadlock), or nothing changes for
// FibreOptions::patience_ns (livelock), wait() throws StuckError, which says where every lane stands. With weak memory
// it throws RaceError for plain accesses that nothing orders.
// For one thread. Deterministic if the World is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "flashmob/gpu/simt/cpu_lane.h"
#include "flashmob/gpu/simt/stuck.h"
#include "flashmob/gpu/simt/world.h"

namespace flashmob::gpu::simt {

enum class Schedule : std::uint8_t { random, timed };

// A line of device code; with file and line in every compiler, which `Here` has not.
struct SourceLine {
  const char* file = "";
  std::uint32_t line = 0;  // 0: none
};

// Memory as weak as the C++ and CUDA models allow, drawn by the seed, and races of plain accesses found. Only in
// programs that are compiled for it (gpu/simt/weak_memory.h says how).
struct WeakMemoryOptions {
  bool on = false;
  // For tests that ask which orders are needed: what stands at this line orders nothing.
  SourceLine without_order;
  // Where they find the lines that order something: by file and line.
  std::set<std::pair<std::string, std::uint32_t>>* ordered_lines = nullptr;
};

struct FibreOptions {
  std::uint64_t seed = 1;
  Schedule schedule = Schedule::random;
  std::uint64_t patience_ns = 100'000'000;  // without any change for so long: livelock
  std::size_t stack_bytes = 64 << 10;
  // Schedule::random: what one turn of a lane takes.
  std::uint64_t turn_ns = 5;
  // Schedule::timed: what an operation takes. About what they take on a GPU of the Hopper generation.
  std::uint64_t atomic_ns = 20;
  std::uint64_t collective_ns = 10;
  std::uint64_t pause_ns = 50;  // pause(0)
  WeakMemoryOptions weak_memory{};
};

namespace detail {
class FibreScheduler;
struct Fibre;
}  // namespace detail

class FibreLane : public CpuLane<FibreLane> {
 public:
  static constexpr bool kSeesProgress = true;
  static constexpr bool kSharesInstructions = false;

  FibreLane(const Place& place, detail::FibreScheduler& scheduler, detail::Fibre& fibre)
      : CpuLane(place), scheduler_(scheduler), fibre_(fibre) {}

  void sync_block(Here here = Here::current());
  std::byte* shared();
  std::uint64_t now_ns();
  void pause(std::uint32_t ns = 0, Here here = Here::current());
  void busy(std::uint64_t ns, Here here = Here::current());
  void before_atomic(Here here);
  void after_atomic(bool changed, Here here);
  std::uint64_t meet(std::uint32_t mask, Rendezvous::Kind kind, std::uint64_t value, std::uint32_t source, Here here);

 private:
  detail::FibreScheduler& scheduler_;
  detail::Fibre& fibre_;
};

class FibreDevice {
 public:
  using Lane = FibreLane;
  using Kernel = std::uint64_t;  // names one launch

  // `world` outlives the device.
  FibreDevice(World& world, const FibreOptions& options);
  ~FibreDevice();
  FibreDevice(const FibreDevice&) = delete;
  FibreDevice& operator=(const FibreDevice&) = delete;

  // Adds a kernel; its lanes run inside wait(), run() and pass(), beside those of all other kernels. The arguments are
  // copied.
  template <class Functor, class... Args>
  Kernel launch(const Shape& shape, Functor functor, Args... args) {
    return add(shape, [functor, args...](FibreLane& t) { functor(t, args...); });
  }
  // Runs until the kernel is finished. Throws StuckError, or what a lane of any kernel has thrown; all kernels are then
  // gone.
  void wait(Kernel kernel);
  template <class Functor, class... Args>
  void run(const Shape& shape, Functor functor, Args... args) {
    wait(launch(shape, functor, args...));
  }
  // Runs for so much of the world's time, whatever finishes meanwhile: for a host thread that waits.
  void pass(std::uint64_t duration_ns);
  bool finished(Kernel kernel) const;
  std::uint64_t now_ns() const;
  // How many times a lane was given the processor: the measure of a schedule's length.
  std::uint64_t turns() const;

 private:
  Kernel add(const Shape& shape, std::function<void(FibreLane&)> body);
  std::unique_ptr<detail::FibreScheduler> scheduler_;
};

}  // namespace flashmob::gpu::simt
