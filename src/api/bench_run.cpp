// Bench: the run itself, by threads that poll in real time, or by turns in virtual time.
#include <time.h>

#include <algorithm>
#include <thread>

#include "api/bench_impl.h"
#include "base/core_sharing.h"

namespace flashmob {
namespace {

std::uint64_t thread_cpu_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

void nap(std::uint64_t ns) {
  const timespec t{0, static_cast<long>(ns)};
  nanosleep(&t, nullptr);
}

// A look at a register may be a message to another process: rare enough not to disturb, often enough to end a run.
constexpr int kPausesAfterFruitlessPoll = 4;
constexpr std::chrono::milliseconds kTimeBetweenQuestions{500};
// Where the way to the device ends commands, it is asked at once, as soon as it may know: else new commands, which end
// in no time, would fail by the ten thousand.
constexpr std::uint64_t kTimeToKnowNs = 200'000;
constexpr std::uint64_t kTimeBetweenReasonsNs = 10'000'000;
// After so long without a completion, with nothing left to ask for, the core is better left to others.
constexpr std::uint64_t kLongSilenceNs = 1'000'000'000;
constexpr std::chrono::milliseconds kRareLook{1};
// Steps of virtual time in which nobody finds anything to do, until virtual time is said to stand still.
constexpr int kMostFruitlessSteps = 1000;

BenchActor bench_actor(engine::VirtualWorld::ActorKind kind) {
  switch (kind) {
    case engine::VirtualWorld::ActorKind::dispatcher:
      return BenchActor::dispatcher;
    case engine::VirtualWorld::ActorKind::worker:
      return BenchActor::worker;
    case engine::VirtualWorld::ActorKind::host:
      break;
  }
  return BenchActor::driver;
}

}  // namespace

void Bench::Impl::on_measure() {
  if (device) {
    device->engine().set_phase(engine::kMeasured);
    cpu_before = device->engine().cpu_times();
    faults_before = device->engine().faults().sums_over_by(clock.now_ns());
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

bool Bench::Impl::only_lost_commands_are_left() const {
  std::uint64_t in_flight = 0;
  for (const auto& job : jobs) in_flight += job->in_flight();
  return in_flight <= device->engine().faults().lost_ios();
}

void Bench::Impl::pause_after_fruitless_poll() const {
  if (over_network) {
    std::this_thread::yield();  // the initiator's own thread, which brings the completions, may need this core
    return;
  }
  // Each fruitless look takes a completion queue's line away from the engine, which is about to write it.
  for (int i = 0; i < kPausesAfterFruitlessPoll; ++i) cpu_pause();
}

// Where the thread does not poll: whether it has slept, or found something when it was about to.
bool Bench::Impl::sleep_for_completions(load::Job& job, load::CompletionWaiter& waiter) const {
  const auto now_ns = [this] { return clock.now_ns(); };
  const std::uint64_t until_ns = waiter.sleep_until_ns(now_ns(), job.predictor(), job.next_deadline_ns());
  if (until_ns == 0) return false;
  waiter.arm();
  if (job.poll())
    waiter.disarm();
  else
    job.waited_until(waiter.sleep(until_ns, now_ns));
  return true;
}

// The driver's half of what EngineThread does where the two share a core.
void Bench::Impl::poll_to_the_end(load::Job& job, load::CompletionWaiter& waiter, api::DeviceWatch& watch) const {
  CoreSharing sharing;
  std::uint64_t last_work_ns = clock.now_ns();
  std::uint64_t transport_errors = 0, ask_again_ns = 0;
  while (!job.done() && !watch.is_gone()) {
    const std::uint64_t before_ns = job.now_ns();
    if (job.poll()) {
      // Not of a device of our own, whose commands may be told to fail so.
      if (job.transport_errors() != transport_errors && !device && job.now_ns() >= ask_again_ns) [[unlikely]] {
        transport_errors = job.transport_errors();
        nap(kTimeToKnowNs);
        watch.ask();
        ask_again_ns = clock.now_ns() + kTimeBetweenReasonsNs;
      }
      if (job.now_ns() - last_work_ns >= CoreSharing::kSpinNs) [[unlikely]] {
        if (sharing.found(job.now_ns(), last_work_ns, before_ns, job.gap_end_ns())) take_short_turns();
      }
      last_work_ns = job.now_ns();
      continue;
    }
    if (completion != load::Completion::poll && sleep_for_completions(job, waiter)) continue;
    if (sharing.is_likely(job.now_ns()) && job.now_ns() - last_work_ns >= CoreSharing::kSpinNs &&
        job.next_deadline_ns() > job.now_ns() + 2 * CoreSharing::kSleepNs) {
      const std::uint64_t meant_ns = clock.now_ns() + CoreSharing::kSleepNs;
      nap(CoreSharing::kSleepNs);
      const std::uint64_t now_ns = clock.now_ns();
      sharing.woke(now_ns, now_ns > meant_ns ? now_ns - meant_ns : 0);
      job.slept_until(std::min(meant_ns, now_ns));
      continue;
    }
    if (job.silent_ns() < kLongSilenceNs)
      pause_after_fruitless_poll();
    else
      std::this_thread::sleep_for(kRareLook);
  }
}

void Bench::Impl::abandon_jobs() {
  for (auto& job : jobs) job->abandon();
}

void Bench::Impl::run_real() {
  std::vector<std::thread> threads;
  std::vector<double> shares(jobs.size());
  std::atomic<std::uint64_t> cpu_ns{0};
  api::DeviceWatch watch(jobs.size());
  for (std::size_t t = 0; t < jobs.size(); ++t) {
    threads.emplace_back([this, t, &shares, &cpu_ns, &watch] {
      if (t < options.cores.size()) engine::pin_this_thread(options.cores[t]);
      const std::uint64_t cpu = thread_cpu_ns();
      const auto start = std::chrono::steady_clock::now();
      poll_to_the_end(*jobs[t], *waiters[t], watch);
      const std::uint64_t took_ns = thread_cpu_ns() - cpu;
      cpu_ns += took_ns;
      shares[t] = static_cast<double>(took_ns) / 1e9 / std::max(1e-9, seconds_since(start));
      watch.leave();
    });
  }
  // Commands in flight at a device that died never complete. The jobs do not touch the driver, so it is ours to ask.
  watch.run(kTimeBetweenQuestions, [this] { return driver->fatal(); });
  for (std::thread& thread : threads) thread.join();
  // What failed last may have been answered before anybody asked.
  device_failed = watch.is_gone() || driver->fatal();
  if (device_failed) abandon_jobs();
  std::uint64_t completed = 0;
  waits.emplace();
  for (const auto& job : jobs) completed += job->completed();
  for (const auto& waiter : waiters) {
    waits->sleeps += waiter->counts().sleeps;
    waits->woken += waiter->counts().woken;
  }
  waits->cpu_ns_per_io = static_cast<double>(cpu_ns) / static_cast<double>(std::max<std::uint64_t>(1, completed));
  for (std::size_t t = 0; t < shares.size(); ++t) cpu_share.emplace_back("driver" + std::to_string(t), shares[t]);
}

// Virtual time: queue `index` of the job has something. It is told now, or when the disturbance lets it be.
void Bench::Impl::interrupt(load::Job& job, std::size_t index) {
  const std::uint64_t now_ns = clock.now_ns();
  const std::uint64_t until_ns = options.disturbance ? options.disturbance(BenchActor::interrupt, now_ns) : 0;
  if (until_ns > now_ns) [[unlikely]]
    world->call_at(until_ns, [&job, index] { job.mark_ready(index); });
  else
    job.mark_ready(index);
}

void Bench::Impl::run_virtual() {
  for (const auto& held : jobs) {
    load::Job& job = *held;
    job_actors.push_back(
        world->add_actor([&job] { return job.poll(); }, [&job] { return job.next_deadline_ns(); },
                         [&job](std::uint64_t from_ns, std::uint64_t to_ns) { job.taken(from_ns, to_ns); }));
  }
  if (options.disturbance) {
    world->set_hold_back([this](engine::VirtualWorld::ActorKind kind,
                                std::uint64_t now_ns) { return options.disturbance(bench_actor(kind), now_ns); },
                         config.fidelity.gap_ns);
  }
  const std::uint64_t cpu = thread_cpu_ns();
  const auto start = std::chrono::steady_clock::now();
  const auto done = [&] { return std::all_of(jobs.begin(), jobs.end(), [](const auto& job) { return job->done(); }); };
  int stuck = 0;
  while (!done()) {
    stuck = world->step(options.virtual_poll_ns) ? 0 : stuck + 1;
    // Before time goes on without it: what nobody answers is no part of the measured time.
    if ((!config.faults.empty() || stuck > kMostFruitlessSteps) && driver->fatal())
      abandon_jobs();
    else if (stuck > kMostFruitlessSteps)
      throw std::runtime_error("virtual time stands still: nothing has work or a deadline");
  }
  device_failed = driver->fatal();
  cpu_share.clear();
  cpu_share.emplace_back("simulator",
                         static_cast<double>(thread_cpu_ns() - cpu) / 1e9 / std::max(1e-9, seconds_since(start)));
}

}  // namespace flashmob
