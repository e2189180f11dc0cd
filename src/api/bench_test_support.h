// What tests of whole runs share: a small, fast device, a short run in virtual time, and questions to the result.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "flashmob/bench.h"
#include "flashmob/config.h"

namespace flashmob::test {

// A result document and the few questions that tests ask of it.
class Result {
 public:
  explicit Result(std::string document) : document_(std::move(document)) {}
  const std::string& document() const { return document_; }
  // What two virtual runs must have in common to the last character.
  std::string reproducible() const { return document_.substr(0, document_.find("\"wall_seconds\"")); }
  // The value of the first field of that name, as text.
  std::string text(const std::string& name) const {
    const std::size_t at = document_.find("\"" + name + "\":");
    if (at == std::string::npos) return "(none)";
    const std::size_t begin = at + name.size() + 3;
    return document_.substr(begin, document_.find_first_of(",}", begin) - begin);
  }
  double number(const std::string& name) const { return std::strtod(text(name).c_str(), nullptr); }

 private:
  std::string document_;
};

inline DeviceConfig small_device() {
  DeviceConfig config;
  config.profile = "test";
  config.subsystem.namespaces[0].size_bytes = 1 << 20;
  config.controller.max_queue_pairs = 16;
  config.controller.interrupt_vectors = 17;
  config.timing.read_iops = config.timing.write_iops = 1e6;
  config.timing.read_latency_ns = config.timing.write_latency_ns = 20'000;
  return config;
}

inline BenchOptions virtual_run(std::uint64_t ramp_ns = 500'000, std::uint64_t runtime_ns = 5'000'000) {
  BenchOptions options;
  options.clock = "virtual";
  options.queues = 2;
  options.queue_depth = 16;
  options.ramp_ns = ramp_ns;
  options.runtime_ns = runtime_ns;
  options.verify_percent = 100;
  return options;
}

inline Result run(const DeviceConfig& device, const BenchOptions& options) {
  return Result(Bench(device, options).run());
}

}  // namespace flashmob::test
