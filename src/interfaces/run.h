// One measured run: threads that keep a number of requests under way by one interface, a ramp, a window, and what was
// seen in it.
//
// A request counts if it ended within [begin_ns, end_ns) of CLOCK_MONOTONIC, which is this room's only clock: the
// meters of others are held against it. Its latency is from when its thread turned to it until that thread saw its end.
// What threads cost is read by themselves at their first look at the clock beyond each edge, so at most a request
// later; where none ended in the window, it is from their last look before it. What helpers and the machine cost is
// read at the edges.
//
// Thread rule: run() once, on one thread; cancel() on any.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/histogram.h"
#include "flashmob/interfaces.h"
#include "interfaces/usage.h"

namespace flashmob::interfaces {

// Requests that were under way when the window ended, and so are in no latency.
struct Unfinished {
  std::uint64_t requests = 0;
  std::uint64_t oldest_ns = 0, total_ns = 0;  // how long they had been under way: the oldest, and all together

  Unfinished& operator+=(const Unfinished& other);
};

struct RunResult {
  // Why there is nothing else in here; empty: there is.
  std::string unsupported;
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t realtime_ahead_ns = 0;  // CLOCK_REALTIME less CLOCK_MONOTONIC at the window's begin
  std::uint64_t ios = 0, bytes = 0;
  Histogram latency_ns;
  Unfinished unfinished;
  std::map<int, std::uint64_t> errors;  // by errno
  std::uint64_t short_transfers = 0, wrong_reads = 0;
  std::optional<std::uint64_t> system_calls;  // none: they cannot be counted
  ThreadUsage threads;
  Helper helpers;
  std::uint32_t helper_count = 0;
  MachineUsage machine;
  PerfCounters::Values counters;
  std::string counters_absent;
  bool was_cancelled = false;

  double seconds() const { return static_cast<double>(end_ns - begin_ns) / 1e9; }
};

// Throws ConfigError where no run could be.
void check_options(const InterfaceOptions& options);

class MeasuredRun {
 public:
  // `options` are checked and outlive it.
  explicit MeasuredRun(const InterfaceOptions& options) : options_(options) {}
  std::unique_ptr<RunResult> run();
  void cancel() { is_cancelled_.store(true, std::memory_order_relaxed); }

 private:
  const InterfaceOptions& options_;
  std::atomic<bool> is_cancelled_{false};
};

}  // namespace flashmob::interfaces
