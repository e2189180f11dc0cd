// A thread of a measured run: it keeps `depth` requests under way and counts those that end within the window.
//
// Thread rule: a Worker belongs to its thread; what it found is read once that has been joined. Stage is for all.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/histogram.h"
#include "base/rng.h"
#include "interfaces/interface.h"
#include "interfaces/run.h"
#include "interfaces/target.h"
#include "interfaces/usage.h"

namespace flashmob::interfaces {

std::uint64_t monotonic_ns();

// Where threads of a run and the one that started them wait for each other.
struct Stage {
  std::mutex mutex;
  std::condition_variable changed;
  // All below: under the mutex.
  std::uint32_t ready = 0;  // threads that are set up, or have failed
  std::uint32_t over = 0;   // threads that are out of the window
  bool has_started = false;
  bool is_called_off = false;
  bool may_leave = false;  // nobody looks at the interfaces' helpers any more
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
};

class Worker {
 public:
  Worker(const InterfaceOptions& options, const InterfaceKind& kind, const Target& target, std::uint32_t index,
         Stage& stage, const std::atomic<bool>& is_cancelled);

  void main();

  // What it saw in the window.
  struct Seen {
    Histogram latency_ns;
    std::map<int, std::uint64_t> errors;
    std::uint64_t ios = 0, failed = 0, short_transfers = 0, wrong_reads = 0, system_calls = 0;
    ThreadUsage usage;
    PerfCounters::Values counters;
    std::string counters_absent;
    std::uint64_t left_ns = 0;
    Unfinished unfinished;
  };
  const Seen& seen() const { return *seen_; }
  // Set before the thread is ready.
  pid_t task() const { return task_; }
  std::exception_ptr error() const { return error_; }

 private:
  struct Aligned {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  struct Slot {
    std::uint64_t offset = 0;
    std::uint64_t started_ns = 0;
    bool is_under_way = false;
  };

  void set_up();
  void probe();
  void load();
  void issue(std::uint32_t slot, std::uint64_t now);
  void finish(const Done& done, std::uint64_t now);
  void look();
  void enter(std::uint64_t now);
  void leave(std::uint64_t now);
  std::uint64_t next_offset();

  const InterfaceOptions& options_;
  const InterfaceKind& kind_;
  const Target& target_;
  Stage& stage_;
  const std::atomic<bool>& is_cancelled_;
  const bool is_write_;
  const bool is_random_;
  Rng rng_;
  std::uint64_t quota_ = 0;  // measured requests, 0: by time
  std::uint64_t first_block_ = 0, blocks_ = 0, cursor_ = 0;  // sequential: of this thread alone

  std::optional<PerfCounters> perf_;
  std::optional<media::FileDescriptor> file_;
  std::unique_ptr<std::byte, Aligned> buffers_;
  Lane lane_;
  std::unique_ptr<Interface> interface_;  // goes before its lane does
  std::vector<Slot> slots_;
  std::vector<Done> done_;
  std::uint32_t under_way_ = 0;
  std::uint64_t begin_ns_ = 0, end_ns_ = 0;
  bool is_inside_ = false;
  bool is_over_ = false;

  std::unique_ptr<Seen> seen_ = std::make_unique<Seen>();
  pid_t task_ = 0;
  std::exception_ptr error_;
};

}  // namespace flashmob::interfaces
