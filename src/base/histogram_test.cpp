#include "base/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "base/rng.h"

namespace flashmob {
namespace {

constexpr std::uint64_t kTop = std::uint64_t{1} << Histogram::kMaxBits;

TEST(Histogram, EmptyAnswersZero) {
  const Histogram h;
  EXPECT_EQ(h.count(), 0u);
  EXPECT_EQ(h.min(), 0u);
  EXPECT_EQ(h.max(), 0u);
  EXPECT_EQ(h.mean(), 0.0);
  EXPECT_EQ(h.quantile(0.5), 0u);
  EXPECT_EQ(h.quantile(1.0), 0u);
}

TEST(Histogram, BucketsTileTheRangeWithoutGapOrOverlap) {
  std::uint64_t expected_low = 0;
  for (std::size_t bucket = 0; bucket < Histogram::kBuckets; ++bucket) {
    const std::uint64_t low = Histogram::bucket_low(bucket);
    const std::uint64_t high = low + Histogram::bucket_width(bucket) - 1;
    ASSERT_EQ(low, expected_low) << bucket;
    ASSERT_EQ(Histogram::bucket_of(low), bucket);
    ASSERT_EQ(Histogram::bucket_of(high), bucket);
    expected_low = high + 1;
  }
  EXPECT_EQ(expected_low, kTop);
}

TEST(Histogram, ValuesBeyondTheTopShareTheLastBucketAndMaxStaysExact) {
  Histogram h;
  for (const std::uint64_t value : {kTop, kTop + 1, std::numeric_limits<std::uint64_t>::max()}) {
    EXPECT_EQ(Histogram::bucket_of(value), Histogram::kBuckets - 1);
  }
  h.record(5);
  h.record(kTop * 3);
  EXPECT_EQ(h.max(), kTop * 3);
  EXPECT_EQ(h.quantile(1.0), kTop * 3);
  EXPECT_EQ(h.quantile(0.99), kTop * 3);
  EXPECT_EQ(h.quantile(0.5), 5u);
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram h;
  for (std::uint64_t value = 0; value < 100; ++value) h.record(value);
  EXPECT_EQ(h.count(), 100u);
  EXPECT_EQ(h.min(), 0u);
  EXPECT_EQ(h.max(), 99u);
  EXPECT_DOUBLE_EQ(h.mean(), 49.5);
  EXPECT_EQ(h.quantile(0.0), 0u);
  EXPECT_EQ(h.quantile(0.01), 0u);
  EXPECT_EQ(h.quantile(0.5), 49u);
  EXPECT_EQ(h.quantile(0.99), 98u);
  EXPECT_EQ(h.quantile(0.991), 99u);
}

TEST(Histogram, QuantilesOfOneValueNeverExceedIt) {
  for (const std::uint64_t value :
       {std::uint64_t{1}, std::uint64_t{255}, std::uint64_t{256}, std::uint64_t{50'000}, kTop - 1}) {
    Histogram h;
    h.record(value, 1000);
    EXPECT_EQ(h.count(), 1000u);
    for (const double q : {0.0, 0.001, 0.5, 0.99999, 1.0}) {
      EXPECT_LE(h.quantile(q), value);
      EXPECT_GE(static_cast<double>(h.quantile(q)), static_cast<double>(value) * (1 - 1.0 / 128));
    }
    EXPECT_DOUBLE_EQ(h.mean(), static_cast<double>(value));
  }
}

TEST(Histogram, NonsenseQuantilesAreClamped) {
  Histogram h;
  h.record(10);
  h.record(20);
  EXPECT_EQ(h.quantile(-3.0), 10u);
  EXPECT_EQ(h.quantile(std::numeric_limits<double>::quiet_NaN()), 10u);
  EXPECT_EQ(h.quantile(7.0), 20u);
}

// Property: every quantile is within 1/128 of the exact order statistic, whatever the distribution's shape.
TEST(Histogram, QuantilesAreWithinTheStatedError) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    Histogram h;
    std::vector<std::uint64_t> values(5000);
    for (auto& value : values) {
      value = rng.next() >> (20 + rng.below(44));  // log-uniform below 2^44
      h.record(value);
    }
    std::sort(values.begin(), values.end());
    double sum = 0;
    for (const std::uint64_t value : values) sum += static_cast<double>(value);
    EXPECT_NEAR(h.mean(), sum / 5000, sum / 5000 * 1e-12) << "seed " << seed;
    for (const double q : {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999}) {
      const std::size_t rank = std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(q * 5000)));
      const double exact = static_cast<double>(values[rank - 1]);
      EXPECT_NEAR(static_cast<double>(h.quantile(q)), exact, exact / 128) << "seed " << seed << " q " << q;
    }
    EXPECT_EQ(h.max(), values.back());
  }
}

TEST(Histogram, MergeEqualsRecordingEverythingInOne) {
  Rng rng(9);
  auto all = std::make_unique<Histogram>();
  auto parts = std::make_unique<std::array<Histogram, 3>>();
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t value = rng.below(1'000'000);
    all->record(value);
    (*parts)[rng.below(3)].record(value);
  }
  Histogram merged;
  for (const Histogram& part : *parts) merged.merge(part);
  EXPECT_EQ(merged.count(), all->count());
  EXPECT_EQ(merged.max(), all->max());
  EXPECT_EQ(merged.min(), all->min());
  EXPECT_EQ(merged.mean(), all->mean());
  for (std::size_t bucket = 0; bucket < Histogram::kBuckets; ++bucket) {
    ASSERT_EQ(merged.bucket_count(bucket), all->bucket_count(bucket));
  }
  merged.clear();
  EXPECT_EQ(merged.count(), 0u);
  EXPECT_EQ(merged.max(), 0u);
  EXPECT_EQ(merged.mean(), 0.0);
}

}  // namespace
}  // namespace flashmob
