// flashmob::Bench: builds a device, or attaches to one of another process; fills it, drives it through its door,
// reports.
#include "flashmob/bench.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <semaphore>
#include <thread>

#include "api/device.h"
#include "api/device_report.h"
#include "api/door_store.h"
#include "api/fill.h"
#include "api/open_target.h"
#include "api/simulator.h"
#include "base/check.h"
#include "load/expected.h"
#include "load/job.h"
#include "load/result.h"
#include "load/trace.h"

namespace flashmob {
namespace {

std::uint64_t thread_cpu_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

// A look at a register may be a message to another process: rare enough not to disturb, often enough to end a run.
constexpr int kPausesAfterFruitlessPoll = 4;
constexpr std::chrono::milliseconds kTimeBetweenQuestions{500};
constexpr char kDeviceIsGone[] = "the device is gone: it stopped answering during the run";
// How long commands that only faults can hold back are waited for.
constexpr std::uint64_t kPatienceNs = 10'000'000;
constexpr std::uint64_t kPatienceWithOthersNs = 30'000'000'000;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void validate(const BenchOptions& o) {
  const auto require = [](bool good, const char* message) {
    if (!good) throw ConfigError(message);
  };
  require(o.clock == "real" || o.clock == "virtual", "clock must be real or virtual");
  require(o.queues >= 1 && o.queues <= 4096, "queues must be 1...4096");
  require(o.queue_depth >= 1 && o.queue_depth <= 65535, "queue_depth must be 1...65535");
  require(o.queue_entries == 0 || (o.queue_entries > o.queue_depth && o.queue_entries <= 65536),
          "queue_entries must be above queue_depth and at most 65536: a ring keeps one entry empty");
  require(o.threads >= 1 && o.threads <= o.queues, "threads must be 1...queues");
  require(std::isfinite(o.rate_iops) && o.rate_iops >= 0, "rate_iops must be 0 (closed loop) or positive");
  require(o.arrivals == "fixed" || o.arrivals == "poisson", "arrivals must be fixed or poisson");
  require(o.verify_percent >= 0 && o.verify_percent <= 100, "verify_percent must be 0...100");
  require(o.virtual_poll_ns >= 1, "virtual_poll_ns must be at least 1");
  require(!o.block_sizes.empty(), "block_sizes must name at least one size");
  require(o.target.empty() || o.clock == "real", "clock must be real: a device of another process has no other");
  require(o.ios != 0 || o.runtime_ns != 0 || !o.trace_path.empty(), "runtime_ns or ios must be above 0");
  if (!o.target.empty()) api::check_target(o);
}

}  // namespace

struct Bench::Impl {
  DeviceConfig config;
  BenchOptions options;
  std::atomic<bool> cancelled{false};
  std::mutex mutex;  // guards `jobs` against progress() while they come and go
  std::vector<std::unique_ptr<load::Job>> jobs;
  std::atomic<const char*> phase{"fill"};
  std::atomic<double> fill_fraction{0};
  std::atomic<std::uint64_t> started_ns{0};  // wall clock of the first poll
  // progress() only.
  std::uint64_t last_ios = 0, last_latency = 0;
  engine::LiveFigures last_live;
  std::chrono::steady_clock::time_point last_look = std::chrono::steady_clock::now();

