// The workloads as the library offers them: every way to reach the data gives what the plain computation gives.
#include "workloads/workloads.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>

#include "base/rng.h"
#include "flashmob/error.h"

namespace flashmob::gpu::workloads {
namespace {

constexpr double kUnitsPerSecond = 4e6;  // of 512 bytes
constexpr std::uint64_t kLatencyNs = 10'000;

std::unique_ptr<Gpu> small_gpu(std::uint32_t ssds = 1, const std::string& service = "kernel",
                               const std::string& schedule = "timed", std::uint64_t latency_ns = kLatencyNs) {
  DeviceConfig config;
  config.timing.read_latency_ns = config.timing.write_latency_ns = latency_ns;
  config.timing.read_iops = config.timing.write_iops = kUnitsPerSecond;
  config.subsystem.namespaces[0].size_bytes = 8 << 20;
  GpuOptions options;
  options.backend = "fibres";
  options.clock = "virtual";
  options.service = service;
  options.schedule = schedule;
  options.queues = 2;
  options.queue_depth = 64;
  return attach(std::vector<DeviceConfig>(ssds, config), options);
}

struct Way {
  const char* access;
  const char* policy;
  std::uint64_t cache_bytes;
  std::uint32_t ssds;
};
constexpr Way kWays[] = {
    {"plain", "clock", 16 << 10, 1},       {"uncached", "clock", 16 << 10, 1},
    {"uncached", "clock", 16 << 10, 3},    {"cached", "clock", 16 << 10, 1},
    {"cached", "clock", 16 << 10, 3},      {"cached", "direct", 16 << 10, 1},
    {"cached", "lru", 16 << 10, 2},        {"cached", "fifo", 16 << 10, 1},
    {"cached", "s3fifo", 16 << 10, 1},     {"cached", "lru", 1024, 1},  // a cache of one line
    {"share_table", "clock", 16 << 10, 1}, {"share_table", "clock", 16 << 10, 3},
};

AccessOptions options_of(const Way& way) {
  AccessOptions options;
  options.access = way.access;
  options.policy = way.policy;
  options.cache_bytes = way.cache_bytes;
  options.line_bytes = 1024;
  options.threads = 64;
  return options;
}

class Workload : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, Workload, testing::ValuesIn(kWays), [](const auto& way) {
  return std::string(way.param.access) + "_" + way.param.policy + "_" + std::to_string(way.param.cache_bytes) +
         "_bytes_" + std::to_string(way.param.ssds) + "_ssds";
});

void expect_sound(const Outcome& outcome, const Way& way) {
  EXPECT_TRUE(outcome.verified);
  EXPECT_EQ(outcome.mismatches, 0u);
  EXPECT_EQ(outcome.io_errors, 0u);
  EXPECT_EQ(outcome.backend, "fibres, virtual clock");
  EXPECT_EQ(outcome.commands != 0, std::string(way.access) != "plain");
  EXPECT_EQ(outcome.cache.misses != 0, std::string(way.access) == "cached");
}

TEST_P(Workload, Mean) {
  const auto gpu = small_gpu(GetParam().ssds);
  MeanOptions options;
  options.access = options_of(GetParam());
  options.count = 3001;
  const MeanResult result = run_mean(*gpu, options);
  expect_sound(result, GetParam());
  EXPECT_NEAR(result.mean, 0.5, 0.05);
}

TEST_P(Workload, Bfs) {
  for (const GraphKind kind : {GraphKind::uniform, GraphKind::kronecker}) {
    const auto gpu = small_gpu(GetParam().ssds);
    const Csr graph = make_graph({kind, 6, 3, 5});
    const BfsResult result = run_bfs(*gpu, graph, busiest_vertex(graph), options_of(GetParam()));
    expect_sound(result, GetParam());
    EXPECT_GT(result.reached, 20u);
    EXPECT_GT(result.depth, 2u);
  }
}

TEST_P(Workload, Spmv) {
  const Csr graph = make_graph({GraphKind::kronecker, 6, 4, 5});
  const auto gpu = small_gpu(GetParam().ssds);
  Rng rng(3);
  std::vector<float> x(graph.vertices());
  for (float& value : x) value = static_cast<float>(rng.unit());
  expect_sound(run_spmv(*gpu, graph, x, options_of(GetParam())), GetParam());
}

TEST_P(Workload, Pagerank) {
  const Csr graph = make_graph({GraphKind::uniform, 6, 2, 6});
  const auto gpu = small_gpu(GetParam().ssds);
  PagerankOptions options;
  options.access = options_of(GetParam());
  options.iterations = 2;
  expect_sound(run_pagerank(*gpu, graph, options), GetParam());
}

DlrmOptions small_dlrm(unsigned config) {
  DlrmOptions options;
  options.model = dlrm_config(config);
  options.model.embedding_dim = 16;
  options.model.bottom_width = 16;
  options.model.top_width = 32;
  options.batch = 3;
  options.batches = 3;
  options.most_rows = 40;
  return options;
}

TEST_P(Workload, Dlrm) {
  for (const bool async : {false, true}) {
    const auto gpu = small_gpu(GetParam().ssds);
    DlrmOptions options = small_dlrm(1);
    options.access = options_of(GetParam());
    options.async = async;
    const DlrmResult result = run_dlrm(*gpu, options);
    expect_sound(result, GetParam());
    EXPECT_EQ(result.samples, 9u);
  }
}

// What a run has found, by whatever way it reached its data.
struct Found {
  std::vector<std::uint32_t> levels;
  std::vector<double> y, ranks;
  std::vector<float> scores;
};
Found find_by(const Way& way) {
  const Csr graph = make_graph({GraphKind::kronecker, 6, 3, 5});
  const AccessOptions access = options_of(way);
  PagerankOptions pagerank;
  pagerank.access = access;
  pagerank.iterations = 2;
  DlrmOptions dlrm = small_dlrm(1);
  dlrm.access = access;
  const auto gpu = small_gpu(way.ssds);
  return {run_bfs(*gpu, graph, busiest_vertex(graph), access).levels,
          run_spmv(*gpu, graph, std::vector<float>(graph.vertices(), 0.75f), access).y,
          run_pagerank(*gpu, graph, pagerank).ranks, run_dlrm(*gpu, dlrm).scores};
}
void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-11 * std::abs(expected[i]));
}

