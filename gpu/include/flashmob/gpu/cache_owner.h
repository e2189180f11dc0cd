// Caches as host code makes them: memory, an empty cache in it, and the handle for kernels.
//
//   Cache<Lru> cache(gpu, {.line_bytes = 4096, .lines = 65536, .ways = 16});
//   gpu.run({.blocks = 64, .block_threads = 256}, MyKernel{}, cache.ref(), ...);
//   cache.flush();
//
// A cache lives until no kernel uses it, and not longer than its Gpu. Its end waits for the commands that are still in
// flight, prefetches that nobody has waited for above all: the SSD writes to the lines, and the queue to what stands
// beside them. If they do not come back, the memory is never freed. For one host thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "flashmob/error.h"
#include "flashmob/gpu.h"
#include "flashmob/gpu/audit.h"
#include "flashmob/gpu/cache.h"

namespace flashmob::gpu {

struct CacheOptions {
  std::uint32_t line_bytes = 4096;  // a power of two times a block of every namespace, at most the largest transfer
  std::uint64_t lines = 4096;       // rounded up to whole sets
  std::uint32_t ways = 16;          // 1...64; as many as the policy allows
  std::uint64_t host_lines = 0;     // of the second tier, in host memory (TwoTierCache only)
  std::uint32_t host_ways = 16;
  bool statistics = true;
  std::uint32_t watched_threads = 256;  // by the lock chain of debug builds
};

// All lanes write back, then one flushes.
template <class Ref>
struct FlushCacheKernel {
  static constexpr std::uint32_t kMaxBlockThreads = 256;

  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Ref cache, IoStatus* result) const {
    const IoStatus written = cache.write_back(t, t.thread(), t.threads());
    t.sync_block();
    if (t.thread() != 0) return;
    const IoStatus flushed = cache.flush(t);
    *result = written.ok() ? flushed : written;
  }
};
template <class Ref>
struct DrainCacheKernel {
  static constexpr std::uint32_t kMaxBlockThreads = 32;

  template <class Lane>
  FLASHMOB_HD void operator()(Lane& t, Ref cache, IoStatus* result) const {
    *result = cache.drain(t);
  }
};

namespace detail {

// Memory of one tier with an empty cache in it. What kernels alone update lies as near to them as memory can, and host
// code looks at copies of it.
template <class Policy>
class CacheTier {
 public:
  CacheTier(Gpu& gpu, std::uint32_t line_bytes, std::uint64_t lines, std::uint32_t ways, bool statistics,
            Placement placement, const char* key, BuildLockChain chain = {})
      : gpu_(gpu) {
    check(gpu, line_bytes, lines, ways, key);
    const CacheGeometry geometry{line_bytes, static_cast<std::uint32_t>((lines + ways - 1) / ways), ways};
    metadata_ = gpu.allocate_near(Sets::metadata_bytes(geometry));
    data_ = placement == Placement::device ? gpu.allocate_near(geometry.data_bytes(), true)
                                           : gpu.allocate(geometry.data_bytes(), placement);
    std::vector<CacheLine> empty = room_for_metadata(geometry);
    Sets::place(geometry, empty.data(), nullptr);
    gpu.copy(metadata_.data(), empty.data(), metadata_.size());
    sets_ = Sets::at(geometry, metadata_.data(), data_.data(), chain);
    if (!statistics) return;
    shards_ = gpu.allocate_near(kShards * sizeof(CacheShard));
    counters_ = CacheCounters(shards_.as<CacheShard>(), kShards);
  }

  // The memory stays for good: the SSD may still write there.
  void leave_memory() {
    for (const Memory& each : {metadata_, data_, shards_}) static_cast<void>(new Memory(each));
  }

  using Sets = CacheSets<Policy>;
  const Sets& sets() const { return sets_; }
  const CacheCounters& counters() const { return counters_; }
  Placement placement() const { return data_.placement(); }

