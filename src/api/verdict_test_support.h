// What tests of the verdict share: cases, time that is taken from a thread, and questions to a result.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "api/bench_test_support.h"

namespace flashmob::test {

struct Case {
  DeviceConfig device = small_device();
  BenchOptions load = virtual_run();
};

// Time taken from one kind of thread: each period for a while, from a moment on.
struct Theft {
  BenchActor from = BenchActor::dispatcher;
  std::uint64_t every_ns = 1;
  std::uint64_t lasts_ns = 0;
  std::uint64_t begins_ns = 0;

  std::uint64_t operator()(BenchActor actor, std::uint64_t now_ns) const {
    // The clock starts at one second; set-up is left alone.
    const std::uint64_t since_ns = now_ns - 1'000'000'000;
    if (actor != from || since_ns < begins_ns) return 0;
    const std::uint64_t within_ns = (since_ns - begins_ns) % every_ns;
    return within_ns < lasts_ns ? now_ns + lasts_ns - within_ns : 0;
  }
};

inline constexpr char kLatenessOnly[] = "\"VALID (lateness only)\"";

inline std::string verdict(const Result& result) { return result.text("verdict"); }

// Sub-objects repeat names: the number behind `name` after `object`.
inline double number_in(const Result& result, const std::string& object, const std::string& name) {
  const std::string& text = result.document();
  const std::size_t at = text.find("\"" + name + "\":", text.find("\"" + object + "\":{"));
  if (text.find("\"" + object + "\":{") == std::string::npos || at == std::string::npos) {
    ADD_FAILURE() << object << "." << name << " is not in the result";
    return std::numeric_limits<double>::quiet_NaN();
  }
  return std::strtod(text.c_str() + at + name.size() + 3, nullptr);
}

// Written anew for each run; its path.
inline std::string trace_file(const std::string& lines) {
  const std::string path = testing::TempDir() + "/flashmob_verdict_trace." + std::to_string(getpid()) + ".csv";
  std::ofstream(path) << lines;
  return path;
}

// VALID is what the result states, and no more.
inline void expect_within_what_is_stated(const Result& result) {
  const auto expect_near = [&](const char* host, const char* model, const char* figure, const std::string& tolerance) {
    const std::string& text = result.document();
    // Null: not judged.
    if (text.find("\"" + tolerance + "\":null", text.find("\"tolerance\":")) != std::string::npos) return;
    EXPECT_LE(std::fabs(number_in(result, host, figure) - number_in(result, model, figure)),
              number_in(result, "tolerance", tolerance) + 1e-3)
        << host << " " << figure;
  };
  if (const double model_iops = result.number("model_iops"); model_iops > 0) {
    EXPECT_LE(std::fabs(result.number("iops") / model_iops - 1), number_in(result, "tolerance", "iops_share") + 1e-9);
  }
  for (const std::string figure : {"mean", "p99"}) {
    // The host's stand behind the model's allowance.
    expect_near("allowance", "model", figure.c_str(), figure + "_ns");
    expect_near("read", "read_latency_ns", figure.c_str(), "read_" + figure + "_ns");
    expect_near("write", "write_latency_ns", figure.c_str(), "write_" + figure + "_ns");
  }
}

}  // namespace flashmob::test