TEST(Workloads, CachedUncachedAndSharedRunsAgree) {
  const Found cached = find_by({"cached", "clock", 16 << 10, 1});
  for (const Way& way :
       {Way{"uncached", "clock", 0, 1}, {"share_table", "clock", 0, 1}, {"share_table", "clock", 0, 2}}) {
    const Found other = find_by(way);
    EXPECT_EQ(other.levels, cached.levels) << way.access;
    EXPECT_EQ(other.scores, cached.scores) << way.access;  // the same rows through the same products
    // Sums in another order.
    expect_near(other.y, cached.y);
    expect_near(other.ranks, cached.ranks);
  }
}

TEST(Dlrm, AllConfigurationsAndBothServices) {
  for (const unsigned config : {1u, 2u, 3u}) {
    for (const char* service : {"host", "callers"}) {
      const auto gpu = small_gpu(1, service);
      EXPECT_TRUE(run_dlrm(*gpu, small_dlrm(config)).verified) << config << " " << service;
    }
  }
}

TEST(Dlrm, PrefetchHidesTheRowsBehindTheProducts) {
  constexpr std::uint64_t kSlowNs = 100'000;
  DlrmOptions options = small_dlrm(1);
  options.batch = 4;
  options.batches = 6;
  options.most_rows = 4000;
  options.product_overhead_ns = 20'000;
  options.async = false;
  const DlrmResult sync = run_dlrm(*small_gpu(1, "kernel", "timed", kSlowNs), options);
  options.async = true;
  const DlrmResult async = run_dlrm(*small_gpu(1, "kernel", "timed", kSlowNs), options);
  EXPECT_TRUE(sync.verified && async.verified);
  // Of each batch's wait for rows, all but the first batch's is hidden, wherever a row is new.
  EXPECT_LT(async.duration_ns + 2 * kSlowNs, sync.duration_ns);
  EXPECT_EQ(sync.scores, async.scores);
}

TEST(Dlrm, ReadsARealFileAndRefusesABadOne) {
  const std::string path = testing::TempDir() + "clicks.tsv";
  std::string line = "1";
  for (unsigned i = 0; i < kDenseFeatures; ++i) line.append("\t").append(std::to_string(i));
  for (unsigned i = 0; i < kCategories; ++i) line.append("\t0a").append(std::to_string(i));
  DlrmOptions options = small_dlrm(2);
  options.clicks = path;
  std::ofstream(path) << line << "\n" << line << "\n" << line << "\n" << line << "\n";
  const DlrmResult result = run_dlrm(*small_gpu(), options);
  EXPECT_TRUE(result.verified);
  EXPECT_EQ(result.samples, 3u);  // one whole batch
  std::ofstream(path) << line << "\n" << line << "\tmore\n" << line << "\n";
  EXPECT_THROW(run_dlrm(*small_gpu(), options), DataError);
  std::ofstream(path) << line << "\n";
  EXPECT_THROW(run_dlrm(*small_gpu(), options), ConfigError);
  options.clicks = "/nowhere/clicks.tsv";
  EXPECT_THROW(run_dlrm(*small_gpu(), options), ConfigError);
  std::remove(path.c_str());
}

TEST(Ctc, AsynchronousReadsFollowTheIdealCurve) {
  DeviceConfig config;
  config.timing.read_latency_ns = config.timing.write_latency_ns = 50'000;
  config.timing.read_iops = config.timing.write_iops = 16e6;
  config.subsystem.namespaces[0].size_bytes = 8 << 20;
  GpuOptions gpu_options;
  gpu_options.backend = "fibres";
  gpu_options.queues = 1;
  gpu_options.queue_depth = 128;
  const auto gpu = attach({config}, gpu_options);
  CtcOptions options;
  options.threads = 32;
  options.commands = 64;
  options.ratios = {0, 0.5, 1, 2};
  const CtcResult result = run_ctc(*gpu, options);
  EXPECT_TRUE(result.verified);
  EXPECT_GE(result.peak_speedup, 1.9);
  EXPECT_LE(result.worst_deviation, 0.05);
  EXPECT_NEAR(static_cast<double>(result.communication_ns), 64 * 50e3, 64 * 5e3);
}

