// What the GPU benchmarks share: the SSDs that they use, tables on the terminal and the same as JSON.
//
// All times are those of the virtual clock: a discrete-event simulation in which a lane's atomics and collectives take
// what FibreOptions says and the SSDs answer as their timing model says. They show what the design allows, not what a
// GPU does.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "flashmob/gpu.h"
#include "workloads/workloads.h"

namespace flashmob::gpu::bench {

// An SSD that answers after 50 us and serves `iops` requests of `unit_bytes` per second.
inline DeviceConfig ssd_of_50_us(double iops, std::uint32_t unit_bytes) {
  DeviceConfig config;
  config.profile = "50-us";
  config.timing.read_iops = config.timing.write_iops = iops;
  config.timing.read_latency_ns = config.timing.write_latency_ns = 50'000;
  config.timing.unit_bytes = unit_bytes;
  config.subsystem.namespaces[0].size_bytes = std::uint64_t{256} << 20;
  return config;
}

inline std::unique_ptr<Gpu> attach_virtual(const std::vector<DeviceConfig>& ssds, std::uint32_t queues,
                                           std::uint32_t depth) {
  GpuOptions options;
  options.backend = "fibres";
  options.clock = "virtual";
  options.queues = queues;
  options.queue_depth = depth;
  return attach(ssds, options);
}

// Rows of numbers under names; "verified" is a column like any other.
class Table {
 public:
  Table(std::string title, std::vector<std::string> columns) : title_(std::move(title)), columns_(std::move(columns)) {
    std::printf("%s\n", title_.c_str());
    for (const std::string& column : columns_) std::printf("%14s", column.c_str());
    std::printf("\n");
  }
  // `label` is the first column.
  void row(const std::string& label, const std::vector<double>& values) {
    std::printf("%14s", label.c_str());
    for (const double value : values) std::printf("%14.6g", value);
    std::printf("\n");
    std::fflush(stdout);
    rows_.push_back({label, values});
  }
  std::string json() const {
    std::string text = "{\"title\": \"" + title_ + "\", \"columns\": [";
    for (std::size_t i = 0; i < columns_.size(); ++i) text += (i != 0 ? ", \"" : "\"") + columns_[i] + "\"";
    text += "], \"rows\": [";
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      text += (r != 0 ? ", [\"" : "[\"") + rows_[r].label + "\"";
      for (const double value : rows_[r].values) {
        char number[32];
        std::snprintf(number, sizeof(number), ", %.9g", value);
        text += number;
      }
      text += ']';
    }
    return text + "]}";
  }

 private:
  struct Row {
    std::string label;
    std::vector<double> values;
  };
  std::string title_;
  std::vector<std::string> columns_;
  std::vector<Row> rows_;
};

// The FILE after --json; empty without one. Anything else on the command line is a mistake.
inline std::string json_file(int argc, char** argv) {
  if (argc == 1) return "";
  if (argc == 3 && std::strcmp(argv[1], "--json") == 0) return argv[2];
  std::fprintf(stderr, "usage: %s [--json FILE]\n", argv[0]);
  std::exit(2);
}

// Writes the tables if a file was asked for. The program's exit status: 1 if anything was wrong.
inline int finish(const std::string& file, const std::vector<const Table*>& tables, bool verified) {
  if (!file.empty()) {
    std::FILE* out = std::fopen(file.c_str(), "w");
    if (out == nullptr) {
      std::fprintf(stderr, "cannot write %s\n", file.c_str());
      return 1;
    }
    std::fprintf(out, "{\"backend\": \"fibres, virtual clock\", \"verified\": %s, \"tables\": [\n",
                 verified ? "true" : "false");
    for (std::size_t i = 0; i < tables.size(); ++i)
      std::fprintf(out, "%s%s", tables[i]->json().c_str(), i + 1 < tables.size() ? ",\n" : "\n");
    std::fprintf(out, "]}\n");
    std::fclose(out);
  }
  std::printf("%s\n", verified ? "all results verified" : "RESULTS DIFFER FROM THE REFERENCE");
  return verified ? 0 : 1;
}

}  // namespace flashmob::gpu::bench
