// What the report makes of the engine's statistics.
#include "api/device_report.h"

#include <gtest/gtest.h>

#include <memory>

namespace flashmob::api {
namespace {

// The engine begins to measure before its host does, and ends after it: a gap in between is in its sums.
TEST(DeviceEvidence, GapsAreAShareOfTheTimeInWhichTheyWereCounted) {
  auto measured = std::make_unique<engine::FidelityStats>();
  measured->gaps.add(1'007'000'000);
  measured->long_work.add(2'000'000);
  EXPECT_DOUBLE_EQ(device_evidence(*measured, 1.0, true).engine_gap_share, 1.0) << "nobody said how long";
  measured->span_ns = 1'014'000'000;
  const engine::FidelityEvidence evidence = device_evidence(*measured, 1.0, true);
  EXPECT_NEAR(evidence.engine_gap_share, 0.993, 0.001);
  EXPECT_LE(evidence.engine_gap_share + evidence.long_work_share, 1.0);
}

// Ctrl-C while the model is asked leaves nothing to hold what the host saw against.
TEST(JudgedRun, ThatWasStoppedIsNotSaidToBeValid) {
  for (const bool was_stopped : {false, true}) {
    auto measured = std::make_unique<engine::FidelityStats>();
    measured->completions = 1'000;
    auto stats = std::make_unique<load::JobStats>();
    stats->ios = 1'000;
    stats->ended_ns = 1'000'000;
    Measure measure;
    measure.was_stopped = was_stopped;
    const JudgedRun run = judge_run(std::move(measured), DeviceConfig{}, *stats, std::move(measure));
    EXPECT_EQ(run.report.verdict, was_stopped ? "VALID (lateness only)" : "VALID");
    EXPECT_EQ(run.report.verdict_cause.starts_with("stopped before the model was asked"), was_stopped);
  }
}

TEST(DeviceEvidence, AnEngineSaysHowLongAPhaseLasted) {
  DeviceConfig config;
  config.subsystem.namespaces[0].size_bytes = 1 << 20;
  Clock clock = Clock::virtual_from(1'000);
  engine::Engine engine(config, clock);
  const auto pass = [&](std::uint64_t ns) { clock.advance_to(clock.now_ns() + ns); };
  pass(10);
  engine.set_phase(engine::kMeasured);
  pass(20);
  engine.set_phase(engine::kWarmUp);
  pass(30);
  engine.set_phase(engine::kMeasured);
  pass(40);
  engine.set_phase(engine::kAfterwards);
  EXPECT_EQ(engine.stats(engine::kWarmUp).span_ns, 40u);
  EXPECT_EQ(engine.stats(engine::kMeasured).span_ns, 60u);
  pass(5);
  EXPECT_EQ(engine.stats(engine::kAfterwards).span_ns, 5u) << "as long as it lasts";
}

}  // namespace
}  // namespace flashmob::api
