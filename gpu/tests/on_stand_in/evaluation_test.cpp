// The engine's evaluation on the GPU that stands in for a real one: engine, service and application, resident beside
// each other, all data verified. Its times mean nothing.
#include <gtest/gtest.h>

#include "evaluation/evaluation.h"
#include "rules/on_stand_in.h"

namespace flashmob::gpu::evaluation {
namespace {

class Evaluated : public rules::OnStandIn {
 protected:
  void SetUp() override {
    rules::OnStandIn::SetUp();
    if (gpu_ != nullptr) gpu_->reset({});
  }
};

TEST_F(Evaluated, EveryBlockIsRight) {
  const auto evaluation = Evaluation::open("cuda");
  EXPECT_EQ(evaluation->describe().find("stand-in for a GPU"), 0u);
  PointOptions options;
  options.threads = 32;
  options.queues = 2;
  options.entries = 64;
  options.iops = 1e6;
  options.media = "device";
  options.media_bytes = 1 << 16;
  options.units = 1;
  options.movers = 1;
  options.ramp_ns = 1'000'000;
  options.measure_ns = 50'000'000;
  for (int run = 0; run < 2; ++run) {
    const PointReport report = evaluation->run(options, "test");
    EXPECT_NE(report.result.find("\"verify_errors\""), std::string::npos);
    EXPECT_EQ(report.result.find("blocks were wrong"), std::string::npos) << report.result;
    EXPECT_EQ(report.result.find("commands failed"), std::string::npos) << report.result;
    options.media = "host";
  }
}

}  // namespace
}  // namespace flashmob::gpu::evaluation
