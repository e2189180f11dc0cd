// The cache over whole emulated SSDs under the virtual clock: two of them, with 512-byte and 4096-byte blocks, real
// queues, and completions taken by the callers.
#include <gtest/gtest.h>

#include <memory>

#include "cache/traffic.h"
#include "host/attach/shared_memory.h"
#include "host/attach/ssd_queues.h"
#include "host/attach/virtual_ssd.h"

namespace flashmob::gpu::test {
namespace {

constexpr std::uint32_t kLineBytes = 4096;

// A cache in memory that both SSDs reach.
template <class Policy>
struct CacheOnSsds {
  using Sets = CacheSets<Policy, NoLockChain>;
  using Ref = CacheRef<Policy, SsdRef, NoSecondTier, NoLockChain>;

  CacheOnSsds(std::byte* data, const CacheGeometry& geometry, const std::vector<SsdRef>& ssds)
      : metadata(Sets::metadata_bytes(geometry)),
        sets(Sets::place(geometry, metadata.get(), data)),
        ref(sets, ssds.data(), static_cast<std::uint32_t>(ssds.size())) {}

  Bytes metadata;
  Sets sets;
  Ref ref;
};

class CacheOnVirtualSsds : public testing::Test {
 protected:
  CacheOnVirtualSsds() {
    for (int i = 0; i < 2; ++i) {
      VirtualSsd& ssd = world.add(small_ssd());
      queues.push_back(std::make_unique<SsdQueues>(ssd.driver(), QueueLayout{.queues = 2, .entries = 7}));
      refs.push_back(queues.back()->ref());
    }
    driver::PciDevice* const devices[] = {&world.ssd(0).pci(), &world.ssd(1).pci()};
    data = std::make_unique<SharedMemory>(devices, kLines * kLineBytes);
  }

  static constexpr std::uint64_t kLines = 8;
  VirtualWorld world;
  std::vector<std::unique_ptr<SsdQueues>> queues;
  std::vector<SsdRef> refs;
  std::unique_ptr<SharedMemory> data;
};

TEST_F(CacheOnVirtualSsds, KeepEveryWrite) {
  TrafficOptions options;
  options.ssds = options.namespaces = 2;
  options.shared = 4;
  options.buffers = false;  // the threads' buffers are not mapped
  for (std::uint64_t seed = 1; seed <= seeds(100); ++seed) {
    TrafficModel model(options, 12, kLineBytes, seed);
    simt::FibreDevice device(world, fibres(seed));
    const CacheGeometry geometry{kLineBytes, seed % 2 == 0 ? 1u : 4u, seed % 2 == 0 ? 8u : 2u};
    CacheOnSsds<Lru> cache(data->data(), geometry, refs);
    run_one(device, [&](auto& t) {
      model.each_block([&](const BlockKey& key, std::uint32_t) {
        const Pin pin = cache.ref.acquire(t, key, Access::overwrite);
        ASSERT_TRUE(pin.ok());
        std::memset(pin.data, 0, kLineBytes);
        *reinterpret_cast<std::uint64_t*>(pin.data) = block_mark(key);
        cache.ref.release(t, pin);
      });
    });
    device.run({.blocks = 3, .block_threads = 4}, Traffic<decltype(cache.ref)>{cache.ref, &model});
    ASSERT_EQ(model.fault(), "") << "seed " << seed;
    run_one(device, [&](auto& t) {
      ASSERT_TRUE(cache.ref.drain(t).ok());
      ASSERT_TRUE(cache.ref.flush(t).ok());
    });
    ASSERT_EQ(audit_cache(cache.sets).text(), "") << "seed " << seed;
    // What an empty cache reads is what the SSDs hold.
    CacheOnSsds<Fifo> empty(data->data(), geometry, refs);
    run_one(device, [&](auto& t) {
      model.each_block([&](const BlockKey& key, std::uint32_t owner) {
        const Pin pin = empty.ref.acquire(t, key);
        ASSERT_TRUE(pin.ok());
        const auto* words = reinterpret_cast<const std::uint64_t*>(pin.data);
        ASSERT_TRUE(owner == TrafficModel::kNobody ? model.shared_is_right(key, words)
                                                   : model.whole_is_right(owner, words))
            << "seed " << seed;
        empty.ref.release(t, pin);
      });
    });
  }
}

TEST_F(CacheOnVirtualSsds, TheSsdsOwnErrorsComeThrough) {
  simt::FibreDevice device(world, fibres(1));
  CacheOnSsds<Lru> cache(data->data(), {kLineBytes, 1, 8}, refs);
  run_one(device, [&](auto& t) {
    const std::uint64_t blocks = (4u << 20) / kLineBytes;
    for (std::uint32_t ns = 0; ns < 2; ++ns) {
      const Pin last = cache.ref.acquire(t, {1, ns, blocks - 1});
      EXPECT_TRUE(last.ok());
      cache.ref.release(t, last);
      const Pin beyond = cache.ref.acquire(t, {1, ns, blocks});
      EXPECT_EQ(beyond.status.type(), 0u);
      EXPECT_EQ(beyond.status.code(), 0x80u);
    }
    EXPECT_EQ(cache.ref.acquire(t, {1, 2, 0}).status.kind, IoKind::bad_request);
  });
  EXPECT_EQ(audit_cache(cache.sets).text(), "");
}

TEST_F(CacheOnVirtualSsds, AnAbortEndsWaitsAndKeepsLines) {
  simt::FibreDevice device(world, fibres(1));
  CacheOnSsds<Lru> cache(data->data(), {kLineBytes, 1, 8}, refs);
  run_one(device, [&](auto& t) {
    cache.ref.prefetch(t, {0, 0, 3});
    queues[0]->set_abort(true);
    EXPECT_EQ(cache.ref.acquire(t, {0, 0, 3}).status.kind, IoKind::aborted);
    EXPECT_EQ(cache.ref.acquire(t, {0, 0, 4}).status.kind, IoKind::refused);
    queues[0]->set_abort(false);
    EXPECT_TRUE(cache.ref.drain(t).ok());
    const Pin pin = cache.ref.acquire(t, {0, 0, 3});
    EXPECT_TRUE(pin.ok());
    cache.ref.release(t, pin);
  });
  EXPECT_EQ(audit_cache(cache.sets).text(), "");
}

}  // namespace
}  // namespace flashmob::gpu::test