  CacheStatistics statistics() const {
    if (shards_.size() == 0) return {};
    std::vector<CacheShard> copy(kShards);
    gpu_.copy(copy.data(), shards_.data(), shards_.size());
    return CacheCounters(copy.data(), kShards).sum();
  }
  CacheAudit audit() const {
    std::vector<CacheLine> copy = room_for_metadata(sets_.geometry());
    gpu_.copy(copy.data(), metadata_.data(), metadata_.size());
    return audit_cache(Sets::at(sets_.geometry(), copy.data(), nullptr));
  }

 private:
  static constexpr std::uint32_t kShards = 64;

  static std::vector<CacheLine> room_for_metadata(const CacheGeometry& geometry) {
    return std::vector<CacheLine>((Sets::metadata_bytes(geometry) + sizeof(CacheLine) - 1) / sizeof(CacheLine));
  }

  static void check(Gpu& gpu, std::uint32_t line_bytes, std::uint64_t lines, std::uint32_t ways, const char* key) {
    const std::string cache = key;
    if (ways < 1 || ways > Policy::kMaxWays)
      throw ConfigError(cache + "ways: the policy " + Policy::kName + " takes 1 to " +
                        std::to_string(Policy::kMaxWays) + ", not " + std::to_string(ways));
    if (lines < 1 || (lines + ways - 1) / ways > UINT32_MAX)
      throw ConfigError(cache + "lines: give at least 1 line and at most 2^32 sets");
    for (std::uint32_t s = 0; s < gpu.ssds(); ++s) {
      const SsdInfo& info = gpu.ssd_info(s);
      if (line_bytes == 0 || line_bytes > info.max_transfer_bytes)
        throw ConfigError(cache + "line_bytes: SSD " + std::to_string(s) + " moves at most " +
                          std::to_string(info.max_transfer_bytes) + " bytes at a time; give 1 line no more than that");
      for (const std::uint32_t block : info.lba_bytes) {
        if (line_bytes % block != 0)
          throw ConfigError(cache + "line_bytes: SSD " + std::to_string(s) + " has blocks of " + std::to_string(block) +
                            " bytes; give a multiple of that");
      }
    }
  }

  Gpu& gpu_;
  Memory metadata_;
  Memory data_;
  Memory shards_;
  Sets sets_;
  CacheCounters counters_;
};

// What one tier and two tiers have in common.
template <class RefType>
class CacheOwner {
 public:
  using Ref = RefType;

  CacheOwner(const CacheOwner&) = delete;
  CacheOwner& operator=(const CacheOwner&) = delete;

  // For kernels, by value.
  const Ref& ref() const { return ref_; }
  // Circular waits, and locks held while waiting, that a debug build has seen; "" if none, or in another build.
  std::string lock_report() const { return describe(chain_); }

  // Everything modified is on the SSDs when this returns ok. Waits.
  IoStatus flush() {
    return run_kernel({.blocks = 1, .block_threads = FlushCacheKernel<Ref>::kMaxBlockThreads}, FlushCacheKernel<Ref>{});
  }
  // No command of the cache is in flight any more when this returns ok. Waits.
  IoStatus drain() { return run_kernel({.blocks = 1, .block_threads = 1}, DrainCacheKernel<Ref>{}); }

 protected:
  CacheOwner(Gpu& gpu, std::uint32_t watched_threads)
      : gpu_(gpu), ssds_(gpu.allocate_near(gpu.ssds() * sizeof(SsdRef))), result_(gpu.allocate(sizeof(IoStatus))) {
    std::vector<SsdRef> refs;
    for (std::uint32_t i = 0; i < gpu.ssds(); ++i) refs.push_back(gpu.ssd(i));
    gpu.copy(ssds_.data(), refs.data(), ssds_.size());
    if (BuildLockChain::kOn) {
      chain_memory_ = gpu.allocate(BuildLockChain::bytes(watched_threads));
      chain_ = BuildLockChain::place(watched_threads, chain_memory_.data());
    }
  }
  ~CacheOwner() = default;
  // What the end of a cache begins with; false if the SSD has not answered everything.
  bool drained() noexcept {
    try {
      return drain().ok();
    } catch (const std::exception&) {
      return false;  // a kernel of the same Gpu has failed
    }
  }
  const BuildLockChain& chain() const { return chain_; }
  const SsdRef* ssds() const { return ssds_.as<SsdRef>(); }
  std::uint32_t ssd_count() const { return gpu_.ssds(); }
  void set_ref(const Ref& ref) { ref_ = ref; }

