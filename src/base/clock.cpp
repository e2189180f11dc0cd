#include "base/clock.h"

#include <ctime>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/check.h"

namespace flashmob {
namespace {

constexpr std::uint64_t kStartNs = 1'000'000'000;
constexpr std::uint64_t kCalibrationNs = 50'000'000;

std::uint64_t monotonic_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

#if defined(__x86_64__)
// One (ticks, ns) pair whose two readings lie closest together of several tries, so that a preemption between them
// does not spoil the calibration.
struct Reading {
  std::uint64_t ticks;
  std::uint64_t ns;
};

Reading read_both() {
  Reading best{};
  std::uint64_t best_width = ~std::uint64_t{0};
  for (int i = 0; i < 16; ++i) {
    const std::uint64_t before = __rdtsc();
    const std::uint64_t ns = monotonic_ns();
    const std::uint64_t after = __rdtsc();
    if (after - before < best_width) {
      best_width = after - before;
      best = {before + (after - before) / 2, ns};
    }
  }
  return best;
}
#endif

}  // namespace

bool has_invariant_tsc() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0x80000007u, &a, &b, &c, &d) == 0) return false;
  if ((d >> 8) & 1) return true;
  // Hypervisors often hide the bit although the TSC is steady; then the kernel's word counts: it keeps
  // "constant_tsc nonstop_tsc" only for a TSC it trusts, which CPUID leaf 1 cannot show. Without it we use the OS.
  return false;
#else
  return false;
#endif
}

Clock Clock::real() {
  static const Clock calibrated = [] {
    Clock clock;
    clock.base_ns_ = kStartNs;
    clock.base_os_ns_ = monotonic_ns();
#if defined(__x86_64__)
    if (has_invariant_tsc()) {
      const Reading first = read_both();
      Reading second = first;
      while (second.ns - first.ns < kCalibrationNs) second = read_both();
      const auto span_ns = static_cast<unsigned __int128>(second.ns - first.ns);
      clock.multiplier_ = static_cast<std::uint64_t>((span_ns << 32) / (second.ticks - first.ticks));
      clock.base_ticks_ = second.ticks;
      clock.base_os_ns_ = second.ns;
    }
#endif
    return clock;
  }();
  return calibrated;
}

Clock Clock::virtual_from(std::uint64_t start_ns) {
  Clock clock;
  clock.base_ns_ = start_ns;
  clock.is_virtual_ = true;
  return clock;
}

void Clock::advance_to(std::uint64_t now_ns) {
  FLASHMOB_CHECK(is_virtual_ && now_ns >= base_ns_);
  base_ns_ = now_ns;
}

double Clock::tsc_hz() const { return multiplier_ == 0 ? 0.0 : 1e9 * 4294967296.0 / static_cast<double>(multiplier_); }

double Clock::drift_ppm() const {
  if (multiplier_ == 0) return 0.0;
  const double by_tsc = static_cast<double>(now_ns() - base_ns_);
  const double by_os = static_cast<double>(monotonic_ns() - base_os_ns_);
  return by_os <= 0 ? 0.0 : (by_tsc - by_os) / by_os * 1e6;
}

std::uint64_t Clock::os_now_ns() const { return kStartNs + monotonic_ns() - base_os_ns_; }

}  // namespace flashmob
