// The result document: well-formed whatever goes in, and with the fields that others rely on.
#include "load/result.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <memory>

namespace flashmob::load {
namespace {

// Whether `text` is one JSON value by RFC 8259's grammar; numbers and literals by their character set only.
class JsonChecker {
 public:
  explicit JsonChecker(const std::string& text) : at_(text.data()), end_(text.data() + text.size()) {}
  bool well_formed() { return value() && at_ == end_; }

 private:
  bool take(char wanted) { return at_ != end_ && *at_ == wanted && (++at_, true); }
  bool string() {
    if (!take('"')) return false;
    for (; at_ != end_ && *at_ != '"'; ++at_) {
      if (static_cast<unsigned char>(*at_) < 0x20) return false;
      if (*at_ == '\\' && (++at_ == end_ || std::string("\"\\/bfnrtu").find(*at_) == std::string::npos)) return false;
    }
    return take('"');
  }
  bool members(char close, bool named) {
    if (take(close)) return true;
    do {
      if (named && !(string() && take(':'))) return false;
      if (!value()) return false;
    } while (take(','));
    return take(close);
  }
  bool value() {
    if (take('{')) return members('}', true);
    if (take('[')) return members(']', false);
    if (at_ != end_ && *at_ == '"') return string();
    const char* start = at_;
    while (at_ != end_ && (std::isalnum(static_cast<unsigned char>(*at_)) || *at_ == '.' || *at_ == '-' || *at_ == '+'))
      ++at_;
    const std::string word(start, at_);
    if (word == "true" || word == "false" || word == "null") return true;
    return !word.empty() && word.find_first_not_of("0123456789.eE+-") == std::string::npos;
  }
  const char* at_;
  const char* end_;
};

struct ResultTest : testing::Test {
  ResultTest() {
    report.target_ns = target.get();
    report.processing_ns = target.get();
    report.lateness_ns = target.get();
    report.lateness_no_gaps_ns = target.get();
    report.fetch_wait_ns = target.get();
    model.iops = 1000;
    report.model = &model;
    report.verdict = "VALID";
  }
  std::string text() const { return result_json(device, options, *stats, report, provenance); }
  void expect_has(const std::string& part) const {
    EXPECT_NE(text().find(part), std::string::npos) << part << "\nis not in " << text();
  }
  void expect_well_formed() const { EXPECT_TRUE(JsonChecker(text()).well_formed()) << text(); }

