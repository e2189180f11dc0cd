// Time for everything: one interface, two sources.
//
// Real: the invariant TSC, calibrated against CLOCK_MONOTONIC_RAW when the process first asks (about 50 ms) and
// checkable against it later; CLOCK_MONOTONIC itself where there is no invariant TSC. Virtual: a number that
// somebody advances (engine/virtual_world.h). Readers may be on any thread; only one advances a virtual clock.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace flashmob {

class Clock {
 public:
  // The process's real clock. Nanoseconds since it was calibrated, plus one second so that 0 never occurs.
  static Clock real();
  // A clock that stands at start_ns until advance_to().
  static Clock virtual_from(std::uint64_t start_ns);

  // About 8 ns in real time: read it once per batch, not once per request.
  std::uint64_t now_ns() const {
#if defined(__x86_64__)
    if (multiplier_ != 0) [[likely]] {
      const std::uint64_t ticks = __rdtsc() - base_ticks_;
      return base_ns_ + static_cast<std::uint64_t>((static_cast<unsigned __int128>(ticks) * multiplier_) >> 32);
    }
#endif
    return is_virtual_ ? base_ns_ : os_now_ns();
  }

  bool is_virtual() const { return is_virtual_; }
  // Virtual only; never backwards.
  void advance_to(std::uint64_t now_ns);

  // TSC frequency in Hz, 0 where the TSC is not used.
  double tsc_hz() const;
  // How far the TSC has drifted from the operating system's clock since calibration, in parts per million.
  double drift_ppm() const;

 private:
  std::uint64_t os_now_ns() const;

  std::uint64_t base_ns_ = 0;
  std::uint64_t base_ticks_ = 0;
  std::uint64_t multiplier_ = 0;  // ns per tick in 32.32 fixed point; 0: no TSC
  std::uint64_t base_os_ns_ = 0;
  bool is_virtual_ = false;
};

// True if CPUID says the TSC runs at a constant rate in all power states.
bool has_invariant_tsc();

}  // namespace flashmob