 private:
  template <class Kernel>
  IoStatus run_kernel(const simt::Shape& shape, Kernel kernel) {
    auto* result = new (result_.data()) IoStatus{0, IoKind::pending};
    gpu_.run(shape, kernel, ref_, result);
    return *result;
  }

  Gpu& gpu_;
  Memory ssds_;
  Memory result_;
  Memory chain_memory_;
  BuildLockChain chain_;
  Ref ref_;
};

}  // namespace detail

template <class Policy>
class Cache : public detail::CacheOwner<CacheRef<Policy>> {
 public:
  // Throws ConfigError.
  explicit Cache(Gpu& gpu, const CacheOptions& options = {})
      : detail::CacheOwner<CacheRef<Policy>>(gpu, options.watched_threads),
        tier_(gpu, options.line_bytes, options.lines, options.ways, options.statistics, Placement::device, "cache.",
              this->chain()) {
    this->set_ref(CacheRef<Policy>(tier_.sets(), this->ssds(), this->ssd_count(), tier_.counters()));
  }
  ~Cache() {
    if (!this->drained()) tier_.leave_memory();
  }
  // Exact when no kernel is at work, as audit() is.
  CacheStatistics statistics() const { return tier_.statistics(); }
  CacheAudit audit() const { return tier_.audit(); }
  // Where its lines lie.
  Placement placement() const { return tier_.placement(); }

 private:
  detail::CacheTier<Policy> tier_;
};

template <class Policy, class HostPolicy>
using TwoTierCacheRef = CacheRef<Policy, SsdRef, SecondTier<CacheRef<HostPolicy>>>;

// A cache in device memory above one in host memory.
template <class Policy, class HostPolicy = Policy>
class TwoTierCache : public detail::CacheOwner<TwoTierCacheRef<Policy, HostPolicy>> {
 public:
  using Ref = TwoTierCacheRef<Policy, HostPolicy>;

  // Throws ConfigError.
  explicit TwoTierCache(Gpu& gpu, const CacheOptions& options)
      : detail::CacheOwner<Ref>(gpu, options.watched_threads),
        tier_(gpu, options.line_bytes, options.lines, options.ways, options.statistics, Placement::device, "cache.",
              this->chain()),
        host_tier_(gpu, options.line_bytes, options.host_lines, options.host_ways, options.statistics, Placement::host,
                   "cache.host_") {
    const CacheRef<HostPolicy> lower(host_tier_.sets(), this->ssds(), this->ssd_count(), host_tier_.counters());
    this->set_ref(
        Ref(tier_.sets(), this->ssds(), this->ssd_count(), tier_.counters(), SecondTier<CacheRef<HostPolicy>>(lower)));
  }
  ~TwoTierCache() {
    if (this->drained()) return;
    tier_.leave_memory();
    host_tier_.leave_memory();
  }
  CacheStatistics statistics() const { return tier_.statistics(); }
  CacheStatistics host_statistics() const { return host_tier_.statistics(); }
  CacheAudit audit() const {
    CacheAudit both = tier_.audit();
    both += host_tier_.audit();
    return both;
  }
  Placement placement() const { return tier_.placement(); }

 private:
  detail::CacheTier<Policy> tier_;
  detail::CacheTier<HostPolicy> host_tier_;
};

}  // namespace flashmob::gpu
