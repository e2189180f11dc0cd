// When an open loop's requests are wanted: at a fixed rate, or with exponential pauses (Poisson). Equal seeds give
// equal arrivals, so that the yardstick of a run meets the very requests that the run met. For one thread.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/rng.h"

namespace flashmob::load {

class Arrivals {
 public:
  // Stream `stream` of the job seeded with `seed`; rate_iops above 0.
  Arrivals(std::uint64_t seed, std::uint64_t stream, double rate_iops, bool poisson)
      : rng_(splitmix64(seed ^ (0x3000 + stream))), mean_ns_(1e9 / rate_iops), poisson_(poisson) {}

  // The first request comes within a mean pause from now on.
  void start(std::uint64_t now_ns) { next_ns_ = static_cast<double>(now_ns) + rng_.unit() * mean_ns_; }
  // When the next request is wanted; next_ns() of a moment before it is not yet due.
  bool is_due(std::uint64_t now_ns) const { return next_ns_ <= static_cast<double>(now_ns); }
  std::uint64_t next_ns() const { return static_cast<std::uint64_t>(next_ns_); }
  void advance() { next_ns_ += poisson_ ? -std::log1p(-rng_.unit()) * mean_ns_ : mean_ns_; }

 private:
  Rng rng_;
  double mean_ns_;
  double next_ns_ = 0;
  bool poisson_;
};

}  // namespace flashmob::load
