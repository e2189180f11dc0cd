#include "flashmob/gpu/simt/clock_fit.h"

#include <gtest/gtest.h>

namespace flashmob::gpu::simt {
namespace {

// A GPU whose clock began at `start_ns` of its own and gains `ppm`; a trip there takes `there_ns`, back `back_ns`.
ClockTrip trip(std::uint64_t host_ns, std::int64_t start_ns, double ppm, std::uint64_t there_ns,
               std::uint64_t back_ns) {
  const std::uint64_t at_ns = host_ns + there_ns;
  const double gained = static_cast<double>(at_ns) * ppm * 1e-6;
  return {host_ns, at_ns + static_cast<std::uint64_t>(start_ns + static_cast<std::int64_t>(gained)), at_ns + back_ns};
}

TEST(ClockFit, TheShortestTripCounts) {
  ClockFit fit;
  for (const std::uint64_t way_ns : {9'000u, 600u, 4'000u}) fit.take_in(trip(1'000'000, -250'000, 0, way_ns, 800));
  EXPECT_EQ(fit.error_ns, 700u);
  EXPECT_NEAR(static_cast<double>(fit.offset_ns), -250'000, 700);
}

TEST(ClockFit, TheTruthLiesWithinTheErrorHoweverUnevenTheTripIs) {
  for (const auto& [there_ns, back_ns] : {std::pair{0u, 2'000u}, std::pair{2'000u, 0u}, std::pair{700u, 1'300u}}) {
    ClockFit fit;
    fit.take_in(trip(5'000'000, 123'456'789, 0, there_ns, back_ns));
    EXPECT_LE(std::abs(fit.offset_ns - 123'456'789), static_cast<std::int64_t>(fit.error_ns));
  }
}

TEST(ClockFit, DriftIsSeenAndBounded) {
  ClockFit first, last;
  first.take_in(trip(1'000'000'000, 77, 20, 500, 500));
  last.take_in(trip(3'000'000'000, 77, 20, 500, 500));
  const ClockReport report = compare_clocks(first, last, 32);
  EXPECT_EQ(report.span_ns, 2'000'000'000u);
  EXPECT_NEAR(report.drift_ppm, 20, 0.01);
  EXPECT_NEAR(report.drift_error_ppm, 0.5, 0.01);
  EXPECT_EQ(report.resolution_ns, 32u);
}

TEST(ClockFit, OneComparisonSaysNothingOfDrift) {
  ClockFit only;
  only.take_in({100, 5'100, 300});
  const ClockReport report = compare_clocks(only, only, 1);
  EXPECT_EQ(report.offset_ns, 4'900);
  EXPECT_EQ(report.error_ns, 100u);
  EXPECT_EQ(report.drift_ppm, 0);
}

}  // namespace
}  // namespace flashmob::gpu::simt
