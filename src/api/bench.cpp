// flashmob::Bench as others see it: which options it takes, progress while it runs, and its report.
#include "flashmob/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "api/bench_impl.h"
#include "api/device_report.h"
#include "api/open_target.h"
#include "load/result.h"
#include "load/yardstick.h"

namespace flashmob {
namespace {

// From a doorbell to the look at it and from a target to the look after it, on a machine that is left alone. More is
// late, also where it adds up over those who wait for each other's slots.
constexpr std::uint64_t kCalmReactionNs = 500;

// Two rounds of all requesters come before the first request that is measured.
constexpr std::uint64_t kMostInFlight = 1 << 21;

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
  require(o.completion == "poll" || o.completion == "interrupt" || o.completion == "hybrid",
          "completion must be poll, interrupt or hybrid");
  require(o.completion == "poll" || o.clock == "real",
          "completion must be poll in virtual time: no thread sleeps there");
  const bool is_closed = o.rate_iops == 0 && o.trace_path.empty();
  const std::uint64_t requesters = o.requesters != 0 ? o.requesters : std::uint64_t{o.queues} * o.queue_depth;
  require(!is_closed || requesters <= kMostInFlight,
          "requesters, or queues times queue_depth without them, must be at most 2097152 in a closed loop");
  require(std::isfinite(o.rate_iops) && o.rate_iops >= 0, "rate_iops must be 0 (closed loop) or positive");
  require(o.arrivals == "fixed" || o.arrivals == "poisson", "arrivals must be fixed or poisson");
  require(o.precondition == "none" || o.precondition == "steady", "precondition must be none or steady");
  require(o.target.empty() || o.precondition == "none",
          "precondition must be none: nobody can say what a device of another process has written");
  require(o.placement == "none" || o.placement == "apart", "placement must be none or apart");
  require(o.placement == "none" || (o.target.empty() && o.trace_path.empty()),
          "placement must be none: it is for a device and a load of the benchmark's own");
  require(o.verify_percent >= 0 && o.verify_percent <= 100, "verify_percent must be 0...100");
  require(o.virtual_poll_ns >= 1, "virtual_poll_ns must be at least 1");
  require(!o.block_sizes.empty(), "block_sizes must name at least one size");
  require(o.target.empty() || o.clock == "real", "clock must be real: a device of another process has no other");
  require(o.ios != 0 || o.runtime_ns != 0 || !o.trace_path.empty(), "runtime_ns or ios must be above 0");
  if (!o.target.empty()) api::check_target(api::target_of(o));
}

}  // namespace

