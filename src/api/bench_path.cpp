// Bench: what the path costs. A lonely request takes longer than the model says by the way of its doorbell, the way of
// its completion and a look at each, always the same on a machine; calibrated, it is taken from the model's latency.
#include <algorithm>
#include <vector>

#include "api/bench_impl.h"
#include "load/yardstick.h"

namespace flashmob {
namespace {

// So many runs of so few reads, for so long at most. The path is what every request takes, so one of the shortest runs
// counts: what disturbs a busy machine's others is not constant.
constexpr std::size_t kRuns = 100;
constexpr std::uint64_t kReads = 4;
constexpr std::size_t kOneIn = 5;
constexpr std::uint64_t kLongestNs = 50'000'000;
// What is longer is no path, and is left in what the host sees.
constexpr double kMostPathNs = 5'000;
constexpr double kMostPathShare = 0.2;  // of the model's latency

}  // namespace

std::uint64_t Bench::Impl::find_path_ns() {
  const bool can_differ = device != nullptr && !is_virtual && config.engine.kind == "host" &&
                          device->engine().is_timed() && config.faults.empty();
  if (!can_differ || config.timing.path_ns != 0) return config.timing.path_ns;
  load::JobConfig job = job_config();
  job.loop = load::LoopKind::closed;
  job.max_io_bytes = 1u << lba_shift;
  job.queue_depth = 1;
  job.think_time_ns = 0;
  job.ios = kReads;
  job.ramp_ios = 2;
  job.verify_percent = 0;
  job.lists_moved = false;
  load::PatternConfig reads;
  reads.block_sizes = {{1u << lba_shift, 1.0}};
  reads.lba_shift = lba_shift;
  // Where the model's times depend on the place, runs and yardstick must read the same one.
  const auto model = device->engine().clone_model();
  reads.namespace_blocks = model ? 1 : namespace_bytes >> lba_shift;
  const load::Pattern pattern(reads, Rng(config.seed));
  load::YardstickLoad ideal;
  ideal.ios = kReads;
  ideal.lba_shift = lba_shift;
  ideal.queues.push_back({.pattern = pattern, .requesters = 1});
  const double model_ns = load::measure_model(config.timing, std::move(ideal), nullptr, model.get())->latency_ns.mean();

  driver::QueueOptions options_of_pair;
  options_of_pair.sq_entries = 2;
  driver::QueuePair& pair = driver->create_queue_pair(options_of_pair);
  load::Verifier nothing(load::TruthSource::none, namespace_bytes, nsid, config.seed, false, {});
  std::vector<double> beyond_ns;
  const std::uint64_t give_up_ns = clock.now_ns() + kLongestNs;
  while (beyond_ns.size() < kRuns && clock.now_ns() < give_up_ns && !cancelled) {
    load::Job lonely(job, clock, pci(), nothing, {}, {});
    lonely.add_queue(pair, pattern, 1, 0, {});
    lonely.prepare();
    while (!lonely.done()) {
      if (clock.now_ns() > give_up_ns + kLongestNs) lonely.cancel();
      if (!lonely.poll()) pause_after_fruitless_poll();
    }
    beyond_ns.push_back(lonely.stats().latency_ns.mean() - model_ns);
  }
  driver->delete_queue_pair(pair);
  if (beyond_ns.empty()) return 0;
  const auto chosen = beyond_ns.begin() + static_cast<std::ptrdiff_t>(beyond_ns.size() / kOneIn);
  std::ranges::nth_element(beyond_ns, chosen);
  return *chosen > 0 && *chosen < std::min(kMostPathNs, kMostPathShare * model_ns) ? static_cast<std::uint64_t>(*chosen)
                                                                                   : 0;
}

}  // namespace flashmob