  DeviceConfig device;
  BenchOptions options;
  std::unique_ptr<JobStats> stats = std::make_unique<JobStats>();
  std::unique_ptr<Histogram> target = std::make_unique<Histogram>();
  Yardstick model;
  DeviceReport report;
  Provenance provenance;
};

TEST_F(ResultTest, ARunOfNothingIsWellFormed) {
  expect_well_formed();
  expect_has("\"schema\":\"flashmob-result\"");
  expect_has("\"fidelity\":{\"max_iops_error\":0.02,\"max_error_ns\":1000,");
  expect_has("\"iops\":0,");
  expect_has("\"errors\":{}");
  expect_has("\"latency_cdf\":[]");
}

TEST_F(ResultTest, RatesComeFromTheMeasuredSpan) {
  stats->started_ns = 1'000'000'000;
  stats->ended_ns = 1'500'000'000;
  stats->ios = 1'000;
  KindStats& writes = stats->kinds[static_cast<std::size_t>(IoKind::write)];
  KindStats& reads = stats->kinds[static_cast<std::size_t>(IoKind::read)];
  writes.ios = 250;
  reads.ios = 750;
  reads.bytes = 384'000;
  for (int i = 0; i < 750; ++i) reads.latency_ns.record(90);
  stats->failed = 4;
  stats->bytes = 512'000;
  for (int i = 0; i < 1'000; ++i) stats->latency_ns.record(100);
  stats->errors[0x2] = 3;
  stats->errors[0x4281] = 1;
  stats->verified = 7;
  expect_well_formed();
  expect_has("\"iops\":2000,");
  expect_has("\"bw_bytes\":1024000,");
  expect_has("\"model_iops\":1000,");
  expect_has("\"runtime_seconds\":0.5");
  expect_has("\"read_ios\":750,\"write_ios\":250");
  expect_has("\"errors\":{\"0x2\":3,\"0x281\":1}");
  expect_has("\"error_names\":{\"0x2\":\"Invalid Field in Command\",\"0x281\":\"Unrecovered Read Error\"}");
  expect_has("\"failed\":{\"ios\":4,");
  expect_has("\"read\":{\"ios\":750,\"iops\":1500,\"bw_bytes\":768000,\"latency_ns\":{\"mean\":90,\"min\":90,");
  expect_has("\"write\":null");
  expect_has("\"verified\":7,\"verify_crowded\":0,\"verify_errors\":0");
  expect_has("\"latency_ns\":{\"mean\":100,");
  expect_has("\"latency_cdf\":[[100,1]]");
}

TEST_F(ResultTest, AllOfTheModelIsTold) {
  device.timing.read_bytes_per_s = 14'500'000'000;
  device.timing.write_bytes_per_s = 4'100'000'000;
  device.timing.link_bytes_per_s = 15'000'000'000;
  expect_has("\"read_bytes_per_s\":14500000000,\"write_bytes_per_s\":4100000000,\"link_bytes_per_s\":15000000000,");
}

TEST_F(ResultTest, WhatCommandSetsAndPlacementAreSetToIsTold) {
  options.fill = false;
  NamespaceConfig& ns = device.subsystem.namespaces[0];
  expect_has("\"fill\":false,");
  expect_has("\"command_set\":\"nvm\",\"zoned\":null,\"kv\":null}],\"placement\":null}");
  ns.command_set = "zns";
  ns.zoned.max_open_zones = 14;
  ns.zoned.reset_ns = {1, 2};
  device.subsystem.placement.handles = 8;
  expect_well_formed();
  expect_has("\"max_open_zones\":14,");
  expect_has("\"reset_ns\":[1,2],");
  expect_has("\"placement\":{\"handles\":8,");
  ns.command_set = "kv";
  expect_has("\"zoned\":null,\"kv\":{\"max_key_bytes\":16,");
  report.own = false;
  expect_has("\"command_set\":null,\"zoned\":null,\"kv\":null}],\"placement\":null}");
}

TEST_F(ResultTest, AMissingModelIsNull) {
  report.model = nullptr;
  expect_well_formed();
  expect_has("\"model_iops\":null,\"model\":null");
}

TEST_F(ResultTest, AwkwardTextAndNumbersAreEscaped) {
  device.profile = "a \"quoted\\name\"\n\x01";
  options.command = "flashmob bench --profile 'x\ty'";
  options.trace_path = "/tmp/\xC3\xA4.csv";
  stats->first_error = "sector 3: \"bad\"";
  provenance.cpu_share.emplace_back("unit\"0", std::numeric_limits<double>::quiet_NaN());
  report.busy_share = std::numeric_limits<double>::infinity();
  expect_well_formed();
  expect_has("a \\\"quoted\\\\name\\\"\\u000a\\u0001");
  expect_has("\"unit\\\"0\":null");
  expect_has("/tmp/\xC3\xA4.csv");
}

TEST_F(ResultTest, AMixOfSizesIsListed) {
  options.block_sizes = {{512, 0.5}, {4096, 2}};
  expect_well_formed();
  expect_has("\"bs\":\"512:0.5,4096:2\"");
}

TEST_F(ResultTest, TheCurveRisesToOneAndStaysShort) {
  for (std::uint64_t i = 0; i < 200'000; ++i) stats->latency_ns.record(i * 37 % 9'000'000);
  const std::string document = text();
  const std::size_t begin = document.find("\"latency_cdf\":[");
  const std::size_t end = document.find("]]", begin);
  ASSERT_NE(end, std::string::npos);
  const std::string curve = document.substr(begin, end - begin);
  EXPECT_LE(std::count(curve.begin(), curve.end(), '['), 1'250);
  EXPECT_EQ(curve.substr(curve.size() - 2), ",1");
}

TEST_F(ResultTest, WhatVariesLiesInProvenanceAlone) {
  const std::string one = text();
  provenance.wall_seconds = 12.5;
  provenance.fill_seconds = 3;
  provenance.window = Provenance::Window{1'000, 3'000, 500};
  provenance.cpu_share.emplace_back("unit0", 0.5);
  provenance.copy_engine = "dsa/wq0.0 shared";
  provenance.copy_counts.emplace_back("fallbacks", 7);
  const std::string two = text();
  const auto cut = [](const std::string& document) { return document.substr(0, document.find("\"wall_seconds\"")); };
  EXPECT_NE(one, two);
  EXPECT_EQ(cut(one), cut(two));
  EXPECT_NE(one.find("\"copy\":null"), std::string::npos);
  EXPECT_NE(one.find("\"window\":null"), std::string::npos);
  EXPECT_NE(two.find("\"window\":{\"begin_ns\":1000,\"end_ns\":3000,\"realtime_ahead_ns\":500}"), std::string::npos);
  EXPECT_NE(two.find("\"copy\":{\"engine\":\"dsa/wq0.0 shared\",\"fallbacks\":7}"), std::string::npos);
  EXPECT_NE(one.find("\"provenance\":{", one.find("\"wall_seconds\"")), std::string::npos);
}

TEST(Provenance, TheMachineHasANameAndAKernel) {
  EXPECT_FALSE(cpu_model().empty());
  EXPECT_FALSE(kernel_release().empty());
}

}  // namespace
}  // namespace flashmob::load