Bench::Impl::Impl(const DeviceConfig& device_config, const BenchOptions& bench_options)
    : config(device_config), options(bench_options) {
  config.validate();
  validate(options);
  is_virtual = options.clock == "virtual";
  completion = options.completion == "interrupt" ? load::Completion::interrupt
               : options.completion == "hybrid"  ? load::Completion::hybrid
                                                 : load::Completion::poll;
  if (is_virtual) config.engine.wheel_shift = 0;  // completions exactly at their targets
  clock = is_virtual ? Clock::virtual_from(1'000'000'000) : Clock::real();
}

// The model on the arrivals of this run, after it.
api::Measure Bench::Impl::yardstick(const engine::FidelityStats& measured) const {
  load::YardstickLoad load;
  // What the engine owns up to, and in virtual time the driver's turn; but not what only a disturbed one takes.
  const std::uint64_t calm_ns = is_virtual ? 2 * options.virtual_poll_ns : kCalmReactionNs;
  load.reaction_ns = std::min(static_cast<std::uint64_t>(engine::error_bound(measured).mean_ns), calm_ns);
  if (is_virtual) load.reaction_ns += options.virtual_poll_ns;
  load.loop = loop();
  load.poisson = options.arrivals == "poisson";
  load.think_time_ns = options.think_time_ns;
  load.queue_depth = options.queue_depth;
  load.lba_shift = lba_shift;
  load.units = config.engine.units;
  std::uint64_t origin_ns = UINT64_MAX, until_ns = 0;
  bool is_whole_trace = !trace.empty();
  for (const auto& job : jobs) {
    load.ios += job->stats().ios;
    load.ramp_ios += job->stats().ramp_ios;
    origin_ns = std::min(origin_ns, job->begun_ns());
    until_ns = std::max(until_ns, job->stats().ended_ns);
    is_whole_trace &= job->trace_exhausted();
  }
  constexpr std::uint32_t kEnoughQueues = 64;
  const bool closed = load.loop == load::LoopKind::closed;
  api::Measure measure;
  // A medium with places of its own has as many servers as dies.
  measure.ages = begun_with != nullptr;
  measure.places_matter = config.timing.instances > 1 || measure.ages;
  // To one server, streams are as good as any requests.
  load.sequential = measure.sequential = !options.rw.starts_with("rand") && measure.places_matter;
  load.changes = has_writes() || !trace.empty();
  if (device && device->engine().model().placement() != nullptr) load.streams = placement_handles();
  // Sequential streams keep their distance to each other; of random ones any number is as good.
  const bool merges = closed && !load.sequential && requesters() <= std::uint64_t{options.queues} * options.queue_depth;
  const std::uint32_t queues = merges ? std::min(options.queues, kEnoughQueues) : options.queues;
  if (merges) load.queue_depth = static_cast<std::uint32_t>(requesters());
  for (std::uint32_t q = 0; q < queues; ++q) {
    load::Job& job = *jobs[q % options.threads];
    const std::uint64_t mine = merges ? requesters() / queues + (q < requesters() % queues ? 1 : 0) : requesters_of(q);
    // A job's end cuts off what it did not ask for. Of what it did, the ideal device may be asked later than the job
    // was.
    const std::uint64_t ended_ns = !trace.empty() && job.trace_exhausted() ? until_ns : job.stats().ended_ns;
    load.queues.push_back({.pattern = pattern(q),
                           .requesters = mine,
                           .rate_iops = options.rate_iops / options.queues,
                           .arrivals_seed = job_seed(q % options.threads),
                           .arrivals_stream = q / options.threads,
                           .moved = &job.moved(q / options.threads),
                           .trace = trace.share(q, options.queues),
                           .job = q % options.threads,
                           .begun_ns = job.begun_ns() - origin_ns,
                           .measured_from_ns = job.stats().started_ns - origin_ns,
                           .measured_until_ns = is_whole_trace ? UINT64_MAX : ended_ns - origin_ns});
  }
  // The path's cost was taken from the device's latency, for the host to see what the model gives without it.
  TimingConfig timing = config.timing;
  timing.path_ns = 0;
  measure.yardstick = load::measure_model(timing, std::move(load), &yardstick_cancelled, begun_with.get());
  measure.was_stopped = !measure.yardstick && yardstick_cancelled;
  measure.path_ns = static_cast<double>(path_ns);
  measure.host_sleeps = completion != load::Completion::poll;
  const double rate_iops = has_writes() ? std::min(timing.read_iops, timing.write_iops) : timing.read_iops;
  const std::uint32_t units = (max_io_bytes + timing.unit_bytes - 1) / timing.unit_bytes;
  const std::uint32_t rounds = (units + timing.instances - 1) / timing.instances;
  // Of models that have such a rate: where a medium says how long things take, no more than the yardstick is allowed.
  if (!begun_with) measure.service_ns = 1e9 * timing.instances / rate_iops * rounds;
  measure.earlier_gap_ns = device->engine().stats(engine::kWarmUp).gaps.longest_ns;
  const engine::FaultSums faults = device->engine().faults().sums();
  measure.faults.count = faults.hit - faults_before.hit;
  measure.faults.delayed = faults.delayed - faults_before.delayed;
  measure.faults.delayed_ns = faults.delayed_ns - faults_before.delayed_ns;
  measure.faults.earlier_delayed_ns = faults_before.delayed_ns;
  measure.faults.lost = device->engine().faults().lost_ios();
  measure.faults.slots = std::uint64_t{options.queues} * options.queue_depth;
  measure.faults.queues = options.queues;
  measure.rounds = std::max(1.0, static_cast<double>(requesters()) / options.queues / options.queue_depth);
  // A medium whose buffer is full lets queues wait for their turn, too.
  measure.in_turns =
      measure.rounds > 1 && options.queues > 1 && (config.engine.fetch_limit < options.queue_depth || measure.ages);
  if (closed && measure.yardstick && measure.yardstick->iops > 0)
    measure.cycle_ns = static_cast<double>(requesters()) * 1e9 / measure.yardstick->iops;
  return measure;
}

// Why no read was verified although verification was asked for, in words; empty if some were, or it was not.
std::string Bench::Impl::why_not_verified(const load::JobStats& stats) const {
  if (!verifier || options.verify_percent == 0 || stats.verified != 0) return "";
  if (!config.engine.move_data) return "no data was moved";
  if (verifier->source() == load::TruthSource::none)
    return not_fillable.empty() ? "the store was not filled with content that is known" : not_fillable;
  if (stats.of(load::IoKind::read).ios == 0) return "nothing was read";
  if (stats.crowded != 0)
    return "all " + std::to_string(stats.crowded) +
           " reads that were to be checked met writes of the same blocks in flight";
  return "none of so few reads was chosen to be verified";
}

// The measured time by the clock that meters of others know. The run's own clock counts as fast, but for what its
// drift says, so both are read soon after the run.
std::optional<load::Provenance::Window> Bench::Impl::window(const load::JobStats& stats) const {
  if (is_virtual || jobs.empty() || stats.ended_ns < stats.started_ns) return std::nullopt;
  const auto of = [](auto time) {
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count());
  };
  // Linux' steady clock is CLOCK_MONOTONIC.
  const std::uint64_t monotonic_ns = of(std::chrono::steady_clock::now());
  const std::uint64_t ahead_ns = monotonic_ns - clock.now_ns();
  return load::Provenance::Window{stats.started_ns + ahead_ns, stats.ended_ns + ahead_ns,
                                  of(std::chrono::system_clock::now()) - monotonic_ns};
}

