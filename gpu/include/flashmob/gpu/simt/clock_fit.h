// Two clocks compared by round trips: the host asks for the GPU's time, which lies somewhere between the host's own
// readings before and after. The shortest of many trips says most. Pure functions; any thread.
#pragma once

#include <cstdint>

namespace flashmob::gpu::simt {

// One round trip: the host's time, the GPU's, the host's again.
struct ClockTrip {
  std::uint64_t before_ns;
  std::uint64_t device_ns;
  std::uint64_t after_ns;
};

// The GPU's clock less the host's, to within error_ns, at the host's time at_ns.
struct ClockFit {
  std::int64_t offset_ns = 0;
  std::uint64_t error_ns = UINT64_MAX;
  std::uint64_t at_ns = 0;

  void take_in(const ClockTrip& trip) {
    const std::uint64_t half_ns = (trip.after_ns - trip.before_ns) / 2;
    if (half_ns >= error_ns) return;
    at_ns = trip.before_ns + half_ns;
    offset_ns = static_cast<std::int64_t>(trip.device_ns - at_ns);
    error_ns = half_ns;
  }
};

// How the GPU's clock compares with the host's; plain data, it crosses the boundary of the CUDA library.
struct ClockReport {
  std::int64_t offset_ns = 0;
  std::uint64_t error_ns = 0;       // of the offset
  std::uint64_t resolution_ns = 0;  // smallest step that the GPU's clock was seen to make
  std::uint64_t span_ns = 0;        // between the first comparison and the last one
  double drift_ppm = 0;             // the GPU's clock against the host's over that span; above 0: it is faster
  double drift_error_ppm = 0;
};

inline ClockReport compare_clocks(const ClockFit& first, const ClockFit& last, std::uint64_t resolution_ns) {
  ClockReport report;
  report.offset_ns = last.offset_ns;
  report.error_ns = last.error_ns;
  report.resolution_ns = resolution_ns;
  report.span_ns = last.at_ns - first.at_ns;
  if (report.span_ns == 0) return report;
  const double per_million = 1e6 / static_cast<double>(report.span_ns);
  report.drift_ppm = static_cast<double>(last.offset_ns - first.offset_ns) * per_million;
  report.drift_error_ppm = static_cast<double>(first.error_ns + last.error_ns) * per_million;
  return report;
}

}  // namespace flashmob::gpu::simt
