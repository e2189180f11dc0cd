#include "interfaces/run.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/config_checks.h"
#include "interfaces/interface.h"
#include "interfaces/target.h"
#include "interfaces/worker.h"

namespace flashmob::interfaces {
namespace {

using config_checks::check_range;
using config_checks::reject;

constexpr std::uint32_t kMostThreads = 256;
constexpr std::uint32_t kMostDepth = 4096;
constexpr std::uint32_t kMostBlockBytes = 16u << 20;
constexpr std::uint64_t kMostBufferBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kLongestNs = std::uint64_t{7} * 24 * 3600 * 1'000'000'000;

// One run at a time; with the tasks that were helpers of earlier ones and may linger, as the C library's do for a
// second.
std::mutex running;
std::set<pid_t> known_helpers;

// Threads of a run; joined whatever happens.
class Crew {
 public:
  Crew(const InterfaceOptions& options, const InterfaceKind& kind, const Target& target,
       const std::atomic<bool>& is_cancelled) {
    for (std::uint32_t index = 0; index < options.threads; ++index)
      workers_.push_back(std::make_unique<Worker>(options, kind, target, index, stage_, is_cancelled));
    try {
      for (const auto& worker : workers_) threads_.emplace_back([one = worker.get()] { one->main(); });
    } catch (const std::system_error& error) {
      // Those that are there wait to be called off; a vector of them that goes as it is would end the process.
      const std::size_t made = threads_.size();
      dismiss();
      reject("threads", std::to_string(options.threads),
             "the system made " + std::to_string(made) + " of them and refused the next (" + error.code().message() +
                 "); use fewer, or raise its limits");
    } catch (...) {
      dismiss();
      throw;
    }
  }
  ~Crew() { dismiss(); }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Throws what a worker met while it was set up.
  void wait_until_ready() {
    std::unique_lock lock(stage_.mutex);
    stage_.changed.wait(lock, [&] { return stage_.ready == workers_.size(); });
    rethrow();
  }
  void start(std::uint64_t begin_ns, std::uint64_t end_ns) {
    const std::lock_guard lock(stage_.mutex);
    stage_.begin_ns = begin_ns;
    stage_.end_ns = end_ns;
    stage_.has_started = true;
    stage_.changed.notify_all();
  }
  // Until this time of the clock, or until all are out of the window.
  void wait_until(std::uint64_t time_ns) {
    std::unique_lock lock(stage_.mutex);
    const auto time = std::chrono::steady_clock::time_point(std::chrono::nanoseconds(time_ns));
    stage_.changed.wait_until(lock, time, [&] { return stage_.over == workers_.size(); });
  }
  void wait_until_over() {
    std::unique_lock lock(stage_.mutex);
    stage_.changed.wait(lock, [&] { return stage_.over == workers_.size(); });
  }
  void dismiss() {
    {
      const std::lock_guard lock(stage_.mutex);
      stage_.may_leave = true;
      stage_.is_called_off = !stage_.has_started;
      stage_.changed.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  void rethrow() const {
    for (const auto& worker : workers_)
      if (worker->error() != nullptr) std::rethrow_exception(worker->error());
  }
  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }

 private:
  Stage stage_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;
};

std::uint64_t realtime_ahead_ns() {
  const auto realtime = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(realtime).count()) - monotonic_ns();
}

void add_up(const Crew& crew, const InterfaceOptions& options, const InterfaceKind& kind, RunResult& result) {
  if (!kind.hides_system_calls) result.system_calls = 0;
  std::uint64_t left_ns = 0;
  for (const auto& worker : crew.workers()) {
    const Worker::Seen& seen = worker->seen();
    result.ios += seen.ios;
    result.latency_ns.merge(seen.latency_ns);
    for (const auto& [error, count] : seen.errors) result.errors[error] += count;
    result.short_transfers += seen.short_transfers;
    result.wrong_reads += seen.wrong_reads;
    if (result.system_calls) *result.system_calls += seen.system_calls;
    result.threads += seen.usage;
    result.counters.cycles += seen.counters.cycles;
    result.counters.instructions += seen.counters.instructions;
    if (!seen.counters_absent.empty()) result.counters_absent = seen.counters_absent;
    left_ns = std::max(left_ns, seen.left_ns);
    result.unfinished += seen.unfinished;
  }
  result.bytes = result.ios * options.block_bytes;
  if (options.ios != 0 || result.was_cancelled) result.end_ns = std::max(left_ns, result.begin_ns);
}

void measure(const InterfaceOptions& options, const InterfaceKind& kind, const std::atomic<bool>& is_cancelled,
             RunResult& result) {
  if (kind.is_synchronous && options.depth > 1)
    throw Unsupported(std::string(kind.name) +
                      " is synchronous: a thread has one request under way; use more threads in place of depth");
  const Target target(options, kind);
  std::set<pid_t> others;
  for (const pid_t task : tasks_of_process())
    if (!known_helpers.contains(task)) others.insert(task);
  Crew crew(options, kind, target, is_cancelled);
  crew.wait_until_ready();
  for (const auto& worker : crew.workers()) others.insert(worker->task());
  result.begin_ns = monotonic_ns() + options.ramp_ns;
  result.end_ns = options.ios != 0 ? UINT64_MAX : result.begin_ns + options.runtime_ns;
  crew.start(result.begin_ns, result.end_ns);
  crew.wait_until(result.begin_ns);
  result.realtime_ahead_ns = realtime_ahead_ns();
  const MachineUsage machine = usage_of_machine();
  const Helpers before = helpers_beside(others);
  // The window's end, and not that of the last thread, which a request that is stuck may keep much longer.
  if (options.ios != 0)
    crew.wait_until_over();
  else
    crew.wait_until(result.end_ns);
  const Helpers after = helpers_beside(others);
  result.machine = usage_of_machine() - machine;
  result.helpers = difference(before, after);
  result.helper_count = static_cast<std::uint32_t>(after.size());
  crew.wait_until_over();
  for (const auto& [task, usage] : helpers_beside(others)) known_helpers.insert(task);
  crew.dismiss();
  crew.rethrow();
  result.was_cancelled = is_cancelled.load(std::memory_order_relaxed);
  add_up(crew, options, kind, result);
}

}  // namespace

Unfinished& Unfinished::operator+=(const Unfinished& other) {
  requests += other.requests;
  oldest_ns = std::max(oldest_ns, other.oldest_ns);
  total_ns += other.total_ns;
  return *this;
}

void check_options(const InterfaceOptions& options) {
  if (find_kind(options.interface_name) == nullptr) {
    std::string names;
    for (const InterfaceKind& kind : kinds()) names += (names.empty() ? "" : ", ") + std::string(kind.name);
    reject("interface_name", config_checks::quoted(options.interface_name), "use one of " + names);
  }
  config_checks::check_one_of("rw", options.rw, {"read", "write", "randread", "randwrite"});
  check_range("block_bytes", options.block_bytes, 512, kMostBlockBytes);
  check_range("depth", options.depth, 1, kMostDepth);
  check_range("threads", options.threads, 1, kMostThreads);
  check_range("ramp_ns", options.ramp_ns, 0, kLongestNs);
  if (options.ios == 0) check_range("runtime_ns", options.runtime_ns, 1, kLongestNs);
  if (options.ios != 0) check_range("ios", options.ios, options.threads, UINT64_MAX / 2);
  const std::uint64_t buffers = std::uint64_t{options.depth} * options.threads * options.block_bytes;
  if (buffers > kMostBufferBytes)
    reject("depth * threads * block_bytes", std::to_string(buffers), "use at most 1 GiB of buffers");
  try {
    const Target target(options, *find_kind(options.interface_name));
  } catch (const Unsupported&) {
    // That is a result, and no mistake.
  }
}

std::unique_ptr<RunResult> MeasuredRun::run() {
  const std::unique_lock alone(running, std::try_to_lock);
  if (!alone.owns_lock())
    throw ConfigError("a measured run of an interface is under way in this process already; wait until it is done");
  auto result = std::make_unique<RunResult>();
  try {
    measure(options_, *find_kind(options_.interface_name), is_cancelled_, *result);
  } catch (const Unsupported& error) {
    *result = RunResult{};
    result->unsupported = error.what();
  }
  return result;
}

}  // namespace flashmob::interfaces
