// Distributions that device code has counted (engine/layout.h, kHistogramBuckets), as the host's own histograms.
// Pure; whoever counts must have ended.
#pragma once

#include "base/histogram.h"
#include "flashmob/gpu/engine/layout.h"

namespace flashmob::gpu {

inline void add_counts(Histogram& to, const engine::DeviceFidelity::Count* counts) {
  static_assert(engine::kHistogramBuckets == Histogram::kBuckets);
  for (std::uint32_t bucket = 0; bucket < engine::kHistogramBuckets; ++bucket) {
    if (counts[bucket].value == 0) continue;
    to.record(Histogram::bucket_low(bucket) + Histogram::bucket_width(bucket) / 2, counts[bucket].value);
  }
}

}  // namespace flashmob::gpu
