// One seed of the share table's protocol: threads that count words up in blocks which they share, over the cache or
// over bare SSDs. Every failure follows from its seed.
#pragma once

#include <string>

#include "base/rng.h"
#include "cache/cache_fixture.h"
#include "flashmob/gpu/share_table.h"

namespace flashmob::gpu::test {

inline constexpr std::uint32_t kShareLineBytes = 512;

// A table over the SSDs, or over a cache of two lines.
struct Direct {
  static constexpr bool kMayChangeMeanwhile = false;  // the SSDs here mind if data change while they are written
  using Blocks = DirectBlocks<FakeSsd>;
  static Blocks blocks(CacheFixture<Lru>& fixture) {
    return Blocks(fixture.ssds.data(), static_cast<std::uint32_t>(fixture.ssds.size()), kShareLineBytes);
  }
};
struct Cached {
  static constexpr bool kMayChangeMeanwhile = true;
  using Blocks = CachedBlocks<CacheFixture<Lru>::Ref>;
  static Blocks blocks(CacheFixture<Lru>& fixture) { return Blocks(fixture.ref()); }
};

template <class Kind>
struct TableFixture {
  using Table = ShareTable<typename Kind::Blocks, NoLockChain>;

  explicit TableFixture(const FakeOptions& options, std::uint32_t sets = 4, std::uint32_t ways = 8)
      : caches({kShareLineBytes, 1, 2}, options),
        memory(Table::bytes(sets, ways)),
        table(Table::place(sets, ways, memory.get(), Kind::blocks(caches))) {
    mark_media(caches.devices, kShareLineBytes);
  }
  CacheFixture<Lru> caches;
  Bytes memory;
  Table table;
};

inline std::uint64_t* words(const Share& share) { return reinterpret_cast<std::uint64_t*>(share.data); }

// Each thread counts a word of its own up in blocks that it opens in a buffer of its own, or shares.
// `kWriteBack`: owners also write back while others go on.
template <class Table, bool kWriteBack>
struct SharedCounting {
  Table table;
  std::byte* buffers;
  std::uint64_t* own;    // thread * 4 + block
  std::uint64_t* wrong;  // of each thread

  template <class Lane>
  void operator()(Lane& t) const {
    Rng rng(t.thread() + 100 * t.threads());
    for (std::uint32_t round = 0; round < 10; ++round) {
      const BlockKey key{0, 0, rng.below(4)};
      std::uint64_t& count = own[t.thread() * 4 + key.block];
      Share share = table.open(t, key, buffers + t.thread() * kShareLineBytes);
      if (!share.open()) continue;
      if (table.wait(t, share).ok()) {
        wrong[t.thread()] += words(share)[0] != block_mark(key) || words(share)[1 + t.thread()] != count;
        if (rng.below(2) == 0) {
          words(share)[1 + t.thread()] = ++count;
          table.modified(t, share);
        }
        if (kWriteBack && share.owner && rng.below(2) == 0) table.write_back(t, share);
        t.pause(1);
        wrong[t.thread()] += words(share)[0] != block_mark(key) || words(share)[1 + t.thread()] != count;
      }
      while (!table.close(t, share).ok()) t.pause(100);
    }
  }
};

// One seed. "" if all went well. `meanwhile`: owners write back while others change the block, which Kind must allow.
template <class Kind, bool meanwhile = Kind::kMayChangeMeanwhile>
std::string run_share_seed(std::uint64_t seed) {
  FakeOptions options{.seed = seed};
  options.reads_may_race = true;
  if (seed % 2 == 0) options.read_error_one_in = options.write_error_one_in = 4;
  TableFixture<Kind> fixture(options, 1, 3);
  simt::FibreDevice device(fixture.caches.devices, fibres(seed));
  Bytes buffers(8 * kShareLineBytes);
  std::vector<std::uint64_t> own(8 * 4);
  std::vector<std::uint64_t> wrong(8);
  device.run({.blocks = 2, .block_threads = 4},
             SharedCounting<decltype(fixture.table), meanwhile>{fixture.table, static_cast<std::byte*>(buffers.get()),
                                                                own.data(), wrong.data()});
  for (const std::uint64_t each : wrong) {
    if (each != 0) return "a thread saw wrong data";
  }
  if (!audit_shares(fixture.table).clean()) return "shares are left open";
  if (!fixture.caches.devices.fault().empty()) return fixture.caches.devices.fault();
  fixture.caches.devices.options().write_error_one_in = 0;
  bool flushed = false;
  run_one(device, [&](auto& t) { flushed = fixture.caches.ref().flush(t).ok(); });
  if (!flushed) return "flush failed";
  for (std::uint64_t block = 0; block < 4; ++block) {
    const auto* on_media =
        reinterpret_cast<std::uint64_t*>(fixture.caches.devices.media(0, 0).data() + block * kShareLineBytes);
    for (std::uint32_t i = 0; i < 8; ++i) {
      if (on_media[1 + i] != own[i * 4 + block]) return "wrong on the SSD, block " + std::to_string(block);
    }
  }
  return "";
}

}  // namespace flashmob::gpu::test
