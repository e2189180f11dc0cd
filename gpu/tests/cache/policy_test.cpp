// The order in which policies give lines up, and the example of docs/guide/gpu-cache-policy.md.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cache/cache_fixture.h"

namespace flashmob::gpu::test {
namespace {

constexpr std::uint32_t kLineBytes = 512;

// [example]
// Gives up a way drawn by lot. One word per set: the state of a small generator.
struct RandomPolicy {
  static constexpr const char* kName = "random";
  static constexpr std::uint32_t kMaxWays = policy::kMaxWays;
  FLASHMOB_HD static constexpr std::uint32_t set_words(std::uint32_t) { return 1; }

  template <class Lane>
  FLASHMOB_HD static void hit(Lane&, const PolicySet&, std::uint32_t) {}
  template <class Lane>
  FLASHMOB_HD static void insert(Lane&, const PolicySet&, std::uint32_t, std::uint64_t) {}
  template <class Lane>
  FLASHMOB_HD static void evict(Lane&, const PolicySet&, std::uint32_t, std::uint64_t) {}
  template <class Lane>
  FLASHMOB_HD static std::uint32_t victim(Lane& t, const PolicySet& set, std::uint64_t usable) {
    const std::uint32_t drawn = policy::get(t, set.words[0]) * 1664525u + 1013904223u;
    policy::set(t, set.words[0], drawn);
    std::uint32_t way = (drawn >> 16) % set.ways;
    while (!policy::has(usable, way)) way = (way + 1) % set.ways;
    return way;
  }
};
// [example]
static_assert(RandomPolicy::kName[0] == 'r' && RandomPolicy::kMaxWays == 64);

// Reads blocks one after another; how many had to be fetched.
template <class Policy>
std::uint64_t misses(std::uint32_t ways, const std::vector<std::uint64_t>& blocks) {
  CacheFixture<Policy> fixture({kLineBytes, 1, ways}, {.blocks = 4096});
  simt::FibreDevice device(fixture.devices, fibres(1));
  run_one(device, [&](auto& t) {
    auto cache = fixture.ref();
    for (const std::uint64_t block : blocks) cache.release(t, cache.acquire(t, {0, 0, block}));
  });
  EXPECT_EQ(fixture.audit().text(), "");
  return fixture.statistics()[CacheCount::misses];
}

TEST(Policy, LruGivesUpWhatWasUsedLongestAgo) {
  EXPECT_EQ(misses<Lru>(3, {1, 2, 3, 1, 4, 1, 3, 4}), 4u);     // 2 goes
  EXPECT_EQ(misses<Lru>(3, {1, 2, 3, 1, 4, 2}), 5u);           // 2 has gone
  EXPECT_EQ(misses<Lru>(4, {1, 2, 3, 4, 5, 1, 2, 3, 4}), 9u);  // a loop that is one too long
}

TEST(Policy, FifoGivesUpWhatCameFirst) {
  EXPECT_EQ(misses<Fifo>(3, {1, 2, 3, 1, 4, 2, 3}), 4u);  // 1 goes though it was used
  EXPECT_EQ(misses<Fifo>(3, {1, 2, 3, 1, 4, 1}), 5u);
}

TEST(Policy, ClockSparesOnceWhatWasUsed) {
  EXPECT_EQ(misses<ClockPolicy>(3, {1, 2, 3, 1, 4, 1, 3}), 4u);           // the hand passes 1 and takes 2
  EXPECT_EQ(misses<ClockPolicy>(3, {1, 2, 3, 1, 4, 5, 1}), 5u);           // then 3
  EXPECT_EQ(misses<ClockPolicy>(3, {1, 2, 3, 1, 4, 5, 6, 1}), 7u);        // then 1, whose time is over
}

TEST(Policy, S3FifoKeepsWhatIsUsedAgainstAScan) {
  // Blocks 0...9 are used twice; a scan of hundreds follows, with a use of the ten now and then.
  std::vector<std::uint64_t> blocks;
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t b = 0; b < 10; ++b) blocks.push_back(b);
  }
  for (std::uint64_t b = 100; b < 500; ++b) {
    blocks.push_back(b);
    if (b % 4 == 0) blocks.push_back(b / 4 % 10);
  }
  const std::uint64_t scan = 400;
  EXPECT_EQ(misses<S3Fifo>(20, blocks), 10 + scan);
  EXPECT_GT(misses<Fifo>(20, blocks), 10 + scan + 50);
  EXPECT_GT(misses<Lru>(20, blocks), 10 + scan + 50);
}

TEST(Policy, S3FifoRemembersGhosts) {
  // 1 leaves the small queue, comes back while its ghost is there, and is in the main queue then: the scan spares it.
  std::vector<std::uint64_t> blocks{1, 2, 3, 4, 5, 1};
  const std::uint64_t before = misses<S3Fifo>(4, blocks);
  for (std::uint64_t b = 10; b < 16; ++b) blocks.push_back(b);
  blocks.push_back(1);
  EXPECT_EQ(before, 6u);
  EXPECT_EQ(misses<S3Fifo>(4, blocks), before + 6);
}

TEST(Policy, StampsMayWrapAround) {
  for (const std::uint32_t start : {0xFFFFFFF0u, 0u}) {
    CacheFixture<Lru> fixture({kLineBytes, 1, 4}, {});
    simt::FibreDevice device(fixture.devices, fibres(1));
    // The set's clock, next to its lock.
    (&fixture.memory.sets.lock(0))[1].value = start;
    run_one(device, [&](auto& t) {
      auto cache = fixture.ref();
      for (std::uint64_t i = 0; i < 40; ++i) {
        for (const std::uint64_t block : {std::uint64_t{1}, std::uint64_t{2}, 3 + i})
          cache.release(t, cache.acquire(t, {0, 0, block}));
      }
    });
    EXPECT_EQ(fixture.statistics()[CacheCount::misses], 42u) << start;
  }
}

TEST(Policy, AUsersOwnWorks) {
  EXPECT_EQ(misses<RandomPolicy>(4, {1, 2, 3, 4, 1, 2, 3, 4}), 4u);
  std::vector<std::uint64_t> loop;
  for (std::uint64_t i = 0; i < 500; ++i) loop.push_back(i % 6);
  const std::uint64_t n = misses<RandomPolicy>(4, loop);
  EXPECT_GT(n, 100u);
  EXPECT_LT(n, 400u);  // where LRU misses every time
  EXPECT_EQ(misses<Lru>(4, loop), 500u);
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}
TEST(Policy, TheGuideShowsWhatIsTestedHere) {
  const std::filesystem::path tree = FLASHMOB_SOURCE_DIR;
  const std::string source = text_of(tree / "gpu/tests/cache/policy_test.cpp");
  ASSERT_FALSE(source.empty()) << tree;
  const std::string mark = "// [example]\n";
  const std::size_t begin = source.find(mark) + mark.size();
  const std::string example = source.substr(begin, source.find(mark, begin) - begin);
  const auto guide = tree / "docs/guide/gpu-cache-policy.md";
  EXPECT_NE(text_of(guide).find(example), std::string::npos) << "differs from " << guide;
}

TEST(Policy, WaysMayBeAsManyAs64) {
  std::vector<std::uint64_t> blocks;
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t b = 0; b < 64; ++b) blocks.push_back(b);
  }
  EXPECT_EQ(misses<Lru>(64, blocks), 64u);
  EXPECT_EQ(misses<ClockPolicy>(64, blocks), 64u);
  EXPECT_EQ(misses<S3Fifo>(64, blocks), 64u);
}

}  // namespace
}  // namespace flashmob::gpu::test
