#include "load/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "base/check.h"

namespace flashmob::load {
namespace {

PatternConfig config_of(const std::string& rw, std::uint64_t blocks, std::uint32_t bytes = 512) {
  PatternConfig config;
  config.rw = rw;
  config.namespace_blocks = blocks;
  config.block_sizes = {{bytes, 1.0}};
  return config;
}

void expect_error(const PatternConfig& config, const std::string& part) {
  try {
    Pattern pattern(config, Rng(1));
    ADD_FAILURE() << "accepted: " << part;
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

// Pearson's statistic against expected counts; cells expected below 5 are pooled.
double chi_square(const std::vector<double>& expected, const std::vector<double>& observed, double* freedom) {
  double sum = 0, pooled_expected = 0, pooled_observed = 0, cells = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] < 5) {
      pooled_expected += expected[i];
      pooled_observed += observed[i];
      continue;
    }
    sum += (observed[i] - expected[i]) * (observed[i] - expected[i]) / expected[i];
    ++cells;
  }
  if (pooled_expected >= 5) {
    sum += (pooled_observed - pooled_expected) * (pooled_observed - pooled_expected) / pooled_expected;
    ++cells;
  }
  *freedom = cells - 1;
  return sum;
}

// Wilson and Hilferty's approximation of the point that a right sampler exceeds once in a million seeds (4.75 standard
// deviations): dozens of such checks share few seeds, so a looser point would meet an unlucky one.
void expect_fits(const std::vector<double>& expected, const std::vector<double>& observed, const std::string& what) {
  double freedom = 0;
  const double value = chi_square(expected, observed, &freedom);
  const double a = 2.0 / (9.0 * freedom);
  EXPECT_LT(value, freedom * std::pow(1 - a + 4.75 * std::sqrt(a), 3)) << what << ", " << freedom << " degrees";
}

TEST(AliasTable, DrawsByWeight) {
  for (const std::vector<double>& weights :
       {std::vector<double>{1}, {1, 1, 1}, {0.1, 0.2, 0.3, 0.4}, {1e-9, 1}, {5, 1, 1, 1, 100, 3}}) {
    const AliasTable table(weights);
    Rng rng(4);
    constexpr int kDraws = 200'000;
    std::vector<double> observed(weights.size()), expected;
    double sum = 0;
    for (const double weight : weights) sum += weight;
    for (const double weight : weights) expected.push_back(weight / sum * kDraws);
    for (int i = 0; i < kDraws; ++i) observed[table.draw(rng)] += 1;
    if (weights.size() > 2) {
      expect_fits(expected, observed, "alias of " + std::to_string(weights.size()));
    } else {
      EXPECT_NEAR(observed.back(), expected.back(), 1);
    }
  }
}

TEST(ZipfSampler, FollowsTheLawExactly) {
  for (const double theta : {1e-6, 0.5, 0.99, 1.0, 1.01, 2.0, 5.0}) {
    for (const std::uint64_t count : {std::uint64_t{2}, std::uint64_t{33}, std::uint64_t{64}, std::uint64_t{1000}}) {
      const ZipfSampler zipf(count, theta);
      Rng rng(count);
      constexpr int kDraws = 200'000;
      std::vector<double> observed(count), expected(count);
      double sum = 0;
      for (std::uint64_t k = 1; k <= count; ++k) sum += std::pow(static_cast<double>(k), -theta);
      for (std::uint64_t k = 1; k <= count; ++k) {
        expected[k - 1] = std::pow(static_cast<double>(k), -theta) / sum * kDraws;
      }
      for (int i = 0; i < kDraws; ++i) {
        const std::uint64_t rank = zipf.draw(rng);
        ASSERT_LT(rank, count);
        observed[rank] += 1;
      }
      expect_fits(expected, observed, "theta " + std::to_string(theta) + " of " + std::to_string(count));
    }
  }
}

TEST(ZipfSampler, OneRankAndHugeCounts) {
  Rng rng(1);
  const ZipfSampler one(1, 1.0);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(one.draw(rng), 0u);
  // 64 TiB of 512-byte blocks: with theta = 1 every power of two of ranks gets the same share.
  constexpr std::uint64_t kCount = std::uint64_t{1} << 37;
  const ZipfSampler huge(kCount, 1.0);
  std::vector<double> observed(38), expected(38, 0);
  constexpr int kDraws = 100'000;
  const double total = std::log(static_cast<double>(kCount)) + 0.57721566490153286;
  double below_32 = 0;
  for (int k = 1; k < 32; ++k) below_32 += 1.0 / k;
  for (int i = 0; i < kDraws; ++i) {
    const std::uint64_t rank = huge.draw(rng);
    ASSERT_LT(rank, kCount);
    observed[std::max<std::size_t>(4, std::bit_width(rank + 1) - 1)] += 1;  // ranks 1...31 in cell 4
  }
  expected[4] = below_32 / total * kDraws;
  for (std::size_t octave = 5; octave < 37; ++octave) expected[octave] = std::log(2.0) / total * kDraws;
  expect_fits(expected, observed, "huge");
}

TEST(Scatter, IsABijectionThatKeepsNoNeighbours) {
  for (const std::uint64_t count : {1u, 2u, 3u, 5u, 64u, 65u, 1000u, 4097u}) {
    const Scatter scatter(count, 7);
    std::set<std::uint64_t> seen;
    int neighbours = 0;
    std::uint64_t previous = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t place = scatter(i);
      ASSERT_LT(place, count);
      seen.insert(place);
      neighbours += i > 0 && (place == previous + 1 || previous == place + 1);
      previous = place;
    }
    EXPECT_EQ(seen.size(), count);
    if (count >= 1000) {
      EXPECT_LT(neighbours, 20) << count;
    }
  }
  // Another seed, another order.
  const Scatter a(1000, 1), b(1000, 2);
  int equal = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) equal += a(i) == b(i);
  EXPECT_LT(equal, 20);
}

