// The one histogram: unsigned 64-bit values (latencies in ns), log-linear buckets, relative error <= 1/128 (0.8 %).
//
// Values below 128 are counted exactly; above, each power of two is cut into 128 buckets and a quantile answers the
// bucket's midpoint. `record` is a shift, an add and an increment: fit for the hot path. One writer at a time;
// a concurrent reader may use `snapshot_into` only where the writer is stopped or staleness is harmless.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace flashmob {

class Histogram {
 public:
  static constexpr unsigned kSubBits = 7;
  static constexpr std::size_t kSubBuckets = std::size_t{1} << kSubBits;
  // Values of 2^44 ns (4.9 hours) and more share the last bucket; max() stays exact.
  static constexpr unsigned kMaxBits = 44;
  static constexpr std::size_t kBuckets = (kMaxBits - kSubBits + 1) * kSubBuckets;

  static constexpr std::size_t bucket_of(std::uint64_t value) {
    if (value < kSubBuckets) return static_cast<std::size_t>(value);
    if (value >> kMaxBits) return kBuckets - 1;
    const unsigned shift = static_cast<unsigned>(63 - std::countl_zero(value)) - kSubBits;
    return (static_cast<std::size_t>(shift) << kSubBits) + static_cast<std::size_t>(value >> shift);
  }
  // The smallest value of a bucket, and the number of values in it.
  static std::uint64_t bucket_low(std::size_t bucket);
  static std::uint64_t bucket_width(std::size_t bucket);

  void record(std::uint64_t value) { record(value, 1); }
  void record(std::uint64_t value, std::uint64_t times) {
    counts_[bucket_of(value)] += times;
    sum_ += value * times;
    if (value > max_) max_ = value;
    if (value < min_) min_ = value;
  }

  void merge(const Histogram& other);
  void clear();

  std::uint64_t count() const;
  std::uint64_t max() const { return max_; }
  std::uint64_t min() const { return min_ == UINT64_MAX ? 0 : min_; }  // exact; 0 if empty
  double mean() const;        // exact; 0 if empty
  // The value at quantile q in [0, 1]; 0 if empty; q = 1 gives max().
  std::uint64_t quantile(double q) const;
  std::uint64_t bucket_count(std::size_t bucket) const { return counts_[bucket]; }

 private:
  std::array<std::uint64_t, kBuckets> counts_{};
  std::uint64_t sum_ = 0;
  std::uint64_t max_ = 0;
  std::uint64_t min_ = UINT64_MAX;
};

}  // namespace flashmob
