// The evaluation's points on fibres: equal options give equal points, data are checked, the model's rate and latency
// come out, and the switches of the ablation change what they are for.
#include "evaluation/evaluation.h"

#include <gtest/gtest.h>

#include <string>

#include "flashmob/error.h"

namespace flashmob::gpu::evaluation {
namespace {

PointOptions small() {
  PointOptions options;
  options.threads = 128;
  options.queues = 4;
  options.entries = 64;
  options.media_bytes = 1 << 20;
  options.units = 2;
  options.movers = 1;
  options.iops = 2e6;
  options.latency_ns = 20'000;
  options.ramp_ns = 100'000;
  options.measure_ns = 200'000;
  return options;
}

// The number behind `"key":` where it comes first after `from`.
double number(const std::string& json, const std::string& key, const std::string& from = "") {
  const auto start = from.empty() ? 0 : json.find("\"" + from + "\":");
  const auto at = json.find("\"" + key + "\":", start);
  EXPECT_NE(at, std::string::npos) << key;
  return at == std::string::npos ? -1 : std::stod(json.substr(at + key.size() + 3));
}
bool says(const std::string& json, const std::string& text) { return json.find(text) != std::string::npos; }

PointReport run(const PointOptions& options) { return Evaluation::open("fibres")->run(options, "test"); }

// All but what depends on wall time and machine.
std::string lasting(const PointReport& report) {
  return report.result.substr(0, report.result.find("\"wall_seconds\"")) + report.engine;
}

TEST(GpuEvaluation, EqualOptionsGiveEqualPoints) {
  PointOptions options = small();
  options.ramp_ns = options.measure_ns = 30'000;
  const auto evaluation = Evaluation::open("fibres");
  const PointReport first = evaluation->run(options, "test");
  const PointReport again = evaluation->run(options, "test");
  EXPECT_EQ(lasting(first), lasting(again));
  EXPECT_EQ(lasting(first), lasting(run(options)));
  PointOptions other = options;
  other.seed = 2;
  EXPECT_NE(lasting(first), lasting(run(other)));
}

TEST(GpuEvaluation, TheModelsRateAndLatencyComeOut) {
  PointOptions options = small();
  options.measure_ns = 1'600'000;  // long enough to be judged
  const PointReport report = run(options);
  EXPECT_NEAR(number(report.result, "iops"), 2e6, 2e6 * 0.02) << report.result;
  // 128 threads share 2 million reads a second: each waits 64 us.
  EXPECT_NEAR(number(report.engine, "latency_mean_ns"), 64'000, 64'000 * 0.03);
  EXPECT_TRUE(says(report.result, "\"verdict\":\"VALID\"")) << report.result;
  EXPECT_TRUE(says(report.result, "\"schema\":\"flashmob-result\""));
  EXPECT_TRUE(says(report.result, "\"clock\":\"virtual\""));
  EXPECT_LT(number(report.result, "p99", "lateness_ns"), 2'000);
  EXPECT_GE(number(report.result, "verified"), number(report.result, "ios"));
  EXPECT_EQ(number(report.result, "verify_errors"), 0);
}

TEST(GpuEvaluation, LargerReadsMoveMoreAndAreAllChecked) {
  PointOptions options = small();
  options.bytes = 8192;
  options.iops = 500e3;
  const PointReport report = run(options);
  EXPECT_NEAR(number(report.result, "bw_bytes"), 500e3 * 8192, 500e3 * 8192 * 0.03);
  EXPECT_GE(number(report.result, "verified"), number(report.result, "ios") * 16);
  EXPECT_EQ(number(report.result, "verify_errors"), 0);
}

TEST(GpuEvaluation, ManyQueuesAndMoreThreadsThanSlots) {
  PointOptions options = small();
  options.queues = 40;
  options.entries = 4;  // 3 slots each: 120 in flight
  options.service_warps = 8;
  const PointReport report = run(options);
  EXPECT_NEAR(number(report.result, "iops"), 2e6, 2e6 * 0.02);
  EXPECT_EQ(number(report.engine, "service_warps"), 8);
}

TEST(GpuEvaluation, FetchingOneByOneIsSlowerThanByBatches) {
  PointOptions options = small();
  options.threads = 512;
  options.entries = 256;
  options.units = 1;
  options.movers = 4;
  options.iops = 1e9;
  options.latency_ns = 5'000;
  options.ramp_ns = options.measure_ns = 40'000;
  const double by_batches = number(run(options).result, "iops");
  options.fetch_batch = 1;
  EXPECT_LT(number(run(options).result, "iops"), 0.7 * by_batches);
}

TEST(GpuEvaluation, UpdatesOneByOneGiveTheSameModel) {
  PointOptions options = small();
  options.per_request_updates = true;
  const PointReport report = run(options);
  EXPECT_NEAR(number(report.result, "iops"), 2e6, 2e6 * 0.02);
  EXPECT_TRUE(says(report.result, "\"per_request_updates\":true"));
}

TEST(GpuEvaluation, WithoutStatisticsNothingIsJudged) {
  PointOptions options = small();
  options.statistics = false;
  const PointReport report = run(options);
  EXPECT_TRUE(says(report.result, "\"verdict\":\"NOT JUDGED\""));
  EXPECT_TRUE(says(report.result, "\"lateness_ns\":null"));
  EXPECT_NEAR(number(report.result, "iops"), 2e6, 2e6 * 0.02);
  EXPECT_EQ(number(report.engine, "completions"), 0);
}

TEST(GpuEvaluation, MoreQueuesThanTheUnitsServeAreRefused) {
  PointOptions options = small();
  options.units = 1;
  options.queues = 257;
  EXPECT_THROW(run(options), ConfigError);
}

TEST(GpuEvaluation, ImpossibleOptionsAreRefused) {
  const auto refused = [](auto change) {
    PointOptions options = small();
    change(options);
    EXPECT_THROW(options.validate(), ConfigError);
  };
  refused([](PointOptions& o) { o.threads = 0; });
  refused([](PointOptions& o) { o.threads = 300; });
  refused([](PointOptions& o) { o.queues = 4097; });
  refused([](PointOptions& o) { o.entries = 1; });
  refused([](PointOptions& o) { o.bytes = 768; });
  refused([](PointOptions& o) { o.bytes = 256; });
  refused([](PointOptions& o) { o.media = "tape"; });
  refused([](PointOptions& o) { o.media_bytes = 100; });
  refused([](PointOptions& o) { o.measure_ns = 0; });
  refused([](PointOptions& o) { o.iops = 0; });
  refused([](PointOptions& o) { o.latency_ns = 100; });  // one read takes 500 ns
  refused([](PointOptions& o) { o.service_warps = 12; });
  EXPECT_THROW(Evaluation::open("abacus"), ConfigError);
}

}  // namespace
}  // namespace flashmob::gpu::evaluation