TEST(Pattern, UniformIsUniformAndAligned) {
  Pattern pattern(config_of("randread", 64 * 8 + 5, 4096), Rng(3));
  std::vector<double> observed(64), expected(64, 200'000 / 64.0);
  for (int i = 0; i < 200'000; ++i) {
    const Io io = pattern.next();
    ASSERT_EQ(io.blocks, 8u);
    ASSERT_EQ(io.slba % 8, 0u);
    ASSERT_LT(io.slba / 8, 64u);
    ASSERT_FALSE(io.is_write);
    observed[io.slba / 8] += 1;
  }
  expect_fits(expected, observed, "uniform");
  Pattern writes(config_of("randwrite", 64), Rng(3));
  EXPECT_TRUE(writes.next().is_write);
}

TEST(Pattern, EqualSeedsGiveEqualStreams) {
  for (const char* distribution : {"uniform", "zipf:0.99", "hotcold:0.8:0.2"}) {
    PatternConfig config = config_of("randrw", 100'000);
    config.read_share = 0.5;
    config.distribution = distribution;
    config.block_sizes = {{512, 1}, {4096, 2}};
    Pattern a(config, Rng(5)), b(config, Rng(5)), c(config, Rng(6));
    int different = 0;
    for (int i = 0; i < 1000; ++i) {
      const Io x = a.next(), y = b.next(), z = c.next();
      ASSERT_TRUE(x.slba == y.slba && x.blocks == y.blocks && x.is_write == y.is_write);
      different += x.slba != z.slba;
    }
    EXPECT_GT(different, 500) << distribution;
  }
}

TEST(Pattern, ReadShareIsKept) {
  for (const char* rw : {"rw", "randrw"}) {
    for (const double share : {0.0, 0.3, 0.7, 1.0}) {
      PatternConfig config = config_of(rw, 1000);
      config.read_share = share;
      Pattern pattern(config, Rng(8));
      int reads = 0;
      for (int i = 0; i < 100'000; ++i) reads += !pattern.next().is_write;
      if (share == 0.0 || share == 1.0) {
        EXPECT_EQ(reads, share * 100'000);
      } else {
        EXPECT_NEAR(reads, share * 100'000, 600);  // four standard deviations
      }
    }
  }
}

TEST(Pattern, BlockSizesFollowTheirWeights) {
  PatternConfig config = config_of("randread", 10'007);
  config.block_sizes = {{512, 1}, {4096, 6}, {16384, 3}};
  for (const char* distribution : {"uniform", "zipf:1", "hotcold:0.9:0.1"}) {
    config.distribution = distribution;
    Pattern pattern(config, Rng(2));
    std::map<std::uint32_t, double> counts;
    for (int i = 0; i < 100'000; ++i) {
      const Io io = pattern.next();
      ASSERT_LE(io.slba + io.blocks, 10'007u);
      ASSERT_EQ(io.slba % io.blocks, 0u);
      counts[io.blocks] += 1;
    }
    expect_fits({10'000, 60'000, 30'000}, {counts[1], counts[8], counts[32]}, distribution);
  }
}

TEST(Pattern, ZipfFavouritesAreSharedByStreamsAndScattered) {
  PatternConfig config = config_of("randread", 1 << 20);
  config.distribution = "zipf:1.2";
  config.stream_count = 2;
  std::vector<std::uint64_t> favourites[2];
  for (std::uint32_t stream = 0; stream < 2; ++stream) {
    config.stream_index = stream;
    Pattern pattern(config, Rng(stream));
    std::map<std::uint64_t, int> counts;
    for (int i = 0; i < 100'000; ++i) ++counts[pattern.next().slba];
    std::vector<std::pair<int, std::uint64_t>> order;
    order.reserve(counts.size());
    for (const auto& [slba, count] : counts) order.push_back({count, slba});
    std::sort(order.rbegin(), order.rend());
    for (int i = 0; i < 4; ++i) favourites[stream].push_back(order[i].second);
  }
  EXPECT_EQ(favourites[0], favourites[1]);
  for (int i = 1; i < 4; ++i) {
    const auto distance = static_cast<std::int64_t>(favourites[0][i] - favourites[0][i - 1]);
    EXPECT_GT(std::abs(distance), 8);
  }
}

TEST(Pattern, HotAndColdPartsGetTheirShares) {
  PatternConfig config = config_of("randread", 10'000);
  config.distribution = "hotcold:0.9:0.1";
  Pattern pattern(config, Rng(12));
  std::vector<double> tenths(10);
  for (int i = 0; i < 100'000; ++i) tenths[pattern.next().slba / 1000] += 1;
  std::vector<double> expected(10, 10'000 / 9.0);
  expected[0] = 90'000;
  expect_fits(expected, tenths, "hotcold");
  // The smallest hot part is one slot, the largest everything.
  for (const char* edge : {"hotcold:1:1e-12", "hotcold:0:1", "hotcold:0.5:1"}) {
    config.distribution = edge;
    Pattern narrow(config, Rng(1));
    for (int i = 0; i < 1000; ++i) {
      const Io io = narrow.next();
      ASSERT_LT(io.slba, std::string(edge).ends_with("1e-12") ? 1u : 10'000u);
    }
  }
}

TEST(Pattern, WhatIsOverwrittenTogetherHasAHandle) {
  PatternConfig config = config_of("randwrite", 10'000);
  EXPECT_FALSE(Pattern(config, Rng(1)).places());
  config.placement_handles = 3;
  config.distribution = "hotcold:0.9:0.1";
  const Pattern parts(config, Rng(1));
  EXPECT_TRUE(parts.places());
  EXPECT_EQ(parts.handle_of(0), 1);
  EXPECT_EQ(parts.handle_of(999), 1);
  EXPECT_EQ(parts.handle_of(1000), 0);
  config.distribution = "uniform";
  config.stream_count = 5;
  config.stream_index = 4;
  EXPECT_EQ(Pattern(config, Rng(1)).handle_of(7), 1);
}

TEST(Pattern, SequentialStreamsWalkTheirOwnShares) {
  PatternConfig config = config_of("read", 103, 1024);  // 51 slots of two blocks
  config.stream_count = 4;
  std::set<std::uint64_t> seen;
  std::size_t total = 0;
  for (config.stream_index = 0; config.stream_index < 4; ++config.stream_index) {
    Pattern pattern(config, Rng(1));
    const std::uint64_t first = pattern.next().slba;
    std::vector<std::uint64_t> lap{first};
    for (;;) {
      const Io io = pattern.next();
      if (io.slba == first) break;
      ASSERT_EQ(io.slba, lap.back() + 2);
      ASSERT_LE(io.slba + 2, 103u);
      lap.push_back(io.slba);
    }
    EXPECT_GE(lap.size(), 12u);
    EXPECT_LE(lap.size(), 13u);
    EXPECT_EQ(pattern.next().slba, first + 2);  // wrapped and goes on
    seen.insert(lap.begin(), lap.end());
    total += lap.size();
  }
  EXPECT_EQ(total, 51u);
  EXPECT_EQ(seen.size(), 51u);
}

TEST(Pattern, MoreSequentialStreamsThanSlotsShareThem) {
  PatternConfig config = config_of("write", 3);
  config.stream_count = 1000;
  for (config.stream_index = 0; config.stream_index < 1000; ++config.stream_index) {
    Pattern pattern(config, Rng(1));
    for (int i = 0; i < 5; ++i) ASSERT_LT(pattern.next().slba, 3u);
  }
}

TEST(Pattern, SequentialMixesStayInsideAndTouchingEachOther) {
  PatternConfig config = config_of("rw", 1000);
  config.read_share = 0.5;
  config.block_sizes = {{512, 1}, {1536, 1}, {8192, 1}};
  Pattern pattern(config, Rng(6));
  std::uint64_t next = 0;
  int wraps = 0;
  for (int i = 0; i < 10'000; ++i) {
    const Io io = pattern.next();
    ASSERT_LE(io.slba + io.blocks, 1000u);
    if (io.slba != next) {
      ASSERT_EQ(io.slba, 0u);
      ++wraps;
    }
    next = io.slba + io.blocks;
  }
  EXPECT_GT(wraps, 10);
}

TEST(Pattern, OneBlockNamespaceAndLargestNamespace) {
  for (const char* rw : {"read", "write", "rw", "randread", "randwrite", "randrw"}) {
    for (const char* distribution : {"uniform", "zipf:1", "hotcold:0.5:0.5"}) {
      if (rw[0] != 'r' || rw[1] != 'a') {
        if (std::string(distribution) != "uniform") continue;
      }
      PatternConfig one = config_of(rw, 1);
      one.distribution = distribution;
      Pattern small(one, Rng(1));
      for (int i = 0; i < 100; ++i) ASSERT_EQ(small.next().slba, 0u);

      PatternConfig most = config_of(rw, std::uint64_t{1} << 37, 65536u * 512u);
      most.distribution = distribution;
      most.stream_count = most.stream_index + 2;
      Pattern large(most, Rng(1));
      for (int i = 0; i < 1000; ++i) {
        const Io io = large.next();
        ASSERT_EQ(io.blocks, 65536u);
        ASSERT_LE(io.slba, (std::uint64_t{1} << 37) - 65536);
      }
    }
  }
}

TEST(Pattern, FourKiBLbas) {
  PatternConfig config = config_of("randread", 100, 8192);
  config.lba_shift = 12;
  Pattern pattern(config, Rng(1));
  for (int i = 0; i < 1000; ++i) {
    const Io io = pattern.next();
    ASSERT_EQ(io.blocks, 2u);
    ASSERT_LE(io.slba, 98u);
  }
  config.block_sizes = {{512, 1}};
  expect_error(config, "multiples of the namespace's LBA size, 4096");
}

TEST(Pattern, BadOptionsAreNamed) {
  for (const char* rw : {"", "Read", "randtrim", "readwrite"}) expect_error(config_of(rw, 100), "rw = ");
  PatternConfig config = config_of("randrw", 100);
  for (const double share : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    config.read_share = share;
    expect_error(config, "read_share");
  }
  for (const std::uint32_t bytes : {0u, 100u, 513u}) expect_error(config_of("read", 100, bytes), "LBA size");
  expect_error(config_of("read", 100, 101 * 512), "namespace's size, 51200 bytes");
  expect_error(config_of("read", 0), "namespace's size, 0 bytes");
  expect_error(config_of("read", 1 << 20, 65537 * 512), "at most 33554432 bytes");
  config = config_of("read", 100);
  config.block_sizes.clear();
  expect_error(config, "block_sizes");
  for (const double weight :
       {0.0, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    config.block_sizes = {{512, weight}};
    expect_error(config, "weight");
  }
  config = config_of("randread", 100);
  for (const char* distribution : {"",
                                   "zipf",
                                   "zipf:",
                                   "zipf:0",
                                   "zipf:-1",
                                   "zipf:5.01",
                                   "zipf:nan",
                                   "zipf:inf",
                                   "zipf:1x",
                                   "zipf:1:2",
                                   "hotcold",
                                   "hotcold:0.9",
                                   "hotcold:0.9:",
                                   "hotcold:1.1:0.1",
                                   "hotcold:0.9:0",
                                   "hotcold:0.9:1.1",
                                   "hotcold:-0.1:0.5",
                                   "hotcold:0.9:0.1:0.1",
                                   "uniform:1",
                                   "pareto:0.5"}) {
    config.distribution = distribution;
    expect_error(config, "zipf:THETA");
  }
  config = config_of("read", 100);
  config.distribution = "zipf:1";
  expect_error(config, "sequential");
}

// Random configurations: whatever is accepted stays inside the namespace.
TEST(Pattern, NeverLeavesTheNamespace) {
  Rng rng(77);
  const char* const distributions[] = {"uniform", "zipf:0.7", "zipf:1", "hotcold:0.7:0.3"};
  const char* const rws[] = {"randread", "randrw", "randwrite", "read", "rw", "write"};
  for (int round = 0; round < 500; ++round) {
    PatternConfig config;
    config.rw = rws[rng.below(6)];
    config.read_share = rng.unit();
    config.distribution = config.rw.starts_with("rand") ? distributions[rng.below(4)] : "uniform";
    config.namespace_blocks = 1 + rng.below(200);
    config.block_sizes.clear();
    for (std::uint64_t i = 0; i <= rng.below(4); ++i) {
      config.block_sizes.push_back(
          {static_cast<std::uint32_t>(512 * (1 + rng.below(config.namespace_blocks))), 0.1 + rng.unit()});
    }
    config.stream_count = static_cast<std::uint32_t>(1 + rng.below(9));
    config.stream_index = static_cast<std::uint32_t>(rng.below(config.stream_count));
    config.placement_seed = rng.next();
    Pattern pattern(config, rng.split(round));
    for (int i = 0; i < 200; ++i) {
      const Io io = pattern.next();
      ASSERT_GE(io.blocks, 1u);
      ASSERT_LE(io.slba + io.blocks, config.namespace_blocks) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace flashmob::load
