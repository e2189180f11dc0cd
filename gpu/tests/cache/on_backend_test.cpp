// The cache, its second tier and the share table over emulated SSDs as kernels on the backend in use have them, a GPU's
// included: every thread counts in words of its own in blocks that all share, and the SSDs must hold every count.
#include <vector>

#include "cache/kernels.h"
#include "host/attach/virtual_ssd.h"
#include "on_backend.h"

namespace flashmob::gpu::test {
namespace {

class Rig {
 public:
  static constexpr std::uint32_t kThreads = 64, kSsds = 2;

  explicit Rig(std::uint64_t seed) : gpu(attach({small_ssd(), small_ssd()}, options(seed))) {
    run.ssds = kSsds;
    own_ = gpu->allocate(kThreads * kSsds * run.blocks * sizeof(std::uint64_t));
    buffers_ = gpu->allocate(kThreads * run.line_bytes);
    wrong_ = gpu->allocate(sizeof(simt::Word<std::uint64_t>));
    run.own = own_.as<std::uint64_t>();
    run.buffers = buffers_.data();
    run.wrong = wrong_.as<simt::Word<std::uint64_t>>();
    each_block([&](const BlockKey& key, std::vector<std::uint64_t>& words) {
      words[0] = marked(key);
      gpu->write(key.ssd, 0, key.block * 8, words.data(), run.line_bytes);
    });
  }
  void expect_every_count_on_the_ssds() {
    EXPECT_EQ(run.wrong->value, 0u);
    each_block([&](const BlockKey& key, std::vector<std::uint64_t>& words) {
      gpu->read(key.ssd, 0, key.block * 8, words.data(), run.line_bytes);
      ASSERT_EQ(words[0], marked(key));
      for (std::uint32_t i = 0; i < kThreads; ++i) ASSERT_EQ(words[1 + i], run.count(i, key)) << "thread " << i;
    });
  }

  std::unique_ptr<Gpu> gpu;
  Counting run;
  const simt::Shape shape{.blocks = kThreads / 32, .block_threads = 32};

 private:
  static GpuOptions options(std::uint64_t seed) {
    GpuOptions options = backend_options(seed);
    options.queues = 2;
    options.queue_depth = 9;
    return options;
  }
  template <class Visit>
  void each_block(Visit visit) const {
    for (std::uint32_t ssd = 0; ssd < kSsds; ++ssd) {
      for (std::uint64_t block = 0; block < run.blocks; ++block) {
        std::vector<std::uint64_t> words(run.line_bytes / 8);
        visit(BlockKey{ssd, 0, block}, words);
      }
    }
  }
  Memory own_, buffers_, wrong_;
};

template <class Owner>
void count_in_lines(Rig& rig, Owner& cache) {
  rig.gpu->run(rig.shape, CountInLines<typename Owner::Ref>{}, cache.ref(), rig.run);
  EXPECT_TRUE(cache.flush().ok());
  EXPECT_TRUE(cache.drain().ok());
  EXPECT_EQ(cache.audit().text(), "");
  rig.expect_every_count_on_the_ssds();
}

TEST(CacheOnBackend, KeepsEveryWrite) {
  for (std::uint64_t seed = 1; seed <= seeds(2); ++seed) {
    for (const std::uint64_t lines : {1u, 4u}) {
      Rig rig(seed);
      TightCache cache(*rig.gpu, {.line_bytes = 4096, .lines = lines, .ways = static_cast<std::uint32_t>(lines)});
      count_in_lines(rig, cache);
      EXPECT_GT(cache.statistics()[CacheCount::evictions], 0u);
    }
  }
}

TEST(CacheOnBackend, TwoTiersKeepEveryWrite) {
  // Where threads run as they like, a run may come by without a hit; many do not.
  std::uint64_t hits = 0;
  for (std::uint64_t seed = 1; seed <= seeds(2) || (hits == 0 && seed <= 20); ++seed) {
    Rig rig(seed);
    TightTwoTierCache cache(*rig.gpu, {.line_bytes = 4096, .lines = 4, .ways = 4, .host_lines = 4, .host_ways = 4});
    count_in_lines(rig, cache);
    hits += cache.statistics()[CacheCount::second_hits];
  }
  EXPECT_GT(hits, 0u);
}

TEST(ShareTableOnBackend, KeepsEveryChange) {
  for (std::uint64_t seed = 1; seed <= seeds(2); ++seed) {
    Rig rig(seed);
    const Memory refs = rig.gpu->allocate(Rig::kSsds * sizeof(SsdRef));
    for (std::uint32_t s = 0; s < Rig::kSsds; ++s) new (refs.as<SsdRef>() + s) SsdRef(rig.gpu->ssd(s));
    const Memory memory = rig.gpu->allocate(SsdTable::bytes(24, 8));
    const SsdTable table =
        SsdTable::place(24, 8, memory.data(), DirectBlocks<SsdRef>(refs.as<SsdRef>(), Rig::kSsds, rig.run.line_bytes));
    rig.gpu->run(rig.shape, CountInBuffers<SsdTable>{}, table, rig.run);
    EXPECT_TRUE(audit_shares(table).clean());
    rig.expect_every_count_on_the_ssds();
  }
}

}  // namespace
}  // namespace flashmob::gpu::test
