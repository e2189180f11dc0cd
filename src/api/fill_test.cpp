// Filling a store: what is written where, and a progress that people can believe.
#include "api/fill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace flashmob::api {
namespace {

TEST(Fill, ProgressNeverRunsBackwards) {
  // Who takes a large piece ends after the others, who have gone on with small ones in the meantime.
  constexpr std::uint64_t kLarge = 2 << 20, kSmall = 4096;
  const auto store = media::open("memory", std::uint64_t{64} << 20, 1, 1);
  std::vector<load::ByteRange> ranges;
  for (std::uint64_t at = 0; at < store->size_bytes(); at += kLarge) {
    ranges.push_back({at, kLarge / 2});
    for (unsigned turn = 0; turn < 20; ++turn) ranges.push_back({at + kLarge / 2 + turn * kSmall, kSmall});
  }
  unsigned backwards = 0;
  for (unsigned round = 0; round < 20; ++round) {
    std::atomic<double> fraction{0};
    const std::atomic<bool> cancelled{false};
    std::atomic<bool> done{false};
    std::thread filling([&] {
      EXPECT_TRUE(fill_media(*store, store->size_bytes(), ranges, 1, 1, false, fraction, cancelled));
      done = true;
    });
    double highest = 0;
    while (!done) {
      const double now = fraction;
      backwards += now < highest ? 1 : 0;
      highest = std::max(highest, now);
    }
    filling.join();
    EXPECT_EQ(fraction, 1.0);
  }
  EXPECT_EQ(backwards, 0u);
}

}  // namespace
}  // namespace flashmob::api
