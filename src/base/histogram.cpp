#include "base/histogram.h"

#include <algorithm>
#include <cmath>

namespace flashmob {

std::uint64_t Histogram::bucket_low(std::size_t bucket) {
  if (bucket < kSubBuckets) return bucket;
  const std::size_t shift = (bucket >> kSubBits) - 1;
  return static_cast<std::uint64_t>((bucket & (kSubBuckets - 1)) + kSubBuckets) << shift;
}

std::uint64_t Histogram::bucket_width(std::size_t bucket) {
  if (bucket < kSubBuckets) return 1;
  return std::uint64_t{1} << ((bucket >> kSubBits) - 1);
}

void Histogram::merge(const Histogram& other) {
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) counts_[bucket] += other.counts_[bucket];
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
  min_ = std::min(min_, other.min_);
}

void Histogram::clear() {
  counts_.fill(0);
  sum_ = 0;
  max_ = 0;
  min_ = UINT64_MAX;
}

std::uint64_t Histogram::count() const {
  std::uint64_t total = 0;
  for (const std::uint64_t n : counts_) total += n;
  return total;
}

double Histogram::mean() const {
  const std::uint64_t total = count();
  return total == 0 ? 0.0 : static_cast<double>(sum_) / static_cast<double>(total);
}

std::uint64_t Histogram::quantile(double q) const {
  const std::uint64_t total = count();
  if (total == 0) return 0;
  if (q >= 1.0) return max_;
  // The rank of the answer, 1...total; a NaN or negative q asks for the lowest value.
  const double wanted = q > 0.0 ? std::ceil(q * static_cast<double>(total)) : 1.0;
  const std::uint64_t rank = std::clamp<std::uint64_t>(
      wanted < static_cast<double>(total) ? static_cast<std::uint64_t>(wanted) : total, 1, total);
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    seen += counts_[bucket];
    if (seen < rank) continue;
    // The last bucket has no upper bound once larger values were recorded: answer the worst of them, not a midpoint.
    if (bucket == kBuckets - 1 && (max_ >> kMaxBits) != 0) return max_;
    return std::clamp(bucket_low(bucket) + (bucket_width(bucket) - 1) / 2, min_, max_);
  }
  return max_;
}

}  // namespace flashmob