std::string Bench::Impl::report(std::chrono::steady_clock::time_point began) {
  const double run_seconds = seconds_since(began);
  load::JobStats stats;
  for (auto& job : jobs) stats.merge(job->stats());
  const std::optional<load::Provenance::Window> measured_window = window(stats);
  load::DeviceReport device_report;
  api::JudgedRun judged;  // holds what the report points to
  load::Provenance provenance;
  if (device) {
    auto measured = std::make_unique<engine::FidelityStats>(device->engine().stats(engine::kMeasured));
    // The model never fails: of what a host of it would have seen there is nothing to compare with.
    api::Measure measure;
    // Whoever stops a run before anything was measured does not wait for the model, which may take long.
    measure.was_stopped = cancelled && stats.ios == 0;
    if (!device_failed && !measure.was_stopped) {
      measure = yardstick(*measured);
      // Of a phase that is over, so that nobody writes to it.
      device->engine().set_phase(engine::kWarmUp);
      measure.drained = std::make_unique<engine::FidelityStats>(device->engine().stats(engine::kAfterwards));
    }
    judged = api::judge_run(std::move(measured), config, stats, std::move(measure));
    device_report = judged.report;
    device_report.faults = device->engine().faults().counts();
    device_report.path_ns = path_ns;
    device_report.flash = device->engine().flash_counters(engine::kMeasured);
    api::add_copies(device->engine().copies(), provenance);
  } else {
    device_report.own = false;
    device_report.verdict = "NOT JUDGED";
    device_report.verdict_cause = "the device is another process's, which judges itself";
  }
  device_report.not_verified = why_not_verified(stats);
  device_report.trace = &trace.summary();
  // With the comparison, which whoever waits for the report waits for, too.
  provenance.wall_seconds = seconds_since(began);
  provenance.fill_seconds = fill_seconds;
  provenance.window = measured_window;
  device_report.cancelled = cancelled;
  device_report.device_failed = device_failed;
  if (device && device_failed) api::note_failure(stats.ios, device_report);
  provenance.cpu_share = cpu_share;
  provenance.waits = waits;
  provenance.tsc_ghz = Clock::real().tsc_hz() / 1e9;
  // Of a clock that no time was taken from, or hardly any has passed on, nothing is known.
  provenance.clock_drift_ppm = is_virtual || run_seconds < 1 ? std::nan("") : Clock::real().drift_ppm();
  return load::result_json(config, options, stats, device_report, provenance);
}

// Also where a run ended with an exception: jobs and driver must go before the device that they use.
void Bench::Impl::tear_down() {
  const std::lock_guard lock(mutex);
  if (world && !jobs.empty()) {
    // Saying goodbye gives turns to the world, which must know the jobs no longer.
    for (const std::size_t actor : std::exchange(job_actors, {})) world->remove_actor(actor);
    world->forget_calls();
    for (std::uint32_t q = 0; q < options.queues; ++q) pci().set_interrupt(static_cast<std::uint16_t>(q + 1), {});
  }
  for (const auto& [vector, woken] : by_vector) pci().set_interrupt(vector, {});
  by_vector.clear();
  jobs.clear();
  // The driver says goodbye to a device that still runs.
  driver.reset();
  door.reset();
  if (device) device->stop();
}

std::string Bench::Impl::run() {
  bool is_built = true;
  try {
    build();
  } catch (const CancelledBuild&) {
    is_built = false;
  }
  const auto start = std::chrono::steady_clock::now();
  if (cancelled)
    for (auto& job : jobs) job->cancel();
  if (is_built && is_virtual) run_virtual();
  if (is_built && !is_virtual) run_real();
  phase = "model";
  std::string result = report(start);
  phase = "done";
  tear_down();
  return result;
}

Bench::Bench(const DeviceConfig& device, const BenchOptions& options)
    : impl_(std::make_unique<Impl>(device, options)) {}

Bench::~Bench() = default;

std::string Bench::run() { return impl_->run(); }

void Bench::cancel() {
  impl_->cancelled = true;
  // A run that was cut short is still judged; whoever cancels during that does not want to know.
  if (std::string_view(impl_->phase.load()) == "model") impl_->yardstick_cancelled = true;
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
  if (progress.phase == "fill") {
    progress.phase_fraction = impl_->fill_fraction;
    progress.fill_total_bytes = impl_->fill_total_bytes;
    progress.fill_bytes =
        static_cast<std::uint64_t>(progress.phase_fraction * static_cast<double>(progress.fill_total_bytes));
  } else if (!impl_->jobs.empty()) {
    progress.phase_fraction = impl_->jobs[0]->fraction();
  }
  return progress;
}

}  // namespace flashmob
