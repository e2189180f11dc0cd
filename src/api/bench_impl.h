// What a Bench is made of: a device or the door of another process's, a driver, jobs, a clock. bench_build.cpp puts it
// together, bench_run.cpp runs it, bench.cpp watches and reports.
// Thread rule: run() by one thread; meanwhile progress() and cancel() from any, which look at the atomics and, with the
// mutex held, at the jobs.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/bench_trace.h"
#include "api/device.h"
#include "api/device_report.h"
#include "api/device_watch.h"
#include "api/fill.h"
#include "base/clock.h"
#include "driver/nvme_driver.h"
#include "engine/virtual_world.h"
#include "flashmob/bench.h"
#include "load/completion_waiter.h"
#include "load/job.h"
#include "load/result.h"
#include "load/verifier.h"

namespace flashmob {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Who stops a run while its device is made ready does not wait until it is.
struct CancelledBuild {};

struct Bench::Impl {
  DeviceConfig config;
  BenchOptions options;
  std::atomic<bool> cancelled{false};
  std::atomic<bool> yardstick_cancelled{false};
  std::mutex mutex;  // guards `jobs` against progress() while they come and go
  std::vector<std::unique_ptr<load::Job>> jobs;
  std::atomic<const char*> phase{"fill"};
  std::atomic<double> fill_fraction{0};
  std::atomic<std::uint64_t> fill_total_bytes{0};
  std::atomic<std::uint64_t> started_ns{0};  // wall clock of the first poll
  // progress() only.
  std::uint64_t last_ios = 0, last_latency = 0;
  engine::LiveFigures last_live;
  std::chrono::steady_clock::time_point last_look = std::chrono::steady_clock::now();

  Impl(const DeviceConfig& device_config, const BenchOptions& bench_options);

  ~Impl() { tear_down(); }

  std::string run();
  // Of our own device while it runs; with the mutex held.
  std::optional<engine::LiveFigures> live() const {
    if (jobs.empty() || !device) return std::nullopt;
    return device->engine().live();
  }

 private:
  void build();
  void open_own_device();
  void prepare_own_store(bool file_existed);
  void open_door();
  void prepare_door_store();
  void start_driver();
  void make_verifier(load::TruthSource source);
  driver::PciDevice& pci() { return device ? device->pci() : *door; }
  void on_measure();
  void on_measured();
  void tear_down();
  void make_jobs();
  load::JobConfig job_config() const;
  std::uint64_t find_path_ns();
  load::LoopKind loop() const;
  std::uint64_t requesters() const;
  std::uint64_t requesters_of(std::uint32_t queue) const;
  std::uint64_t job_seed(std::uint32_t thread) const;
  load::Pattern pattern(std::uint32_t stream) const;
  std::vector<std::uint16_t> placement_handles() const;
  void run_real();
  void poll_to_the_end(load::Job& job, load::CompletionWaiter& waiter, api::DeviceWatch& watch) const;
  bool sleep_for_completions(load::Job& job, load::CompletionWaiter& waiter) const;
  void arm_interrupts();
  std::uint16_t vector_of(std::uint32_t queue);
  void run_virtual();
  void abandon_jobs();
  void pause_after_fruitless_poll() const;
  std::uint64_t patience_ns() const;
  bool only_lost_commands_are_left() const;
  std::string report(std::chrono::steady_clock::time_point began);
  api::Measure yardstick(const engine::FidelityStats& measured) const;
  std::string why_not_verified(const load::JobStats& stats) const;
  std::optional<load::Provenance::Window> window(const load::JobStats& stats) const;
  bool may_write() const;
  bool has_writes() const;
  void interrupt(load::Job& job, std::size_t index);

  bool is_virtual = false;
  bool over_network = false;
  bool takes_any_order = true;  // blocks of the namespace may be written in any order
  bool device_failed = false;  // the run ended with it
  Clock clock;
  std::unique_ptr<timing::TimingModel> begun_with;  // the device's, when the run began; nullptr: it has no past
  std::unique_ptr<api::Device> device;  // nullptr: the device is another process's
  std::unique_ptr<driver::PciDevice> door;  // its door
  std::unique_ptr<engine::VirtualWorld> world;  // virtual time alone
  std::vector<std::size_t> job_actors;  // of `world`
  load::Completion completion = load::Completion::poll;
  // How each job's thread waits, and whom a vector wakes.
  std::vector<std::unique_ptr<load::CompletionWaiter>> waiters;
  std::map<std::uint16_t, std::vector<load::CompletionWaiter*>> by_vector;
  std::optional<load::DriverWaits> waits;
  std::unique_ptr<driver::NvmeDriver> driver;
  std::unique_ptr<api::FileView> file;
  std::unique_ptr<load::Verifier> verifier;
  api::BenchTrace trace;
  std::string not_fillable;  // why the store could not be filled with content to verify
  engine::FaultSums faults_before;  // that were over when measuring began
  std::uint64_t path_ns = 0;  // the path's constant cost, as calibrated
  std::uint32_t nsid = 1;
  std::uint64_t namespace_bytes = 0;
  std::uint32_t max_io_bytes = 512;
  unsigned lba_shift = 9;
  double fill_seconds = 0;
  std::vector<std::pair<std::string, std::uint64_t>> cpu_before;
  std::vector<std::pair<std::string, double>> cpu_share;
  std::chrono::steady_clock::time_point measure_started;
};

}  // namespace flashmob
