// What sharing one timing model costs: two dispatcher threads on one `simple` model, updated once per batch against
// once per request, at several batch sizes and numbers of instances; and one dispatcher with a model of its own.
//
//   bench_timing_share [--json FILE] [--windows N] [--window-ms MS]
//
// The variants of a configuration take turns in short windows, so that a change of the machine's mood meets all of
// them. A window counts if every thread had its core for at least 95 % of it; medians and the 10th and 90th percentile
// are over those. On a busy machine up to ten times the windows asked for are tried. Requests are single units on
// random instances, and the model is saturated.
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "timing/model.h"

namespace {

using namespace flashmob;
using SteadyClock = std::chrono::steady_clock;

constexpr std::array<std::size_t, 5> kBatches{1, 8, 32, 128, 1024};
constexpr std::array<std::uint32_t, 3> kInstances{1, 8, 32};
constexpr double kMinCpuShare = 0.95;
constexpr int kMaxTries = 10;
// Each thread cycles through this many prepared requests: enough to be random, few enough to stay in L1 and L2.
constexpr std::size_t kPrepared = 8192;
// Requests between two looks at the clock or the stop flag.
constexpr std::size_t kStride = 4096;

enum class Variant : std::uint8_t { per_batch, per_request, exclusive };
const char* name_of(Variant variant) {
  switch (variant) {
    case Variant::per_batch:
      return "per batch";
    case Variant::per_request:
      return "per request";
    case Variant::exclusive:
      return "exclusive";
  }
  return "";
}

struct Options {
  std::string json_path;
  int windows = 21;
  int window_ms = 3;
};

struct Window {
  double requests_per_s = 0;  // all threads together
  double cpu_share = 1;       // the least of the threads
};

struct Row {
  std::uint32_t instances;
  std::size_t batch;
  Variant variant;
  int threads;
  double median_mrps, p10_mrps, p90_mrps;  // million requests per second
  double cpu_share;                        // median over all windows of the least thread
  int windows_used, windows;
};

double thread_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

// Threads that share a core would measure the scheduler. Failure to pin shows in the CPU share.
void pin(const std::vector<int>& cores, std::size_t index) {
  if (index >= cores.size()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores[index], &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

// One dispatcher: schedules batches until told to stop. The first one keeps the time.
Window dispatch(timing::TimingModel& model, std::size_t batch, int self, int threads, int window_ms,
                std::atomic<int>& ready, std::atomic<bool>& stop) {
  Rng rng(static_cast<std::uint64_t>(self) + 1);
  std::vector<timing::Demand> demands(kPrepared);
  for (auto& demand : demands) demand = {rng.next(), 1, timing::DemandKind::read, {}};
  std::vector<std::uint64_t> targets(batch);
  ready.fetch_add(1);
  while (ready.load() < threads) {
  }
  const auto start = SteadyClock::now();
  const double cpu_start = thread_cpu_s();
  const auto deadline = start + std::chrono::milliseconds(window_ms);
  std::uint64_t requests = 0;
  while (!stop.load(std::memory_order_relaxed)) {
    for (std::size_t done = 0; done < kStride; done += batch)
      model.schedule({demands.data() + (requests + done) % kPrepared, batch}, 1'000, targets);
    requests += kStride;
    if (self == 0 && SteadyClock::now() >= deadline) stop.store(true, std::memory_order_relaxed);
  }
  const double cpu_s = thread_cpu_s() - cpu_start;
  const double wall_s = std::chrono::duration<double>(SteadyClock::now() - start).count();
  return {static_cast<double>(requests) / wall_s, cpu_s / wall_s};
}

Window measure(Variant variant, std::uint32_t instances, std::size_t batch, int window_ms,
               const std::vector<int>& cores) {
  TimingConfig config;
  config.model = "simple";
  config.read_iops = 100e6;
  config.instances = instances;
  config.per_request_updates = variant == Variant::per_request;
  const auto model = timing::make_model(config, variant != Variant::exclusive);
  const int threads = variant == Variant::exclusive ? 1 : 2;
  std::atomic<int> ready{0};
  std::atomic<bool> stop{false};
  Window other;
  std::thread second;
  if (threads == 2) {
    second = std::thread([&] {
      pin(cores, 1);
      other = dispatch(*model, batch, 1, threads, window_ms, ready, stop);
    });
  }
  Window window = dispatch(*model, batch, 0, threads, window_ms, ready, stop);
  if (threads == 2) {
    second.join();
    window.requests_per_s += other.requests_per_s;
    window.cpu_share = std::min(window.cpu_share, other.cpu_share);
  }
  return window;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const auto at = static_cast<std::size_t>(std::lround(q * static_cast<double>(values.size() - 1)));
  return values[at];
}

Row summarise(Variant variant, std::uint32_t instances, std::size_t batch, const std::vector<Window>& windows) {
  std::vector<double> rates, shares;
  for (const Window& window : windows) {
    shares.push_back(window.cpu_share);
    if (window.cpu_share >= kMinCpuShare) rates.push_back(window.requests_per_s * 1e-6);
  }
  const int used = static_cast<int>(rates.size());
  if (rates.empty())
    for (const Window& window : windows) rates.push_back(window.requests_per_s * 1e-6);
  return {instances,
          batch,
          variant,
          variant == Variant::exclusive ? 1 : 2,
          quantile(rates, 0.5),
          quantile(rates, 0.1),
          quantile(rates, 0.9),
          quantile(shares, 0.5),
          used,
          static_cast<int>(windows.size())};
}

// Measures all variants of one configuration, window by window in turn, and prints its line of the table.
void compare(std::uint32_t instances, std::size_t batch, const Options& options, const std::vector<int>& cores,
             std::vector<Row>& rows) {
  constexpr std::array kVariants{Variant::per_batch, Variant::per_request, Variant::exclusive};
  std::array<std::vector<Window>, kVariants.size()> windows;
  std::array<int, kVariants.size()> good{};
  for (int i = 0; i < kMaxTries * options.windows && *std::min_element(good.begin(), good.end()) < options.windows;
       ++i) {
    for (std::size_t v = 0; v < kVariants.size(); ++v) {
      windows[v].push_back(measure(kVariants[v], instances, batch, options.window_ms, cores));
      if (windows[v].back().cpu_share >= kMinCpuShare) ++good[v];
    }
  }
  std::array<Row, kVariants.size()> result{};
  for (std::size_t v = 0; v < kVariants.size(); ++v) result[v] = summarise(kVariants[v], instances, batch, windows[v]);
  const Row& shared = result[0];
  const Row& oracle = result[1];
  const Row& alone = result[2];
  std::printf("%9u %6zu  %7.1f [%6.1f %6.1f]  %7.1f [%6.1f %6.1f]  %6.2fx  %7.2f  %5.0f %%  %d/%d\n", instances, batch,
              shared.median_mrps, shared.p10_mrps, shared.p90_mrps, oracle.median_mrps, oracle.p10_mrps,
              oracle.p90_mrps, shared.median_mrps / oracle.median_mrps, 1e3 / alone.median_mrps,
              100 * std::min({shared.cpu_share, oracle.cpu_share, alone.cpu_share}),
              std::min({shared.windows_used, oracle.windows_used, alone.windows_used}), shared.windows);
  std::fflush(stdout);
  rows.insert(rows.end(), result.begin(), result.end());
}

bool write_json(const std::string& path, const std::vector<Row>& rows, const Options& options, std::size_t cores) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  std::fprintf(file, "{\n  \"benchmark\": \"timing_share\",\n  \"version\": \"%s\",\n  \"cores\": %zu,\n",
               FLASHMOB_VERSION, cores);
  std::fprintf(file, "  \"window_ms\": %d,\n  \"rows\": [\n", options.window_ms);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    std::fprintf(file,
                 "    {\"update\": \"%s\", \"threads\": %d, \"instances\": %u, \"batch\": %zu, "
                 "\"requests_per_s\": {\"p50\": %.0f, \"p10\": %.0f, \"p90\": %.0f}, \"ns_per_request\": %.3f, "
                 "\"cpu_share\": %.4f, \"windows\": %d, \"windows_used\": %d}%s\n",
                 name_of(row.variant), row.threads, row.instances, row.batch, row.median_mrps * 1e6, row.p10_mrps * 1e6,
                 row.p90_mrps * 1e6, 1e3 * row.threads / row.median_mrps, row.cpu_share, row.windows, row.windows_used,
                 i + 1 == rows.size() ? "" : ",");
  }
  std::fprintf(file, "  ]\n}\n");
  return std::fclose(file) == 0;
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--json") == 0) {
      options.json_path = argv[i + 1];
    } else if (std::strcmp(argv[i], "--windows") == 0) {
      options.windows = std::atoi(argv[i + 1]);
    } else if (std::strcmp(argv[i], "--window-ms") == 0) {
      options.window_ms = std::atoi(argv[i + 1]);
    } else {
      return false;
    }
  }
  return argc % 2 == 1 && options.windows > 0 && options.window_ms > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: %s [--json FILE] [--windows N] [--window-ms MS]\n", argv[0]);
    return 2;
  }
  const std::vector<int> cores = usable_cores();
  if (cores.size() < 2) std::printf("Fewer than two cores: two dispatchers take turns, and the figures mean little.\n");
  pin(cores, 0);
  std::printf("Two dispatchers sharing one model, million requests per second: median [p10 p90].\n\n");
  std::printf("%9s %6s  %-24s %-24s %6s  %8s %7s  %s\n", "instances", "batch", "updated per batch",
              "updated per request", "ratio", "alone ns", "CPU", "windows");
  std::vector<Row> rows;
  for (const std::uint32_t instances : kInstances)
    for (const std::size_t batch : kBatches) compare(instances, batch, options, cores, rows);
  std::printf(
      "\n\"alone\": one dispatcher with a model of its own, ns per request. \"CPU\": the median share of its core\n"
      "that the worst thread had; \"windows\": how many of those tried had %.0f %% and were used.\n",
      100 * kMinCpuShare);
  if (!options.json_path.empty() && !write_json(options.json_path, rows, options, cores.size())) {
    std::fprintf(stderr, "%s cannot be written: %s\n", options.json_path.c_str(), std::strerror(errno));
    return 1;
  }
  return 0;
}