TEST(RandomIo, ReadsAndWritesReachWhatTheModelAllows) {
  for (const bool write : {false, true}) {
    for (const std::uint32_t ssds : {1u, 3u}) {
      const auto gpu = small_gpu(ssds);
      RandomIoOptions options;
      options.write = write;
      options.bytes = write ? 512 : 4096;
      options.threads = 32;
      options.in_flight = 2;
      options.commands = 64 * 12 + 5;
      options.span_blocks = 256;
      const RandomIoResult result = run_random_io(*gpu, options);
      EXPECT_TRUE(result.verified) << write << " " << ssds;
      EXPECT_EQ(result.commands, options.commands);
      const double rate = kUnitsPerSecond / (options.bytes / 512) * ssds;
      const double model = std::min(rate, 64 / (static_cast<double>(kLatencyNs) * 1e-9));
      // Where the latency is the limit, so is what a thread does between two commands.
      EXPECT_GT(result.iops, 0.7 * model);
      EXPECT_LT(result.iops, 1.001 * model);
    }
  }
}

TEST(RandomIo, SchedulesOfAllKindsGiveTheSameBytes) {
  const auto gpu = small_gpu(2, "callers", "random");
  RandomIoOptions options;
  options.write = true;
  options.threads = 64;
  options.in_flight = 3;
  options.commands = 400;
  options.span_blocks = 64;
  EXPECT_TRUE(run_random_io(*gpu, options).verified);
}

TEST(Elements, GatherAndScatterThroughTheCache) {
  for (const std::uint32_t bytes : {1u, 2u, 4u, 8u}) {
    const auto gpu = small_gpu(2);
    ElementOptions options;
    options.access = options_of(kWays[3]);
    options.ssd = 1;
    options.element_bytes = bytes;
    std::vector<std::uint64_t> indices;
    for (std::uint64_t k = 0; k < 300; ++k) indices.push_back(k * k * 7 % 20'000);
    std::vector<std::uint64_t> values(300 * bytes / 8 + 1), got(values.size());
    Rng rng(bytes);
    for (std::uint64_t& value : values) value = rng.next();
    EXPECT_TRUE(scatter(*gpu, options, indices.data(), indices.size(), values.data()).verified);
    EXPECT_TRUE(gather(*gpu, options, indices.data(), indices.size(), got.data()).verified);
    const auto* put = reinterpret_cast<const std::byte*>(values.data());
    const auto* back = reinterpret_cast<const std::byte*>(got.data());
    // Element 0 is the last one but once: k = 0 is its only index that is certain to be alone.
    EXPECT_EQ(std::memcmp(put + bytes, back + bytes, bytes), 0);
  }
}

TEST(Workloads, OptionsThatMakeNoSenseNameTheKey) {
  const auto gpu = small_gpu();
  const auto error_of = [](auto call) -> std::string {
    try {
      call();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "none";
  };
  const auto mean_with = [&](auto change) {
    MeanOptions options;
    change(options);
    return error_of([&] { run_mean(*gpu, options); });
  };
  EXPECT_EQ(mean_with([](MeanOptions& o) { o.count = 0; }).rfind("count:", 0), 0u);
  EXPECT_EQ(mean_with([](MeanOptions& o) { o.access.access = "odd"; }).rfind("access:", 0), 0u);
  EXPECT_EQ(mean_with([](MeanOptions& o) { o.access.policy = "odd"; }).rfind("policy:", 0), 0u);
  EXPECT_EQ(mean_with([](MeanOptions& o) { o.access.threads = 33; }).rfind("threads:", 0), 0u);
  EXPECT_EQ(mean_with([](MeanOptions& o) { o.access.line_bytes = 700; }).rfind("line_bytes:", 0), 0u);
  EXPECT_EQ(mean_with([](MeanOptions& o) { o.access.cache_bytes = 100; }).rfind("cache_bytes:", 0), 0u);
  EXPECT_EQ(mean_with([](MeanOptions& o) { o.count = 1 << 22; }).rfind("size_bytes:", 0), 0u);
  const Csr graph = make_graph({GraphKind::uniform, 3, 2, 1});
  EXPECT_EQ(error_of([&] { run_bfs(*gpu, graph, 8); }).rfind("source:", 0), 0u);
  EXPECT_EQ(error_of([&] { run_spmv(*gpu, graph, {1, 2}); }).rfind("x:", 0), 0u);
  ElementOptions elements;
  const std::uint64_t far = std::uint64_t{1} << 40;
  EXPECT_EQ(error_of([&] { gather(*gpu, elements, &far, 1, nullptr); }).rfind("indices:", 0), 0u);
}

}  // namespace
}  // namespace flashmob::gpu::workloads
