// What the benchmarks share: one run of the library's Bench, the few figures they compare, and median with spread.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "flashmob/bench.h"

namespace flashmob::bench {

struct Outcome {
  double iops = 0;
  double latency_mean_ns = 0;
  double verify_errors = 0;
  double unit_share = 0;    // CPU share of the emulator's thread and of the driver's thread while measuring
  double driver_share = 0;
  std::string verdict;
  // Both threads had their core; anything else measures the machine's other tenants.
  bool quiet() const { return unit_share > 0.97 && driver_share > 0.97; }
};

// The number after "key": in a result document; 0 if it is not there. Keys used here are unique in the document.
inline double number_of(const std::string& json, const std::string& key, std::size_t from = 0) {
  const std::size_t at = json.find("\"" + key + "\":", from);
  return at == std::string::npos ? 0 : std::strtod(json.c_str() + at + key.size() + 3, nullptr);
}

inline Outcome run(const DeviceConfig& device, const BenchOptions& options) {
  Bench bench(device, options);
  const std::string json = bench.run();
  Outcome outcome;
  outcome.iops = number_of(json, "iops");
  outcome.latency_mean_ns = number_of(json, "mean", json.find("\"latency_ns\""));
  outcome.verify_errors = number_of(json, "verify_errors");
  outcome.unit_share = number_of(json, "unit0");
  outcome.driver_share = number_of(json, "driver0");
  const std::size_t verdict = json.find("\"verdict\":\"") + 11;
  outcome.verdict = json.substr(verdict, json.find('"', verdict) - verdict);
  return outcome;
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

inline void print_summary(const char* what, const char* unit, const std::vector<double>& values) {
  if (values.empty()) {
    std::printf("%s: no window in which every thread had its core; try again on a quiet machine\n", what);
    return;
  }
  std::printf("%s: median %.2f %s, min %.2f, max %.2f, %zu windows\n", what, median(values), unit,
              *std::min_element(values.begin(), values.end()), *std::max_element(values.begin(), values.end()),
              values.size());
}

}  // namespace flashmob::bench