  Impl(const DeviceConfig& device_config, const BenchOptions& bench_options)
      : config(device_config), options(bench_options) {
    config.validate();
    validate(options);
    is_virtual = options.clock == "virtual";
    if (is_virtual) config.engine.wheel_shift = 0;  // completions exactly at their targets
    clock = is_virtual ? Clock::virtual_from(1'000'000'000) : Clock::real();
  }

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
  void start_driver();
  void make_verifier(load::TruthSource source);
  driver::PciDevice& pci() { return device ? device->pci() : *door; }
  void on_measure();
  void on_measured();
  void tear_down();
  void make_jobs();
  load::Pattern pattern(std::uint32_t stream) const;
  void run_real();
  void run_virtual();
  void pause_after_fruitless_poll() const;
  std::uint64_t patience_ns() const;
  bool only_lost_commands_are_left() const;
  std::string report(double wall_seconds);
  double model_iops() const;
  bool has_writes() const;

  bool is_virtual = false;
  bool over_network = false;
  Clock clock;
  std::unique_ptr<api::Device> device;      // nullptr: the device is another process's
  std::unique_ptr<driver::PciDevice> door;  // its door
  std::unique_ptr<api::Simulator> simulator;
  std::unique_ptr<driver::NvmeDriver> driver;
  std::unique_ptr<api::FileView> file;
  std::unique_ptr<load::Verifier> verifier;
  std::vector<load::TraceIo> trace;
  std::uint32_t nsid = 1;
  std::uint64_t namespace_bytes = 0;
  std::uint32_t max_io_bytes = 512;
  unsigned lba_shift = 9;
  double fill_seconds = 0;
  std::vector<std::pair<std::string, std::uint64_t>> cpu_before;
  std::vector<std::pair<std::string, double>> cpu_share;
  std::chrono::steady_clock::time_point measure_started;
};

bool Bench::Impl::has_writes() const {
  if (!trace.empty()) return true;
  if (options.rw == "read" || options.rw == "randread") return false;
  return options.rw == "write" || options.rw == "randwrite" || options.read_share < 1.0;
}

void Bench::Impl::build() {
  if (options.target.empty())
    open_own_device();
  else
    open_door();
  phase = "ramp";
  make_jobs();
}

void Bench::Impl::open_own_device() {
  // Whether a file was there before decides what its blocks are verified against.
  const bool file_existed = api::FileView::exists(config.subsystem.namespaces.at(0).media);
  device = std::make_unique<api::Device>(config, clock);
  prepare_own_store(file_existed);
  if (is_virtual) {
    simulator = std::make_unique<api::Simulator>(clock, device->engine(), options.virtual_poll_ns, config.seed);
  } else {
    device->start();
  }
  start_driver();
}

void Bench::Impl::prepare_own_store(bool file_existed) {
  const std::string& media = config.subsystem.namespaces.at(0).media;
  const std::lock_guard lock(device->subsystem().mutex());
  const command_set::Namespace& current = *device->subsystem().info(1).current;
  namespace_bytes = current.blocks << current.lba_shift;
  lba_shift = current.lba_shift;
  const bool generated = current.base == nullptr;
  load::TruthSource source = load::TruthSource::none;
  if (generated)
    source = load::TruthSource::content;
  else if (file_existed)
    source = load::TruthSource::file;
  else if (options.fill && config.engine.move_data) {
    const auto start = std::chrono::steady_clock::now();
    if (api::fill_media({current.base, namespace_bytes}, 1, config.seed, media == "memory", fill_fraction, cancelled))
      source = load::TruthSource::content;
    fill_seconds = seconds_since(start);
  }
  if (!config.engine.move_data || options.verify_percent == 0) source = load::TruthSource::none;
  if (source == load::TruthSource::file) file = std::make_unique<api::FileView>(media);
  make_verifier(source);
}

// The device is another process's: only its driver can say what it is, and only I/O can fill it.
void Bench::Impl::open_door() {
  door = api::open_target(options);
  over_network = options.target.starts_with("nvme-tcp:");
  start_driver();
  const api::DoorNamespace found = api::examine_namespace(*driver);
  nsid = found.nsid;
  namespace_bytes = found.bytes;
  lba_shift = found.lba_shift;
  config.profile = options.target;
  config.controller.max_transfer_bytes = found.max_transfer_bytes;
  config.subsystem.namespaces.assign(1, NamespaceConfig{.size_bytes = found.bytes, .lba_bytes = 1u << found.lba_shift});
  load::TruthSource source = load::TruthSource::none;
  if (options.verify_percent > 0) {
    const auto start = std::chrono::steady_clock::now();
    source = api::prepare_store(*driver, found, config.seed, options.fill, fill_fraction, cancelled);
    fill_seconds = seconds_since(start);
  }
  make_verifier(source);
}

void Bench::Impl::start_driver() {
  const driver::Waiter waiter{[this] {
                                if (simulator)
                                  simulator->step();
                                else
                                  std::this_thread::yield();
                              },
                              [this] { return clock.now_ns(); }};
  driver = std::make_unique<driver::NvmeDriver>(pci(), waiter);
  driver->enable();
}

void Bench::Impl::make_verifier(load::TruthSource source) {
  if (!options.trace_path.empty())
    trace = load::load_trace(options.trace_path, options.trace_format, namespace_bytes, 1u << lba_shift);
  verifier = std::make_unique<load::Verifier>(source, namespace_bytes, nsid, config.seed, has_writes(),
                                              file ? file->bytes() : std::span<const std::byte>{});
}

load::Pattern Bench::Impl::pattern(std::uint32_t stream) const {
  load::PatternConfig p;
  p.rw = options.rw;
  p.read_share = options.read_share;
  p.block_sizes = options.block_sizes;
  p.distribution = options.distribution;
  p.namespace_blocks = namespace_bytes >> lba_shift;
  p.lba_shift = lba_shift;
  p.stream_index = stream;
  p.stream_count = options.queues;
  p.placement_seed = config.seed;
  return load::Pattern(p, Rng(splitmix64(config.seed ^ (0x1000 + stream))));
}

void Bench::Impl::make_jobs() {
  max_io_bytes = 0;
  for (const BlockSizeShare& share : options.block_sizes) max_io_bytes = std::max(max_io_bytes, share.bytes);
  if (!trace.empty()) {
    // Requests beyond MDTS are cut, as a host's block layer would.
    std::vector<load::TraceIo> cut;
    const std::uint32_t limit = std::min(config.controller.max_transfer_bytes, 1u << 20);
    for (const load::TraceIo& io : trace) {
      const bool data = io.kind == load::TraceKind::read || io.kind == load::TraceKind::write;
      for (std::uint32_t done = 0; data && io.bytes - done > limit; done += limit)
        cut.push_back({io.time_ns, io.offset_bytes + done, limit, io.kind});
      const std::uint32_t rest = data && io.bytes > 0 ? (io.bytes - 1) % limit + 1 : io.bytes;
      cut.push_back({io.time_ns, io.offset_bytes + io.bytes - rest, rest, io.kind});
    }
    trace = std::move(cut);
    max_io_bytes = std::max(limit, 4096u);
  }
  if (max_io_bytes > config.controller.max_transfer_bytes)
    throw ConfigError("block size " + std::to_string(max_io_bytes) + " is above controller.max_transfer_bytes = " +
                      std::to_string(config.controller.max_transfer_bytes));
  const std::uint32_t granted = driver->request_queues(options.queues);
  if (granted < options.queues)
    throw ConfigError("queues = " + std::to_string(options.queues) + ", but the device offers " +
                      std::to_string(granted) + "; raise controller.max_queue_pairs");
  const std::uint64_t slots = std::uint64_t{options.queues} * options.queue_depth;
  const std::uint64_t requesters = options.requesters == 0 ? slots : options.requesters;

  load::JobConfig job;
  job.nsid = nsid;
  job.lba_shift = lba_shift;
  job.max_io_bytes = max_io_bytes;
  job.queue_depth = options.queue_depth;
  job.think_time_ns = options.think_time_ns;
  job.poisson = options.arrivals == "poisson";
  job.loop = options.rate_iops > 0 ? load::LoopKind::open : load::LoopKind::closed;
  if (!trace.empty()) job.loop = options.trace_as_fast ? load::LoopKind::trace_as_fast : load::LoopKind::trace;
  job.ramp_ns = trace.empty() ? options.ramp_ns : 0;
  job.runtime_ns = trace.empty() ? options.runtime_ns : UINT64_MAX / 4;
  job.verify_percent = options.verify_percent;
  job.use_interrupts = is_virtual;
  job.gap_ns = config.fidelity.gap_ns;
  job.patience_ns = patience_ns();
  // In real time somebody else watches over the controller.
  if (device) job.nothing_comes = [this] { return (is_virtual && driver->fatal()) || only_lost_commands_are_left(); };
  std::vector<std::unique_ptr<load::Job>> made;  // published to progress() when complete
  for (std::uint32_t t = 0; t < options.threads; ++t) {
    // Counts are shared out; a ramp by count lets every requester go round twice before measuring.
    job.ios = options.ios == 0 ? 0 : std::max<std::uint64_t>(1, options.ios / options.threads);
    job.ramp_ios = trace.empty() ? 2 * requesters / options.threads : 0;
    job.seed = splitmix64(config.seed ^ (0x2000 + t));
    const bool leads = t == 0;
    made.push_back(std::make_unique<load::Job>(
        job, clock, pci(), *verifier, leads ? std::function<void()>([this] { on_measure(); }) : std::function<void()>(),
        leads ? std::function<void()>([this] { on_measured(); }) : std::function<void()>()));
  }
  for (std::uint32_t q = 0; q < options.queues; ++q) {
    const std::uint32_t entries = options.queue_entries == 0 ? options.queue_depth + 1 : options.queue_entries;
    driver::QueueOptions queue;
    queue.sq_entries = std::max(2u, entries);
    queue.interrupts = is_virtual;
    queue.vector = static_cast<std::uint16_t>(q + 1);
    driver::QueuePair& pair = driver->create_queue_pair(queue);
    std::vector<load::TraceIo> share;
    for (std::size_t i = q; i < trace.size(); i += options.queues) share.push_back(trace[i]);
    load::Job& owner = *made[q % options.threads];
    const std::uint64_t mine = requesters / options.queues + (q < requesters % options.queues ? 1 : 0);
    owner.add_queue(pair, pattern(q), mine, options.rate_iops / options.queues, std::move(share));
    if (is_virtual)
      pci().set_interrupt(queue.vector, [&owner, index = q / options.threads] { owner.mark_ready(index); });
  }
  for (auto& one : made) one->prepare();
  const std::lock_guard lock(mutex);
  jobs = std::move(made);
}

// A device of our own loses commands only if it is told to, and then we know how many; others may take their time.
std::uint64_t Bench::Impl::patience_ns() const {
  if (!device) return kPatienceWithOthersNs;
  return config.faults.empty() ? 0 : kPatienceNs;
}

bool Bench::Impl::only_lost_commands_are_left() const {
  std::uint64_t in_flight = 0;
  for (const auto& job : jobs) in_flight += job->in_flight();
  return in_flight <= device->engine().faults().lost_ios();
}

void Bench::Impl::on_measure() {
  if (device) {
    device->engine().set_phase(engine::kMeasured);
    cpu_before = device->engine().cpu_times();
  }
  measure_started = std::chrono::steady_clock::now();
  phase = "run";
}

void Bench::Impl::on_measured() {
  if (!device) return;
  const double wall = seconds_since(measure_started);
  const auto after = device->engine().cpu_times();
  for (std::size_t i = 0; i < after.size() && i < cpu_before.size(); ++i)
    cpu_share.emplace_back(after[i].first, static_cast<double>(after[i].second - cpu_before[i].second) / 1e9 / wall);
  device->engine().set_phase(engine::kAfterwards);
}

void Bench::Impl::pause_after_fruitless_poll() const {
  if (over_network) {
    std::this_thread::yield();  // the initiator's own thread, which brings the completions, may need this core
    return;
  }
  // Each fruitless look takes a completion queue's line away from the engine, which is about to write it.
  for (int i = 0; i < kPausesAfterFruitlessPoll; ++i) cpu_pause();
}

void Bench::Impl::run_real() {
  std::vector<std::thread> threads;
  std::vector<double> shares(jobs.size());
  std::counting_semaphore<> ended(0);
  std::atomic<bool> gone{false};
  for (std::size_t t = 0; t < jobs.size(); ++t) {
    threads.emplace_back([this, t, &shares, &ended, &gone] {
      if (t < options.cores.size()) engine::pin_this_thread(options.cores[t]);
      const std::uint64_t cpu = thread_cpu_ns();
      const auto start = std::chrono::steady_clock::now();
      while (!jobs[t]->done() && !gone.load(std::memory_order_relaxed)) {
        if (jobs[t]->poll()) continue;
        pause_after_fruitless_poll();
      }
      shares[t] = static_cast<double>(thread_cpu_ns() - cpu) / 1e9 / std::max(1e-9, seconds_since(start));
      ended.release();
    });
  }
  // Commands in flight at a device that died never complete. The jobs do not touch the driver, so it is ours to ask.
  for (std::size_t left = jobs.size(); left != 0;) {
    if (ended.try_acquire_for(kTimeBetweenQuestions))
      --left;
    else
      gone = gone || driver->fatal();
  }
  for (std::thread& thread : threads) thread.join();
  if (gone) throw std::runtime_error(kDeviceIsGone);
  for (std::size_t t = 0; t < shares.size(); ++t) cpu_share.emplace_back("driver" + std::to_string(t), shares[t]);
}

void Bench::Impl::run_virtual() {
  for (auto& job : jobs) simulator->add_job(*job);
  const std::uint64_t cpu = thread_cpu_ns();
  const auto start = std::chrono::steady_clock::now();
  const auto done = [&] { return std::all_of(jobs.begin(), jobs.end(), [](const auto& job) { return job->done(); }); };
  int stuck = 0;
  while (!done()) {
    stuck = simulator->step() ? 0 : stuck + 1;
    if (stuck > 1000) throw std::runtime_error("virtual time stands still: nothing has work or a deadline");
  }
  if (driver->fatal()) throw std::runtime_error(kDeviceIsGone);
  cpu_share.clear();
  cpu_share.emplace_back("simulator",
                         static_cast<double>(thread_cpu_ns() - cpu) / 1e9 / std::max(1e-9, seconds_since(start)));
}

double Bench::Impl::model_iops() const {
  if (!trace.empty()) return 0;
  std::vector<load::Pattern> patterns;
  for (std::uint32_t q = 0; q < std::min(options.queues, 16u); ++q) patterns.push_back(pattern(q));
  std::size_t turn = 0;
  load::ExpectedLoad expected;
  const std::uint64_t slots = std::uint64_t{options.queues} * options.queue_depth;
  expected.requesters = options.requesters == 0 ? slots : options.requesters;
  expected.concurrency = options.rate_iops > 0 ? slots : std::min(slots, expected.requesters);
  expected.think_time_ns = options.rate_iops > 0 ? 0 : options.think_time_ns;
  expected.rate_iops = options.rate_iops;
  expected.lba_shift = lba_shift;
  return load::expected_iops(config.timing, expected, [&] { return patterns[turn++ % patterns.size()].next(); });
}

std::string Bench::Impl::report(double wall_seconds) {
  load::JobStats stats;
  for (auto& job : jobs) stats.merge(job->stats());
  load::DeviceReport device_report;
  api::JudgedRun judged;  // holds what the report points to
  load::Provenance provenance;
  if (device) {
    judged = api::judge_run(device->engine(), config, stats, model_iops());
    device_report = judged.report;
    device_report.faults = device->engine().faults().counts();
    api::add_copies(device->engine().copies(), provenance);
  } else {
    device_report.own = false;
    device_report.verdict = "NOT JUDGED";
    device_report.verdict_cause = "the device is another process's, which judges itself";
  }
  provenance.wall_seconds = wall_seconds;
  provenance.fill_seconds = fill_seconds;
  device_report.cancelled = cancelled;
  provenance.cpu_share = cpu_share;
  provenance.tsc_ghz = Clock::real().tsc_hz() / 1e9;
  provenance.clock_drift_ppm = Clock::real().drift_ppm();
  return load::result_json(config, options, stats, device_report, provenance);
}

// Also where a run ended with an exception: jobs and driver must go before the device that they use.
void Bench::Impl::tear_down() {
  const std::lock_guard lock(mutex);
  if (simulator && !jobs.empty()) {
    // Saying goodbye turns the simulator, which must know the jobs no longer.
    simulator->remove_jobs();
    for (std::uint32_t q = 0; q < options.queues; ++q) pci().set_interrupt(static_cast<std::uint16_t>(q + 1), {});
  }
  jobs.clear();
  // The driver says goodbye to a device that still runs.
  driver.reset();
  door.reset();
  if (device) device->stop();
}

std::string Bench::Impl::run() {
  build();
  const auto start = std::chrono::steady_clock::now();
  if (cancelled)
    for (auto& job : jobs) job->cancel();
  if (is_virtual)
    run_virtual();
  else
    run_real();
  const double wall_seconds = seconds_since(start);
  phase = "done";
  std::string result = report(wall_seconds);
  tear_down();
  return result;
}

Bench::Bench(const DeviceConfig& device, const BenchOptions& options)
    : impl_(std::make_unique<Impl>(device, options)) {}

Bench::~Bench() = default;

std::string Bench::run() { return impl_->run(); }

void Bench::cancel() {
  impl_->cancelled = true;
  const std::lock_guard lock(impl_->mutex);
  for (auto& job : impl_->jobs) job->cancel();
}

BenchProgress Bench::progress() {
  const std::lock_guard lock(impl_->mutex);
  BenchProgress progress;
  progress.phase = impl_->phase.load();
  std::uint64_t latency = 0;
  for (const auto& job : impl_->jobs) {
    progress.ios += job->completed();
    latency += job->latency_sum_ns();
    progress.verify_errors += job->verify_errors();
  }
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - impl_->last_look).count();
  const std::uint64_t ios = progress.ios - std::min(progress.ios, impl_->last_ios);
  progress.iops = seconds > 0 ? static_cast<double>(ios) / seconds : 0;
  progress.mean_latency_ns =
      ios == 0 ? 0 : static_cast<double>(latency - std::min(latency, impl_->last_latency)) / static_cast<double>(ios);
  impl_->last_ios = progress.ios;
  impl_->last_latency = latency;
  if (const auto now_live = impl_->live()) {
    const engine::LiveFigures live = *now_live;
    const std::uint64_t completions = live.completions - impl_->last_live.completions;
    const std::uint64_t lateness_ns = live.lateness_sum_ns - impl_->last_live.lateness_sum_ns;
    progress.mean_lateness_ns =
        completions == 0 ? 0 : static_cast<double>(lateness_ns) / static_cast<double>(completions);
    impl_->last_live = live;
  }
  impl_->last_look = now;
  if (progress.phase == "fill")
    progress.phase_fraction = impl_->fill_fraction;
  else if (!impl_->jobs.empty())
    progress.phase_fraction = impl_->jobs[0]->fraction();
  return progress;
}

}  // namespace flashmob
